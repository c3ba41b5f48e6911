// conv 7x7 3->20
// problem   images=1 height=19 width=20 channels=3 planar=1 out_y=10 out_x=10 taps_y=7 taps_x=7 step_y=2 step_x=2 first_y=-3 first_x=-3 n=20 group=4 image_bytes=4 out_wide=4
// schedule  tile_y=2 tile_x=8 tile_n=32 reg_m=2 reg_n=8
// engine    contraction/stem_simt

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void k0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global const float* restrict x3,
    __global float* restrict x4) {
  __local float image_tile[864];
  __local float filter_tile[4704];

  // the columns and outputs of this work-item, and those of the tile
  const int id = (int)get_local_id(0);
  const int my_column = id % 4;
  const int my_output = id / 4;
  const int tile = (int)get_group_id(0);
  const int tile_x = tile % 2;
  const int tile_y = tile / 2;

  // all filters of the tile's columns
  for (int number = id; number < 1176; number += 32) {
    const int from = (number / 8) * 32 + (number % 8) * 4;
    const int to = number * 4;
    vstore4(vload4(0, x3 + from), 0, filter_tile + to);
  }

  // load the image, a group of pixels at a time
  #pragma unroll 2
  for (int trip = 0; trip < 2; ++trip) {
    const int number = id + trip * 32;
    if (number < 54) {
      const int place_y = tile_y * 4 + number / 6;
      const int chunk = tile_x * 4 + number % 6;
      float pixels[12];
      const int e0 = place_y - 3;
      const int e4 = chunk * 4;
      const int e5 = e4 - 4;
      const bool e9 = 0 <= e0 && e0 < 19 && 0 <= e5 && e5 < 20;
      const int e11 = place_y * 20 + e4;
      float ev0[4];
      vstore4(e9 ? vload4(0, x0 + e11 + 696) : (float4)(0), 0, ev0);
      float ev1[4];
      vstore4(e9 ? vload4(0, x0 + e11 + 316) : (float4)(0), 0, ev1);
      float ev2[4];
      vstore4(e9 ? vload4(0, x0 + e11 - 64) : (float4)(0), 0, ev2);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        pixels[0 + lane] = ev2[lane];
        pixels[4 + lane] = ev1[lane];
        pixels[8 + lane] = ev0[lane];
      }
      __local float* const to = image_tile + ((number / 6) * 24 + (number % 6) * 4) * 4;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        float pixel[4] = {0};
        #pragma unroll
        for (int c = 0; c < 3; ++c) pixel[c] = pixels[c * 4 + i];
        vstore4(vload4(0, pixel), 0, to + i * 4);
      }
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  float acc[2][8];
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 8; ++j) acc[i][j] = 0.0f;
  }

  // for each tap, the pixels of its outputs, then each channel's filters
  const int a_at = ((my_output / 8) * 48 + (my_output % 8) * 2 + 1) * 4;
  #pragma unroll 1
  for (int r = 0; r < 7; ++r) {
    #pragma unroll
    for (int s = 0; s < 7; ++s) {
      float a_part[2][4];
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = a_at + (i * 8 / 8 * 48 + i * 8 % 8 * 2 + r * 24 + s) * 4;
        vstore4(vload4(0, image_tile + at), 0, a_part[i]);
      }
      #pragma unroll
      for (int c = 0; c < 3; ++c) {
        float b_part[8];
        #pragma unroll
        for (int j = 0; j < 8; j += 4) {
          vstore4(vload4(0, filter_tile + ((r * 7 + s) * 3 + c) * 32 + j * 4 + my_column * 4), 0, b_part + j);
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          #pragma unroll
          for (int j = 0; j < 8; ++j) acc[i][j] += a_part[i][c] * b_part[j];
        }
      }
    }
  }

  // store the outputs
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int output = my_output + i * 8;
    const int out_y = tile_y * 2 + output / 8, out_x = tile_x * 8 + output % 8;
    if (out_y < 10 && out_x < 10) {
      const int row = out_y * 10 + out_x;
      const int r0 = row * 20;
      #pragma unroll
      for (int j = 0; j < 8; j += 4) {
        const int col = (j / 4 * 16 + my_column * 4) / 4;
        if (col < 5) {
          float ev0[4];
          vstore4(vload4(0, x2 + r0 + col * 4), 0, ev0);
          float ev1[4];
          vstore4(vload4(0, x1 + col * 4), 0, ev1);
          float ew0[4];
          #pragma unroll
          for (int lane = 0; lane < 4; ++lane) {
            const float e2 = acc[i][j + lane] + ev1[lane];
            const float e3 = e2 + ev0[lane];
            const float e4 = e3 < 0.0f ? 0.0f : e3;
            ew0[lane] = e4;
          }
          vstore4(vload4(0, ew0), 0, x4 + r0 + col * 4);
        }
      }
    }
  }
}
