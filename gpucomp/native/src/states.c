/* States: tensors that the next run gets from this one. As gpucomp/runtime/states.py. */
#include "states.h"

#include <string.h>

static const struct state *state_at(const gpucomp_model *model, size_t number)
{
    return ITEMS(model->programs->plan.states, struct state) + number;
}

static const struct buffer *buffer_of(const gpucomp_model *model, size_t number)
{
    const struct plan *plan = &model->programs->plan;
    return ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs, int64_t)[model->states[number]];
}

static size_t dim_named(const struct open_plan *open, struct text name)
{
    size_t d = 0;
    while (d < open->dim_count && !gcrt_same(open->dims[d].name, name))
        d++;
    return d;
}

/* A size that a state has. */
static int take_size(const gpucomp_context *context, size_t s, size_t d, int64_t size, int64_t *sizes, gpucomp_error *error)
{
    const struct dim *dim = context->model->open.dims + d;
    struct text name = state_at(context->model, s)->input;
    if (sizes[d] >= 0 && sizes[d] != size)
        return gcrt_fail(error, GCRT_SIZES_DIFFER, "state %s: %s is %lld, but %lld in this run", QUOTE(name), QUOTE(dim->name),
                         (long long)size, (long long)sizes[d]);
    if (!gcrt_dim_has(dim, size))
        return gcrt_fail(error, GCRT_SIZE_OUTSIDE,
                         "state %s: %s is %lld, %lld to %lld expected, as %.200s says; gpucomp_state_restore "
                         "gives it others", QUOTE(name), QUOTE(dim->name), (long long)size, (long long)dim->low,
                         (long long)dim->high, dim->said.at);
    sizes[d] = size;
    return 0;
}

int gcrt_sizes_of_states(gpucomp_context *context, int64_t *sizes, gpucomp_error *error)
{
    const struct open_plan *open = &context->model->open;
    for (size_t s = 0; s < context->model->state_count; s++) {
        const struct state *state = state_at(context->model, s);
        const struct kept *kept = context->kept + s;
        struct list shape = buffer_of(context->model, s)->shape;
        size_t grown = state->axis >= 0 ? dim_named(open, state->dim) : open->dim_count;
        int code = grown < open->dim_count ? take_size(context, s, grown, kept->rows, sizes, error) : 0;
        for (size_t d = 0; d < shape.count && code == 0 && kept->begun && (state->axis < 0 || kept->rows); d++) {
            struct number extent = ITEMS(shape, struct number)[d];
            if (extent.open)
                code = take_size(context, s, (size_t)extent.value, kept->shape[d], sizes, error);
        }
        if (code)
            return code;
    }
    for (size_t d = 0; d < open->dim_count; d++)
        if (sizes[d] < 0)
            sizes[d] = gcrt_dim_nearest(open->dims + d, open->dims[d].low);
    return 0;
}

static uint64_t bytes_of(const gpucomp_model *model, size_t s, const int64_t *shape)
{
    const struct buffer *buffer = buffer_of(model, s);
    int64_t bytes = gcrt_dtypes[buffer->dtype].bytes;
    for (size_t d = 0; d < buffer->shape.count; d++)
        bytes = gcrt_times(bytes, shape[d]);
    return (uint64_t)bytes;
}

int gcrt_begin_states(gpucomp_context *context, const struct form *form, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    for (size_t s = 0; s < model->state_count; s++) {
        struct kept *kept = context->kept + s;
        const struct buffer *buffer = buffer_of(model, s);
        const struct state *own = ITEMS(form->program->plan.states, struct state) + s;
        int64_t shape[GPUCOMP_MAX_RANK], more = gcrt_value(form, own->rows);
        bool same = kept->begun;
        for (size_t d = 0; d < buffer->shape.count; d++) {
            struct number extent = ITEMS(buffer->shape, struct number)[d]; /* of an input: a number or a dimension */
            shape[d] = extent.open ? context->sizes[extent.value] : extent.value;
            same = same && kept->shape[d] == shape[d];
        }
        uint64_t bytes = bytes_of(model, s, shape);
        int64_t output = model->state_outputs[s];
        if (output >= 0) {
            uint64_t after = (uint64_t)form->nbytes[ITEMS(form->program->plan.outputs, int64_t)[output]];
            bytes = after > bytes ? after : bytes;
        }
        if (bytes > kept->room)
            return gcrt_fail(error, GCRT_SMALL_ARENA,
                             "state %s takes %llu bytes, the context has %llu: make one with larger sizes in "
                             "`largest`", QUOTE(own->input), (unsigned long long)bytes, (unsigned long long)kept->room);
        if (own->axis >= 0 && (more < 0 || kept->rows + more > own->capacity))
            return gcrt_fail(error, GCRT_STATE_FULL,
                             "state %s has room for %lld rows, %lld are in it and this run appends %lld: reset or "
                             "rewind the context, or declare a larger %s", QUOTE(own->input), (long long)own->capacity,
                             (long long)kept->rows, (long long)more, QUOTE(own->dim));
        if (same)
            continue;
        int code = context->engine->zero(context, kept->now, bytes, error);
        if (code)
            return code;
        memcpy(kept->shape, shape, sizeof shape);
        kept->rank = buffer->shape.count;
        kept->begun = true;
    }
    return 0;
}

void gcrt_end_states(gpucomp_context *context, const struct form *form)
{
    for (size_t s = 0; s < context->model->state_count; s++) {
        struct kept *kept = context->kept + s;
        const struct state *own = ITEMS(form->program->plan.states, struct state) + s;
        int64_t output = context->model->state_outputs[s];
        if (output >= 0) {
            void *now = kept->spare;
            kept->spare = kept->now;
            kept->now = now;
            int64_t after = ITEMS(form->program->plan.outputs, int64_t)[output];
            const struct buffer *buffer = ITEMS(form->program->plan.buffers, struct buffer) + after;
            for (size_t d = 0; d < kept->rank; d++)
                kept->shape[d] = gcrt_value(form, ITEMS(buffer->shape, struct number)[d]);
        }
        if (own->axis >= 0)
            kept->rows += gcrt_value(form, own->rows);
    }
}

static void forget(gpucomp_context *context)
{
    for (size_t s = 0; s < context->model->state_count; s++) {
        context->kept[s].rows = 0;
        context->kept[s].begun = false;
    }
}

int gpucomp_reset(gpucomp_context *context, gpucomp_error *error)
{
    int code = gcrt_enter(context, error);
    if (code)
        return code;
    forget(context);
    gcrt_leave(context);
    return 0;
}

/* Enter a context for a call about state `number`. */
static int enter_state(gpucomp_context *context, size_t number, gpucomp_error *error)
{
    int code = gcrt_enter(context, error);
    if (code == 0 && number >= context->model->state_count) {
        gcrt_leave(context);
        return gcrt_fail(error, GCRT_WRONG_CALL, "state %zu: the model has %zu", number, context->model->state_count);
    }
    return code;
}

int gpucomp_state_rows(gpucomp_context *context, size_t number, int64_t *rows, gpucomp_error *error)
{
    int code = enter_state(context, number, error);
    if (code)
        return code;
    if (rows)
        *rows = context->kept[number].rows;
    gcrt_leave(context);
    return 0;
}

int gpucomp_rewind(gpucomp_context *context, int64_t rows, gpucomp_error *error)
{
    int code = gcrt_enter(context, error);
    if (code)
        return code;
    for (size_t s = 0; s < context->model->state_count && code == 0; s++) {
        if (state_at(context->model, s)->axis < 0)
            code = gcrt_fail(error, GCRT_NO_STATE, "rewind: state %s does not grow, so what it was is not known",
                             QUOTE(state_at(context->model, s)->input));
        else if (rows < 0 || rows > context->kept[s].rows)
            code = gcrt_fail(error, GCRT_NO_STATE, "rewind: 0 to %lld rows expected, found %lld",
                             (long long)context->kept[s].rows,
                             (long long)rows);
        else if (context->kept[s].rows != context->kept[0].rows)
            code = gcrt_fail(error, GCRT_NO_STATE, "rewind: the states have different numbers of rows");
    }
    for (size_t s = 0; s < context->model->state_count && code == 0; s++)
        context->kept[s].rows = rows;
    gcrt_leave(context);
    return code;
}

/* Copy between a state's memory, which has room for its capacity along its axis, and the rows that are valid, without gaps. One
 * that does not grow has no axis, and is one row. */
static int copy_rows(gpucomp_context *context, const struct kept *kept, int64_t axis, size_t element, void *packed, bool out,
                     gpucomp_error *error)
{
    struct strided rows = {1, element, 0};
    for (size_t d = 0; d < kept->rank; d++) {
        if ((int64_t)d < axis)
            rows.count *= (size_t)kept->shape[d];
        else if ((int64_t)d > axis)
            rows.bytes *= (size_t)kept->shape[d];
    }
    rows.pitch = axis < 0 ? rows.bytes : rows.bytes * (size_t)kept->shape[axis];
    rows.bytes *= axis < 0 ? 1 : (size_t)kept->rows;
    return context->engine->copy(context, kept->now, &rows, packed, out, error);
}

int gpucomp_state_save(gpucomp_context *context, size_t number, void *data, size_t room, size_t *bytes, int64_t *shape,
                       size_t *rank,
                       gpucomp_error *error)
{
    int code = enter_state(context, number, error);
    if (code)
        return code;
    const struct kept *kept = context->kept + number;
    int64_t axis = state_at(context->model, number)->axis, found[GPUCOMP_MAX_RANK] = {0};
    size_t count = kept->begun ? kept->rank : 0, element = gcrt_dtypes[buffer_of(context->model, number)->dtype].bytes;
    memcpy(found, kept->shape, sizeof found);
    if (axis >= 0)
        found[axis] = kept->rows;
    uint64_t needed = kept->begun ? bytes_of(context->model, number, found) : 0;
    if (bytes)
        *bytes = (size_t)needed;
    if (rank)
        *rank = count;
    if (shape)
        memcpy(shape, found, count * sizeof *shape);
    if (data && room < needed)
        code = gcrt_fail(error, GCRT_WRONG_CALL, "room for %llu bytes expected, found %zu", (unsigned long long)needed, room);
    else if (data && needed)
        code = copy_rows(context, kept, axis, element, data, true, error);
    gcrt_leave(context);
    return code;
}

int gpucomp_state_restore(gpucomp_context *context, size_t number, const gpucomp_tensor *tensor, gpucomp_error *error)
{
    int code = enter_state(context, number, error);
    if (code)
        return code;
    const struct state *state = state_at(context->model, number);
    const struct buffer *buffer = buffer_of(context->model, number);
    struct kept *kept = context->kept + number;
    if (tensor && tensor->size >= GCRT_END(gpucomp_tensor, memory) && tensor->memory != GPUCOMP_HOST) {
        gcrt_leave(context);
        return gcrt_fail(error, GCRT_WRONG_CALL, "state %s: memory of the host expected", QUOTE(state->input));
    }
    bool fits = tensor && tensor->size >= GCRT_END(gpucomp_tensor, rank) && tensor->shape && tensor->rank == buffer->shape.count;
    int64_t shape[GPUCOMP_MAX_RANK] = {0};
    for (size_t d = 0; fits && d < buffer->shape.count; d++) {
        struct number extent = ITEMS(buffer->shape, struct number)[d];
        int64_t given = shape[d] = tensor->shape[d];
        if ((int64_t)d == state->axis) {
            fits = given >= 0 && given <= state->capacity;
            shape[d] = state->capacity;
        } else {
            fits = extent.open ? gcrt_dim_has(context->model->open.dims + extent.value, given) : given == extent.value;
        }
    }
    if (!fits || bytes_of(context->model, number, tensor->shape) != tensor->bytes || (tensor->bytes && !tensor->data) ||
        bytes_of(context->model, number, shape) > kept->room) {
        code = gcrt_fail(error, GCRT_WRONG_STATE, "state %s: the valid part of it, of the model's shape and type, expected",
                         QUOTE(state->input));
    } else if ((code = context->engine->zero(context, kept->now, bytes_of(context->model, number, shape), error)) == 0) {
        size_t element = gcrt_dtypes[buffer->dtype].bytes;
        memcpy(kept->shape, shape, sizeof shape);
        kept->rank = buffer->shape.count;
        kept->rows = state->axis < 0 ? 0 : tensor->shape[state->axis];
        kept->begun = true;
        if (tensor->bytes)
            code = copy_rows(context, kept, state->axis, element, tensor->data, false, error);
    }
    gcrt_leave(context);
    return code;
}
