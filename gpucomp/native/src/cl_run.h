/* Contexts on an OpenCL device. */
#ifndef GCRT_CL_RUN_H
#define GCRT_CL_RUN_H

#include "cl_model.h"

/* A buffer of at least one byte. GPC5004. */
int gcrt_cl_buffer(const struct cl_model *own, cl_flags flags, uint64_t bytes, cl_mem *memory, gpucomp_error *error);

/* What an engine has for contexts; see context.h. */
int gcrt_cl_make(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error);
void gcrt_cl_end(gpucomp_context *context);
int gcrt_cl_plan(gpucomp_context *context, struct form *form, gpucomp_error *error);
int gcrt_cl_run(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs,
                gpucomp_error *error);
int gcrt_cl_zero(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error);
int gcrt_cl_copy(gpucomp_context *context, void *memory, const struct strided *rows, void *packed, bool out,
                 gpucomp_error *error);

/* A launch: its kernel object, whose arguments stay set, and which kernel of the plan it is. */
struct cl_call {
    cl_kernel kernel;
    int64_t which; /* -1: none yet */
};

/* An argument of a launch. In a loop it may be a part of its buffer, which moves: that is copied to and from `slice`. */
struct cl_argument {
    cl_mem bound, slice; /* bound: what the kernel has */
    uint64_t room;       /* of the slice */
    int64_t start, advance;
    bool read, written;
};

struct cl_form {
    struct cl_call *calls; /* of each row */
    struct cl_argument *arguments;
    cl_mem *memory; /* of each buffer: parts of the arena, counters, numbers */
    uint64_t *rooms;
};

struct cl_own {
    cl_command_queue queue;
    cl_mem arena;
    cl_mem *tensors; /* memory of the plan's inputs, then of its outputs; none for states */
    cl_mem *now;     /* the same in this run, with states */
    uint64_t *rooms;
    bool *kept;      /* whether it is a state */
    void **views;    /* mapped outputs */
    bool broken;     /* a run failed: counters may hold anything */
};

cl_mem gcrt_cl_memory_of(const gpucomp_context *context, const struct form *form, int64_t position);
#endif
