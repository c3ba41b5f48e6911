// attention 2x1xqxnx32x16
// problem   batch=2 m=48 n=70 depth=32 values=16 q_inside=1 q_wide=8 k_inside=1 k_wide=8 v_inside=1 v_wide=8 causal=3 out_wide=8 element_bytes=2 products=1  (an example: each run decides its sizes)
// schedule  warps=1 warp_m=16 tile_n=64 splits=1
// engine    attention/mma

__device__ __forceinline__ int over_size(int a, unsigned int magic, int shift) {
  return (int)((unsigned long long)(unsigned int)a * magic >> shift);
}

__device__ __forceinline__ int modulo_size(int a, int size, unsigned int magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

extern "C" __global__ void __launch_bounds__(32, 16) kernel0(
    const gc_half* __restrict__ x0,
    const gc_half* __restrict__ x1,
    const gc_half* __restrict__ x2,
    const gc_half* __restrict__ x3,
    gc_half* __restrict__ x4,
    long long run_size0, long long run_size1, long long run_size2, long long run_size3, long long run_size4, long long run_size5, long long run_magic5, long long run_shift5, long long run_size6, long long run_size7, long long run_size8) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;
  const int size3 = (int)run_size3;
  const int size4 = (int)run_size4;
  const int size5 = (int)run_size5;
  const unsigned int magic5 = (unsigned int)run_magic5;
  const int shift5 = (int)run_shift5;
  const int size6 = (int)run_size6;
  const int size7 = (int)run_size7;
  const int size8 = (int)run_size8;

  gc_half* const tile_q = reinterpret_cast<gc_half*>(gc_dynamic_shared());
  gc_half* const tile_k = tile_q + 640;
  gc_half* const tile_v = tile_k + 2560;

  // the rows and columns of this thread in a block, and the rows of the block
  const int id = (int)threadIdx.x;
  const int my_lane = id % 32;
  const int my_row = my_lane / 4, my_pair = my_lane % 4 * 2;
  const int tile = (int)blockIdx.x;
  const int first_row = (modulo_size(tile, size5, magic5, shift5)) * 16;
  const int batch = over_size(tile, magic5, shift5);
  // this lane's row in the 8x8 blocks, four of which ldmatrix reads
  const gc_half* const my_q = tile_q + (my_lane % 16) * 40 + my_lane / 16 * 8;
  const gc_half* const my_k = tile_k + (my_lane / 16 * 8 + my_lane % 8) * 40 + my_lane / 8 % 2 * 8;
  const gc_half* const my_v = tile_v + my_lane % 16 * 24 + my_lane / 16 * 8;

  // columns to the right of the last row's diagonal have no weight
  const int seen = first_row + 19;
  const int columns = seen < size1 ? seen : size1;

  // for each row: the largest score, the total of the weights, and the weighted sum of the values
  float top[2] = {(-__int_as_float(0x7f800000)), (-__int_as_float(0x7f800000))}, total[2] = {};
  float acc[1][2][4] = {};

  // load the queries and the first keys
  #pragma unroll
  for (int trip = 0; trip < 2; ++trip) {
    const int access = id + trip * 32;
    const int q_at = access % 4, line = access / 4;
    int q_span = first_row + line;
    if (q_span > size6) q_span = size6;
    const int qs2 = batch * size2 + q_span * 32;
    const int qd0 = q_at * 8;
    gc_cp_async16(tile_q + line * 40 + q_at * 8, &x0[qs2 + qd0], true);
  }
  gc_cp_async_commit();
  #pragma unroll
  for (int trip = 0; trip < 8; ++trip) {
    const int access = id + trip * 32;
    const int k_at = access % 4, line = access / 4;
    int k_span = 0 + line;
    if (k_span > size7) k_span = size7;
    const int ks2 = batch * size3 + k_span * 32;
    const int kd0 = k_at * 8;
    gc_cp_async16(tile_k + line * 40 + k_at * 8, &x1[ks2 + kd0], true);
  }
  gc_cp_async_commit();
  unsigned q_part[2][1][4];

  for (int first_column = 0; first_column < columns; first_column += 64) {
    // these keys have arrived: load the values of the same columns
    gc_cp_async_wait<0>();
    __syncthreads();
    #pragma unroll
    for (int trip = 0; trip < 4; ++trip) {
      const int access = id + trip * 32;
      const int v_at = access % 2, line = access / 2;
      int v_span = first_column + line;
      if (v_span > size7) v_span = size7;
      const int vs2 = batch * size4 + v_span * 16;
      const int vd0 = v_at * 8;
      gc_cp_async16(tile_v + line * 24 + v_at * 8, &x2[vs2 + vd0], true);
    }
    gc_cp_async_commit();
    if (first_column == 0) {
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        gc_ldmatrix_x4(q_part[c][0], my_q + c * 16);
      }
    }

    // the scores: products of queries and keys
    float s[1][8][4] = {};
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        unsigned k_part[4];
        gc_ldmatrix_x4(k_part, my_k + j * 640 + c * 16);

        gc_mma_m16n8k16_f16(s[0][2 * j], q_part[c][0], k_part);

        gc_mma_m16n8k16_f16(s[0][2 * j + 1], q_part[c][0], k_part + 2);
      }
    }

    // the values have arrived: load the next keys
    gc_cp_async_wait<0>();
    __syncthreads();
    if (first_column + 64 < columns) {
      #pragma unroll
      for (int trip = 0; trip < 8; ++trip) {
        const int access = id + trip * 32;
        const int k_at = access % 4, line = access / 4;
        int k_span = first_column + 64 + line;
        if (k_span > size7) k_span = size7;
        const int ks2 = batch * size3 + k_span * 32;
        const int kd0 = k_at * 8;
        gc_cp_async16(tile_k + line * 40 + k_at * 8, &x1[ks2 + kd0], true);
      }
      gc_cp_async_commit();
    }

    // their weights; if the largest score of a row has grown, scale down the sums so far
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      int row = first_row + my_row + i * 8;
      if (row > size6) row = size6;
      const int sr0 = row + 3;
      float highest = (-__int_as_float(0x7f800000));
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        float& weight = s[0][j / 2][i * 2 + j % 2];
        const int col = first_column + j / 2 * 8 + my_pair + j % 2;
        const float dot = weight;
        const float s2 = col <= sr0 ? dot : (-__int_as_float(0x7f800000));
        const float s3 = col < size1 ? s2 : (-__int_as_float(0x7f800000));
        weight = s3;
        highest = fmaxf(highest, weight);
      }
      #pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        highest = fmaxf(highest, gc_shfl_xor(highest, lanes));
      }
      highest = fmaxf(top[i], highest * 0.25503486f);
      const float shift = highest == (-__int_as_float(0x7f800000)) ? 0.0f : highest;
      const float factor = gc_exp2(top[i] - shift);
      top[i] = highest;
      total[i] *= factor;
      #pragma unroll
      for (int j = 0; j < 4; ++j) acc[0][j / 2][i * 2 + j % 2] *= factor;
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        float& weight = s[0][j / 2][i * 2 + j % 2];
        weight = gc_exp2(fmaf(weight, 0.25503486f, -shift));
        total[i] += weight;
      }
    }

    // add the values times their weights
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      unsigned w_part[1][4];
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float* const pair = s[0][2 * j + r / 2] + r % 2 * 2;
        w_part[0][r] = gc_pair_of_f16(pair[0], pair[1]);
      }
      #pragma unroll
      for (int f = 0; f < 1; ++f) {
        unsigned v_part[4];
        gc_ldmatrix_x4_trans(v_part, my_v + j * 384 + f * 16);
        gc_mma_m16n8k16_f16(acc[0][2 * f], w_part[0], v_part);
        gc_mma_m16n8k16_f16(acc[0][2 * f + 1], w_part[0], v_part + 2);
      }
    }
  }

  // store the values divided by the totals of their rows
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    float sum = total[i];
    sum += gc_shfl_xor(sum, 1);
    sum += gc_shfl_xor(sum, 2);
    const float share = 1.0f / sum;
    const int row = first_row + my_row + i * 8;
    if (row < size8) {
      const int r2 = batch * size0 + row * 16;
      #pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const int col = j / 2 * 4 + my_lane % 4;
        const float means[2] = {acc[0][j / 2][i * 2] * share, acc[0][j / 2][i * 2 + 1] * share};
        __align__(16) gc_half ev0[2];
        *reinterpret_cast<unsigned int*>(ev0) = *reinterpret_cast<const unsigned int*>(x3 + r2 + col * 2);
        __align__(16) gc_half ew0[2];
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          const float e2 = gc_half_to_float(ev0[lane]);
          const float e3 = means[lane] + e2;
          const float e4 = gc_max_nan(e3, 0.0f);
          ew0[lane] = gc_float_to_half(e4);
        }
        *reinterpret_cast<unsigned int*>(x4 + r2 + col * 2) = *reinterpret_cast<const unsigned int*>(ew0);
      }
    }
  }
}
