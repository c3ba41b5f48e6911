// One access each, at an index that the launch chooses: in bounds or out of them.
extern "C" __global__ void k_write_at(float* y, int at) { y[at] = 1.0f; }

extern "C" __global__ void k_read_at(const float* x, float* y, int at) { y[0] = x[at]; }

extern "C" __global__ void k_vector_at(const float* x, float4* y, int at) {
  *y = *reinterpret_cast<const float4*>(x + at);
}

extern "C" __global__ void k_shared_at(float* y, int at) {
  __shared__ float tile[7];
  for (int i = 0; i < 7; ++i) tile[i] = 1.0f;
  y[0] = tile[at];
}

extern "C" __global__ void k_copy_at(const float* x, float* y, int at) { y[at] = x[at]; }
