// scatter add
// problem   lines=24 places=13 updates=31 side_by_side=1 widest=4
// schedule  line_items=8 part_items=4 parts=1 vector=4
// engine    scatter

extern "C" __global__ void __launch_bounds__(32) kernel0(
    const float* __restrict__ x0,
    const long long* __restrict__ x1,
    const float* __restrict__ x2,
    float* __restrict__ x3) {
  // the places of this thread, and its line
  const int id = (int)threadIdx.x;
  const int first_line = (int)blockIdx.x * 8;
  const int first_place = (int)blockIdx.y * 16;
  const int begin = first_place + id / 8 * 4;
  const int end = begin + 4 < 13 ? begin + 4 : 13;
  const int line = first_line + id % 8;
  if (line >= 6) return;

  // copy data to the result: the places of this thread
  if (x3 != x0) {
    #pragma unroll 4
    for (int place = begin; place < end; place += 1) {
      __align__(16) float cv0[4];
      *reinterpret_cast<uint4*>(cv0) = *reinterpret_cast<const uint4*>(x0 + place * 24 + line * 4);
      __align__(16) float cw0[4];
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        cw0[lane] = cv0[lane];
      }
      *reinterpret_cast<uint4*>(x3 + place * 24 + line * 4) = *reinterpret_cast<const uint4*>(cw0);
    }
  }

  // apply in order the updates of these places
  #pragma unroll 8
  for (int number = 0; number < 31; ++number) {
    const long long f0 = x1[number];
    const long long f3 = f0 < 0 ? (long long)((unsigned long long)f0 + (unsigned long long)13) : f0;
    if (0 <= f3 && f3 < 13 && (long long)begin <= f3 && f3 < (long long)end) {
      const int target = (int)(f3);
      {
        const int at = target * 24 + line * 4;
        __align__(16) float old[4];
        *reinterpret_cast<uint4*>(old) = *reinterpret_cast<const uint4*>(x3 + at);
        const int u2 = number * 24 + line * 4;
        __align__(16) float uv0[4];
        *reinterpret_cast<uint4*>(uv0) = *reinterpret_cast<const uint4*>(x2 + u2);
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float u3 = old[lane] + uv0[lane];
          old[lane] = u3;
        }
        *reinterpret_cast<uint4*>(x3 + at) = *reinterpret_cast<const uint4*>(old);
      }
    }
  }
}
