/* Contexts: memory, sizes, and states. */
#include "context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_HALVED 6 /* dimensions */
#define MOST_STATE_BYTES ((int64_t)1 << 40) /* of each; there are fewer than 2^23 */

int gcrt_enter(gpucomp_context *context, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!context)
        return gcrt_fail(error, GCRT_WRONG_CALL, "a context expected, found NULL");
    if (atomic_flag_test_and_set_explicit(&context->busy, memory_order_acquire))
        return gcrt_fail(error, GCRT_BUSY,
                         "this context is in use by another run; each thread needs its own: gpucomp_context_create");
    return 0;
}

void gcrt_leave(gpucomp_context *context) { atomic_flag_clear_explicit(&context->busy, memory_order_release); }

int gcrt_named_sizes(const gpucomp_model *model, const gpucomp_size *sizes, size_t count, int64_t *found, gpucomp_error *error)
{
    const struct open_plan *open = &model->open;
    for (size_t d = 0; d < open->dim_count; d++)
        found[d] = open->dims[d].high / open->dims[d].multiple * open->dims[d].multiple;
    for (size_t k = 0; k < count; k++) {
        struct text name = gcrt_text(sizes[k].name ? sizes[k].name : "");
        size_t d = 0;
        while (d < open->dim_count && !gcrt_same(open->dims[d].name, name))
            d++;
        if (d == open->dim_count)
            return gcrt_fail(error, GCRT_SIZE_OUTSIDE, "the model has no dimension %s", QUOTE(name));
        if (!gcrt_dim_has(open->dims + d, sizes[k].value))
            return gcrt_fail(error, GCRT_SIZE_OUTSIDE,
                             "dimension %s is %lld, %lld to %lld, a multiple of %lld, expected, as %.200s says",
                             QUOTE(name), (long long)sizes[k].value, (long long)open->dims[d].low, (long long)open->dims[d].high,
                             (long long)open->dims[d].multiple, open->dims[d].said.at);
        found[d] = sizes[k].value;
    }
    return 0;
}

static int refuse_sizes(const gpucomp_model *model, const int64_t *sizes, gpucomp_error *error)
{
    char told[600] = "";
    size_t at = 0;
    for (size_t d = 0; d < model->open.dim_count && at < sizeof told; d++)
        at += (size_t)snprintf(told + at, sizeof told - at, "%s%s is %lld", d ? ", " : "", QUOTE(model->open.dims[d].name),
                               (long long)sizes[d]);
    return gcrt_fail(error, GCRT_NOT_FOR_SIZES, "%s: this file is not for such sizes; compile the model for them", told);
}

/* The bytes of arena at these sizes, computed in memory of its own. */
static int measured(const gpucomp_model *model, const int64_t *sizes, struct form *form, struct store *store,
                    gpucomp_error *error)
{
    int code = form->program ? 0 : gcrt_make_form(store, model, model->programs, form, error);
    if (code == 0 && (code = gcrt_measure(form, sizes, error)) == GCRT_NOT_FOR_SIZES)
        return refuse_sizes(model, sizes, error);
    return code;
}

int gpucomp_arena_bytes(const gpucomp_model *model, const gpucomp_size *sizes, size_t count, uint64_t *bytes,
                        gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !bytes || (count && !sizes))
        return gcrt_fail(error, GCRT_WRONG_CALL, "gpucomp_arena_bytes: a model, and where the number goes, expected");
    struct store store = {0};
    struct form form = {0};
    int64_t *found = gcrt_new(&store, model->open.dim_count, sizeof *found);
    int code = found ? gcrt_named_sizes(model, sizes, count, found, error) : gcrt_no_memory(error);
    if (code == 0)
        code = measured(model, found, &form, &store, error);
    if (code == 0)
        *bytes = form.arena_bytes;
    gcrt_free(&store);
    return code;
}

/* The program that runs at these sizes: one of their own, or the general one. */
static struct form *form_for(const gpucomp_context *context, const int64_t *sizes)
{
    for (size_t p = 1; p < context->model->program_count; p++)
        if (memcmp(context->model->programs[p].sizes, sizes, context->model->open.dim_count * sizeof *sizes) == 0)
            return context->forms + p;
    return context->forms;
}

static int refuse_arena(const gpucomp_context *context, const struct form *form, gpucomp_error *error)
{
    return gcrt_fail(error, GCRT_SMALL_ARENA,
                     "this run needs an arena of %llu bytes, the context has %llu: make one with a larger arena_bytes, or with "
                     "larger sizes in `largest`",
                     (unsigned long long)form->arena_bytes, (unsigned long long)context->arena_bytes);
}

/* A state that a run would fill beyond its capacity is why its sizes are refused. */
static int refuse_full(const gpucomp_context *context, const struct form *form, const int64_t *sizes, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    struct list states = model->programs->plan.states;
    for (size_t s = 0; s < states.count; s++) {
        const struct state *state = ITEMS(states, struct state) + s;
        int64_t more = state->rows.open ? form->numbers[state->rows.value] : state->rows.value;
        if (state->axis >= 0 && context->kept[s].rows + more > state->capacity)
            return gcrt_fail(error, GCRT_STATE_FULL,
                             "state %s has room for %lld rows, %lld are in it and this run appends %lld: reset or rewind the "
                             "context, "
                             "or declare a larger %s",
                             QUOTE(state->input), (long long)state->capacity, (long long)context->kept[s].rows, (long long)more,
                             QUOTE(state->dim));
    }
    return refuse_sizes(model, sizes, error);
}

int gcrt_form_at(gpucomp_context *context, const int64_t *sizes, struct form **found, gpucomp_error *error)
{
    size_t dims = context->model->open.dim_count;
    struct form *form = context->latest;
    if (!form || !form->planned || memcmp(context->sizes, sizes, dims * sizeof *sizes) != 0) {
        context->latest = NULL;
        form = form_for(context, sizes);
        int code = form->planned && form->program->sizes ? 0 : gcrt_measure(form, sizes, error);
        if (code)
            return code == GCRT_NOT_FOR_SIZES ? refuse_full(context, form, sizes, error) : code;
        if (form->arena_bytes > context->arena_bytes)
            return refuse_arena(context, form, error);
        if ((code = context->engine->plan(context, form, error)) != 0)
            return code;
        memcpy(context->sizes, sizes, dims * sizeof *sizes);
        context->latest = form;
    }
    *found = form;
    return 0;
}

/* Measure at `sizes`, halving those of `halved` until the file is for them: conditions such as past + new <= capacity exclude
 * the largest sizes together. */
static int measure_below(const struct open_plan *open, const int64_t *largest, unsigned halved, int64_t *sizes,
                         struct form *general,
                         gpucomp_error *error)
{
    int code;
    memcpy(sizes, largest, open->dim_count * sizeof *sizes);
    while ((code = gcrt_measure(general, sizes, error)) != 0) {
        bool smaller = false;
        for (size_t d = 0; d < open->dim_count && d < MOST_HALVED; d++) {
            int64_t half = halved >> d & 1 ? gcrt_dim_nearest(open->dims + d, sizes[d] / 2) : sizes[d];
            smaller = smaller || half < sizes[d];
            sizes[d] = half < sizes[d] ? half : sizes[d];
        }
        if (!smaller)
            return code;
    }
    return 0;
}

/* The bytes of arena to reserve: at the largest sizes. Where the file is not for these, the most that is found below. */
static int measure_largest(gpucomp_context *context, const int64_t *largest, struct form *general, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct open_plan *open = &model->open;
    int64_t *sizes = context->sizes;
    unsigned subsets = 1u << (open->dim_count < MOST_HALVED ? open->dim_count : MOST_HALVED);
    int code = measure_below(open, largest, 0, sizes, general, error);
    bool whole = code == 0, some = whole;
    context->arena_bytes = whole ? general->arena_bytes : 0;
    for (unsigned halved = 1; !whole && halved < subsets; halved++) {
        bool fits = measure_below(open, largest, halved, sizes, general, error) == 0;
        some = some || fits;
        if (fits && general->arena_bytes > context->arena_bytes)
            context->arena_bytes = general->arena_bytes;
    }
    if (!some)
        return code == GCRT_NOT_FOR_SIZES ? refuse_sizes(model, largest, error) : code;
    gcrt_clear(error);
    for (size_t p = 1; p < model->program_count; p++)
        if ((uint64_t)model->programs[p].plan.arena_bytes > context->arena_bytes)
            context->arena_bytes = (uint64_t)model->programs[p].plan.arena_bytes;
    return 0;
}

/* The memory of states at the largest sizes. The tensor that one becomes is like the one it is. */
static int measure_states(gpucomp_context *context, const int64_t *largest, gpucomp_error *error)
{
    const struct plan *plan = &context->model->programs->plan;
    for (size_t s = 0; s < context->model->state_count; s++) {
        const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs,
            int64_t)[context->model->states[s]];
        int64_t room = gcrt_dtypes[buffer->dtype].bytes;
        for (size_t d = 0; d < buffer->shape.count; d++) {
            struct number extent = ITEMS(buffer->shape, struct number)[d];
            room = gcrt_times(room, extent.open ? largest[extent.value] : extent.value);
        }
        if (room > MOST_STATE_BYTES)
            return gcrt_fail(error, GCRT_NO_MEMORY,
                             "cpu: state %s takes more memory than there is; options.largest can make it smaller",
                             QUOTE(buffer->name));
        context->kept[s].room = (uint64_t)room;
        context->own_state_bytes += gcrt_up((uint64_t)room, GCRT_LINE) * (context->model->state_outputs[s] >= 0 ? 2 : 1);
    }
    return 0;
}

static int make(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct plan *plan = &model->programs->plan;
    size_t dims = model->open.dim_count;
    context->forms = gcrt_new(&context->store, model->program_count, sizeof *context->forms);
    context->sizes = gcrt_new(&context->store, 2 * dims, sizeof *context->sizes);
    context->kept = gcrt_new(&context->store, model->state_count, sizeof *context->kept);
    context->tensors = gcrt_new(&context->store, plan->inputs.count + plan->outputs.count, sizeof *context->tensors);
    if (!context->forms || !context->sizes || !context->kept || !context->tensors)
        return gcrt_no_memory(error);
    int code = 0;
    for (size_t p = 0; p < model->program_count && code == 0; p++)
        code = gcrt_make_form(&context->store, model, model->programs + p, context->forms + p, error);
    int64_t *largest = context->sizes + dims;
    if (code == 0)
        code = gcrt_named_sizes(model, options->largest, options->largest_count, largest, error);
    if (code == 0)
        code = measure_largest(context, largest, context->forms, error);
    if (code == 0)
        code = measure_states(context, largest, error);
    if (code == 0)
        code = context->engine->make(context, options, error);
    struct form *form;
    memset(context->sizes, 0, dims * sizeof *context->sizes);
    if (code == 0 && dims == 0)
        code = gcrt_form_at(context, context->sizes, &form, error);
    return code;
}

int gpucomp_context_create(const gpucomp_model *model, const gpucomp_context_options *options, gpucomp_context **context,
                           gpucomp_error *error)
{
    static const gpucomp_context_options usual = GPUCOMP_CONTEXT_OPTIONS_INIT;
    gcrt_clear(error);
    if (context)
        *context = NULL;
    if (!model || !context)
        return gcrt_fail(error, GCRT_WRONG_CALL, "gpucomp_context_create: a model, and where the context goes, expected");
    gpucomp_context_options whole = usual; /* what an older program does not know is as usual */
    if (options && options->size >= GCRT_END(gpucomp_context_options, largest_count))
        memcpy(&whole, options, options->size < sizeof whole ? options->size : sizeof whole);
    else if (options)
        whole.size = 0;
    options = &whole;
    if (!options->size || options->threads < 0 || (options->largest_count && !options->largest))
        return gcrt_fail(error, GCRT_WRONG_CALL,
                         "gpucomp_context_create: options from GPUCOMP_CONTEXT_OPTIONS_INIT, 0 or more threads, "
                         "and sizes where they are counted, expected");
    gpucomp_context *made = calloc(1, sizeof *made);
    if (!made)
        return gcrt_no_memory(error);
    made->model = model;
    made->engine = model->engine;
    atomic_flag_clear(&made->busy);
    int code = make(made, options, error);
    if (code) {
        gpucomp_context_destroy(made);
        return code;
    }
    *context = made;
    return 0;
}

void gpucomp_context_destroy(gpucomp_context *context)
{
    if (!context)
        return;
    context->engine->end(context);
    gcrt_free(&context->store);
    free(context);
}
