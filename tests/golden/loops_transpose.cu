// elementwise
// problem   size=35 inner=5 width=4 operations=0 read_bytes=4 moved_bytes=32 written_bytes=4 trips=1
// schedule  threads=64 vector=1 items=1
// engine    loops

extern "C" __global__ void __launch_bounds__(64) kernel0(
    const float* __restrict__ x0,
    float* __restrict__ x1) {
  // the point of this thread
  const int point = (int)blockIdx.x * 64 + (int)threadIdx.x;
  if (point >= 35) return;

  // compute the results
  const float e4 = x0[point % 5 * 7 + point / 5];

  // store the results
  x1[point] = e4;
}
