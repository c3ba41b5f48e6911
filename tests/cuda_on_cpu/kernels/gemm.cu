// C[m,n] = A[m,k] @ B[k,n], row-major; 64 threads make a 16 x 32 tile of C, 2 x 4 each.
extern "C" __global__ void __launch_bounds__(64)
    k_gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
           int k) {
  __shared__ float tile_a[8][16];
  __shared__ __align__(16) float tile_b[8][32];
  const int row0 = blockIdx.y * 16, col0 = blockIdx.x * 32;
  const int my_row = threadIdx.x / 8 * 2, my_col = threadIdx.x % 8 * 4;
  float sum[2][4] = {};
  for (int k0 = 0; k0 < k; k0 += 8) {
    for (int i = threadIdx.x; i < 8 * 16; i += 64) {
      const int row = row0 + i / 8, depth = k0 + i % 8;
      tile_a[i % 8][i / 8] = row < m && depth < k ? a[row * k + depth] : 0.0f;
    }
    for (int i = threadIdx.x; i < 8 * 32; i += 64) {
      const int col = col0 + i % 32, depth = k0 + i / 32;
      tile_b[i / 32][i % 32] = col < n && depth < k ? b[depth * n + col] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < 8; ++depth) {
      const float4 right = *reinterpret_cast<const float4*>(&tile_b[depth][my_col]);
      for (int i = 0; i < 2; ++i) {
        const float left = tile_a[depth][my_row + i];
        sum[i][0] = fmaf(left, right.x, sum[i][0]);
        sum[i][1] = fmaf(left, right.y, sum[i][1]);
        sum[i][2] = fmaf(left, right.z, sum[i][2]);
        sum[i][3] = fmaf(left, right.w, sum[i][3]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int row = row0 + my_row + i, col = col0 + my_col + j;
      if (row < m && col < n) c[row * n + col] = sum[i][j];
    }
  }
}
