/* Memory for one run at a time. */
#ifndef GCRT_CONTEXT_H
#define GCRT_CONTEXT_H

#include <stdatomic.h>

#include "model.h"

#define GCRT_LINE 64                /* bytes of a cache line, and of the widest vector */
#define GCRT_STATE_WORDS 16         /* of a launch for each thread: two cache lines, as the native runner has them */
#define GCRT_TRIALS 24              /* by the exponents of estimates */
#define GCRT_MOST_THREADS 256

/* A program at some sizes: its numbers, and the table of the native runner. Nothing in it moves. */
struct form {
    const struct program *program;
    bool planned;
    int64_t *numbers;            /* of the formulas; the first are the sizes */
    int64_t *nbytes, *offsets;   /* of each buffer; offsets are -1 for those that are not in the arena */
    int64_t *ends;               /* of stacks, while they are placed */
    int64_t *chosen;             /* for each kernel, the one that is launched */
    int64_t *given;              /* numbers of all kernels */
    uint8_t **memory;            /* of each buffer whose place does not change: weights, counters, numbers */
    uint64_t *table, *arguments; /* rows of { code, arguments, tasks, state }, and their arguments */
    uint64_t *starts;            /* how far behind the beginning each argument points in the first step of a loop */
    _Atomic uint64_t *states;    /* of each row, for each thread */
    int64_t *loops, *loop_words; /* loops: addresses, or 0, for each row. NULL without loops */
    double *costs;
    void *calls; /* what the engine has beside */
    double shared_ns; /* about how long one thread takes for the launches that threads can share */
    uint64_t arena_bytes;
};

/* What is learnt from first runs: whether several threads make them faster. As gpucomp/runtime/trial.py. */
struct trial {
    int counts[4];
    double least[4];
    int runs, threads;
    bool over;
};

/* A state: the memory of its input, and where the next run writes it if that is not in place. */
struct kept {
    void *now, *spare; /* as the engine has memory: an address, or a handle */
    uint64_t room; /* of each */
    int64_t rows;
    int64_t shape[GPUCOMP_MAX_RANK]; /* of what `now` holds */
    size_t rank;
    bool begun; /* a run or gpucomp_state_restore gave it a shape */
};

struct pool;

struct gpucomp_context {
    const gpucomp_model *model;
    const struct engine *engine; /* the model's */
    struct store store;
    atomic_flag busy;
    uint8_t *arena, *own_arena;
    uint64_t arena_bytes;
    uint8_t *own_states;
    uint64_t own_state_bytes;
    struct form *forms; /* of each program of the model */
    struct form *latest;
    int64_t *sizes; /* of the model's dimensions, as planned last; scratch behind them */
    struct kept *kept;
    void *device;    /* what the engine has beside */
    uint64_t *words; /* of the native runner's context */
    int threads;
    struct pool *pool;
    struct trial trials[GCRT_TRIALS];
    uint8_t **tensors; /* memory of the plan's inputs, then of its outputs, of this run */
};

/* Rows of a state: `count` pieces of `bytes`, each `pitch` behind the one before; packed, they have no gaps. */
struct strided {
    size_t count, bytes, pitch;
};

/* What runs a model: the processor, or a device. All but `close` and `end` return a code. */
struct engine {
    /* Load the code of all programs, whose weights are in place. `close` also ends what `open` did not complete. */
    int (*open)(gpucomp_model *model, const struct container *container, gpucomp_error *error);
    void (*close)(gpucomp_model *model);
    /* Make what a context runs with, once arena and states are measured. `end` also ends what `make` did not complete. */
    int (*make)(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error);
    void (*end)(gpucomp_context *context);
    /* Prepare a form that was measured, and which becomes the latest. */
    int (*plan)(gpucomp_context *context, struct form *form, gpucomp_error *error);
    /* Run it on tensors that were checked. Without `complete`, results may come later, before `wait` returns. */
    int (*run)(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs,
               bool complete, gpucomp_error *error);
    int (*wait)(gpucomp_context *context, gpucomp_error *error);
    /* Memory of states: let it begin with zeros, and copy rows from or to it. */
    int (*zero)(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error);
    int (*copy)(gpucomp_context *context, void *memory, const struct strided *rows, void *packed, bool out,
                gpucomp_error *error);
    /* Of handles of a caller's on the device; NULL: these are addresses. What is wrong with one of at least so many bytes,
     * which a run reads or writes, or empty; and whether two share bytes. */
    const char *(*refuses)(const gpucomp_model *model, void *memory, uint64_t bytes, bool written);
    bool (*meet)(const gpucomp_model *model, const gpucomp_tensor *one, const gpucomp_tensor *other);
    bool has_memory; /* of its own, other than the host's */
    /* Test the kernels of an opened model where a device has not been met before; NULL: nothing to test. GPC5106. */
    int (*test)(gpucomp_model *model, const struct container *container, gpucomp_error *error);
};
extern const struct engine gcrt_processor, gcrt_opencl, gcrt_gpu;

/* Make the memory of a form that every engine needs. */
int gcrt_make_form(struct store *store, const gpucomp_model *model, const struct program *program, struct form *form,
                   gpucomp_error *error);

/* Make the native runner's table for up to `threads` threads. */
int gcrt_make_table(struct store *store, int threads, struct form *form, gpucomp_error *error);

/* The numbers at these sizes of the dimensions: bytes of all buffers, and of the arena. GPC2113, GPC7024. */
int gcrt_measure(struct form *form, const int64_t *sizes, gpucomp_error *error);

/* Write what this run gives kernels, after gcrt_measure: `given`, and buffers of numbers in `memory`. GPC7024. */
int gcrt_fill_numbers(struct form *form, gpucomp_error *error);

/* The loop of a launch, or NULL; how many bytes an argument of a launch in it moves with each step. */
const struct repeat *gcrt_repeat_of(const struct program *program, size_t row);
int64_t gcrt_advance_of(const struct form *form, const struct repeat *repeat, size_t row, size_t argument);
/* Where an argument that moves by so many bytes begins in the first step, in bytes from the beginning of its buffer. */
int64_t gcrt_start_of(const struct form *form, const struct repeat *repeat, int64_t by);

/* Fill the table after gcrt_measure. */
int gcrt_fill(struct form *form, size_t second_cache, gpucomp_error *error);

/* Let temporaries lie in an arena. */
void gcrt_place(struct form *form, uint8_t *arena);

/* A tensor of the caller's, whose structures may be longer than this version's. */
static inline const gpucomp_tensor *gcrt_tensor_at(const gpucomp_tensor *tensors, size_t number)
{
    return (const gpucomp_tensor *)(const void *)((const char *)tensors + number * tensors->size);
}

/* Whether it is on the device; programs that were compiled with an older header have no such tensors. */
static inline bool gcrt_on_device(const gpucomp_tensor *tensor)
{
    return tensor->size >= GCRT_END(gpucomp_tensor, memory) && tensor->memory == GPUCOMP_DEVICE;
}

/* The position of the buffer of an output of the plan. */
static inline int64_t gcrt_output_buffer(const struct form *form, size_t number)
{
    return ITEMS(form->program->plan.outputs, int64_t)[number];
}

static inline int64_t gcrt_value(const struct form *form, struct number number)
{
    return number.open ? form->numbers[number.value] : number.value;
}

/* Threads that help a context's runs; `threads` counts the caller. NULL without memory or threads. */
struct pool *gcrt_pool(int threads);
void gcrt_end_pool(struct pool *pool);

/* Take the latest job back, before its table changes: a helper that wakes late finds none, and none is in it any more. Epochs
 * are not enough: until the next run begins, a table says more tasks than the run before it had. */
void gcrt_withdraw(struct pool *pool);

/* Run the rows of a form by `threads` threads, which are the caller and helpers of the pool. */
void gcrt_run_rows(struct gpucomp_context *context, struct form *form, int threads);

/* Take the context for a call: GPC2037 if another thread has it. */
int gcrt_enter(gpucomp_context *context, gpucomp_error *error);
void gcrt_leave(gpucomp_context *context);

/* The sizes that a caller names, for all dimensions; others are the largest. GPC2111. */
int gcrt_named_sizes(const gpucomp_model *model, const gpucomp_size *sizes, size_t count, int64_t *found, gpucomp_error *error);

/* The form for these sizes of the dimensions, planned. `states`: a state without room is told by name. */
int gcrt_form_at(gpucomp_context *context, const int64_t *sizes, struct form **form, gpucomp_error *error);
#endif
