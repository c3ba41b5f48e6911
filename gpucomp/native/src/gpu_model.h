/* A model on a GPU of CUDA or HIP: what contexts share. */
#ifndef GCRT_GPU_MODEL_H
#define GCRT_GPU_MODEL_H

#include "device.h"
#include "gpu.h"

struct gpu_module {
    const uint8_t *image; /* in the file */
    void *module;
};

struct gpu_model {
    struct gpu gpu;
    struct gpu_found device;
    void *context; /* CUDA's */
    bool by_ptx;   /* the driver compiles the file's PTX */
    struct gpu_module *modules; /* each once */
    size_t module_count;
    void ***functions; /* for each program of the model and each of its kernels */
    struct device_weights weights;
};

/* A launch: which kernel of the plan it is, its function, and its tensor maps. */
struct gpu_call {
    int64_t which;
    void *function;
    uint8_t *maps;
};

struct gpu_own {
    void *stream;
    bool foreign; /* the caller's */
    uint64_t *addresses; /* of a launch's buffers, while it is enqueued */
    void **parameters;
};

/* Let a model's GPU be the current one of this thread; `before` is the one to go back to. */
int gcrt_gpu_enter(const struct gpu_model *own, int *before, gpucomp_error *error);
void gcrt_gpu_leave(const struct gpu_model *own, int before);

/* The PTX of a kernel, or NULL. */
const struct member *gcrt_ptx(const struct container *container, const struct kernel *kernel);

/* Load the code of all kernels. GPC5008, GPC5015. */
int gcrt_gpu_load(gpucomp_model *model, const struct container *container, gpucomp_error *error);

/* Memory of at least one byte. GPC5004. */
int gcrt_gpu_allocate(const gpucomp_model *model, uint64_t bytes, bool tensor, void **memory, gpucomp_error *error);

/* What an engine has for contexts; see context.h. */
int gcrt_gpu_make(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error);
void gcrt_gpu_end(gpucomp_context *context);
int gcrt_gpu_plan(gpucomp_context *context, struct form *form, gpucomp_error *error);
int gcrt_gpu_run(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs,
                 bool complete, gpucomp_error *error);
int gcrt_gpu_wait(gpucomp_context *context, gpucomp_error *error);
int gcrt_gpu_zero(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error);
int gcrt_gpu_copy(gpucomp_context *context, void *memory, const struct strided *rows, void *packed, bool out,
                  gpucomp_error *error);

#define GPU_MAP_BYTES 128 /* of a tensor map */
#define GPU_MAP_ALIGNMENT 64

/* Encode a tensor map of a kernel for its parameter at `address`. GPC5016; GPC7004 for one that leaves the buffer. */
int gcrt_gpu_encode(const struct gpu_model *own, const struct form *form, const struct kernel *kernel,
                    const struct tensor_map *map, void *address, uint64_t bytes, uint8_t *to, gpucomp_error *error);
#endif
