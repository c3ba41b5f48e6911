// max pool
// problem   size=792 inner=1 taps=4 width=4 image=5 guarded=1  (an example: each run decides its sizes)
// schedule  threads=256 vector=1 items=1 unroll=1
// engine    pool

int over_size(int a, uint magic, int shift) {
  return (int)((ulong)(uint)a * magic >> shift);
}

int modulo_size(int a, int size, uint magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

float max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1,
    long run_magic0, long run_shift0, long run_size1, long run_magic2, long run_shift2, long run_size3, long run_magic3, long run_shift3, long run_size4, long run_size2, long run_size5, long run_size6, long run_size7) {
  const uint magic0 = (uint)run_magic0;
  const int shift0 = (int)run_shift0;
  const int size1 = (int)run_size1;
  const uint magic2 = (uint)run_magic2;
  const int shift2 = (int)run_shift2;
  const int size3 = (int)run_size3;
  const uint magic3 = (uint)run_magic3;
  const int shift3 = (int)run_shift3;
  const int size4 = (int)run_size4;
  const int size2 = (int)run_size2;
  const int size5 = (int)run_size5;
  const int size6 = (int)run_size6;
  const int size7 = (int)run_size7;

  // the point of this work-item
  const int point = (int)get_group_id(0) * 256 + (int)get_local_id(0);
  if (point >= size7) return;

  // compute the results
  const int e7 = over_size(point, magic0, shift0) * size1 + modulo_size(over_size(point, magic2, shift2), size3, magic3, shift3) * size4 + modulo_size(point, size2, magic2, shift2);
  const float e8 = x0[e7];
  const float e10 = x0[e7 + size2];
  const float e11 = max_f32(e8, e10);
  const float e13 = x0[e7 + size5];
  const float e14 = max_f32(e11, e13);
  const float e16 = x0[e7 + size6];
  const float e17 = max_f32(e14, e16);

  // store the results
  x1[point] = e17;
}
