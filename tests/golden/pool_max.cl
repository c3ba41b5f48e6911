// max pool
// problem   size=64 inner=4 taps=4 width=4 image=4 guarded=1
// schedule  threads=64 vector=4 items=1 unroll=1
// engine    pool

float max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1) {
  // the points of this work-item
  const int point = (int)get_group_id(0) * 64 + (int)get_local_id(0);
  if (point >= 16) return;

  // load vectors of 4 elements
  const int e5 = point / 4 * 64 + point % 4 * 8;
  float ev0[4];
  vstore4(vload4(0, x0 + e5 + 36), 0, ev0);
  float ev1[4];
  vstore4(vload4(0, x0 + e5 + 32), 0, ev1);
  float ev2[4];
  vstore4(vload4(0, x0 + e5 + 4), 0, ev2);
  float ev3[4];
  vstore4(vload4(0, x0 + e5), 0, ev3);

  // compute the results, lane by lane
  float ew0[4];
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const float e9 = max_f32(ev3[lane], ev2[lane]);
    const float e10 = max_f32(e9, ev1[lane]);
    const float e11 = max_f32(e10, ev0[lane]);
    ew0[lane] = e11;
  }

  // store the results
  vstore4(vload4(0, ew0), 0, x1 + point * 4);
}
