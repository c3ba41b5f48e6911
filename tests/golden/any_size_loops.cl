// elementwise
// problem   size=1584 inner=4 width=4 operations=2 read_bytes=8 moved_bytes=16 written_bytes=8 trips=1  (an example: each run decides its sizes)
// schedule  threads=256 vector=4 items=1
// engine    loops

int over_size(int a, uint magic, int shift) {
  return (int)((ulong)(uint)a * magic >> shift);
}

int modulo_size(int a, int size, uint magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global float* restrict x2,
    __global float* restrict x3,
    long run_size0, long run_magic0, long run_shift0, long run_size1) {
  const int size0 = (int)run_size0;
  const uint magic0 = (uint)run_magic0;
  const int shift0 = (int)run_shift0;
  const int size1 = (int)run_size1;

  // the points of this work-item
  const int point = (int)get_group_id(0) * 256 + (int)get_local_id(0);
  if (point >= size1) return;

  // load vectors of 4 elements
  const int e0 = point * 4;
  const int e2 = modulo_size(point, size0, magic0, shift0) * 4;
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
