/* Models on devices: what the engines of OpenCL and of GPUs share. Memory is an address, or a handle of OpenCL's. */
#ifndef GCRT_DEVICE_H
#define GCRT_DEVICE_H

#include "context.h"

/* A weight on the device, which all programs of a model share. */
struct device_weight {
    const uint8_t *data;
    uint64_t bytes;
    void *memory;
};

struct device_weights {
    struct device_weight *all; /* each once */
    size_t count;
    void ***memory; /* for each program of the model and each of its buffers, where it is a weight */
};

/* An argument of a launch. In a loop it may be a part of its buffer, which moves: it is then copied to and from `slice`, or
 * nothing but its address moves. */
struct device_argument {
    void *bound; /* what the kernel has; NULL: nothing yet */
    void *slice;
    uint64_t room; /* of the slice */
    int64_t start, advance;
    bool read, written, copied;
};

struct device_form {
    struct device_argument *arguments;
    void **memory; /* of each buffer: parts of the arena, counters, numbers */
    uint64_t *rooms;
    void *calls; /* the engine's */
};

struct device_context {
    const struct device_calls *device;
    void *arena;
    void **tensors; /* memory of the plan's inputs, then of its outputs; none for states */
    void **now;     /* the same in this run, with states */
    uint64_t *rooms;
    bool *kept;  /* whether it is a state */
    bool broken; /* a run failed: counters may hold anything */
    bool pending; /* runs may be in the queue */
    void *own;   /* the engine's */
};

/* What a device does for the functions below. Functions that may fail return a code. */
struct device_calls {
    const struct device_weights *(*weights)(const gpucomp_model *model);
    /* Memory of at least one byte. `tensor`: the host also uses it. GPC5004. */
    int (*allocate)(const gpucomp_model *model, uint64_t bytes, bool tensor, void **memory, gpucomp_error *error);
    void (*release)(const gpucomp_model *model, void *memory);
    /* A part of the arena. */
    int (*part)(const gpucomp_context *context, uint64_t start, uint64_t bytes, void **part, gpucomp_error *error);
    void (*end_part)(const gpucomp_model *model, void *part);
    /* Let memory be zeros; copy to it, completely before this returns; copy between two pieces of it. */
    int (*zero)(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error);
    int (*write)(gpucomp_context *context, void *memory, const void *data, uint64_t bytes, gpucomp_error *error);
    int (*copy)(gpucomp_context *context, void *from, uint64_t from_at, void *to, uint64_t to_at, uint64_t bytes,
                gpucomp_error *error);
    /* Whether kernels need a part of a buffer that moves by so many bytes copied to where a buffer may begin. */
    bool (*copies)(const struct program *program, size_t row, size_t argument, int64_t advance);
    /* Make what a form has beside, and end it, also where it was not completed. */
    int (*make)(gpucomp_context *context, struct form *form, gpucomp_error *error);
    void (*end)(gpucomp_context *context, struct form *form);
    /* Prepare a launch at the sizes of a form. */
    int (*prepare)(gpucomp_context *context, struct form *form, size_t row, gpucomp_error *error);
    /* Of a run: give the kernels their memory, copy inputs from the host, launch a row in a step of its loop, copy outputs to
     * the host. A `complete` run has nothing before it in the queue, and leaves nothing there. */
    int (*bind)(gpucomp_context *context, struct form *form, gpucomp_error *error);
    int (*upload)(gpucomp_context *context, const struct form *form, const gpucomp_tensor *inputs, bool complete,
                  gpucomp_error *error);
    int (*launch)(gpucomp_context *context, const struct form *form, size_t row, int64_t step, gpucomp_error *error);
    int (*download)(gpucomp_context *context, const struct form *form, const gpucomp_tensor *outputs, bool complete,
                    gpucomp_error *error);
    /* Wait until nothing that was enqueued is running, and tell what failed of it. */
    int (*wait)(gpucomp_context *context, gpucomp_error *error);
};

/* List the weights of all programs. After they were uploaded, note where those of each program are. */
int gcrt_list_weights(gpucomp_model *model, struct device_weights *weights, gpucomp_error *error);
int gcrt_place_weights(gpucomp_model *model, struct device_weights *weights, gpucomp_error *error);

/* What a context has on a device: first its structures, with `own` of the engine's; then its memory. `end` frees both. */
int gcrt_device_make(gpucomp_context *context, const struct device_calls *device, size_t own,
                     const gpucomp_context_options *options, gpucomp_error *error);
int gcrt_device_reserve(gpucomp_context *context, gpucomp_error *error);
void gcrt_device_end(gpucomp_context *context);

/* See `plan` and `run` of struct engine. */
int gcrt_device_plan(gpucomp_context *context, struct form *form, gpucomp_error *error);
int gcrt_device_run(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs,
                    bool complete, gpucomp_error *error);
int gcrt_device_wait(gpucomp_context *context, gpucomp_error *error);

/* Let kernels have the context's own tensors, so that single launches can be made. */
int gcrt_device_alone(gpucomp_context *context, struct form *form, gpucomp_error *error);

/* Run each kernel on the inputs of its check in the file, unless a verdict for `driver`, the names and versions of driver and
 * device, is kept. `usual`: whether that is done where no setting says so. GPC5106 for a kernel that is wrong. */
int gcrt_device_test(gpucomp_model *model, const struct container *container, const char *driver, bool usual,
                     gpucomp_error *error);

/* Where a buffer lies in this run. */
void *gcrt_device_memory(const gpucomp_context *context, const struct form *form, int64_t position);

/* Whether that is a tensor of the caller's. */
bool gcrt_is_callers(const gpucomp_context *context, const struct form *form, int64_t position);

#define GCRT_LOADED 16 /* bytes that kernels load at once: an address that is no multiple of them is copied from or to */

static inline size_t gcrt_program_number(const gpucomp_context *context, const struct program *program)
{
    return (size_t)(program - context->model->programs);
}
#endif
