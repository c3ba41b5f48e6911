/* Checks that positions, sizes and kinds of a plan fit together, as gpucomp.artifact.manifest.check_plan does. */
#include <stdlib.h>

#include "plan.h"

#define MOST_STRINGS ((int64_t)1 << 24)

static int refuse_item(gpucomp_error *error, const char *list, size_t number, const char *what)
{
    const struct where plan = {NULL, "plan", {NULL, 0}, 0}, outer = {&plan, list, {NULL, 0}, 0};
    const struct where where = {&outer, NULL, {NULL, 0}, number};
    return gcrt_refuse(error, &where, "%s", what);
}

static int refuse_list(gpucomp_error *error, const char *list, const char *what)
{
    const struct where plan = {NULL, "plan", {NULL, 0}, 0}, where = {&plan, list, {NULL, 0}, 0};
    return gcrt_refuse(error, &where, "%s", what);
}

static int check_buffer(const struct plan *plan, size_t k, gpucomp_error *error)
{
    const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + k;
    const struct dtype *dtype = gcrt_dtypes + buffer->dtype;
    int64_t elements = gcrt_elements(buffer->shape), needed = gcrt_times(elements, dtype->bytes);
    if (needed > buffer->nbytes || (buffer->kind != TEMP && needed != buffer->nbytes))
        return refuse_item(error, "buffers", k, "its shape takes another number of bytes than the file says");
    if (buffer->kind == NUMBERS && dtype->kind != 'i' && dtype->kind != 'u')
        return refuse_item(error, "buffers", k, "numbers of a type that is not of whole numbers");
    if ((buffer->kind == NUMBERS) != (buffer->numbers.count > 0) ||
        (buffer->numbers.count && buffer->numbers.count != (uint64_t)elements))
        return refuse_item(error, "buffers", k, "another number of numbers than its kind and shape have");
    if (buffer->kind == TEMP && !(buffer->offset >= 0 && buffer->offset <= plan->arena_bytes - buffer->nbytes))
        return refuse_item(error, "buffers", k, "its bytes lie outside the arena");
    return 0;
}

static int check_launch(const struct plan *plan, size_t k, gpucomp_error *error)
{
    const struct launch *launch = ITEMS(plan->launches, struct launch) + k;
    const struct buffer *buffers = ITEMS(plan->buffers, struct buffer);
    const int64_t *args = ITEMS(launch->args, int64_t);
    bool there = launch->inputs <= (int64_t)launch->args.count;
    for (size_t a = 0; a < launch->args.count; a++)
        there = there && args[a] < (int64_t)plan->buffers.count;
    if (!there)
        return refuse_item(error, "launches", k, "its buffers do not all exist");
    if ((launch->kernel < 0) != (launch->host.count > 0) || launch->kernel >= (int64_t)plan->kernels.count)
        return refuse_item(error, "launches", k, "exactly one of a kernel and a host operator expected");
    for (size_t a = (size_t)launch->inputs; launch->kernel < 0 && a < launch->args.count; a++)
        if (buffers[args[a]].kind != TEMP && buffers[args[a]].kind != OUTPUT)
            return refuse_item(error, "launches", k, "its host operator writes to a buffer that is not temp or output");
    return 0;
}

static int check_repeat(const struct plan *plan, size_t k, int64_t *end, gpucomp_error *error)
{
    const struct repeat *repeat = ITEMS(plan->repeats, struct repeat) + k;
    const struct launch *launches = ITEMS(plan->launches, struct launch);
    if (!(*end <= repeat->first && repeat->first < repeat->last && repeat->last <= (int64_t)plan->launches.count))
        return refuse_item(error, "repeats", k, "its launches do not exist, or are in another loop");
    *end = repeat->last;
    bool fits = repeat->advances.count == (uint64_t)(repeat->last - repeat->first);
    for (size_t n = 0; fits && n < repeat->advances.count; n++)
        fits = ITEMS(repeat->advances, struct list)[n].count == launches[repeat->first + (int64_t)n].args.count;
    if (!fits)
        return refuse_item(error, "repeats", k, "one number expected for each argument of each launch");
    for (int64_t n = repeat->first; n < repeat->last; n++)
        if (launches[n].kernel < 0)
            return refuse_item(error, "repeats", k, "a host operator in a loop");
    for (size_t n = 0; n < repeat->advances.count; n++) {
        struct list advances = ITEMS(repeat->advances, struct list)[n];
        for (size_t a = 0; a < advances.count; a++) {
            struct number advance = ITEMS(advances, struct number)[a];
            const struct buffer *buffer =
                ITEMS(plan->buffers, struct buffer) + ITEMS(launches[repeat->first + (int64_t)n].args, int64_t)[a];
            int64_t steps = plan->open ? 0 : repeat->before + repeat->count.value + repeat->after.value;
            int64_t by = advance.open ? 0 : advance.value;
            if (gcrt_times(steps, by < 0 ? -by : by) > buffer->nbytes)
                return refuse_item(error, "repeats", k, "it leaves a buffer");
        }
    }
    return 0;
}

static int by_text(const void *one, const void *other) { return gcrt_order(*(const struct text *)one,
                                                                           *(const struct text *)other); }

static int check_apart(struct text *names, size_t count, const char *list, gpucomp_error *error)
{
    qsort(names, count, sizeof *names, by_text);
    for (size_t k = 1; k < count; k++)
        if (gcrt_same(names[k - 1], names[k]))
            return refuse_list(error, list, "a name occurs twice");
    return 0;
}

static bool contains(const struct text *sorted, size_t count, struct text name)
{
    return bsearch(&name, sorted, count, sizeof *sorted, by_text) != NULL;
}

static int check_containers(struct list containers, const struct text *sorted, size_t count, const char *list,
                            gpucomp_error *error)
{
    for (size_t k = 0; k < containers.count; k++) {
        struct list names = ITEMS(containers, struct named)[k].names;
        for (size_t n = 0; n < names.count; n++)
            if (!contains(sorted, count, ITEMS(names, struct text)[n]))
                return refuse_list(error, list, "a name does not exist");
    }
    return 0;
}

/* Names of inputs, outputs and weights: each once, and containers hold what there is. */
static int check_names(const struct plan *plan, struct store *store, gpucomp_error *error)
{
    const struct buffer *buffers = ITEMS(plan->buffers, struct buffer);
    size_t inputs = plan->inputs.count, outputs = plan->outputs.count, weights = 0;
    struct text *names = gcrt_new(store, inputs + outputs + plan->buffers.count, sizeof *names);
    if (!names)
        return gcrt_no_memory(error);
    struct text *of_outputs = names + inputs, *of_weights = of_outputs + outputs;
    for (size_t k = 0; k < inputs; k++)
        names[k] = buffers[ITEMS(plan->inputs, int64_t)[k]].name;
    for (size_t k = 0; k < outputs; k++)
        of_outputs[k] = ITEMS(plan->output_names, struct text)[k];
    for (size_t k = 0; k < plan->buffers.count; k++)
        if (buffers[k].kind == WEIGHT)
            of_weights[weights++] = buffers[k].name;
    int code = check_apart(names, inputs, "inputs", error);
    if (code == 0)
        code = check_apart(of_outputs, outputs, "output_names", error);
    if (code == 0)
        code = check_apart(of_weights, weights, "buffers", error);
    if (code == 0)
        code = check_containers(plan->input_containers, names, inputs, "input_containers", error);
    if (code == 0)
        code = check_containers(plan->output_containers, of_outputs, outputs, "output_containers", error);
    return code;
}

static const struct buffer *input_named(const struct plan *plan, struct text name)
{
    for (size_t k = 0; k < plan->inputs.count; k++) {
        const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs, int64_t)[k];
        if (gcrt_same(buffer->name, name))
            return buffer;
    }
    return NULL;
}

static int check_state(const struct plan *plan, size_t k, gpucomp_error *error)
{
    const struct state *state = ITEMS(plan->states, struct state) + k;
    const struct buffer *before = input_named(plan, state->input), *now = NULL;
    bool grows = state->axis >= 0, in_place = state->why.count == 0;
    if (before && grows && state->axis < (int64_t)before->shape.count) {
        struct number extent = ITEMS(before->shape, struct number)[state->axis];
        if (extent.open ? state->capacity != 0 : extent.value != state->capacity)
            before = NULL;
    } else if (grows) {
        before = NULL;
    }
    if (!before)
        return refuse_item(error, "states", k, "no such input, of the capacity that is said, at the axis that is said");
    for (size_t n = 0; n < plan->outputs.count; n++)
        if (gcrt_same(ITEMS(plan->output_names, struct text)[n], state->output))
            now = ITEMS(plan->buffers, struct buffer) + ITEMS(plan->outputs, int64_t)[n];
    if (in_place == (now != NULL))
        return refuse_item(error, "states", k, "an output, or a state in place, expected");
    if (now && (now->dtype != before->dtype || now->shape.count != before->shape.count))
        return refuse_item(error, "states", k, "an output like its input expected");
    if (grows != (state->dim.count > 0) || (grows && !in_place))
        return refuse_item(error, "states", k, "an axis and the dimension that grows along it expected");
    for (size_t n = 0; n < k; n++)
        if (gcrt_same(ITEMS(plan->states, struct state)[n].input, state->input))
            return refuse_list(error, "states", "an input occurs twice");
    return 0;
}

static bool all_there(struct list positions, size_t count)
{
    for (size_t k = 0; k < positions.count; k++)
        if (ITEMS(positions, int64_t)[k] >= (int64_t)count)
            return false;
    return true;
}

/* Whether outputs are there in a run: buffers of kind input are so only if they are inputs of the model. */
static bool are_given(const struct plan *plan, struct store *store, bool *all)
{
    const struct buffer *buffers = ITEMS(plan->buffers, struct buffer);
    bool *given = gcrt_new(store, plan->buffers.count, sizeof *given);
    if (!given)
        return false;
    for (size_t k = 0; k < plan->inputs.count; k++)
        given[ITEMS(plan->inputs, int64_t)[k]] = true;
    *all = true;
    for (size_t k = 0; k < plan->outputs.count; k++) {
        int64_t position = ITEMS(plan->outputs, int64_t)[k];
        *all = *all && (buffers[position].kind != INPUT || given[position]);
    }
    return true;
}

int gcrt_check_plan(const struct plan *plan, struct store *store, gpucomp_error *error);

int gcrt_check_plan(const struct plan *plan, struct store *store, gpucomp_error *error)
{
    const struct buffer *buffers = ITEMS(plan->buffers, struct buffer);
    int code = 0;
    int64_t end = 0;
    for (size_t k = 0; k < plan->buffers.count && code == 0; k++)
        code = check_buffer(plan, k, error);
    for (size_t k = 0; k < plan->launches.count && code == 0; k++)
        code = check_launch(plan, k, error);
    for (size_t k = 0; k < plan->repeats.count && code == 0; k++)
        code = check_repeat(plan, k, &end, error);
    if (code)
        return code;
    if (!all_there(plan->inputs, plan->buffers.count))
        return refuse_list(error, "inputs", "buffers do not all exist");
    if (!all_there(plan->outputs, plan->buffers.count))
        return refuse_list(error, "outputs", "buffers do not all exist");
    for (size_t k = 0; k < plan->inputs.count; k++)
        if (buffers[ITEMS(plan->inputs, int64_t)[k]].kind != INPUT)
            return refuse_list(error, "inputs", "buffers of kind input expected");
    bool given;
    if (!are_given(plan, store, &given))
        return gcrt_no_memory(error);
    if (!given)
        return refuse_list(error, "outputs", "a buffer of kind input is no input of the model");
    if (plan->output_names.count != plan->outputs.count)
        return refuse_list(error, "output_names", "one name for each output expected");
    for (size_t k = 0; k < plan->buffers.count; k++)
        if (gcrt_dtypes[buffers[k].dtype].kind == 's' && gcrt_elements(buffers[k].shape) > MOST_STRINGS)
            return refuse_list(error, "buffers", "more strings than are possible");
    code = check_names(plan, store, error);
    for (size_t k = 0; k < plan->states.count && code == 0; k++)
        code = check_state(plan, k, error);
    return code;
}
