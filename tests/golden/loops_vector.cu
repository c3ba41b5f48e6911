// elementwise
// problem   size=48 inner=8 width=4 operations=2 read_bytes=8 moved_bytes=16 written_bytes=8 trips=1
// schedule  threads=128 vector=4 items=1
// engine    loops

extern "C" __global__ void __launch_bounds__(128) kernel0(
    const float* __restrict__ x0,
    const float* __restrict__ x1,
    float* __restrict__ x2,
    float* __restrict__ x3) {
  // the points of this thread
  const int point = (int)blockIdx.x * 128 + (int)threadIdx.x;
  if (point >= 12) return;

  // load vectors of 4 elements
  const int e0 = point * 4;
  const int e2 = point % 2 * 4;
  __align__(16) float ev0[4];
  *reinterpret_cast<uint4*>(ev0) = *reinterpret_cast<const uint4*>(x1 + e2);
  __align__(16) float ev1[4];
  *reinterpret_cast<uint4*>(ev1) = *reinterpret_cast<const uint4*>(x0 + e0);

  // compute the results, lane by lane
  __align__(16) float ew0[4];
  __align__(16) float ew1[4];
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const float e3 = ev1[lane] + ev0[lane];
    const float e4 = gc_max_nan(e3, 0.0f);
    ew0[lane] = e4;
    ew1[lane] = e3;
  }

  // store the results
  *reinterpret_cast<uint4*>(x2 + e0) = *reinterpret_cast<const uint4*>(ew0);
  *reinterpret_cast<uint4*>(x3 + e0) = *reinterpret_cast<const uint4*>(ew1);
}
