/* Contexts on an OpenCL device. */
#ifndef GCRT_CL_RUN_H
#define GCRT_CL_RUN_H

#include "cl_model.h"

/* What an engine has for contexts; see context.h. */
int gcrt_cl_make(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error);
void gcrt_cl_end(gpucomp_context *context);
int gcrt_cl_zero(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error);
int gcrt_cl_copy(gpucomp_context *context, void *memory, const struct strided *rows, void *packed, bool out,
                 gpucomp_error *error);

/* A launch: its kernel object, whose arguments stay set, and which kernel of the plan it is. */
struct cl_call {
    cl_kernel kernel;
    int64_t which; /* -1: none yet */
};

struct cl_own {
    cl_command_queue queue;
    bool foreign; /* the caller's */
    size_t enqueued; /* launches of this run */
    void **views;    /* mapped outputs */
};

static inline struct cl_own *gcrt_cl_own(const gpucomp_context *context)
{
    return ((const struct device_context *)context->device)->own;
}

/* Parts of struct device_calls: see there. */
int gcrt_cl_bind(gpucomp_context *context, struct form *form, gpucomp_error *error);
int gcrt_cl_upload(gpucomp_context *context, const struct form *form, const gpucomp_tensor *inputs, bool complete,
                   gpucomp_error *error);
int gcrt_cl_launch(gpucomp_context *context, const struct form *form, size_t row, int64_t step, gpucomp_error *error);
int gcrt_cl_download(gpucomp_context *context, const struct form *form, const gpucomp_tensor *outputs, bool complete,
                     gpucomp_error *error);
int gcrt_cl_copy_between(gpucomp_context *context, void *from, uint64_t from_at, void *to, uint64_t to_at, uint64_t bytes,
                         gpucomp_error *error);
#endif
