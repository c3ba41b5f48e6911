// elementwise
// problem   size=48 inner=8 width=4 operations=2 read_bytes=8 moved_bytes=16 written_bytes=8 trips=1
// schedule  threads=128 vector=4 items=1
// engine    loops

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global float* restrict x2,
    __global float* restrict x3) {
  // the points of this work-item
  const int point = (int)get_group_id(0) * 128 + (int)get_local_id(0);
  if (point >= 12) return;

  // load vectors of 4 elements
  const int e0 = point * 4;
  const int e2 = point % 2 * 4;
  float ev0[4];
  vstore4(vload4(0, x1 + e2), 0, ev0);
  float ev1[4];
  vstore4(vload4(0, x0 + e0), 0, ev1);

  // compute the results, lane by lane
  float ew0[4];
  float ew1[4];
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const float e3 = ev1[lane] + ev0[lane];
    const float e4 = e3 < 0.0f ? 0.0f : e3;
    ew0[lane] = e4;
    ew1[lane] = e3;
  }

  // store the results
  vstore4(vload4(0, ew0), 0, x2 + e0);
  vstore4(vload4(0, ew1), 0, x3 + e0);
}
