// depthwise 3x3 16
// problem   lead=2 channels=16 out_y=12 taps_y=3 stride_y=1 dilation_y=1 out_x=11 taps_x=3 stride_x=1 dilation_x=1 weighted=1 widest=4 image_bytes=4 acc_words=1  (an example: each run decides its sizes)
// schedule  threads=64 vector=2 tile_y=2 tile_x=7 unroll=1
// engine    depthwise

int over_size(int a, uint magic, int shift) {
  return (int)((ulong)(uint)a * magic >> shift);
}

int modulo_size(int a, int size, uint magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global const float* restrict x3,
    __global float* restrict x4,
    __global float* restrict x5,
    long run_size0, long run_size1, long run_size2, long run_magic2, long run_shift2, long run_magic3, long run_shift3, long run_size4) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;
  const uint magic2 = (uint)run_magic2;
  const int shift2 = (int)run_shift2;
  const uint magic3 = (uint)run_magic3;
  const int shift3 = (int)run_shift3;
  const int size4 = (int)run_size4;

  // the channels and outputs of this work-item
  const int point = (int)get_group_id(0) * 64 + (int)get_local_id(0);
  if (point >= size4) return;
  const int channel = point % 8;
  const int first_x = point / 8 % 2 * 7;
  const int first_y = modulo_size(point / 16, size2, magic2, shift2) * 2;
  const int lead = over_size(point, magic3, shift3);

  // the addresses of the image and the weights
  const int p3 = lead * size0 + channel * 2 - 192;

  // load all weights of the window
  float weight[3][3][2];
  #pragma unroll
  for (int r = 0; r < 3; ++r) {
    #pragma unroll
    for (int s = 0; s < 3; ++s) {
      const int w4 = r * 48 + s * 16 + channel * 2;
      float wv0[2];
      vstore2(vload2(0, x1 + w4), 0, wv0);
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        weight[r][s][lane] = wv0[lane];
      }
    }
  }

  // its sums
  float acc[2][7][2];
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 7; ++j) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) acc[i][j][lane] = 0.0f;
    }
  }

  // the rows of the image: each element is read once and added to every sum that it belongs to
  #pragma unroll
  for (int y = 0; y < 4; ++y) {
    // load a row
    const int place_y = first_y + y;
    const int v0 = place_y - 1;
    const bool v3 = 0 <= v0 && v0 < size1;
    const int v5 = p3 + place_y * 176;
    float line[9][2];
    #pragma unroll
    for (int x = 0; x < 9; ++x) {
      const int place_x = first_x + x;
      const int u0 = place_x - 1;
      const bool u4 = v3 && 0 <= u0 && u0 < 11;
      const int u6 = v5 + place_x * 16;
      float uv0[2];
      vstore2(u4 ? vload2(0, x0 + u6) : (float2)(0), 0, uv0);
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        const float u7 = uv0[lane] < (-1.0f) ? (-1.0f) : uv0[lane];
        const float u8 = u4 ? u7 : 0.0f;
        line[x][lane] = u8;
      }
    }

    // add it to the sums
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      // the row of the window for this row of the image and row i of the result
      const int r = y - i;
      if (r < 0 || r >= 3) continue;
      #pragma unroll
      for (int s = 0; s < 3; ++s) {
        #pragma unroll
        for (int j = 0; j < 7; ++j) {
          #pragma unroll
          for (int lane = 0; lane < 2; ++lane) acc[i][j][lane] += line[j + s][lane] * weight[r][s][lane];
        }
      }
    }
  }

  // store the outputs
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int out_y = first_y + i;
    if (out_y >= size1) continue;
    #pragma unroll
    for (int j = 0; j < 7; ++j) {
      const int out_x = first_x + j;
      if (out_x >= 11) continue;
      const int e6 = lead * size0 + channel * 2 + (out_y * 176 + out_x * 16);
      float ev0[2];
      vstore2(vload2(0, x3 + e6), 0, ev0);
      float ev1[2];
      vstore2(vload2(0, x2 + channel * 2), 0, ev1);
      float ew0[2];
      float ew1[2];
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        const float e7 = acc[i][j][lane] + ev1[lane];
        const float e8 = e7 < 0.0f ? 0.0f : e7;
        const float e9 = e8 + ev0[lane];
        ew0[lane] = e9;
        ew1[lane] = acc[i][j][lane];
      }
      vstore2(vload2(0, ew0), 0, x4 + e6);
      vstore2(vload2(0, ew1), 0, x5 + e6);
    }
  }
}
