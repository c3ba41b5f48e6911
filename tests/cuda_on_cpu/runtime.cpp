// Runs the blocks of one launch in one OS thread: every CUDA thread a fiber, resumed in the asked order.
// Reads the launch from stdin, writes status, message and buffers to stdout. Kernels are linked beside it.
// Built without instrumentation even in sanitizer builds: what the scheduler does is not the kernel's doing.

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <utility>
#include <vector>

#include "fiber.h"
#include "runtime.h"

#ifdef GC_TSAN
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
void __tsan_func_entry(void* caller);
void __tsan_func_exit();
}
#else
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
static void __tsan_read_range(void*, unsigned long) {}
static void __tsan_write_range(void*, unsigned long) {}
static void __tsan_func_entry(void*) {}
static void __tsan_func_exit() {}
#endif

namespace {

#if defined(GC_TSAN) || defined(GC_ASAN)
constexpr size_t STACK_BYTES = 256 << 10;
#else
constexpr size_t STACK_BYTES = 128 << 10;
#endif
#ifdef GC_ASAN
constexpr size_t GUARD_BYTES = 0;  // the allocator's own red zones are exact to the byte
#else
constexpr size_t GUARD_BYTES = 64 << 10;
#endif
constexpr size_t DEVICE_ALIGNMENT = 256;  // as cudaMalloc
constexpr int WARP = 32;
constexpr int IDLE_PASSES = 20000;  // passes in which atomics changed nothing, before it is called a deadlock

enum class State { READY, AT_BARRIER, AT_WARP, DONE };
enum class Order { FORWARD, REVERSED, SHUFFLED };

struct AsyncCopy {
  void* destination;
  const void* source;
  int bytes;
  bool valid;
  int group;
};

struct Thread : GcThread {
  Fiber fiber;
  State state;
  int linear;
  int line;          // of the barrier it waits at
  const char* kind;  // of the warp collective it waits in
  std::vector<AsyncCopy> copies;
  int groups_committed;
};

struct Warp {
  int alive, waiting;
  unsigned phase;
  unsigned present[2];  // who has deposited, by parity of the phase: a fast lane may be one phase ahead
  unsigned char deposits[2][WARP][GC_DEPOSIT_BYTES];
  char sync[2];  // addresses for ThreadSanitizer
};

struct Buffer {
  uint64_t argument;  // the first that points to it
  uint64_t bytes;
  unsigned char* data;
};

Fiber scheduler;
std::vector<Thread> threads;
std::vector<Warp> warps;
std::vector<Buffer> buffers;
std::vector<void*> arguments;
const GcEntry* kernel;
unsigned char* dynamic_shared;
uint64_t dynamic_shared_bytes;
Thread* running;  // null while the scheduler itself runs
bool in_block;
uint64_t progress;
unsigned barrier_phase;
// Two barrier objects in turn: with one, a thread that runs ahead to the next barrier would release into the
// object that slower threads still acquire for this one, and its accesses in between would look ordered.
char barrier_sync[2], fence_sync;
// In turn as well: a block acquires what the one before released, and nothing that its own threads release.
char block_sync[2];
unsigned blocks_started;

void write_all(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(STDOUT_FILENO, from, bytes);
    if (written <= 0) _exit(3);
    from += written;
    bytes -= (size_t)written;
  }
}

// Ends the process with a message that names the block, and the thread where one is running.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...) {
  char text[1024], where[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const uint3 b = gc_launch.block_index;
  int length = snprintf(where, sizeof where, "block (%u, %u, %u)", b.x, b.y, b.z);
  if (running) {
    const uint3 t = running->thread_index;
    snprintf(where + length, sizeof where - (size_t)length, ", thread (%u, %u, %u)", t.x, t.y, t.z);
  }
  const std::string message = in_block ? std::string(where) + ": " + text : text;
  const uint64_t header[2] = {1, message.size()};
  write_all(header, sizeof header);
  write_all(message.data(), message.size());
  _exit(0);
}

void poison(void* start, size_t bytes) {
  // volatile: a call of memset would be intercepted, and the red zones inside a section rejected
  volatile unsigned char* p = static_cast<unsigned char*>(start);
  for (size_t i = 0; i < bytes; ++i) p[i] = (unsigned char)(GC_POISON >> (i % 2 * 8));
}

// Moves what is no memory of the kernel: ThreadSanitizer would follow a call of memcpy.
void deposit(void* to, const void* from, size_t bytes) {
  volatile unsigned char* target = static_cast<unsigned char*>(to);
  for (size_t i = 0; i < bytes; ++i) target[i] = static_cast<const unsigned char*>(from)[i];
}

// ---- one thread -----------------------------------------------------------------------------------

void release_warp_if_complete(Warp& warp, int first_thread) {
  if (warp.waiting == 0 || warp.waiting < warp.alive) return;
  const char* kind = nullptr;
  const int end = first_thread + WARP < (int)threads.size() ? first_thread + WARP : (int)threads.size();
  for (int t = first_thread; t < end; ++t) {
    if (threads[t].state != State::AT_WARP) continue;
    if (kind && strcmp(kind, threads[t].kind) != 0) {
      running = nullptr;
      const int number = first_thread / WARP;
      fail("warp divergence: lanes of warp %d wait in %s and in %s", number, kind, threads[t].kind);
    }
    kind = threads[t].kind;
  }
  for (int t = first_thread; t < end; ++t)
    if (threads[t].state == State::AT_WARP) threads[t].state = State::READY;
  warp.waiting = 0;
  ++warp.phase;
  warp.present[warp.phase & 1] = 0;
  ++progress;
}

Warp& warp_of(const Thread& thread) { return warps[(size_t)(thread.linear / WARP)]; }

void yield() {
  Thread& self = *running;
  switch_fiber(self.fiber, scheduler);
}

// Deposits for the warp and waits for it; returns the parity of the phase that the deposits are kept under
// until the thread's next collective.
unsigned meet_warp(const char* kind, const void* mine, size_t bytes) {
  Thread& self = *running;
  Warp& warp = warp_of(self);
  const unsigned parity = warp.phase & 1;
  const bool orders_memory = strcmp(kind, "gc_syncwarp") == 0;  // no other collective does
  if (orders_memory) __tsan_release(&warp.sync[parity]);
  deposit(warp.deposits[parity][self.linear % WARP], mine, bytes);
  warp.present[parity] |= 1u << (self.linear % WARP);
  ++warp.waiting;
  self.kind = kind;
  self.state = State::AT_WARP;
  release_warp_if_complete(warp, self.linear / WARP * WARP);
  yield();
  if (orders_memory) __tsan_acquire(&warp.sync[parity]);
  return parity;
}

void run_kernel_forever() {
#ifdef GC_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack_bottom, &scheduler.stack_bytes);
#endif
  for (;;) {
    Thread& self = *running;
    __tsan_acquire(&block_sync[blocks_started & 1]);
    kernel->call(arguments.data());
    __tsan_release(&block_sync[(blocks_started + 1) & 1]);
    self.state = State::DONE;
    Warp& warp = warp_of(self);
    --warp.alive;
    ++progress;
    release_warp_if_complete(warp, self.linear / WARP * WARP);
    yield();
  }
}

void resume(Thread& thread) {
  running = &thread;
  gc_current = &thread;
  switch_fiber(scheduler, thread.fiber);
  running = nullptr;
}

// ---- one block ------------------------------------------------------------------------------------

struct Shuffler {  // splitmix64; its own generator, so that a seed means the same everywhere
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  void shuffle(std::vector<int>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[next() % i]);
  }
};

std::vector<int> ordered(size_t count, Order order) {
  std::vector<int> items(count);
  for (size_t i = 0; i < count; ++i) items[i] = (int)(order == Order::REVERSED ? count - 1 - i : i);
  return items;
}

// Describes who waits where: "3 threads wait at line 7, 5 have exited".
std::string describe_waiting() {
  std::vector<std::pair<std::string, int>> places;
  for (const Thread& thread : threads) {
    std::string place;
    if (thread.state == State::AT_BARRIER)
      place = "wait at __syncthreads in line " + std::to_string(thread.line);
    if (thread.state == State::AT_WARP) place = std::string("wait in ") + thread.kind;
    if (thread.state == State::DONE) place = "have exited";
    if (thread.state == State::READY) place = "spin on an atomic that does not change";
    size_t i = 0;
    while (i < places.size() && places[i].first != place) ++i;
    if (i == places.size()) places.push_back({place, 0});
    ++places[i].second;
  }
  std::string text;
  for (const auto& [place, count] : places)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " threads " + place;
  return text;
}

// No thread can run: releases the barrier all of them wait at, or reports why it cannot be.
// False where the block is done.
bool release_barrier() {
  size_t at_barrier = 0, in_warp = 0;
  bool same_line = true;
  int line = 0;
  for (const Thread& thread : threads) {
    in_warp += thread.state == State::AT_WARP;
    if (thread.state != State::AT_BARRIER) continue;
    same_line = same_line && (at_barrier == 0 || thread.line == line);
    line = thread.line;
    ++at_barrier;
  }
  if (at_barrier == 0 && in_warp == 0) return false;
  if (in_warp > 0) fail("deadlock: %s", describe_waiting().c_str());
  if (at_barrier < threads.size() || !same_line) fail("barrier divergence: %s", describe_waiting().c_str());
  for (Thread& thread : threads) thread.state = State::READY;
  ++barrier_phase;
  ++progress;
  return true;
}

void start_block() {
  poison(kernel->shared_begin, (size_t)(kernel->shared_end - kernel->shared_begin));
  poison(dynamic_shared, dynamic_shared_bytes);
  for (Warp& warp : warps) warp = Warp{};
  for (Thread& thread : threads) {
    thread.state = State::READY;
    thread.copies.clear();
    thread.groups_committed = 0;
    ++warp_of(thread).alive;
  }
}

void run_block(Order order, Shuffler& shuffler) {
  start_block();
  std::vector<int> turns = ordered(threads.size(), order);
  int idle = 0;
  for (;;) {
    if (order == Order::SHUFFLED) shuffler.shuffle(turns);
    const uint64_t before = progress;
    bool ran = false;
    for (const int turn : turns) {
      if (threads[(size_t)turn].state != State::READY) continue;
      resume(threads[(size_t)turn]);
      ran = true;
    }
    if (!ran && !release_barrier()) return;
    idle = ran && progress == before ? idle + 1 : 0;
    bool ready = false;
    for (const Thread& thread : threads) ready = ready || thread.state == State::READY;
    if (ready && idle > IDLE_PASSES) fail("deadlock: %s", describe_waiting().c_str());
  }
}

// ---- the launch -----------------------------------------------------------------------------------

void read_all(void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = read(STDIN_FILENO, to, bytes);
    if (count <= 0) _exit(2);
    to += count;
    bytes -= (size_t)count;
  }
}

uint64_t read_u64() {
  uint64_t value;
  read_all(&value, sizeof value);
  return value;
}

unsigned char* allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, DEVICE_ALIGNMENT, bytes) != 0) fail("out of host memory for %zu bytes", bytes);
  return static_cast<unsigned char*>(memory);
}

void read_buffer(Buffer& buffer) {
  buffer.argument = read_u64();
  buffer.bytes = read_u64();
  // the guard after a buffer starts at its very last byte, whatever its length
  unsigned char* memory = allocate(buffer.bytes + 2 * GUARD_BYTES);
  buffer.data = memory + GUARD_BYTES;
  poison(memory, GUARD_BYTES);
  poison(buffer.data + buffer.bytes, GUARD_BYTES);
  read_all(buffer.data, buffer.bytes);
}

void check_guards(const Buffer& buffer) {
  const uint64_t number = buffer.argument;
  const auto intact = [](const unsigned char* p, size_t i) {
    return p[i] == (unsigned char)(GC_POISON >> (i % 2 * 8));
  };
  const unsigned char *before = buffer.data - GUARD_BYTES, *after = buffer.data + buffer.bytes;
  size_t i = GUARD_BYTES;
  while (i > 0 && intact(before, i - 1)) --i;
  while (i > 0 && !intact(before, i - 1)) --i;
  if (i > 0 || (GUARD_BYTES > 0 && !intact(before, 0)))
    fail("out of bounds: argument %" PRIu64 " is written %zu bytes before its start", number,
         GUARD_BYTES - i);
  for (i = 0; i < GUARD_BYTES; ++i)
    if (!intact(after, i))
      fail("out of bounds: argument %" PRIu64 " is written %zu bytes past its end", number, i);
}

#if !defined(GC_TSAN) && !defined(GC_ASAN)
void report_signal(int number) {
  if (number == SIGFPE) fail("%s (integer division by zero)", strsignal(number));
  fail("%s (access to unmapped memory, or stack overflow)", strsignal(number));
}

void catch_signals() {
  static char stack[64 << 10];
  stack_t alternative = {};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action = {};
  action.sa_handler = report_signal;
  action.sa_flags = SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}
#else
void catch_signals() {}  // the sanitizer reports them
#endif

void create_threads() {
  const uint3 size = gc_launch.block_size;
  const size_t count = (size_t)size.x * size.y * size.z;
  threads.resize(count);
  warps.resize((count + WARP - 1) / WARP);
  for (size_t i = 0; i < count; ++i) {
    const unsigned t = (unsigned)i;
    threads[i].linear = (int)i;
    threads[i].thread_index = {t % size.x, t / size.x % size.y, t / size.x / size.y};
    if (!threads[i].fiber.create(run_kernel_forever, STACK_BYTES)) fail("no memory for %zu stacks", count);
#ifdef GC_TSAN
    char name[64];
    const uint3 index = threads[i].thread_index;
    snprintf(name, sizeof name, "CUDA thread (%u, %u, %u)", index.x, index.y, index.z);
    __tsan_set_fiber_name(threads[i].fiber.tsan, name);
#endif
  }
}

uint3 read_uint3() {
  uint64_t values[3];
  read_all(values, sizeof values);
  return {(unsigned)values[0], (unsigned)values[1], (unsigned)values[2]};
}

}  // namespace

GcThread* gc_current;
GcLaunch gc_launch;

void gc_runtime_barrier(int line) {
  Thread& self = *running;
  const unsigned parity = barrier_phase & 1;
  __tsan_release(&barrier_sync[parity]);
  self.line = line;
  self.state = State::AT_BARRIER;
  yield();
  __tsan_acquire(&barrier_sync[parity]);
}

int gc_runtime_lane() { return running->linear % WARP; }

unsigned long long gc_runtime_warp_exchange(const char* kind, unsigned long long bits, int source_lane) {
  const unsigned parity = meet_warp(kind, &bits, sizeof bits);
  const Warp& warp = warp_of(*running);
  if (warp.present[parity] >> source_lane & 1)
    deposit(&bits, warp.deposits[parity][source_lane], sizeof bits);
  else
    poison(&bits, sizeof bits);
  return bits;
}

void gc_runtime_warp_gather(const char* kind, const void* mine, int bytes, void* all) {
  const unsigned parity = meet_warp(kind, mine, (size_t)bytes);
  const Warp& warp = warp_of(*running);
  unsigned char* to = static_cast<unsigned char*>(all);
  for (int lane = 0; lane < WARP; ++lane, to += bytes) {
    if (warp.present[parity] >> lane & 1)
      deposit(to, warp.deposits[parity][lane], (size_t)bytes);
    else
      poison(to, (size_t)bytes);
  }
}

void gc_runtime_require_shared(const char* kind, const void* address, int bytes) {
  const unsigned char* first = static_cast<const unsigned char*>(address);
  const auto inside = [&](const unsigned char* begin, const unsigned char* end) {
    return first >= begin && first + bytes <= end;
  };
  if (!inside(kernel->shared_begin, kernel->shared_end) &&
      !inside(dynamic_shared, dynamic_shared + dynamic_shared_bytes))
    fail("%s: the address is not in shared memory", kind);
  if ((uintptr_t)address % (unsigned)bytes) fail("%s: misaligned address", kind);
}

void gc_runtime_copy_async(void* shared_dst, const void* global_src, int bytes, bool valid) {
  unsigned char* destination = static_cast<unsigned char*>(shared_dst);
  const auto inside = [&](const unsigned char* begin, const unsigned char* end) {
    return destination >= begin && destination + bytes <= end;
  };
  if (!inside(kernel->shared_begin, kernel->shared_end) &&
      !inside(dynamic_shared, dynamic_shared + dynamic_shared_bytes))
    fail("gc_cp_async%d: the destination is not in shared memory", bytes);
  if ((uintptr_t)shared_dst % (unsigned)bytes || (uintptr_t)global_src % (unsigned)bytes)
    fail("gc_cp_async%d: misaligned address", bytes);
  __tsan_func_entry(__builtin_return_address(0));  // so that a report shows the kernel's line
  __tsan_write_range(shared_dst, (unsigned long)bytes);
  __tsan_func_exit();
  poison(shared_dst, (size_t)bytes);
  running->copies.push_back({shared_dst, global_src, bytes, valid, running->groups_committed});
}

void gc_runtime_copy_commit() { ++running->groups_committed; }

void gc_runtime_copy_wait(int pending) {
  Thread& self = *running;
  std::vector<AsyncCopy> open;
  __tsan_func_entry(__builtin_return_address(0));
  for (const AsyncCopy& copy : self.copies) {
    if (copy.group >= self.groups_committed - pending) {
      open.push_back(copy);
      continue;
    }
    __tsan_write_range(copy.destination, (unsigned long)copy.bytes);
    if (copy.valid) {
      __tsan_read_range(const_cast<void*>(copy.source), (unsigned long)copy.bytes);
      memcpy(copy.destination, copy.source, (size_t)copy.bytes);
    } else {
      memset(copy.destination, 0, (size_t)copy.bytes);
    }
  }
  __tsan_func_exit();
  self.copies.swap(open);
}

unsigned char* gc_runtime_dynamic_shared() { return dynamic_shared; }

void gc_runtime_atomic_done(bool changed_memory) {
  progress += changed_memory;
  yield();
}

void gc_runtime_fence() {
  // orders more than a fence does: a race may be missed through it, none is invented
  __tsan_release(&fence_sync);
  __tsan_acquire(&fence_sync);
}

int main() {
  catch_signals();
  kernel = &gc_entries[read_u64()];
  gc_launch.grid_size = read_uint3();
  gc_launch.block_size = read_uint3();
  const Order order = (Order)read_u64();
  Shuffler shuffler = {read_u64()};
  dynamic_shared_bytes = read_u64();
  dynamic_shared = allocate(dynamic_shared_bytes);
  buffers.resize(read_u64());
  for (Buffer& buffer : buffers) read_buffer(buffer);
  std::vector<uint64_t> values(read_u64());  // each a buffer's address or a scalar's bits
  for (uint64_t& value : values) {
    const uint64_t is_buffer = read_u64(), content = read_u64();
    value = is_buffer ? (uint64_t)(uintptr_t)buffers[content].data : content;
  }
  for (uint64_t& value : values) arguments.push_back(&value);
  if ((int)values.size() != kernel->arity)
    fail("%s takes %d arguments, %zu given", kernel->name, kernel->arity, values.size());

  scheduler.adopt_running_stack();
  create_threads();
  const uint3 grid = gc_launch.grid_size;
  std::vector<int> blocks = ordered((size_t)grid.x * grid.y * grid.z, order);
  if (order == Order::SHUFFLED) shuffler.shuffle(blocks);
  __tsan_release(&block_sync[1]);
  for (const int block : blocks) {
    const unsigned b = (unsigned)block;
    gc_launch.block_index = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    in_block = true;
    ++blocks_started;
    run_block(order, shuffler);
    in_block = false;
  }
  __tsan_acquire(&block_sync[(blocks_started + 1) & 1]);
  for (const Buffer& buffer : buffers) check_guards(buffer);

  const uint64_t header[2] = {0, 0};
  write_all(header, sizeof header);
  for (const Buffer& buffer : buffers) write_all(buffer.data, buffer.bytes);
  _exit(0);
}
