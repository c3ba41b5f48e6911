// Sum, largest and least of each row of x[rows, columns]; one block of 96 threads a row.
extern "C" __global__ void __launch_bounds__(96)
    k_row_reduce(const float* __restrict__ x, float* __restrict__ sums, float* __restrict__ largest,
                 float* __restrict__ least, int columns) {
  __shared__ float parts[3][3];
  const float* row = x + blockIdx.x * columns;
  float sum = 0.0f, high = row[0], low = row[0];
  for (int i = threadIdx.x; i < columns; i += 96) {
    sum += row[i];
    high = fmaxf(high, row[i]);
    low = fminf(low, row[i]);
  }
  sum = gc_warp_sum(sum);
  high = gc_warp_max(high);
  low = gc_warp_min(low);
  if (threadIdx.x % 32 == 0) {
    parts[0][threadIdx.x / 32] = sum;
    parts[1][threadIdx.x / 32] = high;
    parts[2][threadIdx.x / 32] = low;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = parts[0][0] + parts[0][1] + parts[0][2];
    largest[blockIdx.x] = fmaxf(fmaxf(parts[1][0], parts[1][1]), parts[1][2]);
    least[blockIdx.x] = fminf(fminf(parts[2][0], parts[2][1]), parts[2][2]);
  }
}
