// A libcuda.so.1 without a GPU: the public entry points that gpucomp calls, by the declarations of cuda.h. Memory is the
// host's. Streams are queues: what is launched or copied happens when something waits for it, so that who does not wait
// reads what was there before. Kernels do not compute; a callback may do so in their place. What a driver refuses is
// refused with its error.

#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

typedef int Status;
enum : Status {
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500,
  LAUNCH_OUT_OF_RESOURCES = 701, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
  CAPTURE_ISOLATION = 905, INVALID_CLUSTER_SIZE = 912,
};
constexpr size_t ALIGNMENT = 256, RESERVED_SHARED = 1024;
constexpr unsigned MAX_THREADS = 1024, REGISTERS = 65536;
constexpr int DEVICES = 2;

struct Function {
  std::string name;
  std::vector<size_t> parameters;  // bytes of each
  unsigned static_shared = 0, registers = 0, max_threads = MAX_THREADS, cluster = 1;
  unsigned dynamic_limit = 0;
};
struct Module { std::vector<std::unique_ptr<Function>> functions; };
struct Context { int device; int retained; };
struct Operation { std::string what; std::function<Status()> run; };
enum class Capture { none, active, invalid };
struct Stream {
  Context* context;
  int test;  // which made it: what an earlier one left is waited for in silence
  Capture capture = Capture::none;
  bool draining = false;
  std::deque<Operation> waiting;
  std::vector<Operation> captured;
};
struct Event { Stream* stream = nullptr; bool recorded = false; };
struct Graph { std::vector<Operation> operations; };
struct Attribute { int id; char padding[4]; union { char bytes[64]; int programmatic; } value; };
struct Config {
  unsigned grid[3], block[3], shared;
  Stream* stream;
  Attribute* attributes;
  unsigned count;
};
static_assert(sizeof(Attribute) == 72 && sizeof(Config) == 56, "as CUlaunchAttribute and CUlaunchConfig of cuda.h");

typedef Status (*Kernel)(const char* name, const unsigned* grid, const unsigned* block, unsigned shared, int count,
                         const void* const* parameters, const size_t* sizes);

bool present, initialized;  // a device, for as long as a test has one
Context primary[DEVICES] = {{0, 0}, {1, 0}};
thread_local std::vector<Context*> current;
thread_local std::vector<Stream*> capturing;  // by this thread
std::map<uintptr_t, size_t> device_memory, pinned_memory;
std::vector<Stream*> streams;
std::map<void*, std::unique_ptr<Module>> modules;
std::map<Graph*, bool> graphs;  // whether it can be launched
std::string log_text;
int tests;
Kernel kernel;
Status lost;  // an error after which every call fails
struct { std::string function; int after; Status status; } planned;
struct { int major = 9, minor = 0, shared = 232448, version = 13000; } device;
size_t memory_left = (size_t)8 << 30;

void note(const std::string& text) { log_text += text + "\n"; }

bool is_sticky(Status s) { return (s >= 700 && s <= 721 && s != 701) || s == 214 || s == 220 || s == 226; }

// The error that a test asked for, that of a lost context, or none.
Status entered(const char* function, bool needs_context = true) {
  if (!initialized) return NOT_INITIALIZED;
  if (lost) return lost;
  if (planned.status && planned.function == function && planned.after-- == 0) {
    const Status status = planned.status;
    planned.status = OK;
    if (is_sticky(status)) lost = status;
    return status;
  }
  if (needs_context && (current.empty() || !current.back()->retained)) return INVALID_CONTEXT;
  return OK;
}
#define ENTER(...) \
  if (const Status status = entered(__VA_ARGS__)) return status

// A call that may wait for the device: a thread that captures may not make it, and its capture is lost.
Status refused_while_capturing() {
  if (capturing.empty()) return OK;
  for (Stream* stream : capturing) stream->capture = Capture::invalid;
  return CAPTURE_UNSUPPORTED;
}

// A call that waits for a stream that is captured, in whatever mode.
Status refused(Stream* stream) {
  stream->capture = Capture::invalid;
  return CAPTURE_UNSUPPORTED;
}

bool inside(const std::map<uintptr_t, size_t>& memory, uint64_t address, size_t bytes) {
  auto next = memory.upper_bound((uintptr_t)address);
  if (next == memory.begin()) return false;
  --next;
  return address + bytes <= next->first + next->second;
}

bool known(Stream* stream) {
  for (Stream* s : streams)
    if (s == stream) return true;
  return false;
}

// What a stream has waiting happens. A kernel of a test may be where Python's collector frees the memory of others, which
// waits for all streams: not for the one that the kernel is on.
Status drain(Stream* stream) {
  if (lost) return lost;
  if (stream->draining) return OK;
  stream->draining = true;
  while (!lost && !stream->waiting.empty()) {
    Operation next = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    if (stream->test == tests) note(next.what);
    if (const Status status = next.run()) lost = status;
  }
  stream->draining = false;
  return lost;
}

Status enqueue(Stream* stream, Operation operation) {
  if (!known(stream)) return INVALID_HANDLE;
  if (stream->context != current.back()) return INVALID_CONTEXT;
  if (stream->capture == Capture::invalid) return CAPTURE_INVALIDATED;
  if (stream->capture == Capture::active) {
    stream->captured.push_back(std::move(operation));
    return OK;
  }
  stream->waiting.push_back(std::move(operation));
  return OK;
}

std::string number(uint64_t n) { return std::to_string(n); }

}  // namespace

// ---- for tests ----

API void fake_reset(int major, int minor, int shared) {
  present = true;
  ++tests;
  device.major = major, device.minor = minor, device.shared = shared;
  lost = planned.status = OK;
  kernel = nullptr;
  log_text.clear();
  memory_left = (size_t)8 << 30;
  for (Stream* stream : streams) stream->waiting.clear(), stream->captured.clear(), stream->capture = Capture::none;
  capturing.clear();
  current.clear();
}
API void fake_absent() { present = false; }
API const char* fake_log() { return log_text.c_str(); }
API void fake_clear_log() { log_text.clear(); }
API void fake_on_launch(Kernel callback) { kernel = callback; }
// The call after ``after`` more of ``function`` fails.
API void fake_fail(const char* function, int after, Status status) { planned = {function, after, status}; }
API void fake_memory(size_t bytes) { memory_left = bytes; }
API size_t fake_allocated() {
  size_t total = 0;
  for (auto& [_, bytes] : device_memory) total += bytes;
  return total;
}
API size_t fake_modules() { return modules.size(); }
API size_t fake_graphs() { return graphs.size(); }
API size_t fake_streams() { return streams.size(); }
API int fake_contexts() { return primary[0].retained + primary[1].retained; }
API size_t fake_extent(uint64_t address) {  // bytes from an address to its allocation's end
  auto next = device_memory.upper_bound((uintptr_t)address);
  if (next == device_memory.begin()) return 0;
  --next;
  return address < next->first + next->second ? next->first + next->second - address : 0;
}

// ---- devices, contexts ----

API Status cuInit(unsigned) {
  if (!present) return NO_DEVICE;
  initialized = true;
  return OK;
}
API Status cuDriverGetVersion(int* version) { *version = device.version; return OK; }
API Status cuDeviceGetCount(int* count) { ENTER("cuDeviceGetCount", false); *count = DEVICES; return OK; }
API Status cuDeviceGet(int* result, int ordinal) {
  ENTER("cuDeviceGet", false);
  if (ordinal < 0 || ordinal >= DEVICES) return INVALID_DEVICE;
  *result = ordinal;
  return OK;
}
API Status cuDeviceGetName(char* name, int bytes, int) {
  ENTER("cuDeviceGetName", false);
  snprintf(name, bytes, "NVIDIA A100-SXM4-40GB");
  return OK;
}
API Status cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER("cuDeviceGetAttribute", false);
  switch (attribute) {
    case 75: *value = device.major; return OK;
    case 76: *value = device.minor; return OK;
    case 97: *value = device.shared; return OK;
    default: return INVALID_VALUE;
  }
}
API Status cuDevicePrimaryCtxRetain(Context** context, int number) {
  ENTER("cuDevicePrimaryCtxRetain", false);
  if (number < 0 || number >= DEVICES) return INVALID_DEVICE;
  ++primary[number].retained;
  *context = &primary[number];
  return OK;
}
API Status cuDevicePrimaryCtxRelease_v2(int number) {
  if (number < 0 || number >= DEVICES) return INVALID_DEVICE;
  if (!primary[number].retained) return INVALID_CONTEXT;
  --primary[number].retained;
  return OK;
}
API Status cuCtxPushCurrent_v2(Context* context) {
  ENTER("cuCtxPushCurrent", false);
  if (!context || !context->retained) return INVALID_CONTEXT;
  current.push_back(context);
  return OK;
}
API Status cuCtxPopCurrent_v2(Context** context) {
  if (current.empty()) return INVALID_CONTEXT;
  *context = current.back();
  current.pop_back();
  return OK;
}
API Status cuCtxSetCurrent(Context* context) {
  if (!current.empty()) current.pop_back();
  if (context) current.push_back(context);
  return OK;
}
API Status cuCtxGetCurrent(Context** context) { *context = current.empty() ? nullptr : current.back(); return OK; }
API Status cuCtxSynchronize() {
  ENTER("cuCtxSynchronize");
  for (Stream* stream : streams)
    if (stream->context == current.back() && stream->capture != Capture::none) return refused(stream);
  note("synchronize device");
  for (Stream* stream : streams)
    if (stream->context == current.back())
      if (const Status status = drain(stream)) return status;
  return OK;
}

// ---- memory ----

API Status cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  ENTER("cuMemAlloc");
  if (const Status status = refused_while_capturing()) return status;
  if (!bytes) return INVALID_VALUE;
  if (bytes > memory_left) return OUT_OF_MEMORY;
  void* memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  memset(memory, 255, bytes);
  device_memory[(uintptr_t)memory] = bytes;
  memory_left -= bytes;
  *address = (uintptr_t)memory;
  return OK;
}
API Status cuMemFree_v2(uint64_t address) {
  ENTER("cuMemFree");
  if (const Status status = refused_while_capturing()) return status;
  auto found = device_memory.find((uintptr_t)address);
  if (found == device_memory.end()) return INVALID_VALUE;
  for (Stream* stream : streams)
    if (const Status status = drain(stream)) return status;
  memory_left += found->second;
  free((void*)found->first);
  device_memory.erase(found);
  return OK;
}
API Status cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER("cuMemHostAlloc");
  if (const Status status = refused_while_capturing()) return status;
  *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  pinned_memory[(uintptr_t)*memory] = bytes;
  return OK;
}
API Status cuMemFreeHost(void* memory) {
  if (!pinned_memory.erase((uintptr_t)memory)) return INVALID_VALUE;
  free(memory);
  return OK;
}
// From pageable memory this driver has read when it returns, which cuda.h does not promise; from pinned memory the
// device reads in its time.
API Status cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, Stream* stream) {
  ENTER("cuMemcpyHtoDAsync");
  if (!inside(device_memory, to, bytes)) return INVALID_VALUE;
  if (inside(pinned_memory, (uintptr_t)from, bytes))
    return enqueue(stream, {"upload " + number(bytes), [=] { memcpy((void*)to, from, bytes); return OK; }});
  if (known(stream) && stream->capture == Capture::active) return refused(stream);
  std::string copy((const char*)from, bytes);
  return enqueue(stream, {"upload " + number(bytes) + " pageable", [=] { memcpy((void*)to, copy.data(), bytes); return OK; }});
}
// To pageable memory the driver waits for the stream and copies before it returns.
API Status cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, Stream* stream) {
  ENTER("cuMemcpyDtoHAsync");
  if (!inside(device_memory, from, bytes)) return INVALID_VALUE;
  const bool pinned = inside(pinned_memory, (uintptr_t)to, bytes);
  if (!pinned && known(stream) && stream->capture == Capture::active) return refused(stream);
  const Status status = enqueue(stream, {"download " + number(bytes) + (pinned ? "" : " pageable"),
                                         [=] { memcpy(to, (void*)from, bytes); return OK; }});
  return status || pinned ? status : drain(stream);
}
API Status cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream* stream) {
  ENTER("cuMemcpyDtoDAsync");
  if (!inside(device_memory, to, bytes) || !inside(device_memory, from, bytes)) return INVALID_VALUE;
  return enqueue(stream, {"copy " + number(bytes), [=] { memmove((void*)to, (void*)from, bytes); return OK; }});
}
API Status cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, Stream* stream) {
  ENTER("cuMemsetD8Async");
  if (!inside(device_memory, to, bytes)) return INVALID_VALUE;
  return enqueue(stream, {"set " + number(bytes), [=] { memset((void*)to, value, bytes); return OK; }});
}

// ---- streams, events ----

API Status cuStreamCreate(Stream** stream, unsigned) {
  ENTER("cuStreamCreate");
  streams.push_back(*stream = new Stream{current.back(), tests});
  return OK;
}
API Status cuStreamDestroy_v2(Stream* stream) {
  for (size_t i = 0; i < streams.size(); ++i)
    if (streams[i] == stream) {
      drain(stream);
      streams.erase(streams.begin() + i);
      delete stream;
      return OK;
    }
  return INVALID_HANDLE;
}
API Status cuStreamSynchronize(Stream* stream) {
  // what an earlier test forgot waits for its own work, whenever it is collected: a planned failure is not for it
  if (known(stream) && stream->test != tests && !lost) return drain(stream);
  ENTER("cuStreamSynchronize");
  if (!known(stream)) return INVALID_HANDLE;
  if (stream->capture != Capture::none) return refused(stream);
  const Status status = drain(stream);
  note("synchronize");
  return status;
}
API Status cuStreamBeginCapture_v2(Stream* stream, int mode) {
  ENTER("cuStreamBeginCapture");
  if (!known(stream)) return INVALID_HANDLE;
  if (mode < 0 || mode > 2 || stream->capture != Capture::none) return INVALID_VALUE;
  stream->capture = Capture::active;
  stream->captured.clear();
  if (mode != 2) capturing.push_back(stream);  // a relaxed capture forbids no calls
  return OK;
}
API Status cuStreamEndCapture(Stream* stream, Graph** graph) {
  *graph = nullptr;
  if (!known(stream)) return INVALID_HANDLE;
  if (stream->capture == Capture::none) return INVALID_VALUE;
  const bool good = stream->capture == Capture::active;
  stream->capture = Capture::none;
  for (size_t i = 0; i < capturing.size(); ++i)
    if (capturing[i] == stream) capturing.erase(capturing.begin() + i--);
  if (!good) return CAPTURE_INVALIDATED;
  ENTER("cuStreamEndCapture");
  graphs[*graph = new Graph{std::move(stream->captured)}] = false;
  stream->captured.clear();
  note("capture");
  return OK;
}
API Status cuEventCreate(Event** event, unsigned) { ENTER("cuEventCreate"); *event = new Event; return OK; }
API Status cuEventDestroy_v2(Event* event) { delete event; return OK; }
API Status cuEventRecord(Event* event, Stream* stream) {
  ENTER("cuEventRecord");
  event->stream = stream;
  return enqueue(stream, {"event", [=] { event->recorded = true; return OK; }});
}
API Status cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  ENTER("cuStreamWaitEvent");
  Stream* const other = event->stream;
  return enqueue(stream, {"wait", [=] { return other && other != stream ? drain(other) : OK; }});
}
API Status cuEventSynchronize(Event* event) {
  ENTER("cuEventSynchronize");
  return event->stream ? drain(event->stream) : OK;
}
API Status cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  ENTER("cuEventElapsedTime");
  if (!start->recorded || !end->recorded) return 600;  // CUDA_ERROR_NOT_READY
  *milliseconds = 2;
  return OK;
}
API Status cuEventElapsedTime_v2(float* milliseconds, Event* start, Event* end) {
  return cuEventElapsedTime(milliseconds, start, end);
}

// ---- modules ----

namespace {

enum { PARAMETER = 0x17, LAUNCH_BOUND = 0x05, REQUIRED_THREADS = 0x10, REGISTERS_OF = 0x2f, CLUSTER = 0x3d };  // EIATTR_

// Attributes of a kernel: a format and a number of one byte each, then two bytes of value, or of its length.
void read_info(const unsigned char* at, const unsigned char* end, Function& f) {
  while (at + 4 <= end) {
    const unsigned format = at[0], attribute = at[1], size = format == 4 ? at[2] | at[3] << 8 : 0;
    const unsigned char* value = at + 4;
    uint32_t words[3] = {1, 1, 1};
    memcpy(words, value, size < sizeof words ? size : sizeof words);
    if (format == 4 && attribute == PARAMETER && size == 12) {
      const size_t ordinal = words[1] & 0xffff, bytes = words[2] >> 18;
      if (f.parameters.size() <= ordinal) f.parameters.resize(ordinal + 1);
      f.parameters[ordinal] = bytes;
    } else if (format == 4 && (attribute == LAUNCH_BOUND || attribute == REQUIRED_THREADS)) {
      f.max_threads = words[0] * words[1] * words[2];
    } else if (format == 4 && attribute == CLUSTER) {
      f.cluster = words[0] * words[1] * words[2];
    }
    at = value + size;
  }
}

Status read_elf(const unsigned char* image, Module& module) {
  const Elf64_Ehdr& header = *(const Elf64_Ehdr*)image;
  if (header.e_machine != 190) return INVALID_IMAGE;  // EM_CUDA
  const bool newer = header.e_ident[EI_ABIVERSION] >= 8;
  const int sm = newer ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff;
  if (sm / 10 != device.major || sm % 10 > device.minor) return NO_BINARY_FOR_GPU;
  const Elf64_Shdr* sections = (const Elf64_Shdr*)(image + header.e_shoff);
  const char* names = (const char*)image + sections[header.e_shstrndx].sh_offset;
  std::map<std::string, Function*> by_name;
  std::map<unsigned, std::string> symbols;
  for (int i = 0; i < header.e_shnum; ++i) {
    const char* name = names + sections[i].sh_name;
    if (sections[i].sh_type == SHT_SYMTAB) {
      const Elf64_Sym* table = (const Elf64_Sym*)(image + sections[i].sh_offset);
      const char* texts = (const char*)image + sections[sections[i].sh_link].sh_offset;
      for (unsigned n = 0; n < sections[i].sh_size / sizeof *table; ++n) symbols[n] = texts + table[n].st_name;
    }
    if (strncmp(name, ".text.", 6)) continue;
    module.functions.push_back(std::make_unique<Function>());
    Function& f = *(by_name[name + 6] = module.functions.back().get());
    f.name = name + 6;
    f.registers = sections[i].sh_info >> 24;
  }
  for (int i = 0; i < header.e_shnum; ++i) {
    const std::string name = names + sections[i].sh_name;
    auto find = [&](const char* prefix) -> Function* {
      const size_t length = strlen(prefix);
      if (name.compare(0, length, prefix)) return nullptr;
      auto found = by_name.find(name.substr(length));
      return found == by_name.end() ? nullptr : found->second;
    };
    if (Function* f = find(".nv.shared.")) {  // from sm_90 on with what the system reserves in every block
      const size_t bytes = sections[i].sh_size, reserved = sm >= 90 && bytes >= RESERVED_SHARED ? RESERVED_SHARED : 0;
      f->static_shared = (unsigned)(bytes - reserved);
    }
    if (name == ".nv.info") {  // of the file: newer ones have the registers here
      for (uint32_t at = 0; at + 12 <= sections[i].sh_size; at += 4) {
        const unsigned char* entry = image + sections[i].sh_offset + at;
        uint32_t words[2];
        memcpy(words, entry + 4, sizeof words);
        if (entry[0] == 4 && entry[1] == REGISTERS_OF && entry[2] == 8 && by_name.count(symbols[words[0]]))
          by_name[symbols[words[0]]]->registers = words[1];
      }
    }
    if (Function* f = find(".nv.info.")) {
      const unsigned char* at = image + sections[i].sh_offset;
      read_info(at, at + sections[i].sh_size, *f);
    }
  }
  return OK;
}

// Kernels of a PTX text, their parameters and static shared variables.
Status read_ptx(const std::string& text, Module& module) {
  const size_t target = text.find(".target sm_");
  if (target == std::string::npos) return INVALID_PTX;
  const char* digits = text.c_str() + target + 11;
  char* suffix;
  const int sm = (int)strtol(digits, &suffix, 10), here = device.major * 10 + device.minor;
  if (sm > here || (*suffix == 'a' && sm != here)) return NO_BINARY_FOR_GPU;
  for (size_t at = text.find(".entry "); at != std::string::npos; at = text.find(".entry ", at + 1)) {
    const size_t open = text.find('(', at), close = text.find(')', open);
    if (close == std::string::npos) return INVALID_PTX;
    auto f = std::make_unique<Function>();
    f->name = text.substr(at + 7, open - at - 7);
    while (!f->name.empty() && strchr(" \t\r\n", f->name.back())) f->name.pop_back();
    for (size_t p = text.find(".param ", open); p < close; p = text.find(".param ", p + 1)) {
      const size_t end = std::min(text.find(',', p), close), bracket = text.find('[', p);
      if (bracket < end) f->parameters.push_back(strtoul(text.c_str() + bracket + 1, nullptr, 10));
      else f->parameters.push_back(text.compare(p + 7, 4, ".u64") && text.compare(p + 7, 4, ".b64") ? 4 : 8);
    }
    module.functions.push_back(std::move(f));
  }
  return module.functions.empty() ? INVALID_PTX : OK;
}

}  // namespace

API Status cuModuleLoadData(Module** result, const void* image) {
  ENTER("cuModuleLoadData");
  if (const Status status = refused_while_capturing()) return status;
  auto module = std::make_unique<Module>();
  const char* text = (const char*)image;
  const bool elf = !memcmp(text, ELFMAG, SELFMAG);
  if (!elf && text[0] != '.' && text[0] != '/') return INVALID_IMAGE;
  if (const Status status = elf ? read_elf((const unsigned char*)image, *module) : read_ptx(text, *module)) return status;
  for (auto& f : module->functions) f->dynamic_limit = (48 << 10) - std::min(f->static_shared, 48u << 10);
  note(elf ? "load cubin" : "load ptx");
  *result = module.get();
  modules[*result] = std::move(module);
  return OK;
}
API Status cuModuleUnload(Module* module) {
  ENTER("cuModuleUnload");
  return modules.erase(module) ? OK : INVALID_HANDLE;
}
API Status cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER("cuModuleGetFunction");
  if (!modules.count(module)) return INVALID_HANDLE;
  for (auto& f : module->functions)
    if (f->name == name) {
      *function = f.get();
      return OK;
    }
  return NOT_FOUND;
}
namespace {
bool known(Function* function) {
  for (auto& [_, module] : modules)
    for (auto& f : module->functions)
      if (f.get() == function) return true;
  return false;
}
}  // namespace
API Status cuFuncSetAttribute(Function* f, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (!known(f)) return INVALID_HANDLE;
  if (attribute != 8 || value < 0) return INVALID_VALUE;  // MAX_DYNAMIC_SHARED_SIZE_BYTES
  if (f->static_shared + (unsigned)value > (unsigned)device.shared) return INVALID_VALUE;
  f->dynamic_limit = (unsigned)value;
  return OK;
}
API Status cuFuncGetAttribute(int* value, int attribute, Function* f) {
  ENTER("cuFuncGetAttribute");
  if (!known(f)) return INVALID_HANDLE;
  switch (attribute) {
    case 0: *value = (int)std::min(f->max_threads, f->registers ? REGISTERS / f->registers : MAX_THREADS); return OK;
    case 1: *value = (int)f->static_shared; return OK;
    case 4: *value = (int)f->registers; return OK;
    case 8: *value = (int)f->dynamic_limit; return OK;
    default: return INVALID_VALUE;
  }
}

// ---- launches, graphs ----

API Status cuLaunchKernelEx(const Config* config, Function* f, void** arguments, void** extra) {
  ENTER("cuLaunchKernelEx");
  if (!known(f)) return INVALID_HANDLE;
  const unsigned *grid = config->grid, *block = config->block;
  const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) return INVALID_VALUE;
  if (!threads || threads > MAX_THREADS || block[2] > 64 || extra) return INVALID_VALUE;
  if (config->shared > f->dynamic_limit) return INVALID_VALUE;
  if (threads > f->max_threads) return INVALID_VALUE;
  if (f->registers && (threads + 31) / 32 * 32 * ((f->registers + 7) / 8 * 8) > REGISTERS) return LAUNCH_OUT_OF_RESOURCES;
  if ((uint64_t)grid[0] * grid[1] * grid[2] % f->cluster) return INVALID_CLUSTER_SIZE;
  bool overlapping = false;
  for (unsigned i = 0; i < config->count; ++i) {
    if (config->attributes[i].id != 6) return NOT_SUPPORTED;  // PROGRAMMATIC_STREAM_SERIALIZATION
    overlapping = config->attributes[i].value.programmatic;
  }
  std::vector<std::string> values;  // the driver has read the parameters when it returns
  for (size_t i = 0; i < f->parameters.size(); ++i) {
    if (!arguments || !arguments[i]) return INVALID_VALUE;
    values.emplace_back((const char*)arguments[i], f->parameters[i]);
  }
  std::string what = "launch " + f->name;
  for (const unsigned* extents : {grid, block}) {
    what += " " + number(extents[0]) + "x" + number(extents[1]) + "x" + number(extents[2]);
  }
  what += " " + number(config->shared) + (overlapping ? " overlapping" : "");
  const Config how = *config;
  const std::string name = f->name;
  const std::vector<size_t> sizes = f->parameters;
  return enqueue(config->stream, {what, [=]() -> Status {
    if (!kernel) return OK;
    std::vector<const void*> pointers;
    for (const std::string& value : values) pointers.push_back(value.data());
    return kernel(name.c_str(), how.grid, how.block, how.shared, (int)sizes.size(), pointers.data(), sizes.data());
  }});
}
API Status cuGraphInstantiateWithFlags(Graph** result, Graph* graph, unsigned long long) {
  ENTER("cuGraphInstantiate");
  if (!graphs.count(graph)) return INVALID_VALUE;
  graphs[*result = new Graph(*graph)] = true;
  return OK;
}
API Status cuGraphDestroy(Graph* graph) {
  auto found = graphs.find(graph);
  if (found == graphs.end() || found->second) return INVALID_VALUE;
  graphs.erase(found);
  delete graph;
  return OK;
}
API Status cuGraphExecDestroy(Graph* graph) {
  auto found = graphs.find(graph);
  if (found == graphs.end() || !found->second) return INVALID_VALUE;
  graphs.erase(found);
  delete graph;
  return OK;
}
API Status cuGraphLaunch(Graph* graph, Stream* stream) {
  ENTER("cuGraphLaunch");
  auto found = graphs.find(graph);
  if (found == graphs.end() || !found->second) return INVALID_VALUE;
  if (known(stream) && stream->capture != Capture::none) return CAPTURE_UNSUPPORTED;
  if (const Status status = enqueue(stream, {"replay", [] { return OK; }})) return status;
  for (const Operation& operation : graph->operations)
    if (const Status status = enqueue(stream, operation)) return status;
  return OK;
}

// ---- tensor maps: the rules that cuda.h states ----

namespace {

// What a map says, where the driver's 128 bytes are opaque: a test reads it back.
struct Map {
  uint64_t address;
  uint32_t im2col, type, rank, swizzle, promotion, channels, pixels, extents[5], strides[4], box[5], steps[5];
  int16_t lower[3], upper[3];
};
static_assert(sizeof(Map) == 128, "an opaque CUtensorMap of 128 bytes");

constexpr unsigned ELEMENT_BYTES[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

Status describe(Map& map, void* result, unsigned type, unsigned rank, void* address, const uint64_t* extents,
                const uint64_t* strides, const uint32_t* steps, unsigned interleave, unsigned swizzle, unsigned promotion,
                unsigned inner) {
  if ((uintptr_t)result % 64 || (uintptr_t)address % 16) return INVALID_VALUE;
  if (type > 12 || rank < 1 || rank > 5 || interleave != 0 || swizzle > 3 || promotion > 3) return INVALID_VALUE;
  const unsigned size = ELEMENT_BYTES[type];
  if (!inner || inner > 256 || inner * size % 16 || (swizzle && inner * size > 16u << swizzle)) return INVALID_VALUE;
  uint64_t reach = size;
  for (unsigned i = 0; i < rank; ++i) {
    if (!extents[i] || extents[i] > (uint64_t)1 << 32 || (i && (steps[i] < 1 || steps[i] > 8))) return INVALID_VALUE;
    if (i && (strides[i - 1] % 16 || strides[i - 1] >= (uint64_t)1 << 40)) return INVALID_VALUE;
    reach += (extents[i] - 1) * (i ? strides[i - 1] : size);
    map.extents[i] = (uint32_t)extents[i], map.steps[i] = steps[i];
    if (i) map.strides[i - 1] = (uint32_t)strides[i - 1];
  }
  if (rank > 1 && strides[0] < extents[0] * size) return INVALID_VALUE;
  if (!inside(device_memory, (uintptr_t)address, reach)) return INVALID_VALUE;
  if (device.version <= 13010 && reach < 131072) map.im2col |= 1u << 21;  // as drivers do by mistake, until CUDA 13.1
  map.address = (uintptr_t)address, map.type = type, map.rank = rank, map.swizzle = swizzle, map.promotion = promotion;
  return OK;
}

}  // namespace

API Status cuTensorMapEncodeTiled(void* result, unsigned type, unsigned rank, void* address, const uint64_t* extents,
                                  const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                                  unsigned interleave, unsigned swizzle, unsigned promotion, unsigned fill) {
  ENTER("cuTensorMapEncodeTiled");
  if (device.major < 9) return NOT_SUPPORTED;
  Map map = {};
  if (fill > 1) return INVALID_VALUE;
  for (unsigned i = 0; i < rank && i < 5; ++i) {
    if (!box[i] || box[i] > 256) return INVALID_VALUE;
    map.box[i] = box[i];
  }
  if (const Status status = describe(map, result, type, rank, address, extents, strides, steps, interleave, swizzle,
                                     promotion, box[0])) return status;
  memcpy(result, &map, sizeof map);
  return OK;
}
API Status cuTensorMapEncodeIm2col(void* result, unsigned type, unsigned rank, void* address, const uint64_t* extents,
                                   const uint64_t* strides, const int* lower, const int* upper, unsigned channels,
                                   unsigned pixels, const uint32_t* steps, unsigned interleave, unsigned swizzle,
                                   unsigned promotion, unsigned fill) {
  ENTER("cuTensorMapEncodeIm2col");
  if (device.major < 9) return NOT_SUPPORTED;
  Map map = {};
  if (rank < 3 || rank > 5 || fill > 1 || !pixels || pixels > 1024) return INVALID_VALUE;
  const int limit = rank == 3 ? 32768 : rank == 4 ? 128 : 16;
  for (unsigned i = 0; i < rank - 2; ++i) {
    if (lower[i] < -limit || lower[i] >= limit || upper[i] < -limit || upper[i] >= limit) return INVALID_VALUE;
    map.lower[i] = (int16_t)lower[i], map.upper[i] = (int16_t)upper[i];
  }
  map.im2col = 1, map.channels = channels, map.pixels = pixels;
  if (const Status status = describe(map, result, type, rank, address, extents, strides, steps, interleave, swizzle,
                                     promotion, channels)) return status;
  memcpy(result, &map, sizeof map);
  return OK;
}

// ---- errors, entry points ----

namespace {
const std::map<Status, std::pair<const char*, const char*>> ERRORS = {
    {OK, {"CUDA_SUCCESS", "no error"}},
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {3, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {214, {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"}},
    {218, {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"}},
    {400, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {701, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {716, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {801, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {900, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {901, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"}},
    {912, {"CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"}},
};
}  // namespace
API Status cuGetErrorName(Status error, const char** text) {
  auto found = ERRORS.find(error);
  *text = found == ERRORS.end() ? nullptr : found->second.first;
  return *text ? OK : INVALID_VALUE;
}
API Status cuGetErrorString(Status error, const char** text) {
  auto found = ERRORS.find(error);
  *text = found == ERRORS.end() ? nullptr : found->second.second;
  return *text ? OK : INVALID_VALUE;
}
API Status cuGetProcAddress_v2(const char* symbol, void** address, int, uint64_t, int* found) {
  static void* self = [] {
    Dl_info info;
    dladdr((void*)&cuInit, &info);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  *address = dlsym(self, (std::string(symbol) + "_v2").c_str());
  if (!*address) *address = dlsym(self, symbol);
  if (found) *found = *address ? 0 : 1;
  return *address ? OK : NOT_FOUND;
}
