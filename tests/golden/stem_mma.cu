// conv 7x7 3->70
// problem   images=1 height=17 width=32 channels=3 planar=1 out_y=9 out_x=16 taps_y=7 taps_x=7 step_y=2 step_x=2 first_y=-3 first_x=-3 n=70 group=4 image_bytes=4 element_bytes=2 products=1 out_wide=2
// schedule  tile_y=8 tile_x=16 warp_n=64 warps_m=2 warps_n=1
// engine    contraction/stem_mma

extern "C" __global__ void __launch_bounds__(64, 1) k0(
    const float* __restrict__ x0,
    const gc_half* __restrict__ x1,
    const gc_half* __restrict__ x2,
    const gc_half* __restrict__ x3,
    gc_half* __restrict__ x4) {
  unsigned char* const shared = gc_dynamic_shared();

  // the position of this thread's warp in the tile of the result, and of the tile in the result
  const int id = (int)threadIdx.x;
  const int my_lane = id % 32;
  const int a_warp = id / 32;
  const int tile = (int)blockIdx.x;
  const int first_column = (tile % 2) * 64;
  const int tile_y = tile / 2;

  // load the filters
  for (int number = id; number < 1792; number += 64) {
    unsigned char* const to = shared + 7056 + number * 16;
    const int from = (number / 64 * 128 + first_column + number % 64) * 8;
    gc_cp_async16(to, x3 + from, true);
  }
  gc_cp_async_commit();

  // load the image, a group of pixels at a time
  gc_half* const image_tile = reinterpret_cast<gc_half*>(shared);
  #pragma unroll 4
  for (int trip = 0; trip < 4; ++trip) {
    const int number = id + trip * 64;
    if (number < 210) {
      const int place_y = tile_y * 16 + number / 10;
      const int chunk = number % 10;
      gc_half pixels[12];
      const int e0 = place_y - 3;
      const int e4 = chunk * 4;
      const int e5 = e4 - 4;
      const bool e9 = 0 <= e0 && e0 < 17 && 0 <= e5 && e5 < 32;
      const int e11 = place_y * 32 + e4;
      __align__(16) float ev0[4];
      *reinterpret_cast<uint4*>(ev0) = e9 ? *reinterpret_cast<const uint4*>(x0 + e11 + 988) : make_uint4(0u, 0u, 0u, 0u);
      __align__(16) float ev1[4];
      *reinterpret_cast<uint4*>(ev1) = e9 ? *reinterpret_cast<const uint4*>(x0 + e11 + 444) : make_uint4(0u, 0u, 0u, 0u);
      __align__(16) float ev2[4];
      *reinterpret_cast<uint4*>(ev2) = e9 ? *reinterpret_cast<const uint4*>(x0 + e11 - 100) : make_uint4(0u, 0u, 0u, 0u);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        pixels[0 + lane] = gc_float_to_half(ev2[lane]);
        pixels[4 + lane] = gc_float_to_half(ev1[lane]);
        pixels[8 + lane] = gc_float_to_half(ev0[lane]);
      }
      gc_half* const to = image_tile + ((number / 10) * 42 + (number % 10) * 4 + 1) * 4;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        __align__(16) gc_half pixel[4] = {};
        #pragma unroll
        for (int c = 0; c < 3; ++c) pixel[c] = pixels[c * 4 + i];
        *reinterpret_cast<uint2*>(to + i * 4) = *reinterpret_cast<const uint2*>(pixel);
      }
    }
  }

  // the addresses of a lane's first fragments
  const int pixel_of_lane = a_warp * 64 + my_lane % 16;
  const unsigned char* const a_from = shared + (pixel_of_lane / 16 * 84 + pixel_of_lane % 16 * 2 + 2) * 8 + my_lane / 16 * 16;
  const unsigned char* const b_from = shared + 7056 + (my_lane / 8 % 2 * 64 + my_lane / 16 * 8 + my_lane % 8) * 16;

  // its sums, while the filters and the image are loaded
  float acc[4][8][4];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) acc[i][j][r] = 0.0f;
    }
  }
  gc_cp_async_wait<0>();
  __syncthreads();

  // for each row of the window, load fragments and add their products
  #pragma unroll 7
  for (int r = 0; r < 7; ++r) {
    {
      unsigned a_part[4][4], b_part[16];
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        unsigned* const part = a_part[i];
        gc_ldmatrix_x4(part, a_from + r * 336 + (i * 16 / 16 * 84 + i * 16 % 16 * 2) * 8);
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) gc_ldmatrix_x4(b_part + j * 4, b_from + r * 4096 + j * 256);
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) gc_mma_m16n8k16_f16(acc[i][j], a_part[i], b_part + j * 2);
      }
    }
    {
      unsigned a_part[4][4], b_part[16];
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        unsigned* const part = a_part[i];
        gc_ldmatrix_x4(part, a_from + r * 336 + (i * 16 / 16 * 84 + i * 16 % 16 * 2) * 8 + 32);
        part[2] = my_lane % 4 < 2 ? part[2] : 0u;
        part[3] = my_lane % 4 < 2 ? part[3] : 0u;
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) gc_ldmatrix_x4(b_part + j * 4, b_from + r * 4096 + j * 256 + 2048);
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) gc_mma_m16n8k16_f16(acc[i][j], a_part[i], b_part + j * 2);
      }
    }
  }
  __syncthreads();  // shared memory is free

  // a warp's rows, sixteen at a time, through shared memory of its own: neighbouring lanes then store neighbours
  float* const staged = reinterpret_cast<float*>(shared) + a_warp * 1152;
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    gc_syncwarp();
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) staged[(my_lane / 4 + r / 2 * 8) * 72 + my_lane % 4 * 2 + j * 8 + r % 2] = acc[i][j][r];
    }
    gc_syncwarp();

    // store runs of columns of a row
    for (int run = my_lane; run < 512; run += 32) {
      const int pixel = a_warp * 64 + i * 16 + run / 32;
      const int out_y = tile_y * 8 + pixel / 16, out_x = pixel % 16;
      const int row = out_y * 16 + out_x;
      const int col = first_column / 2 + run % 32;
      if (out_y < 9 && out_x < 16 && col < 35) {
        const int r0 = row * 70;
        const float* const sums_from = staged + run / 32 * 72 + run % 32 * 2;
        __align__(16) float sums[2];
        *reinterpret_cast<uint2*>(sums) = *reinterpret_cast<const uint2*>(sums_from);
        __align__(16) gc_half ev0[2];
        *reinterpret_cast<unsigned int*>(ev0) = *reinterpret_cast<const unsigned int*>(x2 + r0 + col * 2);
        __align__(16) gc_half ev1[2];
        *reinterpret_cast<unsigned int*>(ev1) = *reinterpret_cast<const unsigned int*>(x1 + col * 2);
        __align__(16) gc_half ew0[2];
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          const float e2 = gc_half_to_float(ev1[lane]);
          const float e3 = sums[lane] + e2;
          const float e4 = gc_half_to_float(ev0[lane]);
          const float e5 = e3 + e4;
          const float e6 = gc_max_nan(e5, 0.0f);
          ew0[lane] = gc_float_to_half(e6);
        }
        *reinterpret_cast<unsigned int*>(x4 + r0 + col * 2) = *reinterpret_cast<const unsigned int*>(ew0);
      }
    }
  }
}
