/* Runs: checks a caller's tensors, finds the sizes of the run, and runs the launches. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "states.h"

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
        if (gcrt_tensor_at(tensors, k)->size != tensors->size || tensors->size < GCRT_END(gpucomp_tensor, rank))
            return gcrt_fail(error, GCRT_WRONG_CALL,
                             "%s %zu: a tensor from GPUCOMP_TENSOR_INIT expected, its size is %zu", what, k,
                             gcrt_tensor_at(tensors, k)->size);
    return 0;
}

/* A tensor's memory, of at least so many bytes. */
static int check_memory(const gpucomp_model *model, const gpucomp_tensor *tensor, size_t alignment, uint64_t bytes,
                        bool written, struct text name, gpucomp_error *error)
{
    const char *what = written ? "output" : "input";
    const struct engine *engine = model->engine;
    bool known = tensor->size < GCRT_END(gpucomp_tensor, memory) || tensor->memory == GPUCOMP_HOST ||
                 tensor->memory == GPUCOMP_DEVICE;
    bool handle = gcrt_on_device(tensor) && engine->refuses;
    if (!known || (gcrt_on_device(tensor) && !engine->has_memory))
        return gcrt_fail(error, GCRT_WRONG_CALL, "%s %s: %s", what, QUOTE(name),
                         known ? "memory of the host expected"
                               : "GPUCOMP_HOST or GPUCOMP_DEVICE expected as its memory");
    if ((bytes && !tensor->data) || (!handle && (uintptr_t)tensor->data % alignment))
        return gcrt_fail(error, GCRT_WRONG_CALL, "%s %s: data that is aligned to its elements expected", what, QUOTE(name));
    const char *refused = handle && tensor->data ? engine->refuses(model, tensor->data, bytes, written) : "";
    return *refused ? gcrt_fail(error, GCRT_WRONG_CALL, "%s %s: %s", what, QUOTE(name), refused) : 0;
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
    return check_memory(model, tensor, gcrt_dtypes[buffer->dtype].bytes, (uint64_t)bytes, false, buffer->name, error);
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
        int code = check_input(model, input_buffer(model, model->inputs[k]), gcrt_tensor_at(inputs, k), with_data, sizes, error);
        if (code)
            return code;
    }
    return gcrt_sizes_of_states(context, sizes, error);
}

static bool meets(const gpucomp_model *model, const gpucomp_tensor *one, const gpucomp_tensor *other)
{
    if (gcrt_on_device(one) != gcrt_on_device(other) || !one->bytes || !other->bytes)
        return false;
    if (gcrt_on_device(one) && model->engine->meet)
        return model->engine->meet(model, one, other);
    uintptr_t a = (uintptr_t)one->data, b = (uintptr_t)other->data;
    return a < b + other->bytes && b < a + one->bytes;
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
        const gpucomp_tensor *tensor = gcrt_tensor_at(outputs, k);
        const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + gcrt_output_buffer(form, model->outputs[k]);
        struct text name = ITEMS(plan->output_names, struct text)[model->outputs[k]];
        uint64_t bytes = (uint64_t)form->nbytes[gcrt_output_buffer(form, model->outputs[k])];
        if (buffer->kind == TEMP) /* may take more than its shape does */
            bytes = gcrt_shape_bytes(form, buffer);
        if (tensor->bytes < bytes)
            return gcrt_fail(error, GCRT_NO_ROOM, "output %s: room for %llu bytes expected, found %zu", QUOTE(name),
                             (unsigned long long)bytes, tensor->bytes);
        if ((wrong = check_memory(model, tensor, gcrt_dtypes[buffer->dtype].bytes, bytes, true, name, error)) != 0)
            return wrong;
        for (size_t n = 0; n < k; n++)
            if (meets(model, tensor, gcrt_tensor_at(outputs, n)))
                return gcrt_fail(error, GCRT_SHARED_RESULT,
                                 "output %s shares memory with another: memory of its own for each expected",
                                 QUOTE(name));
        for (size_t n = 0; n < model->input_count; n++)
            if (meets(model, tensor, gcrt_tensor_at(inputs, n)))
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

static int run(gpucomp_context *context, const gpucomp_tensor *inputs, size_t input_count, const gpucomp_tensor *outputs,
               size_t output_count, bool complete, gpucomp_error *error)
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
        code = context->engine->run(context, form, inputs, outputs, complete, error);
        if (code == 0)
            gcrt_end_states(context, form);
    }
    gcrt_leave(context);
    return code;
}

int gpucomp_run(gpucomp_context *context, const gpucomp_tensor *inputs, size_t input_count, const gpucomp_tensor *outputs,
                size_t output_count, gpucomp_error *error)
{
    return run(context, inputs, input_count, outputs, output_count, true, error);
}

int gpucomp_enqueue(gpucomp_context *context, const gpucomp_tensor *inputs, size_t input_count, const gpucomp_tensor *outputs,
                    size_t output_count, gpucomp_error *error)
{
    return run(context, inputs, input_count, outputs, output_count, false, error);
}

int gpucomp_wait(gpucomp_context *context, gpucomp_error *error)
{
    int code = gcrt_enter(context, error);
    if (code)
        return code;
    code = context->engine->wait(context, error);
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
            ITEMS(form->program->plan.buffers, struct buffer) + gcrt_output_buffer(form, context->model->outputs[number]);
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
