// scatter add
// problem   lines=24 places=33 updates=12 side_by_side=1 widest=4  (an example: each run decides its sizes)
// schedule  line_items=8 part_items=4 parts=1 vector=4
// engine    scatter

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const long* restrict x1,
    __global const float* restrict x2,
    __global float* restrict x3,
    long run_size0, long run_size1, long run_size2, long run_size3) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;
  const int size3 = (int)run_size3;

  // the places of this work-item, and its line
  const int id = (int)get_local_id(0);
  const int first_line = (int)get_group_id(0) * 8;
  const int first_place = (int)get_group_id(1) * size2;
  const int begin = first_place + id / 8 * size1;
  const int end = begin + size1 < size0 ? begin + size1 : size0;
  const int line = first_line + id % 8;
  if (line >= 6) return;

  // copy data to the result: the places of this work-item
  if (x3 != x0) {
    #pragma unroll 4
    for (int place = begin; place < end; place += 1) {
      float cv0[4];
      vstore4(vload4(0, x0 + place * 24 + line * 4), 0, cv0);
      float cw0[4];
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        cw0[lane] = cv0[lane];
      }
      vstore4(vload4(0, cw0), 0, x3 + place * 24 + line * 4);
    }
  }

  // apply in order the updates of these places
  #pragma unroll 8
  for (int number = 0; number < size3; ++number) {
    const long f0 = x1[number];
    const long f3 = f0 < 0 ? (long)((ulong)f0 + (ulong)size0) : f0;
    if (0 <= f3 && f3 < size0 && (long)begin <= f3 && f3 < (long)end) {
      const int target = (int)(f3);
      {
        const int at = target * 24 + line * 4;
        float old[4];
        vstore4(vload4(0, x3 + at), 0, old);
        const int u2 = number * 24 + line * 4;
        float uv0[4];
        vstore4(vload4(0, x2 + u2), 0, uv0);
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float u3 = old[lane] + uv0[lane];
          old[lane] = u3;
        }
        vstore4(vload4(0, old), 0, x3 + at);
      }
    }
  }
}
