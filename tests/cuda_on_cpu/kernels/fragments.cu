// Matrix fragments, one warp: ldmatrix of rows that each lane names, and mma of registers as memory has them.
template <int matrices>
__device__ __forceinline__ void keep(const unsigned* r, unsigned* y) {
  for (int i = 0; i < matrices; ++i) y[i * 32 + threadIdx.x] = r[i];
}

// x: 32 rows of 16 bytes; lane l names row order[l]; y: 14 registers of each lane
extern "C" __global__ void k_ldmatrix(const uint4* __restrict__ x, const int* __restrict__ order,
                                      unsigned* __restrict__ y) {
  __shared__ uint4 tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  gc_syncwarp();
  const uint4* row = tile + order[threadIdx.x];
  unsigned r[4];
  gc_ldmatrix_x1(r, row);
  keep<1>(r, y);
  gc_ldmatrix_x2(r, row);
  keep<2>(r, y + 32);
  gc_ldmatrix_x4(r, row);
  keep<4>(r, y + 96);
  gc_ldmatrix_x1_trans(r, row);
  keep<1>(r, y + 224);
  gc_ldmatrix_x2_trans(r, row);
  keep<2>(r, y + 256);
  gc_ldmatrix_x4_trans(r, row);
  keep<4>(r, y + 320);
}

// a, b, c: registers of each lane, register by register
template <int a_words, int b_words, int c_words, class Sum, class Multiply>
__device__ __forceinline__ void multiply(const unsigned* a, const unsigned* b, Sum* c, Multiply mma) {
  unsigned ar[a_words], br[b_words];
  Sum cr[c_words];
  for (int i = 0; i < a_words; ++i) ar[i] = a[i * 32 + threadIdx.x];
  for (int i = 0; i < b_words; ++i) br[i] = b[i * 32 + threadIdx.x];
  for (int i = 0; i < c_words; ++i) cr[i] = c[i * 32 + threadIdx.x];
  mma(cr, ar, br);
  for (int i = 0; i < c_words; ++i) c[i * 32 + threadIdx.x] = cr[i];
}

extern "C" __global__ void k_m16n8k8_f16(const unsigned* a, const unsigned* b, float* c) {
  multiply<2, 1, 4>(a, b, c, gc_mma_m16n8k8_f16);
}
extern "C" __global__ void k_m16n8k16_f16(const unsigned* a, const unsigned* b, float* c) {
  multiply<4, 2, 4>(a, b, c, gc_mma_m16n8k16_f16);
}
extern "C" __global__ void k_m16n8k16_bf16(const unsigned* a, const unsigned* b, float* c) {
  multiply<4, 2, 4>(a, b, c, gc_mma_m16n8k16_bf16);
}
extern "C" __global__ void k_m16n8k8_tf32(const unsigned* a, const unsigned* b, float* c) {
  multiply<4, 2, 4>(a, b, c, gc_mma_m16n8k8_tf32);
}
extern "C" __global__ void k_m8n8k16_s8s8(const unsigned* a, const unsigned* b, int* c) {
  multiply<1, 1, 2>(a, b, c, gc_mma_m8n8k16_i8<true, true>);
}
extern "C" __global__ void k_m8n8k16_u8s8(const unsigned* a, const unsigned* b, int* c) {
  multiply<1, 1, 2>(a, b, c, gc_mma_m8n8k16_i8<false, true>);
}
extern "C" __global__ void k_m8n8k16_s8u8(const unsigned* a, const unsigned* b, int* c) {
  multiply<1, 1, 2>(a, b, c, gc_mma_m8n8k16_i8<true, false>);
}
extern "C" __global__ void k_m8n8k16_u8u8(const unsigned* a, const unsigned* b, int* c) {
  multiply<1, 1, 2>(a, b, c, gc_mma_m8n8k16_i8<false, false>);
}
extern "C" __global__ void k_m16n8k32_s8s8(const unsigned* a, const unsigned* b, int* c) {
  multiply<4, 2, 4>(a, b, c, gc_mma_m16n8k32_i8<true, true>);
}
extern "C" __global__ void k_m16n8k32_u8s8(const unsigned* a, const unsigned* b, int* c) {
  multiply<4, 2, 4>(a, b, c, gc_mma_m16n8k32_i8<false, true>);
}
extern "C" __global__ void k_m16n8k32_s8u8(const unsigned* a, const unsigned* b, int* c) {
  multiply<4, 2, 4>(a, b, c, gc_mma_m16n8k32_i8<true, false>);
}
extern "C" __global__ void k_m16n8k32_u8u8(const unsigned* a, const unsigned* b, int* c) {
  multiply<4, 2, 4>(a, b, c, gc_mma_m16n8k32_i8<false, false>);
}

template <bool a_signed, bool b_signed>
__device__ void add_dots(const int* a, const int* b, int* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  sums[i] = gc_dot4<a_signed, b_signed>(a[i], b[i], sums[i]);
}
extern "C" __global__ void k_dot4_s8s8(const int* a, const int* b, int* sums) { add_dots<true, true>(a, b, sums); }
extern "C" __global__ void k_dot4_u8s8(const int* a, const int* b, int* sums) { add_dots<false, true>(a, b, sums); }
extern "C" __global__ void k_dot4_s8u8(const int* a, const int* b, int* sums) { add_dots<true, false>(a, b, sums); }
extern "C" __global__ void k_dot4_u8u8(const int* a, const int* b, int* sums) { add_dots<false, false>(a, b, sums); }

extern "C" __global__ void k_float_to_tf32(const float* x, unsigned* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_float_to_tf32(x[i]);
}

// two lanes name rows that a device would refuse
extern "C" __global__ void k_ldmatrix_misaligned(unsigned* y) {
  __shared__ uint4 tile[33];
  unsigned r[1];
  gc_ldmatrix_x1(r, reinterpret_cast<const char*>(tile + threadIdx.x) + (threadIdx.x == 3 ? 8 : 0));
  y[threadIdx.x] = r[0];
}
extern "C" __global__ void k_ldmatrix_of_global(unsigned* y) {
  unsigned r[1];
  gc_ldmatrix_x1(r, y + 4 * threadIdx.x);
  y[threadIdx.x] = r[0];
}
