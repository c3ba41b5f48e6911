// matmul 1x40xn
// problem   batch=1 m=1 n=40 k=70 few=1 many=40 few_columns=0 by_depth=0 width=4 acc_bytes=4 element_bytes=4 shuffles=1 dot=1  (an example: each run decides its sizes)
// schedule  many_items=8 depth_items=32 accesses=1 unroll=4 shuffle=0
// engine    contraction/gemv

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global float* restrict x3,
    __global float* restrict x4,
    long run_size0) {
  const int size0 = (int)run_size0;

  __local float partial[32][32];

  // the rows or columns of this work-item, and the start of its part of the depth
  const int id = (int)get_local_id(0);
  const int my_place = id % 8, my_depth = id / 8;
  const int first = (int)get_group_id(0) * 32;
  int b_column = first + my_place * 4;
  if (b_column > 36) b_column = 36;

  // its part of each sum
  float acc[4];
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    acc[c] = 0.0f;
  }

  #pragma unroll 4
  for (int depth = my_depth; depth < size0; depth += 32) {
    // one step of the matrix and of the vectors
    float matrix[4];
    const int bd0 = depth * 40;
    vstore4(vload4(0, x1 + b_column + bd0), 0, matrix);
    float vectors;
    const float ad0 = x0[depth];
    vectors = ad0;

    // add their products to the sums
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      acc[lane] += vectors * matrix[lane];
    }
  }

  // write the parts of each sum to shared memory
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    partial[my_depth][my_place * 4 + c] = acc[c];
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  // add the parts of each sum in order, and store it
  if (id < 32) {
    const int column = first + id;
    if (column < 40) {
      float total = partial[0][id];
      #pragma unroll
      for (int part = 1; part < 32; ++part) total += partial[part][id];
      const float e0 = x2[column];
      const float e1 = total + e0;
      const float e2 = e1 < 0.0f ? 0.0f : e1;
      const float e3 = e2 + e2;
      x3[column] = e2;
      x4[column] = e3;
    }
  }
}
