// What a CUDA kernel compiled by g++ asks of the runtime: who am I, barriers, warp exchange, async copies.
// The scheduler behind these functions is runtime.cpp; the device functions are in prelude_cpu.h.
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct GcThread {  // the part of a CUDA thread that a kernel reads directly
  uint3 thread_index;
};

struct GcLaunch {
  uint3 block_index, block_size, grid_size;
};

extern "C" {
extern GcThread* gc_current;
extern GcLaunch gc_launch;

// Waits for every thread of the block; `line` is the source line of the call.
void gc_runtime_barrier(int line);

// Deposits 64 bits and waits for the 32 lanes of the warp; returns what `source_lane` deposited, or
// poison where that lane has exited or does not exist. `kind` names the collective.
unsigned long long gc_runtime_warp_exchange(const char* kind, unsigned long long bits, int source_lane);
int gc_runtime_lane();

// As above with `bytes` of `mine`, at most GC_DEPOSIT_BYTES; `all` gets the deposits of the 32 lanes, one
// behind the other.
void gc_runtime_warp_gather(const char* kind, const void* mine, int bytes, void* all);

// Fails unless `address` is aligned to `bytes`, a power of two, and that many are in shared memory.
void gc_runtime_require_shared(const char* kind, const void* address, int bytes);

void gc_runtime_copy_async(void* shared_dst, const void* global_src, int bytes, bool valid);
void gc_runtime_copy_commit();
void gc_runtime_copy_wait(int pending);

unsigned char* gc_runtime_dynamic_shared();

// Called by every atomic once done: lets other threads run, so that a thread may wait for another's atomic.
void gc_runtime_atomic_done(bool changed_memory);
void gc_runtime_fence();
}

// One kernel of the executable; the table of them is generated beside the kernels.
struct GcEntry {
  const char* name;
  void (*call)(void** arguments);
  int arity;
  unsigned char *shared_begin, *shared_end;
};

extern "C" const GcEntry gc_entries[];

// Undefined memory holds 0x7ffd in every 16 bits: NaN as f16, bf16, f32 and f64, far too large as an index.
constexpr unsigned short GC_POISON = 0x7ffd;

constexpr int GC_DEPOSIT_BYTES = 32;  // the fragments of both operands of one mma
