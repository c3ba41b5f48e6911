// elementwise
// problem   batch=1 reading=33 writing=70 width=4  (an example: each run decides its sizes)
// schedule  tile=32 threads=256
// engine    loops/transpose

int over_size(int a, uint magic, int shift) {
  return (int)((ulong)(uint)a * magic >> shift);
}

int modulo_size(int a, int size, uint magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1,
    long run_size0, long run_size1, long run_magic1, long run_shift1, long run_size2) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const uint magic1 = (uint)run_magic1;
  const int shift1 = (int)run_shift1;
  const int size2 = (int)run_size2;

  __local float tile[32][33];

  // the first element of this work-item in the tile, and the position of the tile
  const int id = (int)get_local_id(0);
  const int fast = id % 32, slow = id / 32;
  const int number = (int)get_group_id(0);
  const int first_writing = modulo_size(number, size1, magic1, shift1) * 32;
  const int first_reading = over_size(number, magic1, shift1) * 32;

  // load the tile along the rows of the source
  #pragma unroll
  for (int step = 0; step < 32; step += 8) {
    const int reading = first_reading + fast;
    const int writing = first_writing + slow + step;
    if (reading < size0 && writing < size2) {
      tile[slow + step][fast] = x0[writing * size0 + reading];
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  // store it along the rows of the results
  #pragma unroll
  for (int step = 0; step < 32; step += 8) {
    const int reading = first_reading + slow + step;
    const int writing = first_writing + fast;
    if (reading < size0 && writing < size2) {
      x1[reading * size2 + writing] = tile[fast][slow + step];
    }
  }
}
