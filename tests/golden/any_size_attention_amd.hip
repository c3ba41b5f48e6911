// attention 2x1xqxnx32x16
// problem   batch=2 m=48 n=70 depth=32 values=16 q_inside=1 q_wide=8 k_inside=1 k_wide=8 v_inside=1 v_wide=8 causal=3 out_wide=8 element_bytes=2 bf16=0  (an example: each run decides its sizes)
// schedule  wave=64 block=32 waves=1 blocks=1 tile_n=32 splits=1
// engine    attention/amd

__device__ __forceinline__ int over_size(int a, unsigned int magic, int shift) {
  return (int)((unsigned long long)(unsigned int)a * magic >> shift);
}

__device__ __forceinline__ int modulo_size(int a, int size, unsigned int magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

#if !__has_builtin(__builtin_amdgcn_mfma_f32_32x32x8f16)
#error "this compiler has no __builtin_amdgcn_mfma_f32_32x32x8f16"
#endif
typedef _Float16 q_words __attribute__((ext_vector_type(8)));
typedef _Float16 k_words __attribute__((ext_vector_type(8)));
typedef _Float16 v_words __attribute__((ext_vector_type(8)));
typedef _Float16 four_words __attribute__((ext_vector_type(4)));
extern "C" __global__ void __launch_bounds__(64) GC_WAVES(2) kernel0(
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

  __shared__ __align__(16) _Float16 tile_k[1280];
  __shared__ __align__(16) _Float16 tile_v[1152];

  // this thread's row of its wave's first block, and the rows of the block
  const int id = (int)threadIdx.x;
  const int lane = id % 64, my_line = lane % 32, my_group = lane / 32;
  const int my_row = my_line;
  const int tile = (int)blockIdx.x;
  const int first_row = (modulo_size(tile, size5, magic5, shift5)) * 32;
  const int batch = over_size(tile, magic5, shift5);
  // columns to the right of the last row's diagonal have no weight
  const int seen = first_row + 35;
  const int columns = seen < size1 ? seen : size1;

  // for each row: the largest score, the total of this lane's weights, and the weighted sum of the values
  float top[1], total[1];
  gc_float16 acc[1][1];
  #pragma unroll
  for (int b = 0; b < 1; ++b) {
    top[b] = (-__int_as_float(0x7f800000));
    total[b] = 0.0f;
    #pragma unroll
    for (int f = 0; f < 1; ++f) acc[b][f] = 0.0f;
  }
  k_words k_next[2];
  v_words v_next[1][4];
  gc_half8 q_part[1][2];
  // load the queries, which stay in registers, and then the first keys and values: the loop waits for what was asked for before
  #pragma unroll
  for (int b = 0; b < 1; ++b) {
    int q_span = first_row + my_row + b * 32;
    if (q_span > size6) q_span = size6;
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      #pragma unroll
      for (int part = 0; part < 1; ++part) {
        const int q_at = (c * 2 + my_group) * 1 + part;
        const int qs2 = batch * size2 + q_span * 32;
        const int qd0 = q_at * 8;
        q_words read;
        read = *reinterpret_cast<const q_words*>(&x0[qs2 + qd0]);
        #pragma unroll
        for (int i = 0; i < 8; ++i) q_part[b][c][part * 8 + i] = read[i];
      }
    }
  }
  #pragma unroll
  for (int trip = 0; trip < 2; ++trip) {
    const int access = id + trip * 64;
    const int k_at = access % 4;
    int k_span = 0 + access / 4;
    if (k_span > size7) k_span = size7;
    const int ks2 = batch * size3 + k_span * 32;
    const int kd0 = k_at * 8;
    k_next[trip] = *reinterpret_cast<const k_words*>(&x1[ks2 + kd0]);
  }
  #pragma unroll
  for (int trip = 0; trip < 1; ++trip) {
    const int access = id + trip * 64;
    if (access >= 32) break;
    const int v_at = access % 4, place = access / 4 * 4;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      int v_span = 0 + place + i;
      if (v_span > size7) v_span = size7;
      const int vs2 = batch * size4 + v_span * 16;
      const bool vd0 = v_at < 2;
      const int vd1 = v_at * 8;
      v_next[trip][i] = !(vd0) ? v_words(0) : *reinterpret_cast<const v_words*>(&x2[vs2 + vd1]);
    }
  }

  #pragma unroll 1
  for (int first_column = 0; first_column < columns; first_column += 32) {
    // the last keys and values are free: these replace them
    __syncthreads();
    #pragma unroll
    for (int trip = 0; trip < 2; ++trip) {
      const int access = id + trip * 64;
      *reinterpret_cast<k_words*>(tile_k + access / 4 * 40 + access % 4 * 8) = k_next[trip];
    }
    #pragma unroll
    for (int trip = 0; trip < 1; ++trip) {
      const int access = id + trip * 64;
      if (access >= 32) break;
      _Float16* const to = tile_v + access % 4 * 288 + access / 4 * 4;
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        *reinterpret_cast<four_words*>(to + i * 36) = four_words{v_next[trip][0][i], v_next[trip][1][i], v_next[trip][2][i], v_next[trip][3][i]};
      }
    }
    __syncthreads();
    if (first_column + 32 < columns) {
      #pragma unroll
      for (int trip = 0; trip < 2; ++trip) {
        const int access = id + trip * 64;
        const int k_at = access % 4;
        int k_span = first_column + 32 + access / 4;
        if (k_span > size7) k_span = size7;
        const int ks2 = batch * size3 + k_span * 32;
        const int kd0 = k_at * 8;
        k_next[trip] = *reinterpret_cast<const k_words*>(&x1[ks2 + kd0]);
      }
      #pragma unroll
      for (int trip = 0; trip < 1; ++trip) {
        const int access = id + trip * 64;
        if (access >= 32) break;
        const int v_at = access % 4, place = access / 4 * 4;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          int v_span = first_column + 32 + place + i;
          if (v_span > size7) v_span = size7;
          const int vs2 = batch * size4 + v_span * 16;
          const bool vd0 = v_at < 2;
          const int vd1 = v_at * 8;
          v_next[trip][i] = !(vd0) ? v_words(0) : *reinterpret_cast<const v_words*>(&x2[vs2 + vd1]);
        }
      }
    }

    // the scores: products of keys and queries
    gc_float16 s[1][1];
    #pragma unroll
    for (int j = 0; j < 1; ++j) {
      #pragma unroll
      for (int b = 0; b < 1; ++b) s[b][j] = 0.0f;
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        const _Float16* const from = tile_k + (j * 32 + my_line) * 40 + (c * 2 + my_group) * 8;
        const gc_half8 k_part = *reinterpret_cast<const gc_half8*>(from);
        #pragma unroll
        for (int b = 0; b < 1; ++b) {
          const gc_half8 q_now = q_part[b][c];
          s[b][j] = __builtin_amdgcn_mfma_f32_32x32x8f16(k_part.lo, q_now.lo, s[b][j], 0, 0, 0);
          s[b][j] = __builtin_amdgcn_mfma_f32_32x32x8f16(k_part.hi, q_now.hi, s[b][j], 0, 0, 0);
        }
      }
    }

    // their weights; if the largest score of a row has grown, scale down the sums so far
    #pragma unroll
    for (int b = 0; b < 1; ++b) {
      int row = first_row + my_row + b * 32;
      if (row > size6) row = size6;
      const int sr0 = row + 3;
      float highest = (-__int_as_float(0x7f800000));
      #pragma unroll
      for (int j = 0; j < 1; ++j) {
        #pragma unroll
        for (int r = 0; r < 16; ++r) {
          const int col = first_column + j * 32 + r / 4 * 8 + lane / 32 * 4 + r % 4;
          const float dot = s[b][j][r];
          const float s2 = col <= sr0 ? dot : (-__int_as_float(0x7f800000));
          const float s3 = col < size1 ? s2 : (-__int_as_float(0x7f800000));
          s[b][j][r] = s3;
          highest = __builtin_fmaxf(highest, s[b][j][r]);
        }
      }
      highest = __builtin_fmaxf(highest, gc_wave_xor<32>(highest));
      highest = __builtin_fmaxf(top[b], highest * 0.25503486f);
      const float shift = highest == (-__int_as_float(0x7f800000)) ? 0.0f : highest;
      const float factor = gc_exp2_of_weight(top[b] - shift);
      top[b] = highest;
      total[b] *= factor;
      #pragma unroll
      for (int f = 0; f < 1; ++f) acc[b][f] *= factor;
      #pragma unroll
      for (int j = 0; j < 1; ++j) {
        #pragma unroll
        for (int r = 0; r < 16; ++r) {
          s[b][j][r] = gc_exp2_of_weight(__builtin_fmaf(s[b][j][r], 0.25503486f, 10.0f - shift));
          total[b] += s[b][j][r];
        }
      }
    }

    // add the values times their weights
    #pragma unroll
    for (int j = 0; j < 1; ++j) {
      #pragma unroll
      for (int piece = 0; piece < 4; ++piece) {
        gc_half4 w_part[1];
        #pragma unroll
        for (int b = 0; b < 1; ++b) {
          w_part[b] = gc_half4{(_Float16)s[b][j][piece * 4 + 0], (_Float16)s[b][j][piece * 4 + 1], (_Float16)s[b][j][piece * 4 + 2], (_Float16)s[b][j][piece * 4 + 3]};
        }
        #pragma unroll
        for (int f = 0; f < 1; ++f) {
          const _Float16* const from = tile_v + (f * 32 + my_line) * 36 + j * 32 + piece * 8 + my_group * 4;
          const gc_half4 v_part = *reinterpret_cast<const gc_half4*>(from);
          #pragma unroll
          for (int b = 0; b < 1; ++b) {
            acc[b][f] = __builtin_amdgcn_mfma_f32_32x32x8f16(v_part, w_part[b], acc[b][f], 0, 0, 0);
          }
        }
      }
    }
  }
  #pragma unroll
  for (int b = 0; b < 1; ++b) {
    total[b] = total[b] + gc_wave_xor<32>(total[b]);
  }

  // store the values divided by the totals of their rows
  #pragma unroll
  for (int b = 0; b < 1; ++b) {
    const float share = 1.0f / total[b];
    const int row = first_row + my_row + b * 32;
    if (row < size8) {
      const int r2 = batch * size0 + row * 16;
      #pragma unroll
      for (int f = 0; f < 1; ++f) {
        #pragma unroll
        for (int r = 0; r < 16; r += 4) {
          const int col = (f * 32 + r / 4 * 8 + lane / 32 * 4 + r % 4) / 4;
          if (col < 4) {
            float means[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) means[i] = acc[b][f][r + i] * share;
            __align__(16) gc_half ev0[4];
            gc_move<8>(ev0, x3 + r2 + col * 4);
            __align__(16) gc_half ew0[4];
            #pragma unroll
            for (int lane = 0; lane < 4; ++lane) {
              const float e2 = gc_half_to_float(ev0[lane]);
              const float e3 = means[lane] + e2;
              const float e4 = e3 < 0.0f ? 0.0f : e3;
              ew0[lane] = gc_float_to_half(e4);
            }
            gc_move<8>(x4 + r2 + col * 4, ew0);
          }
        }
      }
    }
  }
}
