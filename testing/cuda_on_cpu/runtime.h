// The runtime's functions for CUDA kernels compiled by g++: indices, barriers, warp exchange, copies, wgmma, clusters.
// Their scheduler is in runtime.cpp; the device functions are in prelude_cpu.h.
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

// The contents of a tensor map; the harness writes one for each such argument. Innermost axis first.
struct GcTensorMap {
  unsigned long long base;  // of the array, on the host
  unsigned long long rank, element_bytes, rounds_to_tf32, swizzle;  // swizzle: 0, 32, 64 or 128 bytes
  unsigned long long extents[5], strides[5], box[5], element_strides[5];  // strides in bytes
  unsigned long long is_im2col, channels, pixels;  // pixels of one load
  long long lower[2], upper[2];  // corners of the window of pixels, as offsets from the first and the last pixel: w, h
};

struct GcBox {  // the start of a TMA operation
  int rank;
  int at[5];
  bool is_im2col;
  int offsets[2];
};

enum class GcElement { F16, BF16, TF32, S8 };

enum class GcFragment { F16, BF16, TF32, S8, U8 };

struct GcMma {  // c[8 * halves][8] += a * b; the depth is the number of elements in 4 * steps registers
  GcFragment a, b;
  int halves, steps;
};

extern "C" {
extern GcThread* gc_current;
extern GcLaunch gc_launch;

// Waits for all threads of the block; `line` is the source line of the call.
void gc_runtime_barrier(int line);

// Waits for `threads` threads at the barrier `number`, from 1 to 15.
void gc_runtime_named_barrier(int number, int threads);

// Deposits 64 bits and waits for the 32 lanes of the warp. Returns the deposit of `source_lane`, or poison if that lane has
// exited or does not exist. `kind` names the collective.
unsigned long long gc_runtime_warp_exchange(const char* kind, unsigned long long bits, int source_lane);
int gc_runtime_lane();

// The same for `bytes` bytes of `mine`, at most GC_DEPOSIT_BYTES. `all` receives the deposits of the 32 lanes, one after
// another.
void gc_runtime_warp_gather(const char* kind, const void* mine, int bytes, void* all);

// The lane's part of a product of the warp's fragments: its registers `a` and `b`, and its sums `c` in f32 or i32.
void gc_runtime_mma(const char* kind, GcMma shape, void* c, const unsigned* a, const unsigned* b);

// Fails unless `address` is aligned to `bytes`, a power of two, and so many bytes there are in shared memory.
void gc_runtime_require_shared(const char* kind, const void* address, int bytes);

void gc_runtime_copy_async(void* shared_dst, const void* global_src, int bytes, bool valid);
void gc_runtime_copy_commit();
void gc_runtime_copy_wait(int pending);

unsigned char* gc_runtime_dynamic_shared();
unsigned long long gc_runtime_shared_offset(const void* address);

void gc_runtime_mbarrier_init(unsigned long long* barrier, unsigned count);
void gc_runtime_mbarrier_invalidate(unsigned long long* barrier);
void gc_runtime_mbarrier_arrive(unsigned long long* barrier, unsigned bytes);
void gc_runtime_mbarrier_wait(unsigned long long* barrier, unsigned parity);
void gc_runtime_mbarrier_arrive_cluster(unsigned long long* barrier, unsigned rank);
void gc_runtime_mbarrier_wait_cluster(unsigned long long* barrier, unsigned parity);
void gc_runtime_fence_barrier_init();
void gc_runtime_fence_proxy_async();
void gc_runtime_tma_load(void* shared_dst, const GcTensorMap* map, unsigned long long* barrier, GcBox box);
void gc_runtime_tma_load_pair(void* shared_dst, const GcTensorMap* map, unsigned long long* barrier, GcBox box);
void gc_runtime_tma_load_multicast(void* shared_dst, const GcTensorMap* map, unsigned long long* barrier, GcBox box,
                                   unsigned ranks);
void gc_runtime_tma_store(const GcTensorMap* map, const void* shared_src, GcBox box);
void gc_runtime_tma_store_commit();
void gc_runtime_tma_store_wait(int pending);
void gc_runtime_tma_store_wait_read(int pending);

void gc_runtime_wgmma_fence();
// `first`: the sums that `acc` has are not read.
void gc_runtime_wgmma(GcElement element, int columns, void* acc, unsigned long long a, unsigned long long b, bool first);
// `a`: the thread's four registers of its warp's 16 rows; `b` is contiguous along the columns.
void gc_runtime_wgmma_registers(GcElement element, int columns, void* acc, const unsigned* a, unsigned long long b);
void gc_runtime_wgmma_commit();
void gc_runtime_wgmma_wait(int pending);
void gc_runtime_setmaxnreg(const char* which, int registers);

void gc_runtime_tcgen05_alloc(unsigned* shared_address, unsigned columns, bool pair);
void gc_runtime_tcgen05_free(unsigned address, unsigned columns, bool pair);
void gc_runtime_tcgen05_fence_before();
void gc_runtime_tcgen05_fence_after();
// `bytes`: of an element, as the instruction's kind has them.
void gc_runtime_tcgen05(int bytes, unsigned sums, unsigned long long a, unsigned long long b, unsigned instruction, bool add,
                        bool pair);
// `a`: where 16 elements of 128 rows start in tensor memory.
void gc_runtime_tcgen05_weights(unsigned sums, unsigned a, unsigned long long b, unsigned instruction, bool add);
void gc_runtime_tcgen05_commit(unsigned long long* barrier);
void gc_runtime_tcgen05_commit_pair(unsigned long long* barrier);
void gc_runtime_tcgen05_commit_multicast(unsigned long long* barrier, unsigned ranks);
void gc_runtime_tcgen05_load(int columns, float* values, unsigned from);
void gc_runtime_tcgen05_load_row(int columns, float* values, unsigned from);
void gc_runtime_tcgen05_wait_load(float* values);
void gc_runtime_tcgen05_store_row(int columns, unsigned to, const void* words);
void gc_runtime_tcgen05_wait_store();

unsigned gc_runtime_cluster_rank();
void gc_runtime_cluster_sync();
const void* gc_runtime_cluster_address(const void* address, unsigned rank);

// Waits for earlier launches of a programmatic launch; their results are poison until a thread waits.
void gc_runtime_grid_wait();

// Every atomic calls this when it is done, so that other threads run and a thread can wait for another's atomic.
void gc_runtime_atomic_done(const volatile void* address, bool changed_memory);
void gc_runtime_fence();
}

// One kernel of the executable; the table of kernels is generated.
struct GcEntry {
  const char* name;
  void (*call)(void** arguments);
  int arity;
  unsigned char *shared_begin, *shared_end;
};

extern "C" const GcEntry gc_entries[];

// Undefined memory has 0x7ffd in every 16 bits: a NaN in f16, bf16, f32 and f64, and too large for an index.
constexpr unsigned short GC_POISON = 0x7ffd;

constexpr int GC_DEPOSIT_BYTES = 32;  // the fragments of both operands of an mma
