/* Runs: checks a caller's tensors, finds the sizes of the run, and runs the launches. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "context.h"
#include "states.h"

/* as gpucomp/runtime/cpu.py */
#define SMALLEST_SHARED_NS 100000.0 /* of work that threads can share: less ends before a second thread has started */
#define LONG_NS 5000000.0           /* of such work: more is shared in any case */
#define TRIAL_RUNS 4                /* of a turn, without the first, which does not count */

static const gpucomp_tensor *tensor_at(const gpucomp_tensor *tensors, size_t number)
{
    return (const gpucomp_tensor *)(const void *)((const char *)tensors + number * tensors->size);
}

static const struct buffer *input_buffer(const gpucomp_model *model, size_t number)
{
    const struct plan *plan = &model->programs->plan;
    return ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs, int64_t)[number];
}

static int wrong_shape(const gpucomp_model *model, const struct buffer *buffer, const gpucomp_tensor *tensor,
                       gpucomp_error *error)
{
    char expected[400] = "", found[200] = "";
    size_t at = 0;
    for (size_t d = 0; d < buffer->shape.count && at < sizeof expected; d++) {
        struct number extent = ITEMS(buffer->shape, struct number)[d];
        const char *comma = d ? ", " : "";
        if (extent.open)
            at += (size_t)snprintf(expected + at, sizeof expected - at, "%s%s", comma,
                                   QUOTE(model->open.dims[extent.value].name));
        else
            at += (size_t)snprintf(expected + at, sizeof expected - at, "%s%lld", comma, (long long)extent.value);
    }
    at = 0;
    for (size_t d = 0; tensor->shape && d < tensor->rank && at < sizeof found; d++)
        at += (size_t)snprintf(found + at, sizeof found - at, "%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
    return gcrt_fail(error, GCRT_WRONG_SHAPE,
                     "input %s: shape [%s] expected, found %s%s%s; for another shape compile the model for it",
                     QUOTE(buffer->name), expected, tensor->shape ? "[" : "", tensor->shape ? found : "none",
                     tensor->shape ? "]" : "");
}

/* The tensors of a run: as many as the model has, with their sizes set. `what` is "input" or "output". */
static int check_tensors(const gpucomp_tensor *tensors, size_t count, size_t expected, const char *what, gpucomp_error *error)
{
    if (count != expected)
        return gcrt_fail(error, GCRT_WRONG_CALL, "%zu %ss expected, found %zu", expected, what, count);
    if (count && !tensors)
        return gcrt_fail(error, GCRT_WRONG_CALL, "%zu %ss expected, found NULL", expected, what);
    for (size_t k = 0; k < count; k++)
        if (tensor_at(tensors, k)->size != tensors->size || tensors->size < GCRT_END(gpucomp_tensor, rank))
            return gcrt_fail(error, GCRT_WRONG_CALL,
                             "%s %zu: a tensor from GPUCOMP_TENSOR_INIT expected, its size is %zu", what, k,
                             tensor_at(tensors, k)->size);
    return 0;
}

/* Note the size of a dimension that an extent of an input has. */
static int take_size(const gpucomp_model *model, const struct buffer *buffer, size_t axis, size_t d, int64_t size, int64_t *sizes,
                     gpucomp_error *error)
{
    const struct dim *dim = model->open.dims + d;
    if (!gcrt_dim_has(dim, size))
        return gcrt_fail(error, GCRT_SIZE_OUTSIDE,
                         "dimension %zu of input %s: %s is %lld, %lld to %lld, a multiple of %lld, expected, as "
                         "%.200s says", axis, QUOTE(buffer->name), QUOTE(dim->name), (long long)size, (long long)dim->low,
                         (long long)dim->high, (long long)dim->multiple, dim->said.at);
    if (sizes[d] >= 0 && sizes[d] != size)
        return gcrt_fail(error, GCRT_SIZES_DIFFER,
                         "dimension %zu of input %s: %s is %lld, but %lld before; one size expected, as %.200s "
                         "says", axis, QUOTE(buffer->name), QUOTE(dim->name), (long long)size, (long long)sizes[d], dim->said.at);
    sizes[d] = size;
    return 0;
}

static int check_input(const gpucomp_model *model, const struct buffer *buffer, const gpucomp_tensor *tensor, bool with_data,
                       int64_t *sizes, gpucomp_error *error)
{
    int64_t bytes = gcrt_dtypes[buffer->dtype].bytes;
    bool fits = !tensor->shape || tensor->rank == buffer->shape.count;
    for (size_t d = 0; fits && d < buffer->shape.count; d++) {
        struct number extent = ITEMS(buffer->shape, struct number)[d];
        int64_t size = tensor->shape ? tensor->shape[d] : extent.value;
        if (size < 0 || (!tensor->shape && extent.open))
            return wrong_shape(model, buffer, tensor, error);
        if (extent.open) {
            int code = take_size(model, buffer, d, (size_t)extent.value, size, sizes, error);
            if (code)
                return code;
        }
        fits = extent.open || extent.value == size;
        bytes = gcrt_times(bytes, size);
    }
    if (!fits)
        return wrong_shape(model, buffer, tensor, error);
    if (!with_data)
        return 0;
    if ((uint64_t)bytes != tensor->bytes)
        return gcrt_fail(error, GCRT_WRONG_SHAPE, "input %s: %lld bytes expected, found %zu", QUOTE(buffer->name),
                         (long long)bytes,
                         tensor->bytes);
    if ((bytes && !tensor->data) || (uintptr_t)tensor->data % gcrt_dtypes[buffer->dtype].bytes)
        return gcrt_fail(error, GCRT_WRONG_CALL, "input %s: data that is aligned to its elements expected", QUOTE(buffer->name));
    return 0;
}

/* Check inputs, and find the sizes of the run: those of the inputs and of the states. */
static int find_sizes(gpucomp_context *context, const gpucomp_tensor *inputs, size_t count, bool with_data, int64_t *sizes,
                      gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    int wrong = check_tensors(inputs, count, model->input_count, "input", error);
    if (wrong)
        return wrong;
    for (size_t d = 0; d < model->open.dim_count; d++)
        sizes[d] = -1;
    for (size_t k = 0; k < count; k++) {
        int code = check_input(model, input_buffer(model, model->inputs[k]), tensor_at(inputs, k), with_data, sizes, error);
        if (code)
            return code;
    }
    return gcrt_sizes_of_states(context, sizes, error);
}

static bool meets(const gpucomp_tensor *one, const gpucomp_tensor *other)
{
    uintptr_t a = (uintptr_t)one->data, b = (uintptr_t)other->data;
    return one->bytes && other->bytes && a < b + other->bytes && b < a + one->bytes;
}

static int64_t output_buffer(const struct form *form, size_t number)
{
    return ITEMS(form->program->plan.outputs, int64_t)[number];
}

static int check_outputs(const gpucomp_context *context, const struct form *form, const gpucomp_tensor *inputs,
                         const gpucomp_tensor *outputs, size_t count, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct plan *plan = &form->program->plan;
    int wrong = check_tensors(outputs, count, model->output_count, "output", error);
    if (wrong)
        return wrong;
    for (size_t k = 0; k < count; k++) {
        const gpucomp_tensor *tensor = tensor_at(outputs, k);
        const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + output_buffer(form, model->outputs[k]);
        struct text name = ITEMS(plan->output_names, struct text)[model->outputs[k]];
        uint64_t bytes = (uint64_t)form->nbytes[output_buffer(form, model->outputs[k])];
        if (buffer->kind == TEMP) /* may take more than its shape does */
            bytes = gcrt_shape_bytes(form, buffer);
        if ((bytes && !tensor->data) || (uintptr_t)tensor->data % gcrt_dtypes[buffer->dtype].bytes)
            return gcrt_fail(error, GCRT_WRONG_CALL, "output %s: data that is aligned to its elements expected", QUOTE(name));
        if (tensor->bytes < bytes)
            return gcrt_fail(error, GCRT_NO_ROOM, "output %s: room for %llu bytes expected, found %zu", QUOTE(name),
                             (unsigned long long)bytes, tensor->bytes);
        for (size_t n = 0; n < k; n++)
            if (meets(tensor, tensor_at(outputs, n)))
                return gcrt_fail(error, GCRT_SHARED_RESULT,
                                 "output %s shares memory with another: memory of its own for each expected",
                                 QUOTE(name));
        for (size_t n = 0; n < model->input_count; n++)
            if (meets(tensor, tensor_at(inputs, n)))
                return gcrt_fail(error, GCRT_SHARED_RESULT, "output %s shares memory with an input: memory of its own expected",
                                 QUOTE(name));
    }
    return 0;
}

uint64_t gcrt_shape_bytes(const struct form *form, const struct buffer *buffer)
{
    int64_t bytes = gcrt_dtypes[buffer->dtype].bytes;
    for (size_t d = 0; d < buffer->shape.count; d++)
        bytes = gcrt_times(bytes, gcrt_value(form, ITEMS(buffer->shape, struct number)[d]));
    return (uint64_t)bytes;
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
        context->tensors[model->inputs[k]] = tensor_at(inputs, k)->data;
    for (size_t k = 0; k < model->output_count; k++)
        context->tensors[behind + model->outputs[k]] = tensor_at(outputs, k)->data;
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
        int64_t position = output_buffer(form, k);
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
    for (size_t k = 0; k < form->range_count; k++)
        gcrt_run_range(context, form, form->ranges[k], threads);
    if (tries)
        note(trial, turn, (now_ns() - begin) / form->shared_ns);
}

int gpucomp_run(gpucomp_context *context, const gpucomp_tensor *inputs, size_t input_count, const gpucomp_tensor *outputs,
                size_t output_count, gpucomp_error *error)
{
    int code = gcrt_enter(context, error);
    if (code)
        return code;
    int64_t *sizes = context->sizes + context->model->open.dim_count;
    struct form *form = NULL;
    code = find_sizes(context, inputs, input_count, true, sizes, error);
    if (code == 0)
        code = gcrt_form_at(context, sizes, &form, error);
    if (code == 0)
        code = check_outputs(context, form, inputs, outputs, output_count, error);
    if (code == 0)
        code = gcrt_begin_states(context, form, error);
    if (code == 0) {
        bind(context, form, inputs, outputs);
        execute(context, form);
        copy_outputs(context, form);
        gcrt_end_states(context, form);
    }
    gcrt_leave(context);
    return code;
}

int gpucomp_plan(gpucomp_context *context, const gpucomp_tensor *inputs, size_t input_count, gpucomp_error *error)
{
    int code = gcrt_enter(context, error);
    if (code)
        return code;
    int64_t *sizes = context->sizes + context->model->open.dim_count;
    struct form *form;
    code = find_sizes(context, inputs, input_count, false, sizes, error);
    if (code == 0)
        code = gcrt_form_at(context, sizes, &form, error);
    gcrt_leave(context);
    return code;
}

int gpucomp_output_shape(gpucomp_context *context, size_t number, int64_t *shape, size_t *rank, uint64_t *bytes,
                         gpucomp_error *error)
{
    int code = gcrt_enter(context, error);
    if (code)
        return code;
    const struct form *form = context->latest;
    if (!form || number >= context->model->output_count) {
        code = gcrt_fail(error, GCRT_WRONG_CALL, form ? "output %zu: the model has only %zu"
                         : "output %zu: plan or run first (%zu outputs)",
                         number, context->model->output_count);
    } else {
        const struct buffer *buffer =
            ITEMS(form->program->plan.buffers, struct buffer) + output_buffer(form, context->model->outputs[number]);
        for (size_t d = 0; shape && d < buffer->shape.count; d++)
            shape[d] = gcrt_value(form, ITEMS(buffer->shape, struct number)[d]);
        if (rank)
            *rank = buffer->shape.count;
        if (bytes)
            *bytes = gcrt_shape_bytes(form, buffer);
    }
    gcrt_leave(context);
    return code;
}
