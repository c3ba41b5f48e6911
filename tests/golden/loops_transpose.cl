// elementwise
// problem   size=35 inner=5 width=4 operations=0 read_bytes=4 moved_bytes=32 written_bytes=4 trips=1
// schedule  threads=64 vector=1 items=1
// engine    loops

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1) {
  // the point of this work-item
  const int point = (int)get_group_id(0) * 64 + (int)get_local_id(0);
  if (point >= 35) return;

  // compute the results
  const float e4 = x0[point % 5 * 7 + point / 5];

  // store the results
  x1[point] = e4;
}
