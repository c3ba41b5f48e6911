/* What is used of CUDA's driver and of HIP's runtime, which follow each other, declared here so that neither is needed to build.
 * Addresses of the device are pointers in both; CUDA's CUdeviceptr is passed in the same way. */
#ifndef GCRT_GPU_H
#define GCRT_GPU_H

#include "store.h"

#define GPU_OUT_OF_MEMORY 2
#define GPU_NO_DEVICE 100
#define GPU_UNSUPPORTED_PTX 222
#define GPU_NON_BLOCKING 1 /* a stream that does not wait for the default one */

/* member, its name in CUDA and in HIP, parameters: calls that both libraries have, which return 0 or an error */
#define GPU_SHARED(USE)                                                                                                         \
    USE(init, "cuInit", "hipInit", (unsigned))                                                                                  \
    USE(count, "cuDeviceGetCount", "hipGetDeviceCount", (int *))                                                                \
    USE(version, "cuDriverGetVersion", "hipRuntimeGetVersion", (int *))                                                         \
    USE(allocate, "cuMemAlloc_v2", "hipMalloc", (void **, size_t))                                                              \
    USE(release, "cuMemFree_v2", "hipFree", (void *))                                                                           \
    USE(fill, "cuMemsetD8Async", "hipMemsetD8Async", (void *, unsigned char, size_t, void *))                                   \
    USE(upload, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", (void *, const void *, size_t, void *))                           \
    USE(download, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", (void *, void *, size_t, void *))                               \
    USE(copy, "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync", (void *, void *, size_t, void *))                                   \
    USE(make_stream, "cuStreamCreate", "hipStreamCreateWithFlags", (void **, unsigned))                                         \
    USE(end_stream, "cuStreamDestroy_v2", "hipStreamDestroy", (void *))                                                         \
    USE(wait, "cuStreamSynchronize", "hipStreamSynchronize", (void *))                                                          \
    USE(load, "cuModuleLoadData", "hipModuleLoadData", (void **, const void *))                                                 \
    USE(unload, "cuModuleUnload", "hipModuleUnload", (void *))                                                                  \
    USE(find, "cuModuleGetFunction", "hipModuleGetFunction", (void **, void *, const char *))

/* calls that one of them has; a last 1: older versions lack it, so that it may be NULL */
#define GPU_CUDA(USE)                                                                                                           \
    USE(cuDeviceGet, (int *, int), 0)                                                                                           \
    USE(cuDeviceGetName, (char *, int, int), 0)                                                                                 \
    USE(cuDeviceGetAttribute, (int *, int, int), 0)                                                                             \
    USE(cuDevicePrimaryCtxRetain, (void **, int), 0)                                                                            \
    USE(cuDevicePrimaryCtxRelease_v2, (int), 0)                                                                                 \
    USE(cuCtxPushCurrent_v2, (void *), 0)                                                                                       \
    USE(cuCtxPopCurrent_v2, (void **), 0)                                                                                       \
    USE(cuFuncSetAttribute, (void *, int, int), 0)                                                                              \
    USE(cuLaunchKernelEx, (const struct gpu_launch *, void *, void **, void **), 0)                                             \
    USE(cuGetErrorString, (int, const char **), 0)                                                                              \
    USE(cuTensorMapEncodeTiled,                                                                                                 \
        (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int,  \
         int), 1)                                                                                                               \
    USE(cuTensorMapEncodeIm2col,                                                                                                \
        (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const int *, const int *, uint32_t, uint32_t,       \
         const uint32_t *, int, int, int, int), 1)
#define GPU_HIP(USE)                                                                                                            \
    USE(hipGetDevice, (int *), 0)                                                                                               \
    USE(hipSetDevice, (int), 0)                                                                                                 \
    USE(hipGetDevicePropertiesR0600, (char *, int), 1)                                                                          \
    USE(hipGetDeviceProperties, (char *, int), 1)                                                                               \
    USE(hipModuleLaunchKernel,                                                                                                  \
        (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), 0)

/* CUlaunchAttribute and CUlaunchConfig */
struct gpu_attribute {
    int id;
    union {
        uint64_t words[8];
        int programmatic;
    } value;
};
struct gpu_launch {
    unsigned grid[3], block[3], shared;
    void *stream;
    const struct gpu_attribute *attributes;
    unsigned attribute_count;
};

#define GPU_MEMBER(member, cuda, hip, parameters) int(*member) parameters;
#define GPU_OWN(name, parameters, optional) int(*name) parameters;
struct gpu {
    bool hip;
    void *library;
    GPU_SHARED(GPU_MEMBER)
    GPU_CUDA(GPU_OWN)
    GPU_HIP(GPU_OWN)
    const char *(*hipGetErrorString)(int);
};
#undef GPU_MEMBER
#undef GPU_OWN

#define GPU_TEXT 256
struct gpu_found {
    int number;
    char name[GPU_TEXT];
    char arch[32];                /* HIP: the instruction set, empty if none is told */
    int handle;                   /* CUDA's */
    int major, minor, shared;     /* CUDA's: compute capability, bytes of shared memory of a block */
};

/* Open the library `path`; NULL: where systems have it. GPC5002; GPC5001 if it finds no GPU at all. */
int gcrt_gpu_open(struct gpu *gpu, bool hip, const char *path, gpucomp_error *error);
void gcrt_gpu_close(struct gpu *gpu);

static inline const char *gcrt_gpu_name(const struct gpu *gpu) { return gpu->hip ? "HIP" : "CUDA"; }
int gcrt_gpu_count(const struct gpu *gpu);
/* Describe a GPU by its number. GPC5005. */
int gcrt_gpu_describe(const struct gpu *gpu, int number, struct gpu_found *found, gpucomp_error *error);

/* Whether a GPU of CUDA loads cubins of an architecture, sm_80 or sm_90a; and whether its driver compiles PTX for it. */
bool gcrt_gpu_loads(const struct gpu_found *device, const char *arch);
bool gcrt_gpu_compiles(const struct gpu_found *device, const char *arch);
/* The target to compile for: hip:gfx90a, cuda:sm_90a. */
void gcrt_gpu_target(const struct gpu *gpu, const struct gpu_found *device, char target[64]);

/* Note that a call failed: GPC5004 where memory is missing, GPC5201 where the GPU is lost, else `code`. */
int gcrt_gpu_fail(const struct gpu *gpu, gpucomp_error *error, int code, const char *what, int status);
#endif
