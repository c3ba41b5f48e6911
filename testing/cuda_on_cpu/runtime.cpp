// Runs the blocks of one launch in one OS thread. Every CUDA thread is a fiber; fibers are resumed in the given order. The
// blocks of a cluster run together, in turns; without clusters the blocks run one after another.
// Reads the launch from stdin; writes status, message and buffers to stdout, for each order, always from the same initial
// memory. The kernels are linked with this file.
// This file is built without instrumentation even in sanitizer builds, because the scheduler's accesses are not the kernel's.

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fiber.h"
#include "fragments.h"
#include "runtime.h"

#ifdef GC_TSAN
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
void __tsan_func_entry(void* caller);
void __tsan_func_exit();
void __tsan_ignore_thread_begin();
void __tsan_ignore_thread_end();
}
#else
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
static void __tsan_read_range(void*, unsigned long) {}
static void __tsan_write_range(void*, unsigned long) {}
static void __tsan_func_entry(void*) {}
static void __tsan_func_exit() {}
static void __tsan_ignore_thread_begin() {}
static void __tsan_ignore_thread_end() {}
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
constexpr size_t DEVICE_ALIGNMENT = 256;  // like cudaMalloc
constexpr int WARP = 32;
constexpr int WARPGROUP = 128;
constexpr int REGISTERS = 65536;
constexpr size_t SHARED_ALIGNMENT = 1024;
constexpr uint64_t MBARRIER_WORD = 0x6d62617272696572;  // the content of an mbarrier's memory
constexpr int VAIN_LOOKS = 20000;  // of a thread at one address without any change; after so many it cannot make progress

constexpr int NAMED_BARRIERS = 16;
constexpr uint64_t MOST_BYTES_HELD = 32 << 20;  // in total for a launch's clusters; more would be slow

enum class State {
  READY, AT_BARRIER, AT_NAMED_BARRIER, AT_WARP, AT_MBARRIER, AT_REGISTERS, AT_CLUSTER, AT_GRID, DONE
};
enum class Order { FORWARD, REVERSED, SHUFFLED };

struct AsyncCopy {
  void* destination;
  const void* source;
  int bytes;
  bool valid;
  int group;
};

// Hides the runtime's own copies in a scope from ThreadSanitizer. The scope must not yield.
struct Unwatched {
  Unwatched() { __tsan_ignore_thread_begin(); }
  ~Unwatched() { __tsan_ignore_thread_end(); }
};

struct TmaStore {
  GcTensorMap map;
  const unsigned char* source;
  GcBox box;
  int group;
  std::vector<unsigned char> taken;  // what it has read, if that was waited for alone
};

struct WgmmaCall {
  size_t number;  // in the warpgroup's list
  void* acc;
  int group;
  const unsigned* registers;  // of operand `a`, and what they had at the call; null if it is in shared memory
  unsigned before[4];
};

struct Sums {  // accumulators in flight: their memory is poisoned, their numbers are here
  void* acc;
  std::vector<uint32_t> values;
};

#include "tcgen05.h"

struct Block;

struct Thread : GcThread {
  Fiber fiber;
  State state;
  int linear;
  Block* block;
  int line;          // of the barrier that it waits at
  int named_barrier;
  size_t register_changes;  // the number of its setmaxnreg calls
  const char* kind;  // the warp collective that it waits in
  unsigned long long* mbarrier;
  unsigned parity;  // of the phase that it waits for
  std::vector<AsyncCopy> copies;
  int groups_committed;
  std::vector<TmaStore> stores;
  int store_groups;
  std::vector<WgmmaCall> wgmmas;
  std::vector<Sums> sums;
  size_t wgmmas_called;
  int wgmma_groups;
  bool wgmma_fenced;
  TensorThread tensor;
  // Atomics without effect, by address, and the largest number at one address, since `progress` was `looked_at`.
  std::map<const volatile void*, int> vain_looks;
  int most_looks;
  uint64_t looked_at;
};

struct Warp {
  int alive, waiting;
  unsigned phase;
  unsigned present[2];  // the lanes that have deposited, by parity of the phase: a fast lane can be one phase ahead
  unsigned char deposits[2][WARP][GC_DEPOSIT_BYTES];
  char sync[2];  // addresses for ThreadSanitizer
};

struct TmaLoad {
  Block* block;  // to which it goes
  unsigned char* destination;
  GcTensorMap map;  // not a pointer: parameters may outlive a thread on a device, but not here
  GcBox box;
  uint64_t bytes;
};

struct Mbarrier {
  unsigned count, pending;  // arrivals of a phase, and missing arrivals
  uint64_t expected;        // bytes expected in this phase
  unsigned phase;
  bool fenced;             // visible to TMA
  bool from_afar, before;  // whether threads of other blocks arrived in this phase, and in the previous one
  unsigned cluster_phase;  // the cluster phase in which it was initialised
  std::vector<TmaLoad> loads;
  std::vector<Commit> commits;
  char sync[2];  // addresses for ThreadSanitizer, by parity
};

struct Wgmma {  // one wgmma of a warpgroup; the operands as its first thread read them
  GcElement element;
  int columns;
  bool first;             // the sums before it are not read
  bool turned;            // `a` is in registers, and `b` contiguous along its columns
  unsigned long long a, b;
  std::vector<unsigned char> a_bytes, b_bytes;  // 64 x 32, columns x 32
  std::vector<double> rows, cols;  // the operands' numbers
  unsigned checked;                // warps that have verified at their wait that the operands are unchanged
};

struct NamedBarrier {
  int threads, waiting;  // of the current phase; `threads` is 0 if nobody waits
  unsigned phase;
  char sync[2];  // addresses for ThreadSanitizer, by parity
};

struct RegisterChange {  // one setmaxnreg call of a warpgroup
  bool increases;
  int registers, arrived;  // registers of a thread; threads of the warpgroup that have called it
  bool done;
};

struct Registers {  // the registers of a thread of one warpgroup
  int count;
  std::vector<RegisterChange> changes;
};

struct Block {
  uint3 index;
  unsigned rank;  // in the cluster
  unsigned started;  // the cluster phase in which it started
  int first_thread;
  int alive;
  std::vector<Warp> warps;
  unsigned char* dynamic_shared;
  // Dynamic shared memory as TMA stores and wgmma see it: with TMA loads, and with plain writes before a fence.
  std::vector<unsigned char> async_view;
  char fenced_sync, stored_sync;  // addresses for ThreadSanitizer: fences between the proxies; reads by TMA stores
  std::map<unsigned long long*, Mbarrier> mbarriers;
  std::vector<std::vector<Wgmma>> wgmmas;  // by warpgroup
  std::vector<Registers> registers;        // by warpgroup
  TensorMemory tensor;
  int free_registers;                      // released by setmaxnreg and not yet acquired
  NamedBarrier named_barriers[NAMED_BARRIERS];
  unsigned barrier_phase;
  // Two barrier objects by turns. With only one, a thread that reaches the next barrier early would release into the object
  // that slower threads still acquire for this barrier, and its accesses in between would look ordered.
  char barrier_sync[2];
};

struct Buffer {
  uint64_t argument;  // the index of the first argument that points to it
  uint64_t bytes;
  unsigned char* data;
  std::vector<unsigned char> guard;  // the guard bytes before its first byte and after its last
  bool late;  // earlier launches write it and have not ended when a cluster starts
  std::vector<unsigned char> held;  // its content while it is poisoned
};

Fiber scheduler;
std::vector<Thread> threads;  // of all blocks of the cluster, by block
std::vector<Block> cluster;
size_t block_threads;
uint3 cluster_size;
std::vector<Buffer> buffers;
std::vector<void*> arguments;
const GcEntry* kernel;
uint64_t dynamic_shared_bytes;
uint64_t shared_limit;  // of static and dynamic bytes together
int first_registers;  // of a thread at the start of a block
Thread* running;  // null while the scheduler runs
bool in_block;
bool landed;  // whether the results of earlier launches are visible to the cluster
uint64_t bytes_held;  // so far, over all clusters
uint64_t progress;
unsigned cluster_phase;
char cluster_sync[2], fence_sync;
#ifdef GC_TSAN
void* async_proxy;  // a fiber for ThreadSanitizer, which never runs
#endif
// By turns too: a block acquires what the previous block released, and nothing that its own threads release.
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

// Ends the process with a message that names the block, and the thread if one is running.
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
  // volatile: the sanitizer would intercept memset, and reject the red zones inside a section
  volatile unsigned char* p = static_cast<unsigned char*>(start);
  for (size_t i = 0; i < bytes; ++i) p[i] = (unsigned char)(GC_POISON >> (i % 2 * 8));
}

// Copies memory that does not belong to the kernel.
void deposit(void* to, const void* from, size_t bytes) {
#ifdef GC_TSAN
  volatile unsigned char* target = static_cast<unsigned char*>(to);  // volatile: memcpy would be intercepted
  for (size_t i = 0; i < bytes; ++i) target[i] = static_cast<const unsigned char*>(from)[i];
#else
  memcpy(to, from, bytes);
#endif
}

// ---- one thread -----------------------------------------------------------------------------------

void release_warp_if_complete(Warp& warp, const Thread& lane) {
  if (warp.waiting == 0 || warp.waiting < warp.alive) return;
  const char* kind = nullptr;
  const int block_end = lane.block->first_thread + (int)block_threads;
  const int first_thread = lane.block->first_thread + lane.linear / WARP * WARP;
  const int end = first_thread + WARP < block_end ? first_thread + WARP : block_end;
  for (int t = first_thread; t < end; ++t) {
    if (threads[t].state != State::AT_WARP) continue;
    if (kind && strcmp(kind, threads[t].kind) != 0) {
      running = nullptr;
      const int number = lane.linear / WARP;
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

Warp& warp_of(const Thread& thread) { return thread.block->warps[(size_t)(thread.linear / WARP)]; }

void yield() {
  Thread& self = *running;
  switch_fiber(self.fiber, scheduler);
}

// Deposits for the warp and waits for it. Returns the parity of the phase whose deposits are kept until the thread's next
// collective.
unsigned meet_warp(const char* kind, const void* mine, size_t bytes) {
  Thread& self = *running;
  Warp& warp = warp_of(self);
  const unsigned parity = warp.phase & 1;
  const bool orders_memory = strcmp(kind, "gc_syncwarp") == 0;  // the other collectives do not
  if (orders_memory) __tsan_release(&warp.sync[parity]);
  deposit(warp.deposits[parity][self.linear % WARP], mine, bytes);
  warp.present[parity] |= 1u << (self.linear % WARP);
  ++warp.waiting;
  self.kind = kind;
  self.state = State::AT_WARP;
  release_warp_if_complete(warp, self);
  yield();
  if (orders_memory) __tsan_acquire(&warp.sync[parity]);
  return parity;
}

// The block beside it in its cluster, if two multiply as one; null if there is none.
Block* partner_of(const Block& block) { return (block.rank ^ 1) < cluster.size() ? &cluster[block.rank ^ 1] : nullptr; }

// The products that use the block's tensor memory.
template <class F>
void for_each_product(const Block& block, F f) {
  for (const Tcgen05& product : block.tensor.asked) f(product);
  if (const Block* const partner = partner_of(block))
    for (const Tcgen05& product : partner->tensor.asked)
      if (product.pair) f(product);
}

// The shared memory of a block that has exited must not be read.
void end_block(Block& block) {
  poison(block.dynamic_shared, dynamic_shared_bytes);
  for (const Block& other : cluster)
    for (const auto& [address, barrier] : other.mbarriers)
      for (const TmaLoad& load : barrier.loads)
        if (&other == &block || load.block == &block)
          fail("the block has exited while TMA loads are on their way to it: wait for them");
  for (const auto& [address, barrier] : block.mbarriers)
    for (const Commit& commit : barrier.commits)
      if (commit.block != (int)block.rank)
        fail("the block has exited while another block's products arrive at its mbarrier: wait for them");
  if (!block.tensor.allocated.empty())
    fail("the block has exited with %u columns of tensor memory allocated: gc_tcgen05_free",
         block.tensor.allocated.front().count);
  for_each_product(block, [](const Tcgen05& product) {
    if (!product.done) fail("the block has exited while products of tcgen05 are under way: wait for them");
  });
  bool takes = false, gives = false;
  for (size_t group = 0; group < block.registers.size(); ++group)
    for (const RegisterChange& change : block.registers[group].changes) {
      if (change.arrived != WARPGROUP)
        fail("setmaxnreg: %d of the %d threads of warpgroup %zu called it", change.arrived, WARPGROUP, group);
      takes = takes || change.increases;
      gives = gives || !change.increases;
    }
  if (gives && !takes) fail("setmaxnreg: registers are given up, and nobody takes them");
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
    if (!self.stores.empty()) fail("exits while a TMA store reads its shared memory: wait for it");
    if (!self.wgmmas.empty()) fail("exits with wgmma in flight: wait for them");
    if (!self.tensor.loads.empty()) fail("exits with loads of tensor memory in flight: gc_tcgen05_wait_load");
    if (!self.tensor.stores.empty()) fail("exits with stores to tensor memory in flight: gc_tcgen05_wait_store");
    self.state = State::DONE;
    Warp& warp = warp_of(self);
    --warp.alive;
    ++progress;
    release_warp_if_complete(warp, self);
    if (--self.block->alive == 0) end_block(*self.block);
    yield();
  }
}

void resume(Thread& thread) {
  running = &thread;
  gc_current = &thread;
  gc_launch.block_index = thread.block->index;
  switch_fiber(scheduler, thread.fiber);
  running = nullptr;
}

// ---- one block ------------------------------------------------------------------------------------

struct Shuffler {  // splitmix64; not the library's generator, so that a seed gives the same order everywhere
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

// "phase 1 of the mbarrier at byte 16 (1 of 1 arrivals missing, 512 bytes announced, 0 in flight)"
std::string describe_mbarrier(const Thread& thread) {
  const size_t at = (size_t)(reinterpret_cast<unsigned char*>(thread.mbarrier) - thread.block->dynamic_shared);
  const Mbarrier& b = thread.block->mbarriers.at(thread.mbarrier);
  uint64_t in_flight = 0;
  for (const TmaLoad& load : b.loads) in_flight += load.bytes;
  char text[256];
  snprintf(text, sizeof text,
           "wait for parity %u of the mbarrier at byte %zu (in its phase %u: %u of %u arrivals missing, %" PRIu64
           " bytes announced, %" PRIu64 " in flight)",
           thread.parity, at, b.phase, b.pending, b.count, b.expected, in_flight);
  return text;
}

// Describes where threads wait: "3 threads wait at line 7, 5 have exited".
std::string describe_waiting(const Block& block) {
  std::vector<std::pair<std::string, int>> places;
  for (size_t t = 0; t < block_threads; ++t) {
    const Thread& thread = threads[(size_t)block.first_thread + t];
    std::string place;
    if (thread.state == State::AT_BARRIER)
      place = "wait at __syncthreads in line " + std::to_string(thread.line);
    if (thread.state == State::AT_WARP) place = std::string("wait in ") + thread.kind;
    if (thread.state == State::AT_MBARRIER) place = describe_mbarrier(thread);
    if (thread.state == State::AT_NAMED_BARRIER) {
      const NamedBarrier& b = block.named_barriers[thread.named_barrier];
      place = "wait at named barrier " + std::to_string(thread.named_barrier) + ", where " + std::to_string(b.waiting) +
              " of " + std::to_string(b.threads) + " have come";
    }
    if (thread.state == State::AT_REGISTERS) {
      const RegisterChange& change =
          block.registers[(size_t)(thread.linear / WARPGROUP)].changes[thread.register_changes - 1];
      place = "wait for " + std::to_string(change.registers) + " registers each (" + std::to_string(change.arrived) +
              " threads of the warpgroup have called, " + std::to_string(block.free_registers) + " registers are free)";
    }
    if (thread.state == State::AT_CLUSTER) place = "wait in gc_cluster_sync";
    if (thread.state == State::AT_GRID) place = "wait in gc_grid_wait";
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

[[noreturn]] void fail_deadlock() {
  std::string text;
  for (const Block& block : cluster) {
    gc_launch.block_index = block.index;
    const std::string waiting = describe_waiting(block);
    if (cluster.size() == 1) fail("deadlock: %s", waiting.c_str());
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(block.rank) + ": " + waiting;
  }
  fail("deadlock in a cluster: %s", text.c_str());
}

Thread* threads_of(const Block& block) { return &threads[(size_t)block.first_thread]; }

// Releases a __syncthreads at which every thread of the block waits.
bool release_barrier(Block& block) {
  size_t at_barrier = 0, elsewhere = 0;
  bool same_line = true;
  int line = 0;
  for (size_t t = 0; t < block_threads; ++t) {
    const Thread& thread = threads[(size_t)block.first_thread + t];
    elsewhere += thread.state != State::AT_BARRIER && thread.state != State::DONE;
    if (thread.state != State::AT_BARRIER) continue;
    same_line = same_line && (at_barrier == 0 || thread.line == line);
    line = thread.line;
    ++at_barrier;
  }
  if (at_barrier == 0 || elsewhere > 0) return false;  // the others may continue, or be stuck: that shows later
  gc_launch.block_index = block.index;
  if (at_barrier < block_threads || !same_line)
    fail("barrier divergence: %s", describe_waiting(block).c_str());
  for (size_t t = 0; t < block_threads; ++t) threads[(size_t)block.first_thread + t].state = State::READY;
  ++block.barrier_phase;
  ++progress;
  return true;
}

// Releases the cluster barrier when all threads that have not exited wait at it.
bool release_cluster() {
  size_t waiting = 0, alive = 0;
  for (const Thread& thread : threads) {
    waiting += thread.state == State::AT_CLUSTER;
    alive += thread.state != State::DONE;
  }
  if (waiting == 0 || waiting < alive) return false;
  for (Thread& thread : threads)
    if (thread.state == State::AT_CLUSTER) thread.state = State::READY;
  ++cluster_phase;
  ++progress;
  return true;
}

// For a new cluster, pretends that the earlier launches have not ended: their buffers are poisoned until the cluster waits for
// them. All clusters do this if the launch's buffers are small; with large buffers only the first clusters do. The other
// clusters only may not copy from these buffers before the wait.
void hold_back() {
  landed = true;
  for (const Buffer& buffer : buffers) landed = landed && !buffer.late;
  if (bytes_held > MOST_BYTES_HELD) return;
  for (Buffer& buffer : buffers) {
    if (!buffer.late) continue;
    buffer.held.resize(buffer.bytes);
    deposit(buffer.held.data(), buffer.data, buffer.bytes);
    poison(buffer.data, buffer.bytes);
    bytes_held += buffer.bytes;
  }
}

// Ends the earlier launches if a thread waits for them. It is called as late as possible.
bool release_grid() {
  bool released = false;
  for (Thread& thread : threads) {
    if (thread.state != State::AT_GRID) continue;
    thread.state = State::READY;
    released = true;
  }
  if (!released) return false;
  for (Buffer& buffer : buffers) {
    deposit(buffer.data, buffer.held.data(), buffer.held.size());
    buffer.held.clear();
  }
  landed = true;
  ++progress;
  return true;
}

// No thread can run: releases threads that wait at a barrier. False if the cluster is done.
bool release_waiting() {
  bool released = false, done = true;
  for (Block& block : cluster) released = release_barrier(block) || released;
  released = release_cluster() || released;
  released = released || release_grid();
  for (const Thread& thread : threads) done = done && thread.state == State::DONE;
  if (!released && !done) fail_deadlock();
  return released;
}

void start_block(Block& block, uint3 index, unsigned rank) {
  block.index = index;
  block.rank = rank;
  block.started = cluster_phase;
  block.alive = (int)block_threads;
  block.barrier_phase = 0;
  block.mbarriers.clear();
  block.wgmmas.assign((block_threads + WARPGROUP - 1) / WARPGROUP, {});
  block.registers.assign(block.wgmmas.size(), Registers{first_registers, {}});
  block.free_registers = 0;
  block.tensor.reset();
  for (NamedBarrier& barrier : block.named_barriers) barrier = NamedBarrier{};
  poison(block.dynamic_shared, dynamic_shared_bytes);
  block.async_view.assign(block.dynamic_shared, block.dynamic_shared + dynamic_shared_bytes);
  for (Warp& warp : block.warps) warp = Warp{};
  for (size_t t = 0; t < block_threads; ++t) {
    Thread& thread = threads[(size_t)block.first_thread + t];
    thread.state = State::READY;
    thread.copies.clear();
    thread.groups_committed = thread.store_groups = thread.wgmma_groups = 0;
    thread.wgmmas_called = thread.register_changes = 0;
    thread.wgmma_fenced = false;
    thread.tensor = TensorThread{};
    thread.sums.clear();
    thread.vain_looks.clear();
    thread.most_looks = 0;
    ++warp_of(thread).alive;
  }
}

bool phase_can_complete(const Mbarrier& b) {
  uint64_t in_flight = 0;
  for (const TmaLoad& load : b.loads) in_flight += load.bytes;
  return b.pending == 0 && in_flight == b.expected;
}

// Whether a warpgroup that waits for registers can have them.
bool is_granted(const Thread& thread) {
  const Registers& mine = thread.block->registers[(size_t)(thread.linear / WARPGROUP)];
  const RegisterChange& change = mine.changes[thread.register_changes - 1];
  const int missing = (change.registers - mine.count) * WARPGROUP;
  return change.done || (change.arrived == WARPGROUP && missing <= thread.block->free_registers);
}

bool can_run(const Thread& thread) {
  if (thread.state == State::AT_REGISTERS) return is_granted(thread);
  if (thread.state != State::AT_MBARRIER) return thread.state == State::READY;
  const auto found = thread.block->mbarriers.find(thread.mbarrier);
  if (found == thread.block->mbarriers.end()) return true;  // the mbarrier was invalidated: the waiter reports it
  const Mbarrier& b = found->second;
  return (b.phase & 1) != thread.parity || phase_can_complete(b);
}

// Whether all threads that can run spin without hope. Many looks at one address are needed to conclude this: a thread may
// give up after some looks and go elsewhere, and so make progress although nothing changes.
bool only_spins() {
  bool any = false;
  for (const Thread& thread : threads) {
    if (!can_run(thread)) continue;
    if (thread.looked_at != progress || thread.most_looks <= VAIN_LOOKS) return false;
    any = true;
  }
  return any;
}

// `first` is the index of the cluster's block of rank 0.
void run_cluster(uint3 first, Order order, Shuffler& shuffler) {
  poison(kernel->shared_begin, (size_t)(kernel->shared_end - kernel->shared_begin));
  const uint3 size = cluster_size;
  for (unsigned rank = 0; rank < cluster.size(); ++rank) {
    const uint3 index = {first.x + rank % size.x, first.y + rank / size.x % size.y, first.z + rank / size.x / size.y};
    start_block(cluster[rank], index, rank);
  }
  hold_back();
  std::vector<int> turns = ordered(threads.size(), order);
  for (;;) {
    if (order == Order::SHUFFLED) shuffler.shuffle(turns);
    const uint64_t before = progress;
    bool ran = false;
    for (const int turn : turns) {
      if (!can_run(threads[(size_t)turn])) continue;
      resume(threads[(size_t)turn]);
      ran = true;
    }
    if (!ran && !release_waiting()) break;
    if (progress == before && only_spins()) fail_deadlock();
  }
  if (!landed) fail("nobody waits for the launches before this one: gc_grid_wait");
}

// ---- TMA ------------------------------------------------------------------------------------------
// TMA and wgmma access memory through the async proxy, threads through the generic one. This is what one proxy sees of the
// other's writes (PTX ISA, "Async Proxy" of the asynchronous copies and of wgmma, and fence.proxy):
//   shared, threads write      TMA stores and wgmma see the content at the block's last fence.proxy.async.shared::cta. Before
//                              the first fence they see the data of TMA loads, and otherwise poison (Block::async_view).
//   shared, a TMA load writes  poison until a thread sees the phase of its mbarrier complete; then all threads see the data.
//   global, a TMA store writes poison until its thread has waited for all of it: cp.async.bulk.wait_group, not its .read form.
//                              No fence.proxy.async.global is needed after that wait: the completion of such a copy implies a
//                              fence between the proxies for whoever observes it. All other threads must be ordered after the
//                              waiting thread, as after any of its writes.
// Not modelled:
//   - in values: whose writes a fence covers, and writes over data that a store still reads. A fence publishes everything,
//     including writes of other threads that no barrier has ordered yet. A fence that some threads skip is therefore found only
//     in orders in which no other thread's fence replaces it. ThreadSanitizer finds both faults for TMA stores, in at least two
//     of the three orders (watch_store);
//   - TMA loads of global memory written in the same launch, which need a fence.proxy.async.global: no kernel has any;
//   - wait_group.read, for which there is no device function, and tensor maps that a kernel changes;
//   - fences between blocks, which run one after another: a kernel without __threadfence gives correct results here.

// The place of byte `offset` of a box: the swizzle permutes 16-byte pieces of a row by bits of the row's address.
size_t swizzled(size_t address, unsigned long long swizzle) {
  const size_t mask = swizzle / 16 ? swizzle / 16 - 1 : 0;  // 7, 3, 1 or 0
  return address ^ ((address >> 7 & mask) << 4);
}

// Calls f(global address, or null if outside; byte in the box) for the elements of a box, innermost axis first.
template <class F>
void for_each_element(const GcTensorMap& map, const GcBox& box, F f) {
  unsigned char* const base = reinterpret_cast<unsigned char*>(map.base);
  size_t byte = 0;
  const auto visit = [&](const long long* at) {
    unsigned char* address = base;
    for (unsigned axis = 0; axis < map.rank; ++axis) {
      if (at[axis] < 0 || at[axis] >= (long long)map.extents[axis]) {
        address = nullptr;
        break;
      }
      address += at[axis] * (long long)map.strides[axis];
    }
    f(address, byte);
    byte += map.element_bytes;
  };
  if (map.is_im2col) {
    long long w = box.at[1], h = box.at[2], n = box.at[3];
    const long long last_w = (long long)map.extents[1] - 1 + map.upper[0];
    const long long last_h = (long long)map.extents[2] - 1 + map.upper[1];
    for (unsigned pixel = 0; pixel < map.pixels; ++pixel) {
      for (unsigned c = 0; c < map.channels; ++c) {
        const long long at[] = {box.at[0] + (long long)c, w + box.offsets[0], h + box.offsets[1], n};
        visit(at);
      }
      w += (long long)map.element_strides[1];
      if (w <= last_w) continue;
      w = map.lower[0];
      h += (long long)map.element_strides[2];
      if (h <= last_h) continue;
      h = map.lower[1];
      ++n;
    }
    return;
  }
  long long counts[5] = {1, 1, 1, 1, 1}, total = 1;
  for (unsigned axis = 0; axis < map.rank; ++axis) {
    counts[axis] = (long long)((map.box[axis] + map.element_strides[axis] - 1) / map.element_strides[axis]);
    total *= counts[axis];
  }
  for (long long i = 0; i < total; ++i) {
    long long at[5], rest = i;
    for (unsigned axis = 0; axis < map.rank; ++axis) {
      at[axis] = box.at[axis] + rest % counts[axis] * (long long)map.element_strides[axis];
      rest /= counts[axis];
    }
    visit(at);
  }
}

uint64_t box_bytes(const GcTensorMap& map) {
  if (map.is_im2col) return map.channels * map.pixels * map.element_bytes;
  uint64_t bytes = map.element_bytes;
  for (unsigned axis = 0; axis < map.rank; ++axis)
    bytes *= (map.box[axis] + map.element_strides[axis] - 1) / map.element_strides[axis];
  return bytes;
}

// For ThreadSanitizer: a store reads shared memory through the async proxy. Only fences between the proxies order writes before
// that read: those of the storing thread, and those that barriers order before it. A fence that nothing orders before the store
// is accepted too if it happens to come first.
void watch_store(const unsigned char* from, uint64_t bytes, void* caller) {
#ifdef GC_TSAN
  Block& block = *running->block;
  __tsan_switch_to_fiber(async_proxy, GC_TSAN_NO_SYNC);
  __tsan_acquire(&block.fenced_sync);
  __tsan_func_entry(caller);
  __tsan_read_range(const_cast<unsigned char*>(from), bytes);
  __tsan_func_exit();
  __tsan_release(&block.stored_sync);
  __tsan_switch_to_fiber(running->fiber.tsan, GC_TSAN_NO_SYNC);
#else
  (void)from, (void)bytes, (void)caller;
#endif
}

uint32_t rounded_to_tf32(uint32_t bits) {  // to nearest, ties to even
  if ((bits & 0x7fffffffu) >= 0x7f800000u) return bits;
  return (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
}

// Checks the requirements of the instruction and the driver; returns the byte in dynamic shared memory.
size_t checked_box(const char* what, const GcTensorMap& map, const GcBox& box, const void* shared) {
  const unsigned char* address = static_cast<const unsigned char*>(shared);
  const Block& block = *running->block;
  const uint64_t bytes = box_bytes(map);
  if (map.rank != (unsigned)box.rank || (map.is_im2col != 0) != box.is_im2col)
    fail("%s: the tensor map is of rank %d%s", what, (int)map.rank, map.is_im2col ? ", im2col" : "");
  if (address < block.dynamic_shared || address + bytes > block.dynamic_shared + dynamic_shared_bytes)
    fail("%s: %" PRIu64 " bytes are not inside of dynamic shared memory", what, bytes);
  const size_t at = (size_t)(address - block.dynamic_shared);
  const size_t alignment = map.swizzle ? 8 * map.swizzle : 128;  // a tile starts at a period of the pattern
  if (at % alignment) fail("%s: byte %zu of shared memory, %zu-byte alignment expected", what, at, alignment);
  const uint64_t inner = (map.is_im2col ? map.channels : map.box[0]) * map.element_bytes;
  if (inner % 16 || (map.swizzle && inner > map.swizzle))
    fail("%s: rows of %" PRIu64 " bytes with a swizzle of %d", what, inner, (int)map.swizzle);
  if (map.base % 16) fail("%s: the tensor is not 16-byte aligned", what);
  for (unsigned axis = 1; axis < map.rank; ++axis)
    if (map.strides[axis] % 16) fail("%s: axis %u has a stride of %d bytes", what, axis, (int)map.strides[axis]);
  return at;
}

Mbarrier& mbarrier_at(const char* what, unsigned long long* address, Block& block) {
  const auto found = block.mbarriers.find(address);
  if (found == block.mbarriers.end()) fail("%s: no mbarrier is initialised there", what);
  if (*address != MBARRIER_WORD) fail("%s: the mbarrier was overwritten", what);
  if (&block != running->block && found->second.cluster_phase == cluster_phase)
    fail("%s: another block's mbarrier, and no gc_cluster_sync has followed its initialisation", what);
  return found->second;
}

void land(const TmaLoad& load) {
  Block& block = *load.block;
  __tsan_write_range(load.destination, load.bytes);
  const Unwatched scope;
  const size_t at = (size_t)(load.destination - block.dynamic_shared);
  for_each_element(load.map, load.box, [&](const unsigned char* from, size_t byte) {
    const size_t to = swizzled(at + byte, load.map.swizzle);
    unsigned char element[16] = {};
    const size_t bytes = load.map.element_bytes;
    if (from) memcpy(element, from, bytes);
    if (load.map.rounds_to_tf32) {
      uint32_t bits;
      memcpy(&bits, element, sizeof bits);
      bits = rounded_to_tf32(bits);
      memcpy(element, &bits, sizeof bits);
    }
    memcpy(block.dynamic_shared + to, element, bytes);
    memcpy(block.async_view.data() + to, element, bytes);
  });
}

void end_products(const Commit& commit);

// Ends the phase if nothing is missing. The bytes become visible at this moment.
void complete_phase(Block& block, Mbarrier& b) {
  if (!phase_can_complete(b)) return;
  const unsigned parity = b.phase & 1;
  __tsan_acquire(&b.sync[parity]);
  for (const TmaLoad& load : b.loads) land(load);
  for (const Commit& commit : b.commits) end_products(commit);
  __tsan_release(&b.sync[parity]);
  b.loads.clear();
  b.commits.clear();
  b.expected = 0;
  b.pending = b.count;
  b.before = b.from_afar;
  b.from_afar = false;
  ++b.phase;
  ++progress;
}

// ---- wgmma ----------------------------------------------------------------------------------------

constexpr int GROUP_ROWS = 64;
constexpr int ROW_BYTES = 128;

int depth_of(GcElement element) {
  return element == GcElement::TF32 ? 8 : element == GcElement::S8 ? 32 : 16;
}

double element_value(GcElement element, const unsigned char* at) {
  uint16_t half;
  uint32_t word;
  switch (element) {
    case GcElement::F16: memcpy(&half, at, sizeof half); return gc_f16_value(half);
    case GcElement::BF16: memcpy(&half, at, sizeof half); return gc_f32_value((uint32_t)half << 16);
    case GcElement::TF32: memcpy(&word, at, sizeof word); return gc_f32_value(word & ~0x1fffu);
    case GcElement::S8: return (signed char)*at;
  }
  return 0;
}

void require_landed(const char* what, const Block& block, const char* which, size_t start, size_t end) {
  if (end > dynamic_shared_bytes) fail("%s: operand %s ends past the shared memory, at byte %zu", what, which, end);
  for (const Block& other : cluster)
    for (const auto& [address, barrier] : other.mbarriers)
      for (const TmaLoad& load : barrier.loads) {
        const size_t at = (size_t)(load.destination - block.dynamic_shared);
        if (load.block == &block && at < end && start < at + load.bytes)
          fail("%s: operand %s is on its way still: nobody has seen the phase of its mbarrier complete", what, which);
      }
}

// 32 bytes of the rows of a K-major operand with the 128-byte swizzle, as the async proxy sees them. `start` and `stride`, from 8
// rows to the next 8, are bytes of shared memory.
std::vector<unsigned char> rows_at(const char* what, const Block& block, const char* which, size_t start, size_t stride,
                                   int rows) {
  if (start % ROW_BYTES + 32 > ROW_BYTES || (start & 0x380))
    fail("%s: operand %s starts at byte %zu, within a pattern of the swizzle", what, which, start);
  const size_t last = (size_t)((rows + 7) / 8 - 1) * stride;
  require_landed(what, block, which, start, start / ROW_BYTES * ROW_BYTES + last + 8 * ROW_BYTES);
  std::vector<unsigned char> found((size_t)rows * 32);
  for (int row = 0; row < rows; ++row)
    for (int half = 0; half < 32; half += 16) {  // the swizzle moves 16 bytes as a unit
      const size_t at = start + (size_t)(row / 8) * stride + (size_t)(row % 8 * ROW_BYTES + half);
      memcpy(&found[(size_t)(row * 32 + half)], block.async_view.data() + swizzled(at, ROW_BYTES), 16);
    }
  return found;
}

// For ThreadSanitizer: such rows are read.
void watch_rows(const Block& block, size_t start, size_t stride, int first, int rows) {
  for (int row = first; row < first + rows; ++row)
    for (size_t byte = 0; byte < 32; byte += 16) {
      const size_t at = start + (size_t)(row / 8) * stride + (size_t)(row % 8 * ROW_BYTES) + byte;
      __tsan_read_range(block.dynamic_shared + swizzled(at, ROW_BYTES), 16);
    }
}

size_t start_of(unsigned long long descriptor) { return (descriptor & 0x3fff) << 4; }
size_t stride_of(unsigned long long descriptor) { return (descriptor >> 32 & 0x3fff) << 4; }

// The rows of an operand, by its descriptor, as the async proxy sees them.
std::vector<unsigned char> operand(const char* which, unsigned long long descriptor, int rows) {
  if (descriptor >> 62 != 1) fail("wgmma: operand %s is not described with the 128-byte swizzle", which);
  return rows_at("wgmma", *running->block, which, start_of(descriptor), stride_of(descriptor), rows);
}

// Byte of an operand that is contiguous along its columns: panels of 64, blocks of 8 rows of depth (CuTe, make_gmma_desc of
// Major::MN: ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO))).
size_t turned_at(unsigned long long descriptor, int row, int column) {
  const size_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
  const size_t stride = (descriptor >> 32 & 0x3fff) << 4;
  const size_t within = (size_t)(row % 8 * ROW_BYTES + column % 64 * 2);
  return swizzled(start + (size_t)(column / 64) * leading + (size_t)(row / 8) * stride + within, ROW_BYTES);
}

// The columns of such an operand of 16 rows, each with its depth, as the async proxy sees them.
std::vector<unsigned char> turned_rows_at(const char* what, const Block& block, const char* which, unsigned long long descriptor,
                                          int columns) {
  const size_t start = (descriptor & 0x3fff) << 4;
  if (start & 0x3ff) fail("%s: operand %s starts at byte %zu, within a pattern of the swizzle", what, which, start);
  require_landed(what, block, which, start, turned_at(descriptor, 15, columns - 1) / 1024 * 1024 + 1024);
  std::vector<unsigned char> found((size_t)columns * 32);
  for (int column = 0; column < columns; ++column)
    for (int row = 0; row < 16; ++row)
      memcpy(&found[(size_t)(column * 32 + row * 2)], block.async_view.data() + turned_at(descriptor, row, column), 2);
  return found;
}

std::vector<unsigned char> turned_operand(const char* which, unsigned long long descriptor, int columns) {
  if (descriptor >> 62 != 1) fail("wgmma: operand %s is not described with the 128-byte swizzle", which);
  return turned_rows_at("wgmma", *running->block, which, descriptor, columns);
}

std::vector<unsigned char> columns_of(unsigned long long descriptor, int columns, bool turned) {
  return turned ? turned_operand("b", descriptor, columns) : operand("b", descriptor, columns);
}

// For ThreadSanitizer: such an operand is read.
void watch_turned(const Block& block, unsigned long long descriptor, int columns) {
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < columns; column += 8)
      __tsan_read_range(block.dynamic_shared + turned_at(descriptor, row, column), 16);
}

std::vector<double> numbers(GcElement element, const std::vector<unsigned char>& bytes) {
  std::vector<double> values(bytes.size() * (size_t)depth_of(element) / 32);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = element_value(element, &bytes[i * bytes.size() / values.size()]);
  return values;
}

// For ThreadSanitizer: one lane of a warp reads the 16 rows of `a` of its warp, and all of `b`.
void watch_operands(const Wgmma& call) {
  if (running->linear % WARP != 0) return;
  const Block& block = *running->block;
  if (!call.turned) {
    watch_rows(block, start_of(call.a), stride_of(call.a), running->linear % WARPGROUP / WARP * 16, 16);
    watch_rows(block, start_of(call.b), stride_of(call.b), 0, call.columns);
    return;
  }
  watch_turned(block, call.b, call.columns);
}

// This thread's sums of one wgmma are added to `values`.
void multiply(const Wgmma& call, std::vector<uint32_t>& values) {
  if (call.first) std::fill(values.begin(), values.end(), 0);
  const int lane = running->linear % WARP, depth = depth_of(call.element);
  const int first_row = running->linear % WARPGROUP / WARP * 16 + lane / 4;
  const double *upper = &call.rows[(size_t)(first_row * depth)], *lower = upper + 8 * depth;
  for (size_t i = 0; i < values.size(); i += 4) {  // two rows of two adjacent columns
    const double *left = &call.cols[(i / 4 * 8 + (size_t)(lane % 4 * 2)) * (size_t)depth], *right = left + depth;
    const double* const factors[4][2] = {{upper, left}, {upper, right}, {lower, left}, {lower, right}};
    for (size_t j = 0; j < 4; ++j) {
      const auto [x, y] = factors[j];
      if (call.element == GcElement::S8) {
        for (int k = 0; k < depth; ++k) values[i + j] += (uint32_t)(int32_t)(x[k] * y[k]);
        continue;
      }
      // sm_90 adds all products of a depth step at once, with two bits more than f32
      const float total = gc_block_sum((float)gc_f32_value(values[i + j]), x, y, depth, 2);
      memcpy(&values[i + j], &total, sizeof total);
    }
  }
}

std::vector<Wgmma>& wgmma_log() { return running->block->wgmmas[(size_t)(running->linear / WARPGROUP)]; }

Sums& sums_of(void* acc) {
  for (Sums& sums : running->sums)
    if (sums.acc == acc) return sums;
  fail("wgmma: its sums are lost");
}

bool is_poison(const void* start, size_t bytes) {
  const unsigned char* p = static_cast<const unsigned char*>(start);
  for (size_t i = 0; i < bytes; ++i)
    if (p[i] != (unsigned char)(GC_POISON >> (i % 2 * 8))) return false;
  return true;
}

// ---- tcgen05 --------------------------------------------------------------------------------------

// The block's allocation that has the columns, which this thread has to know of.
const TensorColumns& columns_at(const char* what, const Block& block, unsigned first, unsigned count) {
  const Thread& self = *running;
  for (const TensorColumns& held : block.tensor.allocated) {
    if (first < held.first || first + count > held.first + held.count) continue;
    if (held.left) fail("%s: the other block has freed the columns: gc_cluster_sync", what);
    const bool mine = &block == self.block && held.warp == self.linear / WARP;
    if (!mine && (held.fenced == 0 || held.fenced > self.tensor.seen))
      fail("%s: the allocation is another warp's, and no fences are around the barrier between", what);
    return held;
  }
  fail("%s: columns %u to %u of tensor memory are not allocated", what, first, first + count - 1);
}

const TensorColumns& columns_at(const char* what, unsigned first, unsigned count) {
  return columns_at(what, *running->block, first, count);
}

// An operand's rows by its descriptor: PTX ISA, "Shared memory descriptor".
std::vector<unsigned char> tensor_operand(const Block& block, const char* which, unsigned long long descriptor, int rows,
                                          bool turned = false) {
  if ((descriptor >> 46 & 3) != 1) fail("tcgen05: the descriptor of operand %s is not of version 1", which);
  if (descriptor >> 61 != 2) fail("tcgen05: operand %s is not described with the 128-byte swizzle", which);
  if (descriptor >> 48 & 0x1fff) fail("tcgen05: the descriptor of operand %s has a base offset, or a mode", which);
  if (turned) return turned_rows_at("tcgen05", block, which, descriptor, rows);
  return rows_at("tcgen05", block, which, start_of(descriptor), stride_of(descriptor), rows);
}

// The rows of an operand in tensor memory, two elements a column: PTX ISA, "Data path layout" D.
std::vector<unsigned char> tensor_rows(Block& block, TensorSpan columns, int rows) {
  std::vector<unsigned char> found((size_t)rows * 32);
  for (int row = 0; row < rows; ++row)
    memcpy(&found[(size_t)row * 32], &block.tensor.at(row, columns.first), columns.count * sizeof(uint32_t));
  return found;
}

// The blocks that have a product's operands and sums, of which `block` has the thread that asked for it.
std::vector<Block*> sharers(Block& block, const Tcgen05& product) {
  return product.pair ? std::vector{&block, partner_of(block)} : std::vector{&block};
}

std::vector<unsigned char> rows_of_a(Block& block, const Tcgen05& product) {
  std::vector<unsigned char> found;
  for (Block* const of : sharers(block, product)) {
    const std::vector<unsigned char> part = product.a_columns.count ? tensor_rows(*of, product.a_columns, product.rows)
                                                                    : tensor_operand(*of, "a", product.a, product.rows);
    found.insert(found.end(), part.begin(), part.end());
  }
  return found;
}

std::vector<unsigned char> columns_of_b(Block& block, const Tcgen05& product) {
  std::vector<unsigned char> found;
  const int columns = product.columns_of_a_block();
  for (Block* const of : sharers(block, product)) {
    const std::vector<unsigned char> part = tensor_operand(*of, "b", product.b, columns, product.turned);
    found.insert(found.end(), part.begin(), part.end());
  }
  return found;
}

void watch_product(Block& block, const Tcgen05& product) {
  const int columns = product.columns_of_a_block();
  for (const Block* const of : sharers(block, product)) {
    if (!product.a_columns.count) watch_rows(*of, start_of(product.a), stride_of(product.a), 0, product.rows);
    if (product.turned) watch_turned(*of, product.b, columns);
    else watch_rows(*of, start_of(product.b), stride_of(product.b), 0, columns);
  }
}

// What the instruction's descriptor says: PTX ISA, "Instruction descriptor".
Tcgen05 described(int bytes, unsigned instruction, bool pair) {
  const unsigned format = instruction >> 7 & 7, rows = (instruction >> 24 & 31) * 16, columns = (instruction >> 17 & 63) * 8;
  if ((instruction >> 4 & 3) != 1) fail("tcgen05: the instruction's descriptor does not ask for sums of f32");
  if ((instruction >> 10 & 7) != format || format > 2 || (format == 2) != (bytes == 4))
    fail("tcgen05: operands of formats %u and %u, of %d bytes", format, instruction >> 10 & 7, bytes);
  if (instruction & 0xe080e04fu) fail("tcgen05: the instruction's descriptor %#x has bits that are not emulated", instruction);
  if ((pair ? rows != 256 : rows != 64 && rows != 128) || columns == 0 || columns > 256 || columns % (rows == 64 ? 8 : 16))
    fail("tcgen05: a product of %u x %u", rows, columns);
  const GcElement elements[] = {GcElement::F16, GcElement::BF16, GcElement::TF32};
  Tcgen05 product = {};
  product.element = elements[format];
  product.rows = (int)rows / (pair ? 2 : 1);
  product.pair = pair;
  product.columns = (int)columns;
  product.turned = instruction >> 16 & 1;
  if (product.turned && bytes != 2) fail("tcgen05: only operands of 16 bits are turned here");
  return product;
}

void multiply(Block& block, Tcgen05& product) {
  if (product.a_bytes != rows_of_a(block, product) || product.b_bytes != columns_of_b(block, product))
    fail("tcgen05: an operand changed in %s memory before the product was done", product.a_columns.count ? "its" : "shared");
  const std::vector<double> rows = numbers(product.element, product.a_bytes), cols = numbers(product.element, product.b_bytes);
  const int depth = depth_of(product.element);
  const std::vector<Block*> blocks = sharers(block, product);
  for (int row = 0; row < product.rows * (int)blocks.size(); ++row)
    for (int column = 0; column < product.columns; ++column) {
      TensorMemory& memory = blocks[(size_t)(row / product.rows)]->tensor;
      uint32_t& word = memory.at(lane_of_row(product.rows, row % product.rows), product.first_column + (unsigned)column);
      const float before = product.add ? (float)gc_f32_value(word) : 0.0f;
      // taken to add as sm_90 does: all products of a depth step at once, with two bits more than f32
      const float total = gc_block_sum(before, &rows[(size_t)(row * depth)], &cols[(size_t)(column * depth)], depth, 2);
      memcpy(&word, &total, sizeof total);
    }
  product.done = true;
  product.a_bytes = product.b_bytes = {};
}

void end_products(const Commit& commit) {
  Block& block = cluster[(size_t)commit.block];
  TensorMemory& memory = block.tensor;
  ++tensor_events;
  for (size_t i = 0; i < commit.count && i < memory.asked.size(); ++i) {
    Tcgen05& product = memory.asked[i];
    if (product.thread != commit.thread) continue;
    if (product.done) {  // another barrier has told of it
      __tsan_acquire(&product.sync);
      continue;
    }
    watch_product(block, product);
    __tsan_release(&product.sync);
    const Unwatched scope;
    multiply(block, product);
    for (Block* const of : sharers(block, product))
      std::fill_n(of->tensor.ended.begin() + product.first_column, product.columns, tensor_events);
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

unsigned char* allocate(size_t bytes, size_t alignment = DEVICE_ALIGNMENT) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) fail("out of host memory for %zu bytes", bytes);
  return static_cast<unsigned char*>(memory);
}

// The guard bytes of the buffer with this number. Every 16 bits are a NaN as f16, bf16, f32 and f64, and too large for an
// index. The first 13 buffers all have different guards at each offset, and no arithmetic or conversion makes such bits. So
// a write shows even if it stores a value that was read past the end of another buffer, or was never written.
std::vector<unsigned char> guard_of(size_t number) {
  std::vector<unsigned char> guard(GUARD_BYTES);
  for (size_t word = 0; word < GUARD_BYTES / 2; ++word) {
    const size_t kind = (number + (word * 2654435761u >> 16)) % 13;
    const unsigned bits = (unsigned)(0x7ff1 + kind + (kind == 12));  // not GC_POISON
    guard[2 * word] = (unsigned char)bits;
    guard[2 * word + 1] = (unsigned char)(bits >> 8);
  }
  return guard;
}

void read_buffer(Buffer& buffer, size_t number) {
  buffer.argument = read_u64();
  buffer.bytes = read_u64();
  buffer.late = read_u64();
  // the guard after a buffer starts right after its last byte, whatever its length
  unsigned char* memory = allocate(buffer.bytes + 2 * GUARD_BYTES);
  buffer.data = memory + GUARD_BYTES;
  buffer.guard = guard_of(number);
  memcpy(memory, buffer.guard.data(), GUARD_BYTES);
  memcpy(buffer.data + buffer.bytes, buffer.guard.data(), GUARD_BYTES);
  read_all(buffer.data, buffer.bytes);
}

void check_guards(const Buffer& buffer) {
  const unsigned char *before = buffer.data - GUARD_BYTES, *after = buffer.data + buffer.bytes;
  const unsigned char* guard = buffer.guard.data();
  if (memcmp(before, guard, GUARD_BYTES) != 0) {
    size_t i = GUARD_BYTES;
    while (before[i - 1] == guard[i - 1]) --i;
    while (i > 0 && before[i - 1] != guard[i - 1]) --i;
    fail("out of bounds: argument %" PRIu64 " is written %zu bytes before its start", buffer.argument, GUARD_BYTES - i);
  }
  if (memcmp(after, guard, GUARD_BYTES) != 0) {
    size_t i = 0;
    while (after[i] == guard[i]) ++i;
    fail("out of bounds: argument %" PRIu64 " is written %zu bytes past its end", buffer.argument, i);
  }
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
  block_threads = (size_t)size.x * size.y * size.z;
  cluster.resize((size_t)cluster_size.x * cluster_size.y * cluster_size.z);
  const size_t count = block_threads * cluster.size();
  threads.resize(count);
  for (size_t rank = 0; rank < cluster.size(); ++rank) {
    cluster[rank].first_thread = (int)(rank * block_threads);
    cluster[rank].warps.resize((block_threads + WARP - 1) / WARP);
    cluster[rank].dynamic_shared = allocate(dynamic_shared_bytes, SHARED_ALIGNMENT);
  }
  for (size_t i = 0; i < count; ++i) {
    const unsigned t = (unsigned)(i % block_threads);
    threads[i].linear = (int)t;
    threads[i].block = &cluster[i / block_threads];
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
  Block& block = *self.block;
  const unsigned parity = block.barrier_phase & 1;
  __tsan_release(&block.barrier_sync[parity]);
  self.line = line;
  self.state = State::AT_BARRIER;
  yield();
  __tsan_acquire(&block.barrier_sync[parity]);
}

void gc_runtime_named_barrier(int number, int threads) {
  Thread& self = *running;
  Block& block = *self.block;
  if (number < 1 || number >= NAMED_BARRIERS) fail("gc_named_barrier: number %d", number);
  if (threads < WARP || threads % WARP || threads > (int)block_threads) fail("gc_named_barrier: %d threads", threads);
  NamedBarrier& barrier = block.named_barriers[number];
  if (barrier.threads && barrier.threads != threads)
    fail("gc_named_barrier: %d threads are to meet at number %d, and %d", barrier.threads, number, threads);
  const unsigned parity = barrier.phase & 1;
  __tsan_release(&barrier.sync[parity]);
  barrier.threads = threads;
  self.named_barrier = number;
  self.state = State::AT_NAMED_BARRIER;
  if (++barrier.waiting == threads) {
    for (size_t t = 0; t < block_threads; ++t) {
      Thread& other = threads_of(block)[t];
      if (other.state == State::AT_NAMED_BARRIER && other.named_barrier == number) other.state = State::READY;
    }
    barrier.threads = barrier.waiting = 0;
    ++barrier.phase;
    ++progress;
  }
  yield();
  __tsan_acquire(&barrier.sync[parity]);
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

void gc_runtime_mma(const char* kind, GcMma shape, void* c, const unsigned* a, const unsigned* b) {
  GcFragments mine = {}, all[WARP];
  deposit(mine.a, a, sizeof(unsigned) * (size_t)(shape.halves * shape.steps));
  deposit(mine.b, b, sizeof(unsigned) * (size_t)shape.steps);
  gc_runtime_warp_gather(kind, &mine, sizeof mine, all);
  const Unwatched scope;
  gc_multiply(shape, gc_runtime_lane(), all, c);
}

void gc_runtime_require_shared(const char* kind, const void* address, int bytes) {
  const unsigned char* first = static_cast<const unsigned char*>(address);
  const auto inside = [&](const unsigned char* begin, const unsigned char* end) {
    return first >= begin && first + bytes <= end;
  };
  if (!inside(kernel->shared_begin, kernel->shared_end) &&
      !inside(running->block->dynamic_shared, running->block->dynamic_shared + dynamic_shared_bytes))
    fail("%s: the address is not in shared memory", kind);
  if ((uintptr_t)address % (unsigned)bytes) fail("%s: misaligned address", kind);
}

// An asynchronous copy reads at any time, so it must not read results of earlier launches before the wait for them.
static void require_landed(const char* what, const void* source) {
  if (landed) return;
  const unsigned char* const at = static_cast<const unsigned char*>(source);
  for (const Buffer& buffer : buffers)
    if (buffer.late && at >= buffer.data && at < buffer.data + buffer.bytes)
      fail("%s: argument %" PRIu64 " is read before gc_grid_wait", what, buffer.argument);
}

void gc_runtime_copy_async(void* shared_dst, const void* global_src, int bytes, bool valid) {
  if (valid) require_landed("gc_cp_async", global_src);
  unsigned char* destination = static_cast<unsigned char*>(shared_dst);
  const auto inside = [&](const unsigned char* begin, const unsigned char* end) {
    return destination >= begin && destination + bytes <= end;
  };
  if (!inside(kernel->shared_begin, kernel->shared_end) &&
      !inside(running->block->dynamic_shared, running->block->dynamic_shared + dynamic_shared_bytes))
    fail("gc_cp_async%d: the destination is not in shared memory", bytes);
  if ((uintptr_t)shared_dst % (unsigned)bytes || (uintptr_t)global_src % (unsigned)bytes)
    fail("gc_cp_async%d: misaligned address", bytes);
  __tsan_func_entry(__builtin_return_address(0));  // so that a report names the kernel's line
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

unsigned char* gc_runtime_dynamic_shared() { return running->block->dynamic_shared; }

unsigned long long gc_runtime_shared_offset(const void* address) {
  const unsigned char* at = static_cast<const unsigned char*>(address);
  if (at < running->block->dynamic_shared || at >= running->block->dynamic_shared + dynamic_shared_bytes)
    fail("byte %td of dynamic shared memory is asked for, there are %" PRIu64, at - running->block->dynamic_shared,
         dynamic_shared_bytes);
  return (unsigned long long)(at - running->block->dynamic_shared);
}

void gc_runtime_mbarrier_init(unsigned long long* barrier, unsigned count) {
  if ((uintptr_t)barrier % 8) fail("gc_mbarrier_init: misaligned address");
  gc_runtime_shared_offset(barrier);
  if (count == 0 || count >= 1u << 20) fail("gc_mbarrier_init: %u arrivals", count);
  *barrier = MBARRIER_WORD;
  running->block->mbarriers[barrier] = Mbarrier{count, count, 0, 0, false, false, false, cluster_phase, {}, {}, {}};
}

void gc_runtime_mbarrier_invalidate(unsigned long long* barrier) {
  const Mbarrier& b = mbarrier_at("gc_mbarrier_invalidate", barrier, *running->block);
  if (!b.loads.empty()) fail("gc_mbarrier_invalidate: loads are under way");
  running->block->mbarriers.erase(barrier);
  poison(barrier, sizeof *barrier);
}

static void arrive_at(const char* what, Block& block, unsigned long long* barrier, unsigned bytes) {
  Mbarrier& b = mbarrier_at(what, barrier, block);
  complete_phase(block, b);
  if (b.pending == 0)
    fail("%s: %u threads have arrived already, and bytes of the phase are missing", what, b.count);
  __tsan_release(&b.sync[b.phase & 1]);
  b.expected += bytes;
  b.from_afar = b.from_afar || &block != running->block;
  --b.pending;
  ++progress;
}

// The cluster's block `rank`, whose shared memory is about to be accessed.
static Block& block_of_rank(unsigned rank) {
  if (rank >= cluster.size()) fail("block %u of a cluster of %zu", rank, cluster.size());
  if (cluster[rank].alive == 0) fail("block %u of the cluster has exited: its shared memory is gone", rank);
  return cluster[rank];
}

void gc_runtime_mbarrier_arrive(unsigned long long* barrier, unsigned bytes) {
  arrive_at("gc_mbarrier_arrive", *running->block, barrier, bytes);
}

void gc_runtime_mbarrier_arrive_cluster(unsigned long long* barrier, unsigned rank) {
  const unsigned long long offset = gc_runtime_shared_offset(barrier);
  Block& block = block_of_rank(rank);
  arrive_at("gc_mbarrier_arrive_cluster", block, reinterpret_cast<unsigned long long*>(block.dynamic_shared + offset), 0);
}

static void wait_for_phase(const char* what, unsigned long long* barrier, unsigned parity, bool of_cluster) {
  Thread& self = *running;
  if (parity > 1) fail("%s: parity %u", what, parity);
  for (;;) {
    Mbarrier& b = mbarrier_at(what, barrier, *self.block);
    complete_phase(*self.block, b);
    if ((b.phase & 1) != parity) {
      if (b.before && !of_cluster) fail("%s: threads of another block arrived: gc_mbarrier_wait_cluster", what);
      __tsan_acquire(&b.sync[parity]);
      return;
    }
    self.mbarrier = barrier;
    self.parity = parity;
    self.state = State::AT_MBARRIER;
    yield();
    self.state = State::READY;
  }
}

void gc_runtime_mbarrier_wait(unsigned long long* barrier, unsigned parity) {
  wait_for_phase("gc_mbarrier_wait", barrier, parity, false);
}

void gc_runtime_mbarrier_wait_cluster(unsigned long long* barrier, unsigned parity) {
  wait_for_phase("gc_mbarrier_wait_cluster", barrier, parity, true);
}

void gc_runtime_fence_barrier_init() {
  for (auto& [address, barrier] : running->block->mbarriers) barrier.fenced = true;
}

void gc_runtime_fence_proxy_async() {
  Block& block = *running->block;
  __tsan_release(&block.fenced_sync);
  const Unwatched scope;
  memcpy(block.async_view.data(), block.dynamic_shared, dynamic_shared_bytes);
}

// The box is copied to byte `at` of the shared memory of `block`, and counted by a barrier of `counting`.
static void start_load(Block& block, size_t at, const GcTensorMap& map, Block& counting, unsigned long long* barrier,
                       const GcBox& box) {
  Mbarrier& b = mbarrier_at("TMA load", barrier, counting);
  require_landed("TMA load", reinterpret_cast<const void*>(map.base));
  if (!b.fenced) fail("TMA load: gc_fence_barrier_init has not followed the mbarrier's initialisation");
  const uint64_t bytes = box_bytes(map);
  unsigned char* const destination = block.dynamic_shared + at;
  __tsan_func_entry(__builtin_return_address(0));
  __tsan_write_range(destination, bytes);
  __tsan_func_exit();
  __tsan_release(&b.sync[b.phase & 1]);
  poison(destination, bytes);
  poison(block.async_view.data() + at, bytes);
  const Unwatched scope;
  b.loads.push_back({&block, destination, map, box, bytes});
  ++progress;
}

void gc_runtime_tma_load(void* shared_dst, const GcTensorMap* map, unsigned long long* barrier, GcBox box) {
  Block& block = *running->block;
  start_load(block, checked_box("TMA load", *map, box, shared_dst), *map, block, barrier, box);
}

void gc_runtime_tma_load_pair(void* shared_dst, const GcTensorMap* map, unsigned long long* barrier, GcBox box) {
  const unsigned long long offset = gc_runtime_shared_offset(barrier);
  Block &block = *running->block, &first = block_of_rank(0);
  if (cluster.size() != 2) fail("TMA load: a pair of a cluster of %zu", cluster.size());
  start_load(block, checked_box("TMA load", *map, box, shared_dst), *map, first,
             reinterpret_cast<unsigned long long*>(first.dynamic_shared + offset), box);
}

void gc_runtime_tma_load_multicast(void* shared_dst, const GcTensorMap* map, unsigned long long* barrier, GcBox box,
                                   unsigned ranks) {
  const size_t at = checked_box("TMA load", *map, box, shared_dst);
  const unsigned long long offset = gc_runtime_shared_offset(barrier);
  if (ranks == 0) fail("TMA load: for no block of the cluster");
  for (unsigned rank = 0; ranks >> rank; ++rank) {
    if (!(ranks >> rank & 1)) continue;
    Block& block = block_of_rank(rank);
    start_load(block, at, *map, block, reinterpret_cast<unsigned long long*>(block.dynamic_shared + offset), box);
  }
}

// From here until the wait for its group the destination of a store must not be read, so it is poisoned.
void gc_runtime_tma_store(const GcTensorMap* map, const void* shared_src, GcBox box) {
  checked_box("TMA store", *map, box, shared_src);
  const unsigned char* source = static_cast<const unsigned char*>(shared_src);
  __tsan_func_entry(__builtin_return_address(0));
  for_each_element(*map, box, [&](unsigned char* to, size_t) {
    if (!to) return;
    __tsan_write_range(to, map->element_bytes);
    poison(to, map->element_bytes);
  });
  __tsan_func_exit();
  watch_store(source, box_bytes(*map), __builtin_return_address(0));
  running->stores.push_back({*map, source, box, running->store_groups, {}});
}

void gc_runtime_tma_store_commit() { ++running->store_groups; }

// What a store reads, as the async proxy sees it.
static std::vector<unsigned char> read_by(const TmaStore& store) {
  const Block& block = *running->block;
  const size_t at = (size_t)(store.source - block.dynamic_shared);
  std::vector<unsigned char> found(box_bytes(store.map));
  for_each_element(store.map, store.box, [&](unsigned char* to, size_t byte) {
    if (to) memcpy(&found[byte], block.async_view.data() + swizzled(at + byte, store.map.swizzle), store.map.element_bytes);
  });
  return found;
}

// What the thread's stores read is taken, and then no longer looked at. Returns those of which it was not yet.
static std::vector<const TmaStore*> take_stored(int pending, void* caller) {
  Thread& self = *running;
  std::vector<const TmaStore*> taken;
  __tsan_func_entry(caller);
  for (TmaStore& store : self.stores) {
    if (store.group >= self.store_groups - pending || !store.taken.empty()) continue;
    __tsan_read_range(const_cast<unsigned char*>(store.source), box_bytes(store.map));
    store.taken = read_by(store);
    taken.push_back(&store);
  }
  __tsan_func_exit();
  __tsan_acquire(&self.block->stored_sync);
  return taken;
}

void gc_runtime_tma_store_wait_read(int pending) {
  const std::vector<const TmaStore*> taken = take_stored(pending, __builtin_return_address(0));
  yield();
  for (const TmaStore* const store : taken)
    if (store->taken != read_by(*store)) fail("gc_tma_store_wait_read: what a TMA store reads has been written meanwhile");
}

void gc_runtime_tma_store_wait(int pending) {
  take_stored(pending, __builtin_return_address(0));
  Thread& self = *running;
  std::vector<TmaStore> open;
  __tsan_func_entry(__builtin_return_address(0));
  for (const TmaStore& store : self.stores) {
    if (store.group >= self.store_groups - pending) {
      open.push_back(store);
      continue;
    }
    for_each_element(store.map, store.box, [&](unsigned char* to, size_t byte) {
      if (!to) return;
      __tsan_write_range(to, store.map.element_bytes);
      deposit(to, &store.taken[byte], store.map.element_bytes);
    });
  }
  __tsan_func_exit();
  self.stores.swap(open);
}

void gc_runtime_wgmma_fence() { running->wgmma_fenced = true; }

// One wgmma of this thread; with `registers` operand `a` is not described but has these.
static void call_wgmma(const Wgmma& asked, void* acc, const unsigned* registers, void* caller) {
  Thread& self = *running;
  if (!self.wgmma_fenced) fail("wgmma: gc_wgmma_fence is missing in front of it");
  if (self.linear / WARPGROUP * WARPGROUP + WARPGROUP > (int)block_threads) fail("wgmma: not a whole warpgroup");
  const unsigned long long mix = asked.a * 31 + asked.b;
  if (gc_runtime_warp_exchange("wgmma", mix, 0) != mix) fail("wgmma: lanes of a warp describe different operands");
  unsigned all[WARP][4];
  if (registers) gc_runtime_warp_gather("wgmma", registers, sizeof all[0], all);
  __tsan_func_entry(caller);
  watch_operands(asked);
  __tsan_func_exit();
  const Unwatched scope;
  std::vector<Wgmma>& log = wgmma_log();
  const size_t number = self.wgmmas_called++;
  const int columns = asked.columns, depth = depth_of(asked.element);
  if (number == log.size()) {
    log.push_back(asked);
    Wgmma& call = log.back();
    if (registers) {
      call.rows.resize((size_t)(GROUP_ROWS * depth));
    } else {
      call.a_bytes = operand("a", asked.a, GROUP_ROWS);
      call.rows = numbers(asked.element, call.a_bytes);
    }
    call.b_bytes = columns_of(asked.b, columns, asked.turned);
    call.cols = numbers(asked.element, call.b_bytes);
  }
  Wgmma& call = log[number];
  if (call.element != asked.element || call.columns != columns || call.a != asked.a || call.b != asked.b ||
      call.first != asked.first || call.turned != asked.turned)
    fail("wgmma: warps of a warpgroup describe different operands");
  for (int lane = 0; registers && lane < WARP; ++lane)
    for (int i = 0; i < 8; ++i) {  // two elements of a register, as mma has them
      const int row = self.linear % WARPGROUP / WARP * 16 + lane / 4 + i / 2 % 2 * 8;
      const unsigned short bits = (unsigned short)(all[lane][i / 2] >> (i % 2 * 16));
      unsigned char bytes[2];
      memcpy(bytes, &bits, sizeof bits);
      call.rows[(size_t)(row * depth + i / 4 * 8 + lane % 4 * 2 + i % 2)] = element_value(asked.element, bytes);
    }
  const size_t bytes = sizeof(uint32_t) * (size_t)columns / 2;
  bool in_flight = false;
  for (const Sums& sums : self.sums) in_flight = in_flight || sums.acc == acc;
  if (in_flight && !is_poison(acc, bytes)) fail("wgmma: its sums were written while in flight");
  if (!in_flight) {
    const uint32_t* values = static_cast<const uint32_t*>(acc);
    self.sums.push_back({acc, std::vector<uint32_t>(values, values + columns / 2)});
  }
  poison(acc, bytes);
  WgmmaCall mine = {number, acc, self.wgmma_groups, registers, {}};
  if (registers) memcpy(mine.before, registers, sizeof mine.before);
  self.wgmmas.push_back(mine);
}

void gc_runtime_wgmma(GcElement element, int columns, void* acc, unsigned long long a, unsigned long long b, bool first) {
  call_wgmma({element, columns, first, false, a, b, {}, {}, {}, {}, 0}, acc, nullptr, __builtin_return_address(0));
}

void gc_runtime_wgmma_registers(GcElement element, int columns, void* acc, const unsigned* a, unsigned long long b) {
  call_wgmma({element, columns, false, true, 0, b, {}, {}, {}, {}, 0}, acc, a, __builtin_return_address(0));
}

void gc_runtime_wgmma_commit() { ++running->wgmma_groups; }

void gc_runtime_wgmma_wait(int pending) {
  Thread& self = *running;
  __tsan_func_entry(__builtin_return_address(0));
  for (const WgmmaCall& mine : self.wgmmas)
    if (mine.group < self.wgmma_groups - pending) watch_operands(wgmma_log()[mine.number]);
  __tsan_func_exit();
  const Unwatched scope;
  std::vector<WgmmaCall> open;
  for (const WgmmaCall& mine : self.wgmmas) {
    if (mine.group >= self.wgmma_groups - pending) {
      open.push_back(mine);
      continue;
    }
    Wgmma& call = wgmma_log()[mine.number];
    const unsigned warp = 1u << (self.linear % WARPGROUP / WARP);
    if (!(call.checked & warp) &&
        ((!call.turned && call.a_bytes != operand("a", call.a, GROUP_ROWS)) ||
         call.b_bytes != columns_of(call.b, call.columns, call.turned)))
      fail("wgmma: an operand changed in shared memory between the call and the wait for it");
    if (mine.registers && memcmp(mine.registers, mine.before, sizeof mine.before) != 0)
      fail("wgmma: registers of operand a were written while in flight");
    call.checked |= warp;
    multiply(call, sums_of(mine.acc).values);
  }
  self.wgmmas.swap(open);
  self.wgmma_fenced = false;
  std::vector<Sums> still;
  for (Sums& sums : self.sums) {
    bool in_flight = false;
    for (const WgmmaCall& other : self.wgmmas) in_flight = in_flight || other.acc == sums.acc;
    if (in_flight) {
      still.push_back(std::move(sums));
      continue;
    }
    const size_t bytes = sums.values.size() * sizeof(uint32_t);
    if (!is_poison(sums.acc, bytes)) fail("wgmma: its sums were written while in flight");
    memcpy(sums.acc, sums.values.data(), bytes);
  }
  self.sums.swap(still);
}

// The other block of a pair, which has to run.
static Block& running_partner(const char* what) {
  const Block& block = *running->block;
  Block* const partner = partner_of(block);
  if (cluster.size() != 2 || !partner) fail("%s: a pair of a cluster of %zu", what, cluster.size());
  if (partner->alive == 0) fail("%s: the other block has exited", what);
  if (cluster_phase == block.started) fail("%s: the other block may not have started: gc_cluster_sync", what);
  return *partner;
}

void gc_runtime_tcgen05_alloc(unsigned* shared_address, unsigned columns, bool pair) {
  const char* const what = pair ? "gc_tcgen05_alloc_pair" : "gc_tcgen05_alloc";
  Thread& self = *running;
  TensorMemory& memory = self.block->tensor;
  const unsigned long long asked = (unsigned long long)(uintptr_t)shared_address * 1024 + columns;
  if (columns < 32 || columns > TENSOR_COLUMNS || (columns & (columns - 1))) fail("%s: %u columns", what, columns);
  gc_runtime_require_shared(what, shared_address, 4);
  if (gc_runtime_warp_exchange(what, asked, 0) != asked) fail("%s: lanes of a warp ask for different columns", what);
  self.tensor.unfenced_alloc = true;
  if (pair) running_partner(what);
  if (gc_runtime_lane() == 0) {
    if (memory.gave_up) fail("%s: the block has given up the right to allocate", what);
    memory.gave_up = true;
    const unsigned first = TENSOR_COLUMNS - columns;  // not 0, which a kernel could take for granted
    memory.allocated.push_back({first, columns, self.linear / WARP, 0, pair, false});
    __tsan_func_entry(__builtin_return_address(0));
    __tsan_write_range(shared_address, sizeof *shared_address);
    __tsan_func_exit();
    *shared_address = first;
    ++progress;
  }
  gc_runtime_warp_exchange(what, asked, 0);
}

// Fails unless nobody uses the block's tensor memory any more, and this thread knows.
static void require_left(const char* what, const Block& block) {
  const Thread& self = *running;
  for (size_t t = 0; t < block_threads; ++t) {
    const Thread& other = threads_of(block)[t];
    if (!other.tensor.loads.empty()) fail("%s: a thread's loads are in flight: gc_tcgen05_wait_load", what);
    if (!other.tensor.unfenced.empty() && (&block != self.block || other.linear / WARP != self.linear / WARP))
      fail("%s: a thread of another warp has loaded, and no gc_tcgen05_fence_before has followed", what);
  }
  if (block.tensor.left > self.tensor.seen) fail("%s: gc_tcgen05_fence_after has not followed the others' loads", what);
  for_each_product(block, [&](const Tcgen05& product) {
    if (!product.done) fail("%s: products are under way: wait for them", what);
  });
}

void gc_runtime_tcgen05_free(unsigned address, unsigned columns, bool pair) {
  const char* const what = pair ? "gc_tcgen05_free_pair" : "gc_tcgen05_free";
  Thread& self = *running;
  TensorMemory& memory = self.block->tensor;
  const unsigned long long asked = address * 1024ull + columns;
  if (gc_runtime_warp_exchange(what, asked, 0) != asked) fail("%s: lanes of a warp free different columns", what);
  require_left(what, *self.block);
  if (pair) {
    const Block& partner = running_partner(what);
    require_left(what, partner);
    if (partner.tensor.left && partner.tensor.left_in == cluster_phase)
      fail("%s: gc_cluster_sync has not followed the other block's loads", what);
  }
  gc_runtime_warp_exchange(what, asked, 0);
  if (gc_runtime_lane() != 0) return;
  for (size_t i = 0; i < memory.allocated.size(); ++i) {
    const TensorColumns held = memory.allocated[i];
    if (held.first != address || held.count != columns) continue;
    if (held.pair != pair) fail("%s: the columns are %s", what, pair ? "of one block" : "of a pair: gc_tcgen05_free_pair");
    if (!held.left) columns_at(what, address, columns);
    memory.allocated.erase(memory.allocated.begin() + (std::ptrdiff_t)i);
    poison(memory.words.data(), memory.words.size() * sizeof memory.words[0]);
    if (pair)
      for (TensorColumns& theirs : running_partner(what).tensor.allocated) theirs.left = true;
    return;
  }
  columns_at(what, address, columns);
  fail("%s: %u columns at %u are not what was allocated", what, columns, address);
}

void gc_runtime_tcgen05_fence_before() {
  Thread& self = *running;
  TensorMemory& memory = self.block->tensor;
  if (self.tensor.unfenced_alloc)
    for (TensorColumns& held : memory.allocated)
      if (held.warp == self.linear / WARP) held.fenced = ++tensor_events;
  if (!self.tensor.stores.empty()) fail("gc_tcgen05_fence_before: stores are in flight: gc_tcgen05_wait_store");
  if (!self.tensor.unfenced.empty()) {
    memory.left = ++tensor_events;
    memory.left_in = cluster_phase;
  }
  for (const TensorSpan span : self.tensor.unfenced)
    std::fill_n(memory.told.begin() + span.first, span.count, memory.left);
  self.tensor.unfenced_alloc = false;
  self.tensor.unfenced.clear();
}

void gc_runtime_tcgen05_fence_after() { running->tensor.seen = tensor_events; }

// Fails unless the block's threads that have loaded or stored the columns are done, have told of it, and this one knows.
static void require_told(const Block& block, TensorSpan span) {
  const Thread& self = *running;
  const TensorMemory& memory = block.tensor;
  for (size_t t = 0; t < block_threads; ++t) {
    const TensorThread& other = threads_of(block)[t].tensor;
    for (const TensorLoad& load : other.loads)
      if (load.columns.meets(span)) fail("tcgen05: a product is asked for while a thread loads its columns");
    for (const TensorSpan touched : other.unfenced)
      if (touched.meets(span)) fail("tcgen05: a thread has used the product's columns, and no gc_tcgen05_fence_before has followed");
  }
  for (unsigned i = span.first; i < span.first + span.count; ++i)
    if (memory.told[i] > self.tensor.seen)
      fail("tcgen05: gc_tcgen05_fence_after has not followed what others did in the product's columns");
}

static void ask_for(Tcgen05 product, unsigned sums, unsigned long long b, bool add) {
  Thread& self = *running;
  if (sums >> 16) fail("tcgen05: sums from lane %u on", sums >> 16);
  product.thread = self.linear;
  product.first_column = sums;
  product.add = add;
  product.b = b;
  if (product.pair && (running_partner("tcgen05"), self.block->rank != 0))
    fail("tcgen05: a thread of the block of rank 1 asks for a pair's product");
  for (const Block* const of : sharers(*self.block, product)) {
    if (columns_at("tcgen05", *of, sums, (unsigned)product.columns).pair != product.pair)
      fail("tcgen05: a product of %s, and columns of %s", product.pair ? "a pair" : "one block", product.pair ? "one block" : "a pair");
    require_told(*of, product.sums());
  }
  for (const Tcgen05& before : self.block->tensor.asked) {
    if (before.done) continue;
    if (before.sums().meets(product.a_columns)) fail("tcgen05: an operand in tensor memory is the sums of a product under way");
    if (before.thread != self.linear && before.uses(product.sums())) fail("tcgen05: another thread's product uses the sums");
  }
  __tsan_func_entry(__builtin_return_address(0));
  watch_product(*self.block, product);
  __tsan_func_exit();
  const Unwatched scope;
  product.a_bytes = rows_of_a(*self.block, product);
  product.b_bytes = columns_of_b(*self.block, product);
  self.block->tensor.asked.push_back(product);
}

void gc_runtime_tcgen05(int bytes, unsigned sums, unsigned long long a, unsigned long long b, unsigned instruction, bool add,
                        bool pair) {
  Tcgen05 product = described(bytes, instruction, pair);
  product.a = a;
  ask_for(product, sums, b, add);
}

void gc_runtime_tcgen05_weights(unsigned sums, unsigned a, unsigned long long b, unsigned instruction, bool add) {
  Tcgen05 product = described(2, instruction, false);
  if (product.rows != TENSOR_LANES || a >> 16) fail("tcgen05: an operand in tensor memory of %d rows, from lane %u on", product.rows, a >> 16);
  product.a_columns = {a, 8};
  columns_at("tcgen05", a, 8);
  if (product.a_columns.meets({sums, (unsigned)product.columns})) fail("tcgen05: an operand is in the columns of the sums");
  require_told(*running->block, product.a_columns);
  ask_for(product, sums, b, add);
}

static void commit_products(const char* what, Block& block, unsigned long long* barrier) {
  Thread& self = *running;
  arrive_at(what, block, barrier, 0);
  const Unwatched scope;
  block.mbarriers.at(barrier).commits.push_back({(int)self.block->rank, self.linear, self.block->tensor.asked.size()});
}

// Fails if the thread's products are of another kind.
static void require_kind(const char* what, bool pair) {
  for (const Tcgen05& product : running->block->tensor.asked)
    if (product.thread == running->linear && product.pair != pair)
      fail("%s: of products of %s", what, product.pair ? "a pair: gc_tcgen05_commit_pair" : "one block");
}

static void commit_to(const char* what, unsigned long long* barrier, unsigned ranks) {
  const unsigned long long offset = gc_runtime_shared_offset(barrier);
  if (ranks == 0) fail("%s: for no block of the cluster", what);
  for (unsigned rank = 0; ranks >> rank; ++rank) {
    if (!(ranks >> rank & 1)) continue;
    Block& block = block_of_rank(rank);
    commit_products(what, block, reinterpret_cast<unsigned long long*>(block.dynamic_shared + offset));
  }
}

void gc_runtime_tcgen05_commit(unsigned long long* barrier) {
  require_kind("gc_tcgen05_commit", false);
  commit_products("gc_tcgen05_commit", *running->block, barrier);
}

void gc_runtime_tcgen05_commit_multicast(unsigned long long* barrier, unsigned ranks) {
  require_kind("gc_tcgen05_commit_multicast", false);
  commit_to("gc_tcgen05_commit_multicast", barrier, ranks);
}

void gc_runtime_tcgen05_commit_pair(unsigned long long* barrier) {
  require_kind("gc_tcgen05_commit_pair", true);
  running_partner("gc_tcgen05_commit_pair");
  commit_to("gc_tcgen05_commit_pair", barrier, 3);
}

// The columns of `lanes` lanes that all threads of a warp load or store.
static TensorSpan reached(const char* what, int columns, unsigned address, unsigned lanes) {
  Thread& self = *running;
  TensorMemory& memory = self.block->tensor;
  const unsigned lane = address >> 16;
  const TensorSpan span = {address & 0xffff, (unsigned)columns};
  if (gc_runtime_warp_exchange(what, address, 0) != address) fail("%s: lanes of a warp have different addresses", what);
  if (lane / 32 != (unsigned)(self.linear / WARP % 4) || lane % lanes)
    fail("%s: lane %u, which warp %d does not reach so", what, lane, self.linear / WARP);
  columns_at(what, span.first, span.count);
  for_each_product(*self.block, [&](const Tcgen05& product) {
    if (!product.done && product.sums().meets(span))
      fail("%s: its sums are not done: nobody has seen the phase of a barrier complete at which they arrive", what);
  });
  for (unsigned i = span.first; i < span.first + span.count; ++i)
    if (memory.ended[i] > self.tensor.seen) fail("%s: gc_tcgen05_fence_after has not followed the end of its products", what);
  for (const TensorSpan stored : self.tensor.stores)
    if (stored.meets(span)) fail("%s: the thread's stores are in flight: gc_tcgen05_wait_store", what);
  self.tensor.unfenced.push_back(span);
  return span;
}

static void start_load(TensorLoad load) {
  poison(load.values, load.words.size() * sizeof load.words[0]);
  running->tensor.loads.push_back(std::move(load));
}

void gc_runtime_tcgen05_load(int columns, float* values, unsigned from) {
  const TensorSpan span = reached("gc_tcgen05_load", columns, from, 16);
  TensorLoad load = {values, span, std::vector<uint32_t>((size_t)columns / 2)};
  const int mine = gc_runtime_lane();
  for (int i = 0; i < columns / 2; ++i)
    load.words[(size_t)i] = running->block->tensor.at((int)(from >> 16) + mine / 4 + i / 2 % 2 * 8,
                                                      span.first + (unsigned)(i / 4 * 8 + mine % 4 * 2 + i % 2));
  start_load(std::move(load));
}

void gc_runtime_tcgen05_load_row(int columns, float* values, unsigned from) {
  const TensorSpan span = reached("gc_tcgen05_load_row", columns, from, 32);
  const uint32_t* const row = &running->block->tensor.at((int)(from >> 16) + gc_runtime_lane(), span.first);
  start_load({values, span, std::vector<uint32_t>(row, row + columns)});
}

void gc_runtime_tcgen05_store_row(int columns, unsigned to, const void* words) {
  const char* const what = "gc_tcgen05_store_row";
  TensorMemory& memory = running->block->tensor;
  const TensorSpan span = reached(what, columns, to, 32);
  for (const TensorLoad& load : running->tensor.loads)
    if (load.columns.meets(span)) fail("%s: the thread still loads them: wait", what);
  for (const Tcgen05& product : memory.asked)
    if (!product.done && product.a_columns.meets(span)) fail("%s: a product under way reads them", what);
  memcpy(&memory.at((int)(to >> 16) + gc_runtime_lane(), span.first), words, (size_t)columns * sizeof(uint32_t));
  running->tensor.stores.push_back(span);
}

void gc_runtime_tcgen05_wait_store() {
  gc_runtime_warp_exchange("gc_tcgen05_wait_store", 0, 0);
  running->tensor.stores.clear();
}

void gc_runtime_tcgen05_wait_load(float* values) {
  Thread& self = *running;
  gc_runtime_warp_exchange("gc_tcgen05_wait_load", 0, 0);
  bool found = self.tensor.loads.empty();  // an earlier wait was for all
  for (const TensorLoad& load : self.tensor.loads) {
    found = found || load.values == values;
    if (!is_poison(load.values, load.words.size() * sizeof load.words[0]))
      fail("gc_tcgen05_wait_load: sums were written while they are loaded");
    deposit(load.values, load.words.data(), load.words.size() * sizeof load.words[0]);
  }
  if (!found) fail("gc_tcgen05_wait_load: the values are not those of a load in flight");
  self.tensor.loads.clear();
}

void gc_runtime_setmaxnreg(const char* which, int registers) {
  Thread& self = *running;
  Block& block = *self.block;
  const bool increases = strcmp(which, "gc_setmaxnreg_inc") == 0;
  const size_t group = (size_t)(self.linear / WARPGROUP);
  if (registers < 24 || registers > 256 || registers % 8) fail("%s: %d registers", which, registers);
  if ((group + 1) * WARPGROUP > block_threads) fail("%s: not a whole warpgroup", which);
  gc_runtime_warp_exchange(which, 0, 0);
  Registers& mine = block.registers[group];
  const size_t number = self.register_changes++;
  if (number == mine.changes.size()) mine.changes.push_back({increases, registers, 0, false});
  const auto change = [&]() -> RegisterChange& { return mine.changes[number]; };
  if (change().increases != increases || change().registers != registers)
    fail("%s: warps of a warpgroup ask for different registers", which);
  if (!change().done && (increases ? registers < mine.count : registers > mine.count))
    fail("%s: %d registers, a thread has %d", which, registers, mine.count);
  ++change().arrived;
  ++progress;
  if (!increases && change().arrived < WARPGROUP) return;  // the registers are free when the last warp has called
  while (!is_granted(self)) {
    self.state = State::AT_REGISTERS;
    yield();
    self.state = State::READY;
  }
  if (change().done) return;
  change().done = true;
  block.free_registers -= (registers - mine.count) * WARPGROUP;
  mine.count = registers;
  ++progress;
}

unsigned gc_runtime_cluster_rank() { return running->block->rank; }

void gc_runtime_cluster_sync() {
  Thread& self = *running;
  const unsigned parity = cluster_phase & 1;
  __tsan_release(&cluster_sync[parity]);
  self.state = State::AT_CLUSTER;
  yield();
  __tsan_acquire(&cluster_sync[parity]);
}

const void* gc_runtime_cluster_address(const void* address, unsigned rank) {
  const unsigned long long offset = gc_runtime_shared_offset(address);
  return block_of_rank(rank).dynamic_shared + offset;
}

void gc_runtime_grid_wait() {
  if (landed) return;
  running->state = State::AT_GRID;
  yield();
}

void gc_runtime_atomic_done(const volatile void* address, bool changed_memory) {
  Thread& self = *running;
  progress += changed_memory;
  if (self.looked_at != progress) {
    self.vain_looks.clear();
    self.most_looks = 0;
    self.looked_at = progress;
  }
  if (!changed_memory) self.most_looks = std::max(self.most_looks, ++self.vain_looks[address]);
  yield();
}

void gc_runtime_fence() {
  // orders more than a fence does: a race may be missed, but none is reported wrongly
  __tsan_release(&fence_sync);
  __tsan_acquire(&fence_sync);
}

// Runs the launch, writes its results and ends the process.
[[noreturn]] void play(Order order, uint64_t seed) {
  Shuffler shuffler = {seed};
  const uint3 grid = gc_launch.grid_size, part = cluster_size;
  const uint3 clusters = {grid.x / part.x, grid.y / part.y, grid.z / part.z};
  std::vector<int> turns = ordered((size_t)clusters.x * clusters.y * clusters.z, order);
  if (order == Order::SHUFFLED) shuffler.shuffle(turns);
  __tsan_release(&block_sync[1]);
  for (const int turn : turns) {
    const unsigned t = (unsigned)turn;
    const uint3 first = {t % clusters.x * part.x, t / clusters.x % clusters.y * part.y,
                         t / clusters.x / clusters.y * part.z};
    gc_launch.block_index = first;
    in_block = true;
    ++blocks_started;
    run_cluster(first, order, shuffler);
    in_block = false;
  }
  __tsan_acquire(&block_sync[(blocks_started + 1) & 1]);
  for (const Buffer& buffer : buffers) check_guards(buffer);

  const uint64_t header[2] = {0, 0};
  write_all(header, sizeof header);
  for (const Buffer& buffer : buffers) write_all(buffer.data, buffer.bytes);
  _exit(0);
}

// At least as much as the kernel declares: its variables lie between two markers of 4 bytes, each at a multiple of 128.
uint64_t static_shared_bytes() {
  const uint64_t section = (uint64_t)(kernel->shared_end - kernel->shared_begin), marks = 128 + 2 * 4;
  return section > marks ? section - marks : 0;
}

int main() {
  catch_signals();
  __tsan_ignore_thread_begin();  // the scheduler is not part of the kernel
  kernel = &gc_entries[read_u64()];
  gc_launch.grid_size = read_uint3();
  gc_launch.block_size = read_uint3();
  cluster_size = read_uint3();
  std::vector<Order> orders(read_u64());
  for (Order& order : orders) order = (Order)read_u64();
  const uint64_t seed = read_u64();
  dynamic_shared_bytes = read_u64();
  shared_limit = read_u64();
  first_registers = (int)read_u64();
  buffers.resize(read_u64());
  for (size_t i = 0; i < buffers.size(); ++i) read_buffer(buffers[i], i);
  std::vector<uint64_t> values(read_u64());  // a buffer's address, a scalar's bits or a tensor map's address
  std::vector<GcTensorMap> maps(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t kind = read_u64(), content = read_u64();
    values[i] = kind ? (uint64_t)(uintptr_t)buffers[content].data : content;
    arguments.push_back(&values[i]);
    if (kind != 2) continue;
    read_all(&maps[i], sizeof maps[i]);
    maps[i].base += values[i];
    arguments.back() = &maps[i];
  }
  if ((int)values.size() != kernel->arity)
    fail("%s takes %d arguments, %zu given", kernel->name, kernel->arity, values.size());

  if (const uint64_t fixed = static_shared_bytes(); fixed + dynamic_shared_bytes > shared_limit)
    fail("%s: %" PRIu64 " static and %" PRIu64 " dynamic bytes of shared memory, a block may have %" PRIu64, kernel->name,
         fixed, dynamic_shared_bytes, shared_limit);

  scheduler.adopt_running_stack();
#ifdef GC_TSAN
  async_proxy = __tsan_create_fiber(0);
  __tsan_set_fiber_name(async_proxy, "the async proxy");
#endif
  const uint3 grid = gc_launch.grid_size, part = cluster_size;
  if (grid.x % part.x || grid.y % part.y || grid.z % part.z)
    fail("%s: a grid of %u x %u x %u does not consist of clusters of %u x %u x %u", kernel->name, grid.x, grid.y,
         grid.z, part.x, part.y, part.z);
  create_threads();
  for (size_t i = 0; i + 1 < orders.size(); ++i) {  // each in a process of its own, so this process's memory does not change
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      play(orders[i], seed);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
      _exit(WIFEXITED(status) && status ? WEXITSTATUS(status) : 4);
  }
  play(orders.back(), seed);
}
