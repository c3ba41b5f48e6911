// A libamdhip64.so without a GPU: the functions that gpucomp calls, by the declarations of hip_runtime_api.h. Memory is the
// host's. Streams are queues: what is launched or copied happens when something waits for it, so that who does not wait reads
// what was there before. A kernel is a callback of the test.

#include <stdint.h>
#include <string.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

typedef int Status;
enum : Status {
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
  NO_BINARY_FOR_GPU = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
};
constexpr size_t ALIGNMENT = 256, ARCH_AT = 1160, LDS = 64 << 10;
constexpr unsigned MOST_THREADS = 1024, EM_AMDGPU = 224;

struct Module;
struct Function { std::string name; int count; const Module* module; };
struct Module { std::string image; std::vector<std::unique_ptr<Function>> functions; };
struct Operation { std::string what; std::function<Status()> run; };
enum class Capture { none, active, invalid };
struct Stream {
  int device;
  Capture capture = Capture::none;
  bool draining = false;
  std::deque<Operation> waiting;
  std::vector<Operation> captured;
};
struct Event { Stream* stream = nullptr; };
struct Graph { std::vector<Operation> operations; };
typedef Status (*Kernel)(const char* name, const unsigned* grid, const unsigned* block, unsigned shared, int count,
                         const uint64_t* values);

std::recursive_mutex one_at_a_time;
std::map<uintptr_t, size_t> device_memory, pinned_memory;
std::map<Stream*, std::unique_ptr<Stream>> streams;
std::map<Module*, std::unique_ptr<Module>> modules;
std::map<Event*, std::unique_ptr<Event>> events;
std::map<Graph*, bool> graphs;  // whether it can be launched
Stream default_streams[2] = {{0}, {1}};
thread_local int current;
std::string log_text, arch = "gfx90a:sramecc+:xnack-", name = "AMD Instinct MI210";
int devices = 2;
size_t memory_left = (size_t)8 << 30;
Kernel kernel;
const Module* launched;  // the module of the kernel that runs
float milliseconds = 0.5f;  // between two events
Status lost;
struct { std::string function; int after; Status status; } planned;

const std::map<std::string, unsigned> MACHINES = {
    {"gfx906", 0x2f}, {"gfx908", 0x30}, {"gfx1030", 0x36}, {"gfx90a", 0x3f}, {"gfx1100", 0x41}, {"gfx942", 0x4c}, {"gfx1201", 0x4e}};

bool is_sticky(Status s) { return s >= 700 && s <= 721 && s != 701; }

Status entered(const char* function) {
  if (lost) return lost;
  if (planned.status && planned.function == function && planned.after-- == 0) {
    const Status status = planned.status;
    planned.status = OK;
    if (is_sticky(status)) lost = status;
    return status;
  }
  return devices ? OK : NO_DEVICE;
}
#define ENTER()                                                        \
  const std::lock_guard<std::recursive_mutex> locked(one_at_a_time);   \
  if (const Status status = entered(__func__)) return status

void note(const std::string& text) { log_text += text + "\n"; }
std::string shape(const unsigned* e) { return std::to_string(e[0]) + "x" + std::to_string(e[1]) + "x" + std::to_string(e[2]); }

bool inside(const std::map<uintptr_t, size_t>& memory, const void* address, size_t bytes) {
  auto next = memory.upper_bound((uintptr_t)address);
  if (next == memory.begin()) return false;
  --next;
  return (uintptr_t)address + bytes <= next->first + next->second;
}

Stream* at(Stream* stream) { return stream ? stream : &default_streams[current]; }
bool known(Stream* stream) { return stream == &default_streams[0] || stream == &default_streams[1] || streams.count(stream); }

Status drain(Stream* stream) {
  if (lost) return lost;
  if (stream->draining) return OK;
  stream->draining = true;
  while (!lost && !stream->waiting.empty()) {
    Operation next = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    note(next.what);
    if (const Status status = next.run()) lost = status;
  }
  stream->draining = false;
  return lost;
}

Status enqueue(Stream* stream, Operation operation) {
  if (!known(stream)) return INVALID_HANDLE;
  if (stream->capture == Capture::invalid) return CAPTURE_INVALIDATED;
  if (stream->capture == Capture::active) stream->captured.push_back(std::move(operation));
  else stream->waiting.push_back(std::move(operation));
  return OK;
}

Status refused(Stream* stream) {
  if (stream->capture == Capture::none) return OK;
  stream->capture = Capture::invalid;
  return CAPTURE_UNSUPPORTED;
}

Status drain_all() {
  for (auto& [stream, _] : streams)
    if (const Status status = drain(stream)) return status;
  for (Stream& stream : default_streams)
    if (const Status status = drain(&stream)) return status;
  return OK;
}

Status allocate(std::map<uintptr_t, size_t>& memory, void** result, size_t bytes) {
  if (bytes > memory_left) return OUT_OF_MEMORY;
  *result = ::operator new(bytes ? bytes : 1, std::align_val_t(ALIGNMENT));
  memset(*result, 0xcd, bytes);  // not zeros
  memory[(uintptr_t)*result] = bytes;
  memory_left -= bytes;
  return OK;
}

Status release(std::map<uintptr_t, size_t>& memory, void* address) {
  auto found = memory.find((uintptr_t)address);
  if (found == memory.end()) return INVALID_VALUE;
  memory_left += found->second;
  memory.erase(found);
  ::operator delete(address, std::align_val_t(ALIGNMENT));
  return OK;
}

int occurrences(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t p = text.find(word); p != std::string::npos; p = text.find(word, p + 1)) ++count;
  return count;
}

}  // namespace

// ---- for tests ----

API void fake_reset(const char* set, int count) {
  drain_all();
  arch = set, devices = count, kernel = nullptr, lost = planned.status = OK;
  log_text.clear();
  memory_left = (size_t)8 << 30, milliseconds = 0.5f;
  for (auto& [stream, _] : streams) stream->waiting.clear(), stream->captured.clear(), stream->capture = Capture::none;
}
API const char* fake_log() { return log_text.c_str(); }
API void fake_clear_log() { log_text.clear(); }
API void fake_on_launch(Kernel callback) { kernel = callback; }
// The call after ``after`` more of ``function`` fails.
API void fake_fail(const char* function, int after, Status status) { planned = {function, after, status}; }
API void fake_memory(size_t bytes) { memory_left = bytes; }
// What lies between two events from now on.
API void fake_time(float between) { milliseconds = between; }
// The code object of the kernel that runs, for its callback.
API const char* fake_code(size_t* bytes) { return *bytes = launched->image.size(), launched->image.data(); }
API size_t fake_modules() { return modules.size(); }
API size_t fake_graphs() { return graphs.size(); }
API size_t fake_streams() { return streams.size(); }
API size_t fake_events() { return events.size(); }
API size_t fake_allocated() {
  size_t total = 0;
  for (auto& [_, bytes] : device_memory) total += bytes;
  return total;
}
API size_t fake_extent(uint64_t address) {  // bytes from an address to its allocation's end
  auto next = device_memory.upper_bound((uintptr_t)address);
  if (next == device_memory.begin()) return 0;
  --next;
  return address < next->first + next->second ? next->first + next->second - address : 0;
}

// ---- devices ----

API Status hipInit(unsigned) { ENTER(); return OK; }
API Status hipGetDeviceCount(int* count) { ENTER(); *count = devices; return OK; }
API Status hipRuntimeGetVersion(int* version) { *version = 60342134; return OK; }
API Status hipGetDevicePropertiesR0600(char* properties, int) {
  ENTER();
  memcpy(properties, name.c_str(), name.size() + 1);
  memcpy(properties + ARCH_AT, arch.c_str(), arch.size() + 1);
  return OK;
}
// MultiprocessorCount, L2CacheSize and ClockRate in kHz, as an MI210 has them.
API Status hipDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER();
  if (device < 0 || device >= devices) return INVALID_DEVICE;
  const std::map<int, int> known = {{63, 104}, {19, 8 << 20}, {5, 1700000}};
  if (!known.count(attribute)) return INVALID_VALUE;
  *value = known.at(attribute);
  return OK;
}
API Status hipDeviceGetPCIBusId(char* text, int length, int device) {
  ENTER();
  if (device < 0 || device >= devices || length < 13) return INVALID_VALUE;
  strcpy(text, "0000:C1:00.0");
  return OK;
}
API Status hipMemGetInfo(size_t* free, size_t* total) {
  ENTER();
  *free = memory_left, *total = (size_t)64 << 30;
  return OK;
}
API Status hipGetDevice(int* device) { *device = current; return OK; }
API Status hipSetDevice(int device) {
  ENTER();
  if (device < 0 || device >= devices) return INVALID_DEVICE;
  current = device;
  return OK;
}
API Status hipDeviceSynchronize() {
  ENTER();
  for (auto& [stream, _] : streams)
    if (const Status status = refused(stream)) return status;
  return drain_all();
}
API const char* hipGetErrorString(Status status) {
  switch (status) {
    case OUT_OF_MEMORY: return "out of memory";
    case NO_BINARY_FOR_GPU: return "no kernel image is available for execution on the device";
    case NOT_FOUND: return "named symbol not found";
    case 700: return "an illegal memory access was encountered";
    case 719: return "unspecified launch failure";
    case CAPTURE_INVALIDATED: return "operation failed due to a previous error during capture";
    default: return "another error";
  }
}

// ---- memory ----

API Status hipMalloc(void** result, size_t bytes) { ENTER(); return allocate(device_memory, result, bytes); }
API Status hipFree(void* address) {
  ENTER();
  if (const Status status = drain_all()) return status;
  return release(device_memory, address);
}
API Status hipHostMalloc(void** result, size_t bytes, unsigned) { ENTER(); return allocate(pinned_memory, result, bytes); }
API Status hipHostFree(void* address) { ENTER(); return release(pinned_memory, address); }

namespace {
Status copy(Stream* stream, const char* what, void* target, const void* source, size_t bytes) {
  return enqueue(at(stream), {std::string(what) + " " + std::to_string(bytes), [=] { memcpy(target, source, bytes); return OK; }});
}
}  // namespace
API Status hipMemcpyHtoDAsync(void* target, const void* source, size_t bytes, Stream* stream) {
  ENTER();
  if (!inside(device_memory, target, bytes)) return INVALID_VALUE;
  return copy(stream, "upload", target, source, bytes);
}
API Status hipMemcpyDtoHAsync(void* target, const void* source, size_t bytes, Stream* stream) {
  ENTER();
  if (!inside(device_memory, source, bytes)) return INVALID_VALUE;
  return copy(stream, "download", target, source, bytes);
}
API Status hipMemcpyDtoDAsync(void* target, const void* source, size_t bytes, Stream* stream) {
  ENTER();
  if (!inside(device_memory, source, bytes) || !inside(device_memory, target, bytes)) return INVALID_VALUE;
  return copy(stream, "copy", target, source, bytes);
}
API Status hipMemsetD8Async(void* target, unsigned char value, size_t bytes, Stream* stream) {
  ENTER();
  if (!inside(device_memory, target, bytes)) return INVALID_VALUE;
  return enqueue(at(stream), {"fill", [=] { memset(target, value, bytes); return OK; }});
}

// ---- streams, events ----

API Status hipStreamCreateWithFlags(Stream** result, unsigned flags) {
  ENTER();
  if (flags > 1) return INVALID_VALUE;
  auto made = std::make_unique<Stream>(Stream{current});
  *result = made.get();
  streams[*result] = std::move(made);
  return OK;
}
API Status hipStreamDestroy(Stream* stream) {
  ENTER();
  if (!streams.count(stream)) return INVALID_HANDLE;
  drain(stream);
  streams.erase(stream);
  return OK;
}
API Status hipStreamSynchronize(Stream* stream) {
  ENTER();
  if (!known(at(stream))) return INVALID_HANDLE;
  if (const Status status = refused(at(stream))) return status;
  const Status status = drain(at(stream));
  note("synchronize");
  return status;
}
API Status hipEventCreateWithFlags(Event** result, unsigned) {
  ENTER();
  auto made = std::make_unique<Event>();
  *result = made.get();
  events[*result] = std::move(made);
  return OK;
}
API Status hipEventDestroy(Event* event) { ENTER(); return events.erase(event) ? OK : INVALID_HANDLE; }
API Status hipEventRecord(Event* event, Stream* stream) {
  ENTER();
  if (!events.count(event) || !known(at(stream))) return INVALID_HANDLE;
  event->stream = at(stream);
  return OK;
}
API Status hipEventSynchronize(Event* event) {
  ENTER();
  if (!events.count(event)) return INVALID_HANDLE;
  return event->stream ? drain(event->stream) : OK;
}
API Status hipStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  ENTER();
  if (!events.count(event) || !known(at(stream))) return INVALID_HANDLE;
  Stream* other = event->stream;
  if (!other || other == at(stream)) return OK;
  return enqueue(at(stream), {"wait", [=] { return known(other) ? drain(other) : OK; }});
}
API Status hipEventElapsedTime(float* result, Event* start, Event* end) {
  ENTER();
  if (!events.count(start) || !events.count(end) || !start->stream || !end->stream) return INVALID_HANDLE;
  if (!end->stream->waiting.empty()) return 600;  // hipErrorNotReady
  *result = milliseconds;
  return OK;
}

// ---- modules, launches ----

// A code object: the bytes of an ELF file for AMD's GPUs, up to the end of its table of sections.
API Status hipModuleLoadData(Module** result, const unsigned char* image) {
  ENTER();
  uint16_t machine, width, number;
  uint32_t flags;
  uint64_t table;
  if (memcmp(image, "\x7f" "ELF", 4)) return INVALID_IMAGE;
  memcpy(&machine, image + 18, 2), memcpy(&flags, image + 48, 4), memcpy(&table, image + 40, 8);
  memcpy(&width, image + 58, 2), memcpy(&number, image + 60, 2);
  auto known_arch = MACHINES.find(arch.substr(0, arch.find(':')));
  if (machine != EM_AMDGPU) return INVALID_IMAGE;
  if (known_arch == MACHINES.end() || (flags & 0xff) != known_arch->second) return NO_BINARY_FOR_GPU;
  auto made = std::make_unique<Module>();
  made->image.assign((const char*)image, table + (uint64_t)width * number);
  *result = made.get();
  modules[*result] = std::move(made);
  note("load");
  return OK;
}
API Status hipModuleUnload(Module* module) { ENTER(); return modules.erase(module) ? OK : INVALID_HANDLE; }
// A kernel has a descriptor NAME.kd, and the file's metadata has each parameter's kind: addresses and numbers of 8 bytes.
API Status hipModuleGetFunction(Function** result, Module* module, const char* name) {
  ENTER();
  if (!modules.count(module)) return INVALID_HANDLE;
  if (module->image.find('\0' + std::string(name) + ".kd" + '\0') == std::string::npos) return NOT_FOUND;
  const int count = occurrences(module->image, "global_buffer") + occurrences(module->image, "by_value");
  module->functions.push_back(std::make_unique<Function>(Function{name, count, module}));
  *result = module->functions.back().get();
  return OK;
}
API Status hipModuleLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                 unsigned shared, Stream* stream, void** parameters, void** extra) {
  ENTER();
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  const uint64_t threads = (uint64_t)bx * by * bz;
  if (!gx || !gy || !gz || !threads || threads > MOST_THREADS || shared > LDS || extra || !parameters) return INVALID_VALUE;
  std::vector<uint64_t> values;  // the parameters have been read when this returns
  for (int i = 0; i < f->count; ++i) values.push_back(*(const uint64_t*)parameters[i]);
  const std::string name = f->name;
  const Module* module = f->module;
  const std::array<unsigned, 6> extents = {gx, gy, gz, bx, by, bz};
  return enqueue(at(stream), {"launch " + name + " " + shape(grid) + " " + shape(block) + " " + std::to_string(shared), [=] {
    launched = module;
    return kernel ? kernel(name.c_str(), extents.data(), extents.data() + 3, shared, (int)values.size(), values.data()) : OK;
  }});
}

// ---- graphs ----

API Status hipStreamBeginCapture(Stream* stream, int mode) {
  ENTER();
  if (!streams.count(stream) || stream->capture != Capture::none || mode != 2) return INVALID_VALUE;
  stream->capture = Capture::active;
  stream->captured.clear();
  return OK;
}
API Status hipStreamEndCapture(Stream* stream, Graph** result) {
  ENTER();
  if (!streams.count(stream) || stream->capture == Capture::none) return INVALID_VALUE;
  const bool valid = stream->capture == Capture::active;
  stream->capture = Capture::none;
  *result = nullptr;
  if (!valid) return CAPTURE_INVALIDATED;
  note("capture");
  graphs[*result = new Graph{stream->captured}] = false;
  return OK;
}
API Status hipGraphInstantiateWithFlags(Graph** result, Graph* graph, unsigned long long) {
  ENTER();
  if (!graphs.count(graph)) return INVALID_VALUE;
  graphs[*result = new Graph(*graph)] = true;
  return OK;
}
namespace {
Status destroy(Graph* graph, bool launched) {
  auto found = graphs.find(graph);
  if (found == graphs.end() || found->second != launched) return INVALID_VALUE;
  graphs.erase(found);
  delete graph;
  return OK;
}
}  // namespace
API Status hipGraphDestroy(Graph* graph) { ENTER(); return destroy(graph, false); }
API Status hipGraphExecDestroy(Graph* graph) { ENTER(); return destroy(graph, true); }
API Status hipGraphLaunch(Graph* graph, Stream* stream) {
  ENTER();
  auto found = graphs.find(graph);
  if (found == graphs.end() || !found->second) return INVALID_VALUE;
  if (const Status status = enqueue(at(stream), {"replay", [] { return OK; }})) return status;
  for (const Operation& operation : graph->operations)
    if (const Status status = enqueue(at(stream), operation)) return status;
  return OK;
}
