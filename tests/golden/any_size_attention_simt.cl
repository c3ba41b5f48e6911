// attention 2x1xmxnx16x16
// problem   batch=2 m=33 n=70 depth=16 values=16 q_inside=1 q_wide=4 k_inside=1 k_wide=4 v_inside=1 v_wide=4 causal=-1 out_wide=4  (an example: each run decides its sizes)
// schedule  tile_m=32 tile_n=64 reg_m=4 row_items=16 splits=1 vector=1
// engine    attention/simt

int over_size(int a, uint magic, int shift) {
  return (int)((ulong)(uint)a * magic >> shift);
}

int modulo_size(int a, int size, uint magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global float* restrict x3,
    long run_size0, long run_size1, long run_size2, long run_size3, long run_magic3, long run_shift3, long run_size4, long run_size5, long run_size6) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;
  const int size3 = (int)run_size3;
  const uint magic3 = (uint)run_magic3;
  const int shift3 = (int)run_shift3;
  const int size4 = (int)run_size4;
  const int size5 = (int)run_size5;
  const int size6 = (int)run_size6;

  __local float tile_q[32][20];
  __local float tile_k[64][20];
  __local float tile_v[64][16];
  __local float tile_w[32][80];
  __local float of_items[32][16];

  // the position of this work-item among those that share a row, and the rows of the work-group
  const int id = (int)get_local_id(0);
  const int my_group = id / 16, my_lane = id % 16;
  const int tile = (int)get_group_id(0);
  const int first_row = (modulo_size(tile, size3, magic3, shift3)) * 32;
  const int batch = over_size(tile, magic3, shift3);
  const int qb0 = batch * size0;
  const int kb0 = batch * size2;
  const int vb0 = batch * size2;

  // load the queries
  for (int access = id; access < 128; access += 128) {
    const int q_at = access % 4, line = access / 4;
    int q_row = first_row + line;
    if (q_row > size4) q_row = size4;
    const int qe1 = qb0 + q_row * 16;
    const int qe2 = q_at * 4;
    float qev0[4];
    vstore4(vload4(0, x0 + qe1 + qe2), 0, qev0);
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) tile_q[line][q_at * 4 + lane] = qev0[lane];
  }

  // for each row: the largest score, the total of the weights, and the weighted sum of the values
  float top[4];
  float total[4], acc[4][1];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    top[i] = (-INFINITY);
    total[i] = 0.0f;
    #pragma unroll
    for (int j = 0; j < 1; ++j) acc[i][j] = 0.0f;
  }

  for (int first_column = 0; first_column < size1; first_column += 64) {
    // load a tile of keys and one of values
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int access = id; access < 256; access += 128) {
      const int k_at = access % 4, line = access / 4;
      int k_row = first_column + line;
      if (k_row > size5) k_row = size5;
      const int ke1 = kb0 + k_row * 16;
      const int ke2 = k_at * 4;
      float kev0[4];
      vstore4(vload4(0, x1 + ke1 + ke2), 0, kev0);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) tile_k[line][k_at * 4 + lane] = kev0[lane];
    }
    #pragma unroll
    for (int access = id; access < 256; access += 128) {
      const int v_at = access % 4, line = access / 4;
      int v_row = first_column + line;
      if (v_row > size5) v_row = size5;
      const int ve1 = vb0 + v_row * 16;
      const int ve2 = v_at * 4;
      float vev0[4];
      vstore4(vload4(0, x2 + ve1 + ve2), 0, vev0);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) tile_v[line][v_at * 4 + lane] = vev0[lane];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // the scores: products of queries and keys
    float s[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = 0.0f;
    }
    for (int c = 0; c < 16; c += 4) {
      float q_part[4][4], k_part[4][4];
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) q_part[i][e] = tile_q[my_group + i * 8][c + e];
        #pragma unroll
        for (int j = 0; j < 4; ++j) k_part[j][e] = tile_k[my_lane + j * 16][c + e];
      }
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          #pragma unroll
          for (int j = 0; j < 4; ++j) s[i][j] += q_part[i][e] * k_part[j][e];
        }
      }
    }

    // apply scale and mask, and find the largest score of this work-item's columns
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      float highest = (-INFINITY);
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int col = first_column + my_lane + j * 16;
        const float dot = s[i][j];
        const float s1 = dot * 0.25f;
        const float s2 = col < size1 ? s1 : (-INFINITY);
        s[i][j] = s2;
        highest = s[i][j] > highest ? s[i][j] : highest;
      }
      of_items[my_group + i * 8][my_lane] = highest;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // the largest score of each row; if it has grown, scale down the sums so far. Then the weights
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      float highest = top[i];
      #pragma unroll
      for (int lane = 0; lane < 16; ++lane) {
        const float other = of_items[my_group + i * 8][lane];
        highest = other > highest ? other : highest;
      }
      const float shift = highest == (-INFINITY) ? 0.0f : highest;
      const float factor = exp2((top[i] - shift) * 1.442695f);
      top[i] = highest;
      total[i] *= factor;
      #pragma unroll
      for (int j = 0; j < 1; ++j) acc[i][j] *= factor;
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float weight = exp2((s[i][j] - shift) * 1.442695f);
        total[i] += weight;
        tile_w[my_group + i * 8][my_lane + j * 16] = weight;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // add the values times their weights
    for (int j = 0; j < 64; j += 4) {
      float w_part[4][4];
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) w_part[i][e] = tile_w[my_group + i * 8][j + e];
      }
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        float v_part[1];
        #pragma unroll
        for (int f = 0; f < 1; ++f) v_part[f] = tile_v[j + e][my_lane];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          #pragma unroll
          for (int f = 0; f < 1; ++f) acc[i][f] += w_part[i][e] * v_part[f];
        }
      }
    }
  }

  // add up the totals of each row in shared memory; store the values divided by them
  #pragma unroll
  for (int i = 0; i < 4; ++i) of_items[my_group + i * 8][my_lane] = total[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = first_row + my_group + i * 8;
    if (row < size6) {
      float sum = 0.0f;
      #pragma unroll
      for (int lane = 0; lane < 16; ++lane) sum += of_items[my_group + i * 8][lane];
      const float share = 1.0f / sum;
      const int r2 = batch * size0 + row * 16;
      #pragma unroll
      for (int j = 0; j < 1; j += 1) {
        const int col = my_lane;
        const float mean = acc[i][j] * share;
        x3[r2 + col] = mean;
      }
    }
  }
}
