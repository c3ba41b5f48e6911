// max pool
// problem   size=64 inner=4 taps=4 width=4
// schedule  threads=64 vector=4 items=1 unroll=1
// template  pool/kernel.j2

float max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1) {

  const int point = (int)get_group_id(0) * 64 + (int)get_local_id(0);
  if (point >= 16) return;
  const int e0 = point * 4;
  const int e1 = point % 4;
  const int e2 = e1 * 4;
  const int e3 = e1 * 8;
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const int e5 = (e0 + lane) / 16;
    const int e8 = e5 * 64 + e3 + lane;
    const float e9 = x0[e8];
    const float e11 = x0[e8 + 4];
    const float e12 = max_f32(e9, e11);
    const float e14 = x0[e8 + 32];
    const float e15 = max_f32(e12, e14);
    const float e17 = x0[e8 + 36];
    const float e18 = max_f32(e15, e17);
    x1[e5 * 16 + e2 + lane] = e18;
  }
}
