// elementwise
// problem   size=15 inner=15 width=4 operations=0 read_bytes=4 moved_bytes=8 written_bytes=4 trips=1
// schedule  threads=64 vector=1 items=2
// engine    loops

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1) {
  // the points of this work-item: 2 groups of 1, 64 groups apart
  const int first = (int)get_group_id(0) * 128 + (int)get_local_id(0);
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
