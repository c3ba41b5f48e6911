// max pool
// problem   size=64 inner=4 taps=4 width=4 image=4 guarded=1
// schedule  threads=64 vector=4 items=1 unroll=1
// engine    pool

extern "C" __global__ void __launch_bounds__(64) kernel0(
    const float* __restrict__ x0,
    float* __restrict__ x1) {
  // the points of this thread
  const int point = (int)blockIdx.x * 64 + (int)threadIdx.x;
  if (point >= 16) return;

  // load vectors of 4 elements
  const int e5 = point / 4 * 64 + point % 4 * 8;
  __align__(16) float ev0[4];
  *reinterpret_cast<uint4*>(ev0) = *reinterpret_cast<const uint4*>(x0 + e5 + 36);
  __align__(16) float ev1[4];
  *reinterpret_cast<uint4*>(ev1) = *reinterpret_cast<const uint4*>(x0 + e5 + 32);
  __align__(16) float ev2[4];
  *reinterpret_cast<uint4*>(ev2) = *reinterpret_cast<const uint4*>(x0 + e5 + 4);
  __align__(16) float ev3[4];
  *reinterpret_cast<uint4*>(ev3) = *reinterpret_cast<const uint4*>(x0 + e5);

  // compute the results, lane by lane
  __align__(16) float ew0[4];
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const float e9 = gc_max_nan(ev3[lane], ev2[lane]);
    const float e10 = gc_max_nan(e9, ev1[lane]);
    const float e11 = gc_max_nan(e10, ev0[lane]);
    ew0[lane] = e11;
  }

  // store the results
  *reinterpret_cast<uint4*>(x1 + point * 4) = *reinterpret_cast<const uint4*>(ew0);
}
