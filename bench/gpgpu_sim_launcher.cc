// Loads PTX into GPGPU-Sim and launches one kernel, all of whose parameters are pointers; see gpgpu_sim.py.
//
//   launcher JOB        JOB has one line for each fact:
//   ptx FILE SM KERNEL
//   grid X Y Z, block X Y Z, shared BYTES (dynamic)
//   info REGISTERS SHARED_BYTES LOCAL_BYTES     from ptxas: the simulator can only parse the output of the ptxas of its time
//   in FILE, out FILE (the initial bytes, later the results), zero BYTES
//
// The simulator does not implement cuModuleLoad and cuModuleGetFunction, so its own loader is called. The bytes around every
// buffer must not change.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "libcuda/gpgpu_context.h"

CUctx_st *GPGPUSim_Context(gpgpu_context *context);

namespace {

constexpr size_t GUARD = 4096;
constexpr unsigned char FILL = 0xa5;

struct Buffer {
  std::string file;  // output file; empty for inputs
  char *whole = nullptr;
  void *argument = nullptr;
  size_t bytes = 0;
};

std::vector<char> contents(const std::string &file) {
  std::ifstream stream(file, std::ios::binary);
  return std::vector<char>(std::istreambuf_iterator<char>(stream), {});
}

Buffer upload(const std::vector<char> &data, const std::string &file) {
  std::vector<char> start(data.size() + 2 * GUARD, static_cast<char>(FILL));
  std::memcpy(start.data() + GUARD, data.data(), data.size());
  Buffer made{file};
  made.bytes = data.size();
  cudaMalloc(reinterpret_cast<void **>(&made.whole), start.size());
  cudaMemcpy(made.whole, start.data(), start.size(), cudaMemcpyHostToDevice);
  made.argument = made.whole + GUARD;
  return made;
}

bool untouched(const std::vector<char> &found) {
  for (size_t i = 0; i < GUARD; ++i) {
    if (static_cast<unsigned char>(found[i]) != FILL) return false;
    if (static_cast<unsigned char>(found[found.size() - 1 - i]) != FILL) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  std::ifstream job(argv[1]);
  std::string line, ptx, kernel;
  unsigned sm = 75;
  dim3 grid(1, 1, 1), block(1, 1, 1);
  size_t shared = 0;
  int registers = 0, static_shared = 0, local = 0;
  std::vector<Buffer> buffers;
  while (std::getline(job, line)) {
    std::istringstream words(line);
    std::string what, file;
    words >> what;
    if (what == "ptx") {
      words >> ptx >> sm >> kernel;
    } else if (what == "grid") {
      words >> grid.x >> grid.y >> grid.z;
    } else if (what == "block") {
      words >> block.x >> block.y >> block.z;
    } else if (what == "shared") {
      words >> shared;
    } else if (what == "info") {
      words >> registers >> static_shared >> local;
    } else if (what == "in" || what == "out") {
      words >> file;
      buffers.push_back(upload(contents(file), what == "out" ? file : ""));
    } else if (what == "zero") {
      size_t bytes = 0;
      words >> bytes;
      buffers.push_back(upload(std::vector<char>(bytes, 0), ""));
    }
  }

  gpgpu_context *context = GPGPU_Context();
  CUctx_st *current = GPGPUSim_Context(context);
  symbol_table *symbols = context->gpgpu_ptx_sim_load_ptx_from_filename(ptx.c_str());
  current->add_binary(symbols, 1);
  gpgpu_t *device = current->get_device()->get_gpgpu();
  context->api->load_static_globals(symbols, STATIC_ALLOC_LIMIT, 0xFFFFFFFF, device);
  context->api->load_constants(symbols, STATIC_ALLOC_LIMIT, device);
  static char handle[8];
  current->register_function(1, handle, kernel.c_str());
  function_info *function = current->get_kernel(handle);
  if (!function) {
    std::fprintf(stderr, "ERROR no kernel %s\n", kernel.c_str());
    return 3;
  }
  gpgpu_ptx_sim_info info;
  std::memset(static_cast<void *>(&info), 0, sizeof info);
  info.regs = registers;
  info.smem = static_shared + static_cast<int>(shared);  // occupancy in the simulator: ptxas's number excludes this
  info.lmem = local;
  info.ptx_version = 70;
  info.sm_target = sm;
  function->set_kernel_info(info);

  std::vector<void *> parameters;
  for (Buffer &buffer : buffers) parameters.push_back(&buffer.argument);
  CUfunction launched = reinterpret_cast<CUfunction>(handle);
  const CUresult result = cuLaunchKernel(launched, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, nullptr,
                                         parameters.data(), nullptr);
  cudaDeviceSynchronize();
  for (size_t number = 0; number < buffers.size(); ++number) {
    Buffer &buffer = buffers[number];
    std::vector<char> found(buffer.bytes + 2 * GUARD);
    cudaMemcpy(found.data(), buffer.whole, found.size(), cudaMemcpyDeviceToHost);
    if (!untouched(found)) {
      std::fprintf(stderr, "ERROR argument %zu is written outside of its bounds\n", number);
      return 4;
    }
    if (!buffer.file.empty()) std::ofstream(buffer.file, std::ios::binary).write(found.data() + GUARD, buffer.bytes);
  }
  std::printf("LAUNCHER result %d\n", static_cast<int>(result));
  std::fflush(stdout);
  return result == CUDA_SUCCESS ? 0 : 1;
}
