// max pool
// problem   lead=2 channels=8 out_y=6 taps_y=3 stride_y=2 dilation_y=1 out_x=7 taps_x=3 stride_x=2 dilation_x=1 weighted=0 widest=4 image_bytes=4 acc_words=1  (an example: each run decides its sizes)
// schedule  threads=64 vector=4 tile_y=1 tile_x=1 unroll=1
// engine    pool/window

int over_size(int a, uint magic, int shift) {
  return (int)((ulong)(uint)a * magic >> shift);
}

int modulo_size(int a, int size, uint magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

float max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1,
    long run_size0, long run_size1, long run_size2, long run_size3, long run_magic3, long run_shift3, long run_magic4, long run_shift4, long run_size5) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;
  const int size3 = (int)run_size3;
  const uint magic3 = (uint)run_magic3;
  const int shift3 = (int)run_shift3;
  const uint magic4 = (uint)run_magic4;
  const int shift4 = (int)run_shift4;
  const int size5 = (int)run_size5;

  // the channels and outputs of this work-item
  const int point = (int)get_group_id(0) * 64 + (int)get_local_id(0);
  if (point >= size5) return;
  const int channel = point % 2;
  const int first_x = point / 2 % 7;
  const int first_y = modulo_size(point / 14, size3, magic3, shift3);
  const int lead = over_size(point, magic4, shift4);

  // the addresses of the image and the weights
  const int p3 = lead * size0 + channel * 4 - 120;

  // its sums
  float acc[4];
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) acc[lane] = (-INFINITY);

  // the rows of the image: each element is read once and added to every sum that it belongs to
  #pragma unroll
  for (int y = 0; y < 3; ++y) {
    // load a row
    const int place_y = first_y * 2 + y;
    const int v0 = place_y - 1;
    const bool v3 = 0 <= v0 && v0 < size1;
    const int v5 = p3 + place_y * 112;
    float line[3][4];
    #pragma unroll
    for (int x = 0; x < 3; ++x) {
      const int place_x = first_x * 2 + x;
      const bool u2 = v3 && 0 <= place_x - 1;
      const int u4 = v5 + place_x * 8;
      float uv0[4];
      vstore4(u2 ? vload4(0, x0 + u4) : (float4)(0), 0, uv0);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const float u5 = u2 ? uv0[lane] : (-INFINITY);
        line[x][lane] = u5;
      }
    }

    // add it to the sums
    #pragma unroll
    for (int s = 0; s < 3; ++s) {
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) acc[lane] = max_f32(acc[lane], line[s][lane]);
    }
  }

  // store the outputs
  const int out_y = first_y;
  const int out_x = first_x;
  float ew0[4];
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    ew0[lane] = acc[lane];
  }
  vstore4(vload4(0, ew0), 0, x1 + lead * size2 + channel * 4 + (out_y * 56 + out_x * 8));
}
