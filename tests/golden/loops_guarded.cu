// elementwise
// problem   size=15 inner=15 width=4 operations=0 read_bytes=4 moved_bytes=8 written_bytes=4 trips=1
// schedule  threads=64 vector=1 items=2
// engine    loops

extern "C" __global__ void __launch_bounds__(64) kernel0(
    const float* __restrict__ x0,
    float* __restrict__ x1) {
  // the points of this thread: 2 groups of 1, 64 groups apart
  const int first = (int)blockIdx.x * 128 + (int)threadIdx.x;
  #pragma unroll
  for (int item = 0; item < 2; ++item) {
    const int point = first + item * 64;
    if (point < 15) {
      // compute the results
      const float e5 = 2 <= point && point < 13 ? x0[point - 2] : 0.0f;

      // store the results
      x1[point] = e5;
    }
  }
}
