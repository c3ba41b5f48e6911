/* What is used of OpenCL 1.2, declared here so that neither its headers nor its library are needed to build. */
#ifndef GCRT_CL_H
#define GCRT_CL_H

#include "store.h"

typedef struct cl_platform *cl_platform_id;
typedef struct cl_device *cl_device_id;
typedef struct cl_context_object *cl_context;
typedef struct cl_queue_object *cl_command_queue;
typedef struct cl_memory_object *cl_mem;
typedef struct cl_program_object *cl_program;
typedef struct cl_kernel_object *cl_kernel;
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_flags; /* cl_bitfield */

#if defined(_WIN32)
#define CL_CALL __stdcall
#else
#define CL_CALL
#endif

enum {
    CL_PLATFORM_VERSION = 0x0901,
    CL_PLATFORM_NAME = 0x0902,
    CL_PLATFORM_VENDOR = 0x0903,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_LOCAL_MEM_TYPE = 0x1022,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102B,
    CL_DEVICE_VENDOR = 0x102C,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_PLATFORM = 0x1031,
    CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    CL_DEVICE_OPENCL_C_VERSION = 0x103D,
    CL_DEVICE_OPENCL_C_ALL_VERSIONS = 0x1066,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_KERNEL_NAMES = 0x1168,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_MEM_TYPE = 0x1100,
    CL_MEM_FLAGS = 0x1101,
    CL_MEM_SIZE = 0x1102,
    CL_MEM_CONTEXT = 0x1106,
    CL_MEM_ASSOCIATED_MEMOBJECT = 0x1107,
    CL_MEM_OFFSET = 0x1108,
    CL_MEM_OBJECT_BUFFER = 0x10F0,
    CL_QUEUE_CONTEXT = 0x1090,
    CL_QUEUE_PROPERTIES = 0x1093,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
    CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2,
    CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
};
#define CL_DEVICE_TYPE_GPU ((cl_flags)1 << 2)
#define CL_DEVICE_TYPE_ALL ((cl_flags)0xFFFFFFFF)
#define CL_MEM_READ_WRITE ((cl_flags)1)
#define CL_MEM_WRITE_ONLY ((cl_flags)1 << 1)
#define CL_MEM_READ_ONLY ((cl_flags)1 << 2)
#define CL_MEM_ALLOC_HOST_PTR ((cl_flags)1 << 4)
#define CL_MAP_READ ((cl_flags)1)
#define CL_MAP_WRITE_INVALIDATE_REGION ((cl_flags)1 << 2)
#define CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT ((cl_flags)1 << 7)
#define CL_LOCAL 1
#define CL_QUEUE_OUT_OF_ORDER ((cl_flags)1)
/* errors of memory */
#define CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)
#define CL_OUT_OF_RESOURCES (-5)
#define CL_OUT_OF_HOST_MEMORY (-6)

struct cl_region {
    size_t origin, size;
};

/* result, name, parameters: the calls that the library must have */
#define CL_FUNCTIONS(USE)                                                                                                       \
    USE(cl_int, clGetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *))                                                       \
    USE(cl_int, clGetPlatformInfo, (cl_platform_id, cl_uint, size_t, void *, size_t *))                                         \
    USE(cl_int, clGetDeviceIDs, (cl_platform_id, cl_flags, cl_uint, cl_device_id *, cl_uint *))                                 \
    USE(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *))                                             \
    USE(cl_context, clCreateContext, (const intptr_t *, cl_uint, const cl_device_id *, void *, void *, cl_int *))               \
    USE(cl_int, clReleaseContext, (cl_context))                                                                                 \
    USE(cl_command_queue, clCreateCommandQueue, (cl_context, cl_device_id, cl_flags, cl_int *))                                 \
    USE(cl_int, clReleaseCommandQueue, (cl_command_queue))                                                                      \
    USE(cl_mem, clCreateBuffer, (cl_context, cl_flags, size_t, void *, cl_int *))                                               \
    USE(cl_mem, clCreateSubBuffer, (cl_mem, cl_flags, cl_uint, const struct cl_region *, cl_int *))                             \
    USE(cl_int, clGetMemObjectInfo, (cl_mem, cl_uint, size_t, void *, size_t *))                                                \
    USE(cl_int, clGetCommandQueueInfo, (cl_command_queue, cl_uint, size_t, void *, size_t *))                                   \
    USE(cl_int, clReleaseMemObject, (cl_mem))                                                                                   \
    USE(cl_program, clCreateProgramWithSource, (cl_context, cl_uint, const char **, const size_t *, cl_int *))                  \
    USE(cl_program, clCreateProgramWithBinary,                                                                                  \
        (cl_context, cl_uint, const cl_device_id *, const size_t *, const uint8_t **, cl_int *, cl_int *))                      \
    USE(cl_int, clBuildProgram, (cl_program, cl_uint, const cl_device_id *, const char *, void *, void *))                      \
    USE(cl_int, clGetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *))                                              \
    USE(cl_int, clGetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))                           \
    USE(cl_int, clReleaseProgram, (cl_program))                                                                                 \
    USE(cl_kernel, clCreateKernel, (cl_program, const char *, cl_int *))                                                        \
    USE(cl_int, clReleaseKernel, (cl_kernel))                                                                                   \
    USE(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                                                     \
    USE(cl_int, clGetKernelWorkGroupInfo, (cl_kernel, cl_device_id, cl_uint, size_t, void *, size_t *))                         \
    USE(cl_int, clEnqueueNDRangeKernel,                                                                                         \
        (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint, const void *, void *))  \
    USE(cl_int, clEnqueueReadBuffer, (cl_command_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint, const void *, void *))\
    USE(cl_int, clEnqueueWriteBuffer,                                                                                           \
        (cl_command_queue, cl_mem, cl_uint, size_t, size_t, const void *, cl_uint, const void *, void *))                       \
    USE(cl_int, clEnqueueReadBufferRect,                                                                                        \
        (cl_command_queue, cl_mem, cl_uint, const size_t *, const size_t *, const size_t *, size_t, size_t, size_t, size_t,     \
         void *, cl_uint, const void *, void *))                                                                                \
    USE(cl_int, clEnqueueWriteBufferRect,                                                                                       \
        (cl_command_queue, cl_mem, cl_uint, const size_t *, const size_t *, const size_t *, size_t, size_t, size_t, size_t,     \
         const void *, cl_uint, const void *, void *))                                                                          \
    USE(cl_int, clEnqueueCopyBuffer, (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const void *, void *)) \
    USE(cl_int, clEnqueueFillBuffer,                                                                                            \
        (cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint, const void *, void *))                        \
    USE(void *, clEnqueueMapBuffer,                                                                                             \
        (cl_command_queue, cl_mem, cl_uint, cl_flags, size_t, size_t, cl_uint, const void *, void *, cl_int *))                 \
    USE(cl_int, clEnqueueUnmapMemObject, (cl_command_queue, cl_mem, void *, cl_uint, const void *, void *))                     \
    USE(cl_int, clFlush, (cl_command_queue))                                                                                    \
    USE(cl_int, clFinish, (cl_command_queue))

#define CL_MEMBER(result, name, parameters) result(CL_CALL *name) parameters;
struct cl {
    void *library;
    CL_FUNCTIONS(CL_MEMBER)
};
#undef CL_MEMBER

#define CL_TEXT 256
/* A device, and what is asked of it once. Texts are cut off at CL_TEXT - 1 bytes. */
struct cl_found {
    cl_device_id id;
    char platform[CL_TEXT], platform_vendor[CL_TEXT], platform_version[CL_TEXT];
    char name[CL_TEXT], vendor[CL_TEXT], version[CL_TEXT], driver[CL_TEXT], c_version[CL_TEXT];
    bool gpu, unified, rounds;
    uint64_t alignment, most_bytes, local_bytes; /* in bytes; most_bytes: of one buffer */
    bool local_apart; /* local memory is memory of its own */
};

/* Open the library `path`; NULL: that of GPUCOMP_OPENCL_LIBRARY, or where systems have it. GPC5002. */
int gcrt_cl_open(struct cl *cl, const char *path, gpucomp_error *error);
void gcrt_cl_close(struct cl *cl);

/* All usable devices, GPUs first, Mesa's rusticl last, in `store`. GPC5013. */
int gcrt_cl_devices(const struct cl *cl, struct store *store, struct cl_found **found, size_t *count, gpucomp_error *error);

/* Whether a device is one of `opencl:WHICH`, as gpucomp.targets.opencl has it. */
bool gcrt_cl_fits(const struct cl_found *device, struct text which);
/* Whether parts of buffers work there, as gpucomp.targets.opencl.has_sub_buffers has it. */
bool gcrt_cl_has_parts(const struct cl_found *device);
bool gcrt_cl_is_pocl(const struct cl_found *device);

/* The major version of OpenCL C that its compiler takes. */
int gcrt_cl_c_version(const struct cl *cl, const struct cl_found *device);

/* Note that a call failed: GPC5004 where memory is missing, else `code`. */
int gcrt_cl_fail(gpucomp_error *error, const struct cl_found *device, int code, const char *what, cl_int status);
#endif
