/* The processor as the engine of a model: loads its machine code, and runs launches with the native runner. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "context.h"
#include "states.h"

/* as gpucomp/runtime/cpu.py */
#define SMALLEST_SHARED_NS 100000.0 /* of work that threads can share: less ends before a second thread has started */
#define LONG_NS 5000000.0           /* of such work: more is shared in any case */
#define TRIAL_RUNS 4                /* of a turn, without the first, which does not count */

/* as gpucomp/runtime/cpu.py: words of the native runner's context, and when a waiting thread yields and sleeps */
#define SPINS 1000
#define SPINS_TO_SLEEP (SPINS + 1000)
#define NAP_MICROSECONDS 50
#define CONTEXT_WORDS 8
enum { REST, LIMIT, NAP, NAP_TIME, SLEEPS };

static int nap(unsigned microseconds)
{
    struct timespec time = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    return nanosleep(&time, NULL);
}

static uintptr_t function(const struct program *program, const char *name)
{
    return (uintptr_t)gcrt_address(&program->image, gcrt_text(name), NULL);
}

/* Load the machine code of a program, whose kernels share one member. */
static int load_code(gpucomp_model *model, const struct container *container, struct program *program,
                     gpucomp_error *error)
{
    const struct plan *plan = &program->plan;
    const struct member *member = NULL;
    bool one = true;
    int code = gcrt_require(ITEMS(plan->features, struct text), plan->features.count, plan->arch, error);
    if (code)
        return code;
    for (size_t k = 0; k < plan->kernels.count; k++) {
        const struct member *own = gcrt_member(container, GCRT_BINARIES, ITEMS(plan->kernels, struct kernel)[k].binary);
        one = one && (!member || own == member);
        member = own;
    }
    if (!one)
        return gcrt_fail(error, GCRT_WRONG_BINARIES, "one member of machine code expected, found several");
    if (!member)
        return 0;
    code = gcrt_load(&model->store, member->data, (size_t)member->bytes, &program->image, error);
    if (code)
        return code;
    const char *machine = gcrt_machine(program->image.machine);
    if (strcmp(machine, gcrt_own_machine()) != 0)
        return gcrt_fail(error, GCRT_OTHER_PROCESSOR,
                         "the model was compiled for %.100s (%s), this is %s: compile it here, or for one of its processors",
                         plan->arch.at, machine, gcrt_own_machine());
    uint64_t bytes = 0;
    const char *features = (const char *)gcrt_address(&program->image, gcrt_text("gc_features"), &bytes);
    if (!features)
        return gcrt_fail(error, GCRT_DAMAGED_CODE, "machine code: no constant 'gc_features'");
    program->runner = (struct runner){function(program, "gc_run"), function(program, "gc_run_loops"), function(program,
        "gc_help"),
                                      function(program, "gc_alone")};
    if (!program->runner.run || (plan->repeats.count && !program->runner.run_loops))
        return gcrt_fail(error, GCRT_DAMAGED_CODE, "machine code: no function 'gc_run'");
    return gcrt_require_listed((struct text){features, (size_t)bytes}, plan->target, error);
}

static int find_codes(gpucomp_model *model, struct program *program, gpucomp_error *error)
{
    struct list kernels = program->plan.kernels;
    char name[256];
    if (!(program->codes = gcrt_new(&model->store, kernels.count, sizeof *program->codes)))
        return gcrt_no_memory(error);
    for (size_t k = 0; k < kernels.count; k++) {
        snprintf(name, sizeof name, "%s.call", ITEMS(kernels, struct kernel)[k].name.at);
        program->codes[k] = gcrt_address(&program->image, gcrt_text(name), NULL);
        if (!program->codes[k])
            return gcrt_fail(error, GCRT_DAMAGED_CODE, "machine code: no function '%s'", name);
    }
    return 0;
}

static int reserve(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error)
{
    if (options->stream)
        return gcrt_fail(error, GCRT_WRONG_CALL, "options.stream: none expected on the processor");
    if (options->arena) {
        if ((uintptr_t)options->arena % GCRT_LINE)
            return gcrt_fail(error, GCRT_WRONG_CALL, "options.arena: memory aligned to %d bytes expected", GCRT_LINE);
        if (context->model->open.dim_count == 0 && options->arena_bytes < context->arena_bytes)
            return gcrt_fail(error, GCRT_SMALL_ARENA, "options.arena: %llu bytes expected, found %zu",
                             (unsigned long long)context->arena_bytes, options->arena_bytes);
        context->arena = options->arena;
        context->arena_bytes = options->arena_bytes;
    } else {
        if (options->arena_bytes && context->model->open.dim_count)
            context->arena_bytes = options->arena_bytes;
        context->arena = context->own_arena = gcrt_reserve((size_t)context->arena_bytes);
        if (!context->arena)
            return gcrt_fail(error, GCRT_NO_MEMORY, "cpu: the arena needs %llu bytes of memory, which are not available; "
                             "options.largest can make it smaller", (unsigned long long)context->arena_bytes);
        if (context->model->open.dim_count == 0) /* every run uses all of it */
            gcrt_touch(context->arena, (size_t)context->arena_bytes);
    }
    uint8_t *next = context->own_states = gcrt_reserve((size_t)context->own_state_bytes);
    if (!next)
        return gcrt_no_memory(error);
    for (size_t s = 0; s < context->model->state_count; s++) {
        struct kept *kept = context->kept + s;
        kept->now = next;
        next += gcrt_up(kept->room, GCRT_LINE);
        kept->spare = context->model->state_outputs[s] >= 0 ? next : kept->now;
        next += context->model->state_outputs[s] >= 0 ? gcrt_up(kept->room, GCRT_LINE) : 0;
    }
    return 0;
}

/* Where each buffer of the plan is in this run; NULL for one that the run does not have. */
static uint8_t *memory_of(const gpucomp_context *context, const struct form *form, int64_t position)
{
    const struct program *program = form->program;
    const struct buffer *buffer = ITEMS(program->plan.buffers, struct buffer) + position;
    if (buffer->kind == INPUT)
        return context->tensors[program->input_of[position]];
    if (buffer->kind == OUTPUT)
        return context->tensors[program->plan.inputs.count + (size_t)program->output_of[position]];
    return buffer->kind == TEMP ? context->arena + form->offsets[position] : form->memory[position];
}

/* Let the table point to this run's inputs and outputs. */
static void bind(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs)
{
    const gpucomp_model *model = context->model;
    const struct program *program = form->program;
    const struct buffer *buffers = ITEMS(program->plan.buffers, struct buffer);
    size_t behind = program->plan.inputs.count;
    for (size_t k = 0; k < model->input_count; k++)
        context->tensors[model->inputs[k]] = gcrt_tensor_at(inputs, k)->data;
    for (size_t k = 0; k < model->output_count; k++)
        context->tensors[behind + model->outputs[k]] = gcrt_tensor_at(outputs, k)->data;
    for (size_t s = 0; s < model->state_count; s++) {
        context->tensors[model->states[s]] = context->kept[s].now;
        if (model->state_outputs[s] >= 0)
            context->tensors[behind + (size_t)model->state_outputs[s]] = context->kept[s].spare;
    }
    for (size_t a = 0; a < program->argument_count; a++) {
        int64_t position = program->arguments[a].buffer;
        if (position >= 0 && (buffers[position].kind == INPUT || buffers[position].kind == OUTPUT))
            form->arguments[a] = (uint64_t)(uintptr_t)memory_of(context, form, position) + form->starts[a];
    }
}

/* Copy outputs that no kernel writes where they go: those that are inputs, constants, or another output too. */
static void copy_outputs(gpucomp_context *context, const struct form *form)
{
    const struct program *program = form->program;
    const struct buffer *buffers = ITEMS(program->plan.buffers, struct buffer);
    for (size_t k = 0; k < program->plan.outputs.count; k++) {
        int64_t position = gcrt_output_buffer(form, k);
        if (buffers[position].kind == OUTPUT && program->output_of[position] == (int64_t)k)
            continue;
        uint8_t *to = context->tensors[program->plan.inputs.count + k], *from = memory_of(context, form, position);
        uint64_t bytes = gcrt_shape_bytes(form, buffers + position);
        if (bytes && to && from && to != from)
            memcpy(to, from, (size_t)bytes);
    }
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* The trial for a program that takes about so long, begun if it is new; NULL where there is nothing to learn. */
static struct trial *trial_of(gpucomp_context *context, const struct form *form)
{
    if (context->threads == 1 || form->shared_ns < SMALLEST_SHARED_NS || form->shared_ns >= LONG_NS)
        return NULL;
    int exponent;
    frexp(form->shared_ns, &exponent);
    struct trial *trial = context->trials + (exponent < GCRT_TRIALS ? exponent : GCRT_TRIALS - 1);
    if (!trial->threads) {
        trial->threads = context->threads;
        for (int k = 0; k < 4; k++)
            trial->least[k] = INFINITY;
    }
    return trial;
}

/* Turns 0 and 2 are by all threads, 1 and 3 by one alone. */
static int turn_of(const struct trial *trial)
{
    int turn = 0;
    while (turn < 4 && trial->counts[turn] > TRIAL_RUNS)
        turn++;
    return turn;
}

static void note(struct trial *trial, int turn, double ratio)
{
    if (trial->counts[turn]++ && ratio < trial->least[turn])
        trial->least[turn] = ratio;
    if (turn_of(trial) < 4)
        return;
    trial->over = true;
    if (fmin(trial->least[1], trial->least[3]) <= fmin(trial->least[0], trial->least[2]))
        trial->threads = 1;
}

static void execute(gpucomp_context *context, struct form *form)
{
    struct trial *trial = trial_of(context, form);
    bool tries = trial && !trial->over;
    int turn = tries ? turn_of(trial) : 0;
    int threads = form->shared_ns < SMALLEST_SHARED_NS ? 1 : context->threads;
    if (trial)
        threads = !tries ? trial->threads : turn % 2 ? 1 : context->threads;
    double begin = tries ? now_ns() : 0;
    gcrt_run_rows(context, form, threads);
    if (tries)
        note(trial, turn, (now_ns() - begin) / form->shared_ns);
}

static int run(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs,
               bool complete, gpucomp_error *error)
{
    (void)complete, (void)error;
    bind(context, form, inputs, outputs);
    execute(context, form);
    copy_outputs(context, form);
    return 0;
}

static int open_all(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    int code = 0;
    for (size_t p = 0; p < model->program_count && code == 0; p++) {
        code = load_code(model, container, model->programs + p, error);
        if (code == 0)
            code = find_codes(model, model->programs + p, error);
    }
    return code;
}

static void close_all(gpucomp_model *model)
{
    for (size_t p = 0; p < model->program_count; p++)
        gcrt_unload(&model->programs[p].image);
}

static int make(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    context->threads = options->threads > 0 ? options->threads : gcrt_processors();
    context->threads = context->threads < GCRT_MOST_THREADS ? context->threads : GCRT_MOST_THREADS;
    context->words = gcrt_new(&context->store, (size_t)2 * CONTEXT_WORDS, sizeof *context->words);
    if (!context->words)
        return gcrt_no_memory(error);
    context->words[REST] = (uint64_t)(uintptr_t)sched_yield;
    context->words[NAP] = (uint64_t)(uintptr_t)nap;
    context->words[LIMIT] = SPINS;
    context->words[SLEEPS] = SPINS_TO_SLEEP;
    context->words[NAP_TIME] = NAP_MICROSECONDS;
    int code = 0;
    bool pooled = context->threads > 1; /* code of earlier versions takes a job even for one thread */
    for (size_t p = 0; p < model->program_count && code == 0; p++) {
        pooled = pooled || !model->programs[p].runner.alone;
        code = gcrt_make_table(&context->store, context->threads, context->forms + p, error);
    }
    if (code == 0)
        code = reserve(context, options, error);
    if (code == 0 && pooled && !(context->pool = gcrt_pool(context->threads)))
        code = gcrt_fail(error, GCRT_NO_MEMORY, "cpu: %d threads are not available", context->threads);
    return code;
}

static void end(gpucomp_context *context)
{
    gcrt_end_pool(context->pool);
    gcrt_release(context->own_arena, (size_t)context->arena_bytes);
    gcrt_release(context->own_states, (size_t)context->own_state_bytes);
}

static int plan(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    if (!form->planned) {
        gcrt_withdraw(context->pool);
        int code = gcrt_fill(form, context->model->second_cache, error);
        if (code)
            return code;
    }
    gcrt_place(form, context->arena);
    return 0;
}

static int zero(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error)
{
    (void)context, (void)error;
    memset(memory, 0, (size_t)bytes);
    return 0;
}

static int copy(gpucomp_context *context, void *memory, const struct strided *rows, void *packed, bool out, gpucomp_error *error)
{
    (void)context, (void)error;
    for (size_t k = 0; k < rows->count; k++) {
        uint8_t *own = (uint8_t *)memory + k * rows->pitch, *other = (uint8_t *)packed + k * rows->bytes;
        memcpy(out ? other : own, out ? own : other, rows->bytes);
    }
    return 0;
}

static int wait(gpucomp_context *context, gpucomp_error *error)
{
    (void)context, (void)error;
    return 0;
}

const struct engine gcrt_processor = {open_all, close_all, make, end, plan, run, wait, zero, copy, NULL, NULL, false,
                                       NULL};
