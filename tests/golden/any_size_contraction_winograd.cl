// conv 3x3 12->20
// problem   images=2 height=12 width=33 depth=12 out_y=12 out_x=33 first_y=-1 first_x=-1 n=20 out_wide=4  (an example: each run decides its sizes)
// schedule  outputs=2 columns=32 blocks=16 channels=4 positions=2 reg_n=4 reg_b=4 stages=2 splits=1
// engine    contraction/winograd

int over_size(int a, uint magic, int shift) {
  return (int)((ulong)(uint)a * magic >> shift);
}

int modulo_size(int a, int size, uint magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global const float* restrict x3,
    __global float* restrict x4,
    long run_magic0, long run_shift0, long run_size1, long run_magic1, long run_shift1, long run_magic2, long run_shift2, long run_size3, long run_size4, long run_size5, long run_size0, long run_size6) {
  const uint magic0 = (uint)run_magic0;
  const int shift0 = (int)run_shift0;
  const int size1 = (int)run_size1;
  const uint magic1 = (uint)run_magic1;
  const int shift1 = (int)run_shift1;
  const uint magic2 = (uint)run_magic2;
  const int shift2 = (int)run_shift2;
  const int size3 = (int)run_size3;
  const int size4 = (int)run_size4;
  const int size5 = (int)run_size5;
  const int size0 = (int)run_size0;
  const int size6 = (int)run_size6;

  __local float tile_v[2][16][80];
  __local float tile_u[2][16][4][32];

  // the positions, blocks and columns of this work-item, and those of the tile
  const int id = (int)get_local_id(0);
  const int my_position = (id / 32) * 2;
  const int my_row = (id % 32) / 8;
  const int my_column = id % 8;
  const int tile = (int)get_group_id(0);
  const int first_block = tile * 16;

  // the column and channels of a block that it reads, and which of their pixels are in the image; the rows that it transforms
  const int v_block = id % 16, v_column = (id / 16) % 4;
  const int v_channel = (id / 64) * 4;
  const int row_at = id % 64, row_line = id / 64;
  const int from_block = first_block + v_block;
  const int from_y = modulo_size(over_size(from_block, magic0, shift0), size1, magic1, shift1) * 2 - 1;
  const int from_x = modulo_size(from_block, size0, magic0, shift0) * 2 - 1 + v_column;
  const int v_at = ((over_size(from_block, magic2, shift2) * size3 + from_y) * size4 + from_x) * 12 + v_channel;
  unsigned int inside = 0u;
  if (from_block < size5 && id < 64) {
    for (int y = 0; y < 4; ++y) {
      const bool is_inside = from_y + y >= 0 && from_y + y < size3 && from_x >= 0 && from_x < size4;
      inside |= (is_inside ? 1u : 0u) << y;
    }
  }

  // the filters that it moves
  const int u_column = (id % 8) * 4, u_channel = (id / 8) % 4;
  const int u_position = id / 32;
  const int u_at = (u_position * 12 + u_channel) * 32 + u_column;

  // registers of loads that are in flight, and the sums
  float pixels[16];
  float filter_next[2][4];
  float acc[2][4][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) acc[q][i][j] = 0.0f;
    }
  }

  // load the pixels and filters of the first channels
  #pragma unroll
  for (int y = 0; y < 4; ++y) {
    vstore4(inside >> y & 1u ? vload4(0, x0 + v_at + y * size6) : (float4)(0), 0, pixels + y * 4);
  }
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    vstore4(vload4(0, x3 + u_at + i * 3072), 0, filter_next[i]);
  }

  // B^T times the column of pixels, one channel at a time
  if (id < 64) {
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float d0 = pixels[0 * 4 + c];
      const float d1 = pixels[1 * 4 + c];
      const float d2 = pixels[2 * 4 + c];
      const float d3 = pixels[3 * 4 + c];
      tile_v[0][4 * 0 + v_column][(v_channel + c) * 16 + v_block] = d0 - d2;
      tile_v[0][4 * 1 + v_column][(v_channel + c) * 16 + v_block] = d2 + d1;
      tile_v[0][4 * 2 + v_column][(v_channel + c) * 16 + v_block] = d2 - d1;
      tile_v[0][4 * 3 + v_column][(v_channel + c) * 16 + v_block] = d3 - d1;
    }
  }

  // the filters, unchanged
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    vstore4(vload4(0, filter_next[i]), 0, &tile_u[0][u_position + i * 8][u_channel][u_column]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  // rows of B^T d times B, in place
  {
    const float d0 = tile_v[0][row_line * 4 + 0][row_at];
    const float d1 = tile_v[0][row_line * 4 + 1][row_at];
    const float d2 = tile_v[0][row_line * 4 + 2][row_at];
    const float d3 = tile_v[0][row_line * 4 + 3][row_at];
    tile_v[0][row_line * 4 + 0][row_at] = d0 - d2;
    tile_v[0][row_line * 4 + 1][row_at] = d2 + d1;
    tile_v[0][row_line * 4 + 2][row_at] = d2 - d1;
    tile_v[0][row_line * 4 + 3][row_at] = d3 - d1;
  }

  int now = 0;
  for (int channel = 0; channel < 12; channel += 4) {
    const int following = channel + 4;
    barrier(CLK_LOCAL_MEM_FENCE);

    // load the next channels while these are multiplied
    if (following < 12) {
      #pragma unroll
      for (int y = 0; y < 4; ++y) {
        vstore4(inside >> y & 1u ? vload4(0, x0 + v_at + following + y * size6) : (float4)(0), 0, pixels + y * 4);
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        vstore4(vload4(0, x3 + u_at + following * 32 + i * 3072), 0, filter_next[i]);
      }
    }

    // products of every position, summed over the channels
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      #pragma unroll
      for (int q = 0; q < 2; ++q) {
        float v_part[4];
        float u_part[4];
        vstore4(vload4(0, &tile_v[now][my_position + q][k * 16 + my_row * 4]), 0, v_part);
        vstore4(vload4(0, &tile_u[now][my_position + q][k][my_column * 4]), 0, u_part);
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          #pragma unroll
          for (int j = 0; j < 4; ++j) acc[q][i][j] += v_part[i] * u_part[j];
        }
      }
    }

    now ^= 1;
    if (following < 12) {
      // B^T times the column of pixels, one channel at a time
      if (id < 64) {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float d0 = pixels[0 * 4 + c];
          const float d1 = pixels[1 * 4 + c];
          const float d2 = pixels[2 * 4 + c];
          const float d3 = pixels[3 * 4 + c];
          tile_v[now][4 * 0 + v_column][(v_channel + c) * 16 + v_block] = d0 - d2;
          tile_v[now][4 * 1 + v_column][(v_channel + c) * 16 + v_block] = d2 + d1;
          tile_v[now][4 * 2 + v_column][(v_channel + c) * 16 + v_block] = d2 - d1;
          tile_v[now][4 * 3 + v_column][(v_channel + c) * 16 + v_block] = d3 - d1;
        }
      }

      // the filters, unchanged
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        vstore4(vload4(0, filter_next[i]), 0, &tile_u[now][u_position + i * 8][u_channel][u_column]);
      }
      barrier(CLK_LOCAL_MEM_FENCE);

      // rows of B^T d times B, in place
      {
        const float d0 = tile_v[now][row_line * 4 + 0][row_at];
        const float d1 = tile_v[now][row_line * 4 + 1][row_at];
        const float d2 = tile_v[now][row_line * 4 + 2][row_at];
        const float d3 = tile_v[now][row_line * 4 + 3][row_at];
        tile_v[now][row_line * 4 + 0][row_at] = d0 - d2;
        tile_v[now][row_line * 4 + 1][row_at] = d2 + d1;
        tile_v[now][row_line * 4 + 2][row_at] = d2 - d1;
        tile_v[now][row_line * 4 + 3][row_at] = d3 - d1;
      }
    }
  }

  // a block's outputs are computed from its sums, which are exchanged through shared memory
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int q = 0; q < 2; ++q) {
      vstore4(vload4(0, acc[q][i]), 0, &tile_u[0][my_position + q][my_row][my_column * 4]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // A^T times these values, for each output
    if (id < 128) {
      const int run = id % 8;
      const int x = id / 8 % 2, y = id / 16 % 2;
      const int part = id / 32;
      float sums[4];
      const float sign_x = x ? -1.0f : 1.0f, sign_y = y ? -1.0f : 1.0f;
      #pragma unroll
      for (int j = 0; j < 3; ++j) {
        float m0[4];
        vstore4(vload4(0, &tile_u[0][4 * y + x + j][part][run * 4]), 0, m0);
        float m1[4];
        vstore4(vload4(0, &tile_u[0][4 * y + x + j + 4][part][run * 4]), 0, m1);
        float m2[4];
        vstore4(vload4(0, &tile_u[0][4 * y + x + j + 8][part][run * 4]), 0, m2);
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float line = m0[lane] + sign_y * m1[lane] + m2[lane];
          sums[lane] = j == 0 ? line : sums[lane] + (j == 1 ? sign_x : 1.0f) * line;
        }
      }

      // where the outputs are in the result
      const int block = first_block + part * 4 + i;
      const int out_x = modulo_size(block, size0, magic0, shift0) * 2 + x;
      const int col = run;
      const int out_y = modulo_size(over_size(block, magic0, shift0), size1, magic1, shift1) * 2 + y;
      if (block < size5 && out_y < size3 && out_x < size4 && col < 5) {
        const int row = (over_size(block, magic2, shift2) * size3 + out_y) * size4 + out_x;
        const int r0 = row * 20;
        float ev0[4];
        vstore4(vload4(0, x2 + r0 + col * 4), 0, ev0);
        float ev1[4];
        vstore4(vload4(0, x1 + col * 4), 0, ev1);
        float ew0[4];
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float e2 = sums[lane] + ev1[lane];
          const float e3 = e2 + ev0[lane];
          const float e4 = e3 < 0.0f ? 0.0f : e3;
          ew0[lane] = e4;
        }
        vstore4(vload4(0, ew0), 0, x4 + r0 + col * 4);
      }
    }
  }
}
