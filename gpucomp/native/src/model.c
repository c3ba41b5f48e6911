/* Opens `.gpuc` files, in the order of gpucomp.runtime.artifact.load: container, manifest, plans, digests, weights, code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"

#define SCHEMA 4
#define OPEN_SCHEMA 5
#define MOST_FIXED 100
#define FILE_ALIGNMENT 64
#define MANIFEST GCRT_MANIFEST

struct loading {
    gpucomp_model *model;
    struct store scratch;
    struct container container;
    const struct json *description;
    gpucomp_error *error;
};

#define PATH(loading) QUOTE((loading)->model->path)

static int check_schema(struct loading *loading)
{
    static const char *const fields[] = {"format", "schema", "plan", "members", "open"};
    const struct json *all = loading->description;
    const struct json *format = all->kind == JSON_TABLE ? gcrt_json_find(all, "format") : NULL;
    if (!format || format->kind != JSON_TEXT || !gcrt_same(gcrt_json_text(format), gcrt_text("gpucomp")))
        return gcrt_fail(loading->error, GCRT_WRONG_MANIFEST, "%s: " MANIFEST " does not describe a compiled model",
                         PATH(loading));
    const struct json *schema = gcrt_json_find(all, "schema");
    const struct json none = {JSON_NULL, 0, {0}};
    if (!schema || schema->kind != JSON_INTEGER || (schema->as.integer != SCHEMA && schema->as.integer != OPEN_SCHEMA))
        return gcrt_fail(loading->error, GCRT_OTHER_SCHEMA, "%s has schema %s, this gpucomp reads %d and %d: compile again",
                         PATH(loading), QUOTE_JSON(schema ? schema : &none), SCHEMA, OPEN_SCHEMA);
    bool open = schema->as.integer == OPEN_SCHEMA, whole = true;
    size_t expected = open ? 5 : 4;
    for (size_t k = 0; k < expected; k++)
        whole = whole && gcrt_json_find(all, fields[k]);
    expected += open && gcrt_json_find(all, "fixed");
    if (!whole || all->count != expected || gcrt_json_find(all, "members")->kind != JSON_TABLE)
        return gcrt_fail(loading->error, GCRT_WRONG_MANIFEST, "%s: " MANIFEST " has other fields than schema %d", PATH(loading),
                         (int)schema->as.integer);
    return 0;
}

static bool is_alike(const struct buffer *own, const struct buffer *other)
{
    return own->dtype == other->dtype && own->shape.count == other->shape.count;
}

static bool is_same_state(const struct state *own, const struct state *other)
{
    return gcrt_same(own->input, other->input) && gcrt_same(own->output, other->output) && own->axis == other->axis &&
           gcrt_same(own->dim, other->dim);
}

/* Whether the inputs of a plan for one set of sizes are those of the general one at these sizes, and outputs and states are like
 * its own: runs index by both. */
static bool is_of_the_model(const gpucomp_model *model, const struct program *fixed)
{
    const struct plan *whole = &model->programs->plan, *plan = &fixed->plan;
    bool same = plan->inputs.count == whole->inputs.count && plan->outputs.count == whole->outputs.count &&
                plan->device == whole->device && gcrt_same(plan->target, whole->target) && gcrt_same(plan->arch, whole->arch) &&
                plan->states.count == whole->states.count;
    for (size_t k = 0; same && k < plan->outputs.count; k++)
        same = gcrt_same(ITEMS(plan->output_names, struct text)[k], ITEMS(whole->output_names, struct text)[k]) &&
               is_alike(ITEMS(plan->buffers, struct buffer) + ITEMS(plan->outputs, int64_t)[k],
                        ITEMS(whole->buffers, struct buffer) + ITEMS(whole->outputs, int64_t)[k]);
    for (size_t k = 0; same && k < plan->states.count; k++)
        same = is_same_state(ITEMS(plan->states, struct state) + k, ITEMS(whole->states, struct state) + k);
    for (size_t k = 0; same && k < plan->inputs.count; k++) {
        const struct buffer *own = ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs, int64_t)[k];
        const struct buffer *other = ITEMS(whole->buffers, struct buffer) + ITEMS(whole->inputs, int64_t)[k];
        same = gcrt_same(own->name, other->name) && is_alike(own, other);
        for (size_t d = 0; same && d < own->shape.count; d++) {
            struct number wanted = ITEMS(other->shape, struct number)[d];
            same = ITEMS(own->shape, struct number)[d].value == (wanted.open ? fixed->sizes[wanted.value] : wanted.value);
        }
    }
    return same;
}

static int read_fixed(struct loading *loading, const struct json *json, size_t number)
{
    gpucomp_model *model = loading->model;
    struct program *program = model->programs + 1 + number;
    const struct json *sizes = json->kind == JSON_TABLE && json->count == 2 ? gcrt_json_find(json, "sizes") : NULL;
    const struct json *plan = sizes ? gcrt_json_find(json, "plan") : NULL;
    if (!plan || sizes->kind != JSON_TABLE)
        return gcrt_fail(loading->error, GCRT_WRONG_MANIFEST, "%s: fixed[%zu]: sizes and a plan expected", PATH(loading), number);
    int code = gcrt_plan(&model->store, plan, 0, &program->plan, loading->error);
    if (code)
        return code;
    if (!(program->sizes = gcrt_new(&model->store, model->open.dim_count, sizeof *program->sizes)))
        return gcrt_no_memory(loading->error);
    bool whole = sizes->count == model->open.dim_count;
    for (size_t d = 0; whole && d < model->open.dim_count; d++) {
        const struct json *size = gcrt_json_find(sizes, model->open.dims[d].name.at);
        whole = size && size->kind == JSON_INTEGER && gcrt_dim_has(model->open.dims + d, size->as.integer);
        program->sizes[d] = whole ? size->as.integer : 0;
    }
    if (!whole)
        return gcrt_fail(loading->error, GCRT_WRONG_MANIFEST, "%s: fixed[%zu]: no sizes of the model's dimensions", PATH(loading),
                         number);
    bool apart = is_of_the_model(model, program);
    for (size_t k = 1; k <= number; k++)
        apart = apart && memcmp(model->programs[k].sizes, program->sizes, model->open.dim_count * sizeof *program->sizes) != 0;
    return apart ? 0
                 : gcrt_fail(loading->error, GCRT_WRONG_MANIFEST, "%s: fixed[%zu]: a plan of another model, or of other sizes",
                             PATH(loading), number);
}

static int read_plans(struct loading *loading)
{
    gpucomp_model *model = loading->model;
    const struct json *plan = gcrt_json_find(loading->description, "plan"), *open = gcrt_json_find(loading->description, "open");
    const struct json *fixed = gcrt_json_find(loading->description, "fixed");
    size_t count = fixed && fixed->kind == JSON_LIST && fixed->count <= MOST_FIXED ? fixed->count : 0;
    if (!(model->programs = gcrt_new(&model->store, 1 + count, sizeof *model->programs)))
        return gcrt_no_memory(loading->error);
    model->program_count = 1;
    struct program *general = model->programs;
    general->open = open ? &model->open : NULL;
    int code = open ? gcrt_open_plan(&model->store, open, plan, &model->open, &general->plan, loading->error)
                    : gcrt_plan(&model->store, plan, 0, &general->plan, loading->error);
    if (code == 0 && fixed && (fixed->kind != JSON_LIST || fixed->count > MOST_FIXED))
        code = gcrt_fail(loading->error, GCRT_WRONG_MANIFEST, "%s: fixed: a list of at most %d plans expected", PATH(loading),
                         MOST_FIXED);
    for (size_t k = 0; k < count && code == 0; k++) {
        code = read_fixed(loading, fixed->as.items + k, k);
        model->program_count += code == 0;
    }
    model->keep_mapped = model->keep_mapped || general->plan.device != ON_CPU; /* a device has them in memory of its own */
    return code;
}

static int only_python(struct loading *loading, const char *what, const char *names)
{
    return gcrt_fail(loading->error, GCRT_ONLY_PYTHON, "%s has %s, which only Python runs: %s", PATH(loading), what, names);
}

/* Refuse a program for its operators on the host, with a node of each, or for strings. */
static int refuse_program(struct loading *loading, const struct plan *plan)
{
    char names[400] = "";
    size_t at = 0;
    for (size_t k = 0; k < plan->launches.count && at < sizeof names; k++) {
        const struct launch *launch = ITEMS(plan->launches, struct launch) + k;
        const struct text *node = launch->nodes.count ? ITEMS(launch->nodes, struct text) : &launch->name;
        if (launch->kernel < 0 && !strstr(names, launch->host.at))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%.40s at node %s", at ? ", " : "", launch->host.at,
                                   QUOTE(*node));
    }
    if (at)
        return only_python(loading, "operators that run on the host", names);
    for (size_t k = 0; k < plan->buffers.count; k++) {
        const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + k;
        if (gcrt_dtypes[buffer->dtype].kind == 's')
            return only_python(loading, "strings", QUOTE(buffer->name));
    }
    return 0;
}

/* Refuse by name what only Python can run. */
static int refuse_others(struct loading *loading)
{
    gpucomp_model *model = loading->model;
    const struct plan *plan = &model->programs->plan;
    int code = 0;
    model->device_number = -1;
    model->engine = plan->device == ON_CPU ? &gcrt_processor : plan->device == ON_OPENCL ? &gcrt_opencl : &gcrt_gpu;
    if (gcrt_member(&loading->container, "", gcrt_text(GCRT_DYNAMIC_MODEL)))
        return only_python(loading, "a part whose shapes depend on values", "gpucomp inspect lists it");
    for (size_t p = 0; p < model->program_count && code == 0; p++)
        code = refuse_program(loading, &model->programs[p].plan);
    return code;
}

static bool is_kept(const struct plan *plan, struct text name, bool output)
{
    for (size_t k = 0; k < plan->states.count; k++) {
        const struct state *state = ITEMS(plan->states, struct state) + k;
        if (gcrt_same(output ? state->output : state->input, name))
            return true;
    }
    return false;
}

/* Which inputs and outputs a caller gives, and which are states. */
static int list_tensors(gpucomp_model *model, gpucomp_error *error)
{
    const struct plan *plan = &model->programs->plan;
    const struct buffer *buffers = ITEMS(plan->buffers, struct buffer);
    model->inputs = gcrt_new(&model->store, plan->inputs.count, sizeof *model->inputs);
    model->outputs = gcrt_new(&model->store, plan->outputs.count, sizeof *model->outputs);
    model->states = gcrt_new(&model->store, plan->states.count, sizeof *model->states);
    model->state_outputs = gcrt_new(&model->store, plan->states.count, sizeof *model->state_outputs);
    if (!model->inputs || !model->outputs || !model->states || !model->state_outputs)
        return gcrt_no_memory(error);
    for (size_t k = 0; k < plan->inputs.count; k++)
        if (!is_kept(plan, buffers[ITEMS(plan->inputs, int64_t)[k]].name, false))
            model->inputs[model->input_count++] = k;
    for (size_t k = 0; k < plan->outputs.count; k++)
        if (!is_kept(plan, ITEMS(plan->output_names, struct text)[k], true))
            model->outputs[model->output_count++] = k;
    for (size_t s = 0; s < plan->states.count; s++) {
        const struct state *state = ITEMS(plan->states, struct state) + s;
        for (size_t k = 0; k < plan->inputs.count; k++)
            if (gcrt_same(buffers[ITEMS(plan->inputs, int64_t)[k]].name, state->input))
                model->states[s] = k;
        model->state_outputs[s] = -1;
        for (size_t k = 0; k < plan->outputs.count; k++)
            if (gcrt_same(ITEMS(plan->output_names, struct text)[k], state->output))
                model->state_outputs[s] = (int64_t)k;
    }
    model->state_count = plan->states.count;
    return 0;
}

static int load(struct loading *loading, const uint8_t *data, size_t bytes)
{
    gpucomp_model *model = loading->model;
    int code = gcrt_container(&loading->scratch, data, bytes, model->path.at, MANIFEST, &loading->container, loading->error);
    if (code)
        return code;
    const struct member *manifest = gcrt_member(&loading->container, "", gcrt_text(MANIFEST));
    if (!manifest)
        return gcrt_fail(loading->error, GCRT_DAMAGED_FILE, "%s is not a compiled model: it has no " MANIFEST, PATH(loading));
    loading->description = gcrt_json(&loading->scratch, (const char *)manifest->data, (size_t)manifest->bytes, MANIFEST,
                                     loading->error);
    if (!loading->description)
        return loading->error->code;
    code = check_schema(loading);
    if (code == 0)
        code = read_plans(loading);
    if (code == 0)
        code = gcrt_check_members(model, &loading->scratch, &loading->container, gcrt_json_find(loading->description, "members"),
                                  loading->error);
    if (code == 0)
        code = gcrt_check_kernels(model, &loading->container, loading->error);
    if (code == 0)
        code = refuse_others(loading);
    for (size_t p = 0; p < model->program_count && code == 0; p++) {
        struct program *program = model->programs + p;
        program->weights = gcrt_new(&model->store, program->plan.buffers.count, sizeof *program->weights);
        code = program->weights ? 0 : gcrt_no_memory(loading->error);
    }
    if (code == 0)
        code = gcrt_weights(model, gcrt_member(&loading->container, "", gcrt_text(GCRT_WEIGHTS)), loading->error);
    if (code == 0)
        code = model->engine->open(model, &loading->container, loading->error);
    for (size_t p = 0; p < model->program_count && code == 0; p++)
        code = gcrt_program(model, model->programs + p, loading->error);
    if (code == 0)
        code = list_tensors(model, loading->error);
    if (code == 0 && model->engine->test)
        code = model->engine->test(model, &loading->container, loading->error);
    if (code == 0)
        gcrt_give_back_members(model, &loading->container);
    return code;
}

static int opened(gpucomp_model *model, const uint8_t *data, size_t bytes, const gpucomp_open_options *options,
                  gpucomp_model **found, gpucomp_error *error)
{
    gpucomp_error own = GPUCOMP_ERROR_INIT; /* so that codes are known whatever the caller's is */
    struct loading loading = {.model = model, .error = &own};
    model->second_cache = gcrt_second_cache();
    if (options) /* what an older program does not know is as usual */
        memcpy(&model->options, options, options->size < sizeof model->options ? options->size : sizeof model->options);
    model->keep_mapped = model->options.keep_mapped;
    int code = load(&loading, data, bytes);
    gcrt_free(&loading.scratch);
    memset(&model->options, 0, sizeof model->options);
    if (code) {
        gcrt_tell(error, &own);
        gpucomp_close(model);
        return code;
    }
    *found = model;
    return 0;
}

static bool is_whole(const gpucomp_open_options *options)
{
    return !options || options->size >= GCRT_END(gpucomp_open_options, keep_mapped);
}

int gpucomp_open(const char *path, const gpucomp_open_options *options, gpucomp_model **model, gpucomp_error *error)
{
    gcrt_clear(error);
    if (model)
        *model = NULL;
    if (!path || !model || !is_whole(options))
        return gcrt_fail(error, GCRT_WRONG_CALL,
                         "gpucomp_open: a path, where the model goes, and options from "
                         "GPUCOMP_OPEN_OPTIONS_INIT or none, expected");
    gpucomp_model *made = calloc(1, sizeof *made);
    if (!made)
        return gcrt_no_memory(error);
    made->path = gcrt_text(path);
    int code = gcrt_copy_text(&made->store, &made->path) ? gcrt_map(path, &made->mapped, error) : gcrt_no_memory(error);
    if (code) {
        gpucomp_close(made);
        return code;
    }
    return opened(made, made->mapped.data, made->mapped.bytes, options, model, error);
}

int gpucomp_open_memory(const void *data, size_t bytes, const gpucomp_open_options *options, gpucomp_model **model,
                        gpucomp_error *error)
{
    gcrt_clear(error);
    if (model)
        *model = NULL;
    if (!data || !model || (uintptr_t)data % FILE_ALIGNMENT || !is_whole(options))
        return gcrt_fail(error, GCRT_WRONG_CALL,
                         "gpucomp_open_memory: memory aligned to %d bytes, where the model goes, and options from "
                         "GPUCOMP_OPEN_OPTIONS_INIT or none, expected", FILE_ALIGNMENT);
    gpucomp_model *made = calloc(1, sizeof *made);
    if (!made)
        return gcrt_no_memory(error);
    made->path = gcrt_text("memory");
    return opened(made, data, bytes, options, model, error);
}

void gpucomp_close(gpucomp_model *model)
{
    if (!model)
        return;
    if (model->engine)
        model->engine->close(model);
    gcrt_release(model->large, model->large_bytes);
    gcrt_unmap(&model->mapped);
    gcrt_free(&model->store);
    free(model);
}
