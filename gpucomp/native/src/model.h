/* An opened file: plans, machine code and weights, which do not change. */
#ifndef GCRT_MODEL_H
#define GCRT_MODEL_H

#include "container.h"
#include "elf.h"
#include "open_plan.h"
#include "system.h"

/* An argument of a launch. */
struct argument {
    int64_t buffer; /* its position; -1: the numbers of the kernel */
    uint32_t row;
};

/* Native code, with what each of it takes; NULL where machine code of an earlier version lacks it. */
struct runner {
    uintptr_t run, run_loops, help, alone;
};

/* The rows of the native runner's table: the launches of a plan, in order. What is alike at all sizes. */
struct program {
    struct plan plan;
    struct open_plan *open; /* NULL: for one set of sizes */
    int64_t *sizes;         /* of the model's dimensions, which a plan of its own is for; NULL for the general one */
    struct image image;
    struct runner runner;
    size_t rows;
    struct argument *arguments;
    size_t argument_count;
    size_t *begins;        /* of the arguments of each row, and behind the last */
    size_t *number_starts; /* where the numbers of each kernel begin */
    size_t number_count;   /* of all kernels, one after the other */
    int64_t *output_of;    /* for each buffer the first output that it is, or -1 */
    int64_t *input_of;     /* for each buffer the input that it is, or -1 */
    const uint8_t **codes; /* of each kernel */
    const uint8_t **weights; /* of each buffer, where it is one */
};

struct engine; /* context.h */

#define GCRT_MANIFEST "manifest.json"
#define GCRT_WEIGHTS "weights.safetensors"
#define GCRT_DYNAMIC_MODEL "rest.onnx"
#define GCRT_SOURCES "sources/"
#define GCRT_BINARIES "binaries/"

struct gpucomp_model {
    const struct engine *engine; /* NULL until the file's device is known */
    void *device; /* what the engine has beside */
    struct store store;
    struct mapped mapped;
    struct text path;
    gpucomp_open_options options; /* its texts are there only until the model is open */
    bool keep_mapped; /* weights stay in the file */
    const char *device_name; /* NULL for the processor */
    uint64_t compiled; /* programs that a driver compiled from source when the model was opened */
    void *native_context, *native_device; /* handles of the driver's, see gpucomp_model_info */
    int device_number;
    void *large; /* weights in large pages */
    size_t large_bytes;
    struct program *programs; /* the first one is for any size, the others for one set of sizes */
    size_t program_count;
    struct open_plan open; /* no dimensions: a model for one set of sizes */
    uint64_t weight_bytes;
    size_t second_cache;
    size_t *inputs, *outputs, *states; /* positions among the plan's inputs and outputs; no states; of states */
    size_t input_count, output_count, state_count;
    int64_t *state_outputs; /* which output a state becomes, -1 in place */
};

/* See gpucomp_device: for HIP, or for CUDA. */
int gcrt_gpu_device(bool hip, const char *library, size_t number, gpucomp_device_info *info, gpucomp_error *error);

/* Check the members against the manifest's list of them, once plans are read: names, digests, sizes. GPC7003,
 * GPC7004. */
int gcrt_check_members(const gpucomp_model *model, struct store *scratch, const struct container *container,
                       const struct json *expected, gpucomp_error *error);

/* Check that sources are text, and that every kernel has its source and its binary. GPC7004. */
int gcrt_check_kernels(const gpucomp_model *model, const struct container *container, gpucomp_error *error);

/* Give back what a run does not read of a mapped file. */
void gcrt_give_back_members(const gpucomp_model *model, const struct container *container);

/* Read the weights of all plans: where each is in `member`. GPC7004 unless it holds exactly these. */
int gcrt_weights(gpucomp_model *model, const struct member *member, gpucomp_error *error);

/* Prepare the plan of a program to run, once code and weights are there. */
int gcrt_program(gpucomp_model *model, struct program *program, gpucomp_error *error);
#endif
