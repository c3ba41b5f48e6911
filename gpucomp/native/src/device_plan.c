/* Contexts on a device: their memory, and what is prepared for the sizes of a run. */
#include <stdlib.h>
#include <string.h>

#include "device.h"

static int by_data(const void *one, const void *other)
{
    const struct device_weight *a = one, *b = other;
    int order = ((uintptr_t)a->data > (uintptr_t)b->data) - ((uintptr_t)a->data < (uintptr_t)b->data);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

int gcrt_list_weights(gpucomp_model *model, struct device_weights *weights, gpucomp_error *error)
{
    size_t most = 0, count = 0;
    for (size_t p = 0; p < model->program_count; p++)
        for (size_t k = 0; k < model->programs[p].plan.buffers.count; k++)
            most += ITEMS(model->programs[p].plan.buffers, struct buffer)[k].kind == WEIGHT;
    if (!(weights->all = gcrt_new(&model->store, most, sizeof *weights->all)))
        return gcrt_no_memory(error);
    for (size_t p = 0; p < model->program_count; p++)
        for (size_t k = 0; k < model->programs[p].plan.buffers.count; k++) {
            const struct buffer *buffer = ITEMS(model->programs[p].plan.buffers, struct buffer) + k;
            if (buffer->kind == WEIGHT)
                weights->all[count++] =
                    (struct device_weight){model->programs[p].weights[k], (uint64_t)buffer->nbytes, NULL};
        }
    if (count)
        qsort(weights->all, count, sizeof *weights->all, by_data);
    for (size_t k = 0; k < count; k++)
        if (k == 0 || by_data(weights->all + weights->count - 1, weights->all + k) != 0)
            weights->all[weights->count++] = weights->all[k];
    return 0;
}

int gcrt_place_weights(gpucomp_model *model, struct device_weights *weights, gpucomp_error *error)
{
    if (!(weights->memory = gcrt_new(&model->store, model->program_count, sizeof *weights->memory)))
        return gcrt_no_memory(error);
    for (size_t p = 0; p < model->program_count; p++) {
        struct list buffers = model->programs[p].plan.buffers;
        if (!(weights->memory[p] = gcrt_new(&model->store, buffers.count, sizeof **weights->memory)))
            return gcrt_no_memory(error);
        for (size_t k = 0; k < buffers.count; k++) {
            const struct buffer *buffer = ITEMS(buffers, struct buffer) + k;
            struct device_weight wanted = {model->programs[p].weights[k], (uint64_t)buffer->nbytes, NULL};
            const struct device_weight *found =
                buffer->kind == WEIGHT ? bsearch(&wanted, weights->all, weights->count, sizeof wanted, by_data) : NULL;
            weights->memory[p][k] = found ? found->memory : NULL;
        }
    }
    return 0;
}

static int make_form(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    const struct program *program = form->program;
    struct device_form *made = form->calls = gcrt_new(&context->store, 1, sizeof *made);
    if (!made)
        return gcrt_no_memory(error);
    made->arguments = gcrt_new(&context->store, program->argument_count, sizeof *made->arguments);
    made->memory = gcrt_new(&context->store, program->plan.buffers.count, sizeof *made->memory);
    made->rooms = gcrt_new(&context->store, program->plan.buffers.count, sizeof *made->rooms);
    if (!made->arguments || !made->memory || !made->rooms)
        return gcrt_no_memory(error);
    return ((const struct device_context *)context->device)->device->make(context, form, error);
}

int gcrt_device_make(gpucomp_context *context, const struct device_calls *device, size_t own,
                     const gpucomp_context_options *options, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    size_t tensors = model->programs->plan.inputs.count + model->programs->plan.outputs.count;
    if (options->arena)
        return gcrt_fail(error, GCRT_WRONG_CALL, "options.arena: none expected, as this model's arena is in the device's memory");
    if (options->arena_bytes && model->open.dim_count)
        context->arena_bytes = options->arena_bytes;
    struct device_context *made = context->device = gcrt_new(&context->store, 1, sizeof *made);
    if (!made)
        return gcrt_no_memory(error);
    made->device = device;
    made->own = gcrt_new(&context->store, 1, own);
    made->tensors = gcrt_new(&context->store, tensors, sizeof *made->tensors);
    made->now = gcrt_new(&context->store, tensors, sizeof *made->now);
    made->rooms = gcrt_new(&context->store, tensors, sizeof *made->rooms);
    made->kept = gcrt_new(&context->store, tensors, sizeof *made->kept);
    if (!made->own || !made->tensors || !made->now || !made->rooms || !made->kept)
        return gcrt_no_memory(error);
    int code = 0;
    for (size_t p = 0; p < model->program_count && code == 0; p++)
        code = make_form(context, context->forms + p, error);
    return code;
}

int gcrt_device_reserve(gpucomp_context *context, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    struct device_context *own = context->device;
    size_t behind = model->programs->plan.inputs.count;
    int code = own->device->allocate(model, context->arena_bytes, false, &own->arena, error);
    for (size_t s = 0; s < model->state_count && code == 0; s++) {
        struct kept *kept = context->kept + s;
        int64_t output = model->state_outputs[s];
        own->kept[model->states[s]] = true;
        if (output >= 0)
            own->kept[behind + (size_t)output] = true;
        code = own->device->allocate(model, kept->room, false, &kept->now, error);
        kept->spare = kept->now;
        if (code == 0 && output >= 0) {
            void *spare = NULL;
            code = own->device->allocate(model, kept->room, false, &spare, error);
            kept->spare = spare;
        }
    }
    return code;
}

static void release(const gpucomp_context *context, void **memory)
{
    if (*memory)
        ((const struct device_context *)context->device)->device->release(context->model, *memory);
    *memory = NULL;
}

static void end_part(const gpucomp_context *context, void **part)
{
    if (*part)
        ((const struct device_context *)context->device)->device->end_part(context->model, *part);
    *part = NULL;
}

static void end_form(gpucomp_context *context, struct form *form)
{
    struct device_form *made = form->calls;
    const struct program *program = form->program;
    if (!made)
        return;
    if (made->calls)
        ((const struct device_context *)context->device)->device->end(context, form);
    for (size_t a = 0; made->arguments && a < program->argument_count; a++)
        release(context, &made->arguments[a].slice);
    for (size_t k = 0; made->memory && k < program->plan.buffers.count; k++) {
        if (ITEMS(program->plan.buffers, struct buffer)[k].kind == TEMP)
            end_part(context, made->memory + k);
        else
            release(context, made->memory + k);
    }
}

void gcrt_device_end(gpucomp_context *context)
{
    const gpucomp_model *model = context->model;
    struct device_context *own = context->device;
    if (!own)
        return;
    for (size_t p = 0; p < model->program_count; p++)
        end_form(context, context->forms + p);
    size_t tensors = model->programs->plan.inputs.count + model->programs->plan.outputs.count;
    for (size_t k = 0; own->tensors && k < tensors; k++)
        release(context, own->tensors + k);
    for (size_t s = 0; s < model->state_count; s++) {
        void *now = context->kept[s].now, *spare = context->kept[s].spare;
        if (spare != now)
            release(context, &spare);
        release(context, &now);
    }
    release(context, &own->arena);
}

/* Memory of at least `bytes`: what there is, or else new. */
static int grow(const gpucomp_context *context, bool tensor, uint64_t bytes, void **memory, uint64_t *room, bool *grown,
                gpucomp_error *error)
{
    *grown = !*memory || *room < bytes;
    if (!*grown)
        return 0;
    release(context, memory);
    *room = bytes;
    return ((const struct device_context *)context->device)->device->allocate(context->model, bytes, tensor, memory, error);
}

/* Counters begin with zeros, which every run leaves behind; numbers are this form's. */
static int place_buffer(gpucomp_context *context, struct form *form, size_t k, gpucomp_error *error)
{
    const struct device_calls *device = ((const struct device_context *)context->device)->device;
    struct device_form *made = form->calls;
    const struct buffer *buffer = ITEMS(form->program->plan.buffers, struct buffer) + k;
    uint64_t bytes = (uint64_t)form->nbytes[k];
    bool grown = false;
    if (buffer->kind == TEMP) {
        end_part(context, made->memory + k);
        bool there = bytes && form->offsets[k] >= 0;
        return there ? device->part(context, (uint64_t)form->offsets[k], bytes, made->memory + k, error) : 0;
    }
    if (buffer->kind != COUNTER && buffer->kind != NUMBERS)
        return 0;
    int code = grow(context, false, bytes, made->memory + k, made->rooms + k, &grown, error);
    if (code || !bytes)
        return code;
    if (buffer->kind == NUMBERS)
        return device->write(context, made->memory[k], form->memory[k], bytes, error);
    return grown ? device->zero(context, made->memory[k], bytes, error) : 0;
}

/* Memory of inputs and outputs, which programs of all sizes share. */
static int place_tensors(gpucomp_context *context, const struct form *form, gpucomp_error *error)
{
    struct device_context *own = context->device;
    const struct plan *plan = &form->program->plan;
    bool grown;
    int code = 0;
    for (size_t k = 0; k < plan->inputs.count + plan->outputs.count && code == 0; k++) {
        bool input = k < plan->inputs.count;
        int64_t position = input ? ITEMS(plan->inputs, int64_t)[k] : ITEMS(plan->outputs, int64_t)[k - plan->inputs.count];
        if (!own->kept[k] && (input || ITEMS(plan->buffers, struct buffer)[position].kind == OUTPUT))
            code = grow(context, true, (uint64_t)form->nbytes[position], own->tensors + k, own->rooms + k, &grown, error);
    }
    return code;
}

/* A part of a buffer that moves with the steps of a loop. Where several launches write parts of it, each also keeps what the
 * others wrote. */
static int place_moving(const gpucomp_context *context, const struct form *form, const struct repeat *repeat, size_t row,
                        size_t a, gpucomp_error *error)
{
    const struct device_calls *device = ((const struct device_context *)context->device)->device;
    const struct program *program = form->program;
    const struct launch *launches = ITEMS(program->plan.launches, struct launch);
    struct device_argument *argument = ((struct device_form *)form->calls)->arguments + a;
    size_t index = a - program->begins[row];
    int64_t by = gcrt_advance_of(form, repeat, row, index);
    size_t writers = 0;
    bool grown;
    argument->advance = by;
    if (!by)
        return 0;
    for (int64_t other = repeat->first; other < repeat->last; other++) {
        bool writes = false;
        for (size_t n = (size_t)launches[other].inputs; n < launches[other].args.count; n++)
            writes = writes || ITEMS(launches[other].args, int64_t)[n] == program->arguments[a].buffer;
        writers += writes;
    }
    argument->start = gcrt_start_of(form, repeat, by);
    argument->written = index >= (size_t)launches[row].inputs;
    argument->read = !argument->written || writers > 1;
    argument->copied = device->copies(program, row, index, by);
    return argument->copied
               ? grow(context, false, (uint64_t)(by < 0 ? -by : by), &argument->slice, &argument->room, &grown, error)
               : 0;
}

int gcrt_device_plan(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    const struct device_calls *device = ((const struct device_context *)context->device)->device;
    const struct program *program = form->program;
    struct device_form *made = form->calls;
    int code = gcrt_device_wait(context, error); /* runs at other sizes may still use what is freed */
    if (code == 0)
        code = place_tensors(context, form, error); /* another form may have let them grow, and others use them */
    for (size_t a = 0; a < program->argument_count; a++)
        made->arguments[a].bound = NULL;
    if (code || form->planned)
        return code;
    code = gcrt_fill_numbers(form, error);
    for (size_t k = 0; k < program->plan.buffers.count && code == 0; k++)
        code = place_buffer(context, form, k, error);
    for (size_t a = 0; a < program->argument_count; a++)
        made->arguments[a].advance = 0;
    for (size_t row = 0; row < program->rows && code == 0; row++) {
        const struct repeat *repeat = gcrt_repeat_of(program, row);
        code = device->prepare(context, form, row, error);
        for (size_t a = program->begins[row]; repeat && a < program->begins[row + 1] && code == 0; a++)
            code = place_moving(context, form, repeat, row, a, error);
    }
    form->planned = code == 0;
    return code;
}
