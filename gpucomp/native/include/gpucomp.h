/* gpucomp.h: runs models that gpucomp compiled (`.gpuc` files), in C, without Python.
 *
 * Link with -lgpucomp_rt. The library needs a C library and POSIX threads, and nothing else. It runs what was compiled for
 * this processor (`--target cpu` or `cpu:NAME`), for OpenCL (`opencl` or `opencl:NAME`) and for GPUs of NVIDIA and AMD
 * (`cuda:NAME`, `hip:NAME`), whose library it opens when it meets the first such model.
 *
 *     gpucomp_error error = GPUCOMP_ERROR_INIT;
 *     gpucomp_model *model;
 *     gpucomp_context *context;
 *     if (gpucomp_open("model.gpuc", NULL, &model, &error) || gpucomp_context_create(model, NULL, &context, &error))
 *         return fprintf(stderr, "%s\n", error.text), 1;
 *     gpucomp_tensor in = GPUCOMP_TENSOR_INIT, out = GPUCOMP_TENSOR_INIT;
 *     in.data = pixels, in.bytes = sizeof pixels;
 *     out.data = scores, out.bytes = sizeof scores;
 *     if (gpucomp_run(context, &in, 1, &out, 1, &error))
 *         ...
 *     gpucomp_context_destroy(context);
 *     gpucomp_close(model);
 *
 * Errors. A call that can fail returns 0, or the number of a code: 7003 is GPC7003. The codes are those of gpucomp in Python;
 * docs/errors.md lists the causes and what to do. `error` may be NULL; else the call fills it, with code 0 and an empty text
 * where it succeeds. What a failed call was to make is NULL. The library never prints, and never ends the program.
 *
 * Threads. A model does not change after it was opened: any number of threads may use it. A context serves one thread at a
 * time; a second thread that calls it meanwhile gets GPC2037 and changes nothing. There is no global state.
 *
 * Order. gpucomp_run returns when its results are complete. gpucomp_enqueue returns when the run stands in the queue of the
 * context's stream on a device; see there.
 *
 * Memory. All memory of a context is reserved when it is made; no later call allocates, but for what the driver of a device does.
 * Sizes are in bytes unless something else is said. Tensors are row-major without gaps, in the byte order of the machine; bool
 * takes a byte, and so do types of 4 and 2 bits.
 *
 * Trust. A file is checked as a whole before anything of it is used, so that a damaged file is an error. The machine code in
 * it is run all the same: open only files that you trust.
 *
 * Versions. Structures begin with their size, which the _INIT macros set, or the caller where there is none: fields are only
 * added at the end, and programs that were compiled with an older header go on working. GPUCOMP_API_VERSION rises when functions
 * or fields are added.
 */
#ifndef GPUCOMP_H
#define GPUCOMP_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

#define GPUCOMP_API_VERSION 4
#define GPUCOMP_VERSION "0.1.0"
#define GPUCOMP_MAX_RANK 32
#define GPUCOMP_MAX_TEXT 2048

typedef struct gpucomp_model gpucomp_model;     /* an opened file, which contexts share */
typedef struct gpucomp_context gpucomp_context; /* memory for one run at a time, and the states of a model that has any */

/* What went wrong. `code` is the number of a GPC code, `text` one line with the code, in UTF-8. */
typedef struct gpucomp_error {
    size_t size; /* of this structure */
    int code;
    char text[GPUCOMP_MAX_TEXT];
} gpucomp_error;
#define GPUCOMP_ERROR_INIT {sizeof(gpucomp_error), 0, ""}

/* How to open a file. All zero but the size is the default. */
typedef struct gpucomp_open_options {
    size_t size;
    /* 1: weights stay in the mapped file, whose pages all processes share. 0: weights of 32 MiB and more are copied into large
     * pages where the system gives them, which some models run faster with. */
    int keep_mapped;
    /* For models of OpenCL, CUDA and HIP. Texts need not stay after the call. */
    const char *library; /* the path of the library of the model's kind; NULL: as GPUCOMP_OPENCL_LIBRARY or, for HIP, ROCM_PATH
                          * says, else where systems have it */
    const char *device;  /* a number or a part of a name of gpucomp_device, among those that the model is for; NULL: the first
                          * of these */
    const char *cache;   /* the folder where kernels that OpenCL compiled are kept, and verdicts on kernels; NULL: that of Python
                          * (GPUCOMP_CACHE, else XDG_CACHE_HOME/gpucomp, else ~/.cache/gpucomp); "": nothing is kept */
} gpucomp_open_options;
#define GPUCOMP_OPEN_OPTIONS_INIT {sizeof(gpucomp_open_options), 0, NULL, NULL, NULL}

/* A size of a dimension that each run decides, by the dimension's name. */
typedef struct gpucomp_size {
    const char *name;
    int64_t value;
} gpucomp_size;

/* How to make a context. All zero but the size is the default. */
typedef struct gpucomp_context_options {
    size_t size;
    /* Threads that a run may use, with the caller's own; 0: as many as the process may use. The context starts and keeps
     * threads - 1 helpers; with 1 it starts none. Results do not depend on it. */
    int threads;
    /* The caller's memory for temporary tensors, aligned to 64 bytes, which nothing else uses while the context exists; NULL:
     * the context reserves its own. `arena_bytes` is its size. Without `arena`, the size to reserve; 0: as much as is needed
     * at `largest`. A run that needs more fails with GPC5020. */
    void *arena; /* NULL for a model that is not for the processor */
    size_t arena_bytes;
    /* The largest size of dimensions that each run decides; those that are not named: the largest that the model allows.
     * Memory is reserved for these sizes; the system provides it only as far as runs touch it. */
    const gpucomp_size *largest;
    size_t largest_count;
    /* The caller's stream on the model's GPU (CUstream, hipStream_t), or its in-order queue of the model's OpenCL context
     * (cl_command_queue): all that the context does is in its order. It must outlive the context; that a stream is of that GPU
     * is not checked. NULL: a stream of its own, which waits for no other */
    void *stream;
} gpucomp_context_options;
#define GPUCOMP_CONTEXT_OPTIONS_INIT {sizeof(gpucomp_context_options), 0, NULL, 0, NULL, 0, NULL}

/* One axis of an input or output. */
typedef struct gpucomp_axis {
    const char *name; /* of the dimension if each run decides its size; else NULL. An output's may be a formula */
    int64_t low, high, multiple; /* the sizes it can have: low to high, a multiple of `multiple`. A fixed one is low == high.
                                  * high is -1 where only the run tells */
} gpucomp_axis;

/* An input or output of a model. Pointers are valid as long as the model. */
typedef struct gpucomp_tensor_info {
    size_t size;
    const char *name;
    const char *dtype;    /* f64 f32 f16 bf16 i64 i32 i16 i8 u64 u32 u16 u8 bool f8e4m3fn f8e5m2 i4 u4 ... */
    size_t element_bytes;
    size_t rank;
    gpucomp_axis axes[GPUCOMP_MAX_RANK];
    uint64_t bytes;       /* 0 if a run decides */
} gpucomp_tensor_info;

/* What a file holds. Pointers are valid as long as the model. */
typedef struct gpucomp_model_info {
    size_t size;
    const char *name;   /* of the model, may be empty */
    const char *target; /* cpu, cpu:x86-64-v3 ... */
    const char *processor;
    size_t inputs, outputs, states, dims; /* how many; states are neither among the inputs nor the outputs */
    size_t kernels, launches, fixed;      /* fixed: sets of sizes that have a program of their own */
    uint64_t weight_bytes, code_bytes;
    uint64_t arena_bytes; /* of temporary tensors; 0 if a run decides */
    const char *device; /* the name of the device; NULL for the processor */
    uint64_t compiled;  /* how many programs the driver compiled when the file was opened, from source or PTX; 0: none */
    void *native_context; /* OpenCL: the cl_context, in which buffers and queues of the caller's are to be made. CUDA: the
                           * CUcontext, which is the GPU's primary one. Else NULL */
    void *native_device;  /* OpenCL: the cl_device_id; else NULL */
    int device_number;    /* CUDA and HIP: the number of the GPU; else -1 */
} gpucomp_model_info;

/* A device of OpenCL, CUDA or HIP. */
typedef struct gpucomp_device_info {
    size_t size;
    char name[256];
    char platform[256]; /* of OpenCL; of CUDA and HIP the target to compile for, as cuda:sm_90a */
    char driver[256];   /* its version */
    int gpu; /* 1: a GPU; 0: a processor or something else */
} gpucomp_device_info;

#define GPUCOMP_HOST 0
#define GPUCOMP_DEVICE 1

/* A tensor of the caller. `data` is aligned to its elements, and `bytes` long. `shape` has `rank` extents in elements; it may
 * be NULL where the model fixes the shape. For an output, `bytes` is the room there is, and `shape` is ignored: see
 * gpucomp_plan. Outputs must not overlap each other or inputs.
 *
 * With GPUCOMP_DEVICE as `memory`, it is on the model's device: `data` is an address there (CUDA, HIP), or a cl_mem (OpenCL)
 * whose beginning it is. Kernels then read and write it where it is, and nothing is copied, unless an address is not aligned to
 * 16 bytes, or an output is also an input, a weight, a temporary tensor or another output. That an address is on the device is
 * not checked. What is in it must be complete, or be made in the context's stream. */
typedef struct gpucomp_tensor {
    size_t size;
    void *data; /* not written for an input */
    size_t bytes;
    const int64_t *shape;
    size_t rank;
    int memory; /* GPUCOMP_HOST or GPUCOMP_DEVICE */
} gpucomp_tensor;
#define GPUCOMP_TENSOR_INIT {sizeof(gpucomp_tensor), NULL, 0, NULL, 0, GPUCOMP_HOST}

/* The version of the library's interface, and of gpucomp. Any thread. */
int gpucomp_api_version(void);
const char *gpucomp_version(void);

/* Open a compiled model: map the file, check every byte of it against its digests, check the manifest, load the machine code. For
 * OpenCL: open the device, build the kernels, from the file or from what is kept where that is possible, and upload the weights.
 * For CUDA and HIP: open the GPU, load the file's machine code, or let the driver compile its PTX, and upload the weights.
 * Where a driver and a device meet the model for the first time, each kernel runs once on inputs that the file says, as the
 * variable GPUCOMP_SELF_TEST has it: 1 always, 0 never, else for OpenCL, but not on PoCL.
 * GPC7001..7024 for a file that is damaged or foreign; GPC7005 if it cannot be read; GPC5007 if this processor lacks
 * instructions that the code needs; GPC4102 for what only Python can run (operators on the host, strings, other devices), by
 * name; GPC5011 if the system lets no memory be executable; GPC5013 without memory; GPC2042 without a path or options that are
 * wrong. For OpenCL: GPC5002 without its library, GPC5001 without a device that the model is for, GPC5004 without memory there,
 * GPC5005 if the driver fails, GPC5100 and GPC5104 for a kernel that it refuses, GPC5106 for one whose results are wrong, and
 * GPC5006 and GPC5020 if the test of it fails. The same for CUDA and HIP, and GPC5008 for a GPU that the file is not for, GPC5015
 * for machine code that is missing or that the driver refuses, GPC5201 for a GPU that is lost.
 * The file may be deleted afterwards, but must not be changed. Any thread. */
int gpucomp_open(const char *path, const gpucomp_open_options *options, gpucomp_model **model, gpucomp_error *error);

/* The same for a file in memory, which must be aligned to 64 bytes (else GPC2042), and must stay until gpucomp_close. */
int gpucomp_open_memory(const void *data, size_t bytes, const gpucomp_open_options *options, gpucomp_model **model,
                        gpucomp_error *error);

/* OpenCL devices of this machine, as gpucomp_open_options.device counts them: GPUs first. `library` is as there; `info->size` is
 * set by the caller. GPC5001 for a number that is too large, GPC5002 without OpenCL's library, GPC5013 without memory; GPC4102
 * in a library that was built without OpenCL. Any thread. */
int gpucomp_opencl_device(const char *library, size_t number, gpucomp_device_info *info, gpucomp_error *error);

/* The same for devices of any kind: "opencl", "cuda" or "hip" (else GPC2042). `library` is of this kind. GPC5005 if the driver
 * does not describe a GPU. */
int gpucomp_device(const char *kind, const char *library, size_t number, gpucomp_device_info *info, gpucomp_error *error);

/* Free a model, after all of its contexts. NULL is allowed. */
void gpucomp_close(gpucomp_model *model);

/* What the model is; `info->size` is set by the caller. GPC2042 for a number that is too large. Any thread. */
int gpucomp_describe(const gpucomp_model *model, gpucomp_model_info *info, gpucomp_error *error);
int gpucomp_input(const gpucomp_model *model, size_t number, gpucomp_tensor_info *info, gpucomp_error *error);
int gpucomp_output(const gpucomp_model *model, size_t number, gpucomp_tensor_info *info, gpucomp_error *error);

/* A state: its input. One that grows has an axis whose dimension counts its rows, and which is `high` long in memory. */
int gpucomp_state(const gpucomp_model *model, size_t number, gpucomp_tensor_info *info, gpucomp_error *error);

/* A dimension that each run decides: name, low, high, multiple. */
int gpucomp_dim(const gpucomp_model *model, size_t number, gpucomp_axis *axis, gpucomp_error *error);

/* The name of a launch and of its kernel; NULL for a number that is too large. */
const char *gpucomp_launch_name(const gpucomp_model *model, size_t number);
const char *gpucomp_launch_kernel(const gpucomp_model *model, size_t number);

/* How many bytes of arena a run at these sizes needs. Dimensions that are not named: the largest size there is.
 * GPC2111 for a size outside its range, GPC2113 for sizes that the file is not for, GPC7024 for formulas that are damaged,
 * GPC5013 without memory, GPC2042 for NULL. Allocates while it works. Any thread. */
int gpucomp_arena_bytes(const gpucomp_model *model, const gpucomp_size *sizes, size_t count, uint64_t *bytes,
                        gpucomp_error *error);

/* Make a context. GPC5013 if memory or threads are not available; GPC5020 if `options->arena` is too small, where the model's
 * sizes are fixed (else the run tells that needs more); GPC2042 for wrong options; GPC2111, 2113 for sizes in `largest` that are
 * outside their range or that the file is not for; GPC7024 for formulas that are damaged. On a device, too: GPC5004 without
 * memory there, and the errors of gpucomp_run. The model must outlive it. Any thread. */
int gpucomp_context_create(const gpucomp_model *model, const gpucomp_context_options *options, gpucomp_context **context,
                           gpucomp_error *error);

/* End the context's threads and free its memory. No call may be in it. NULL is allowed. */
void gpucomp_context_destroy(gpucomp_context *context);

/* Run the model once. `inputs` and `outputs` are all of them, in the order of gpucomp_input and gpucomp_output. The results are
 * complete when the call returns. After an error the outputs are unchanged:
 *     GPC2037              another thread is in this context
 *     GPC2042              a wrong number of tensors, a tensor whose size is not set, data that is NULL or not aligned to its
 *                          elements, or memory of a device that the model is not on, or that is not such memory
 *     GPC2103              an input of a wrong shape or number of bytes
 *     GPC2111, 2112, 2113  sizes of dimensions: outside their range, not equal, not those that the file is for
 *     GPC2115, 2116        an output without room, or in the memory of another tensor
 *     GPC2118              a state without room
 *     GPC5020              an arena that is too small
 *     GPC7024              formulas of sizes that are damaged
 *     GPC5004, 5006, 5201  a device: no memory for these sizes; one that failed, or that is lost, after which outputs may hold
 *                          anything
 *     GPC5016, 7004        CUDA: a tensor map that the driver refuses, or that does not fit its tensor */
int gpucomp_run(gpucomp_context *context, const gpucomp_tensor *inputs, size_t input_count, const gpucomp_tensor *outputs,
                size_t output_count, gpucomp_error *error);

/* As gpucomp_run, but return when all of it stands in the queue of the context's stream. Runs of a context, and what else is
 * in a stream of the caller's, follow each other. Until gpucomp_wait, inputs on the host must stay as they are, and outputs
 * there are not to be read. Outputs on the device are complete for what is put into the same stream afterwards. An error that
 * shows later is that of gpucomp_wait, or of the next call that has to wait: gpucomp_run, and any for other sizes than before.
 * It leaves states undefined, as if runs had been made: gpucomp_reset or gpucomp_state_restore. The call itself waits for runs
 * at other sizes, and on CUDA for a copy to memory of the host that is not pinned. A model for the processor runs before it
 * returns. */
int gpucomp_enqueue(gpucomp_context *context, const gpucomp_tensor *inputs, size_t input_count, const gpucomp_tensor *outputs,
                    size_t output_count, gpucomp_error *error);

/* Wait until all runs of the context are complete. GPC5006, 5201 as of gpucomp_run; GPC2037 during a call of another thread. */
int gpucomp_wait(gpucomp_context *context, gpucomp_error *error);

/* Plan a run on inputs of these shapes, whose `data` may be NULL, without running it: the same errors. Afterwards
 * gpucomp_output_shape gives the shapes of its outputs. A run on other shapes plans by itself. */
int gpucomp_plan(gpucomp_context *context, const gpucomp_tensor *inputs, size_t input_count, gpucomp_error *error);

/* Shape and bytes of an output, as planned last: `shape` has room for GPUCOMP_MAX_RANK extents. Any of the three may be NULL.
 * GPC2042 if nothing is planned yet (a model of fixed shapes always is). */
int gpucomp_output_shape(gpucomp_context *context, size_t number, int64_t *shape, size_t *rank, uint64_t *bytes,
                         gpucomp_error *error);

/* States. A run goes on from where the one before it ended. GPC2037 during a run, GPC2042 for a number that is too large. */

/* Begin anew: no rows, and zeros in what does not grow. */
int gpucomp_reset(gpucomp_context *context, gpucomp_error *error);

/* How many rows of a state that grows are valid; 0 for others. */
int gpucomp_state_rows(gpucomp_context *context, size_t number, int64_t *rows, gpucomp_error *error);

/* Go back to the first `rows` of all states. GPC2041 if one does not grow, or has fewer rows. */
int gpucomp_rewind(gpucomp_context *context, int64_t rows, gpucomp_error *error);

/* Copy the valid part of a state into `data`, in the host's memory; or `state`, which is there too, back into the context:
 * `shape` is then that of the valid part. All states of a model must be restored before the next run, or none. GPC2117 for what
 * does not fit, GPC2042 for memory of a device. gpucomp_state_save with NULL as `data` sets nothing but `*bytes`; `shape` has
 * room for GPUCOMP_MAX_RANK extents, and may be NULL. */
int gpucomp_state_save(gpucomp_context *context, size_t number, void *data, size_t room, size_t *bytes, int64_t *shape,
                       size_t *rank, gpucomp_error *error);
int gpucomp_state_restore(gpucomp_context *context, size_t number, const gpucomp_tensor *state, gpucomp_error *error);

#ifdef __cplusplus
}
#endif
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
