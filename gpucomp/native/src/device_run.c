/* Runs on a device: everything is enqueued in order, and nothing waits before the results, or for them where none is asked. */
#include <string.h>

#include "device.h"
#include "states.h"

void *gcrt_device_memory(const gpucomp_context *context, const struct form *form, int64_t position)
{
    const struct program *program = form->program;
    const struct device_context *own = context->device;
    const struct device_form *made = form->calls;
    switch (ITEMS(program->plan.buffers, struct buffer)[position].kind) {
    case INPUT: return own->now[program->input_of[position]];
    case OUTPUT: return own->now[program->plan.inputs.count + (size_t)program->output_of[position]];
    case WEIGHT: return own->device->weights(context->model)->memory[gcrt_program_number(context, program)][position];
    default: return made->memory[position] ? made->memory[position] : own->arena; /* one without elements is anywhere */
    }
}

bool gcrt_is_callers(const gpucomp_context *context, const struct form *form, int64_t position)
{
    const struct program *program = form->program;
    const struct device_context *own = context->device;
    int kind = ITEMS(program->plan.buffers, struct buffer)[position].kind;
    if (kind != INPUT && kind != OUTPUT)
        return false;
    size_t number = kind == INPUT ? (size_t)program->input_of[position]
                                  : program->plan.inputs.count + (size_t)program->output_of[position];
    return !own->kept[number] && own->now[number] != own->tensors[number];
}

/* Whether kernels can have a tensor of the caller's where it is. */
static bool is_ready(const gpucomp_context *context, const gpucomp_tensor *tensor)
{
    return gcrt_on_device(tensor) && tensor->data &&
           (context->engine->refuses || (uintptr_t)tensor->data % GCRT_LOADED == 0); /* handles have no place within another */
}

/* Inputs and outputs in memory of the context's own, and states where they are. */
static void own_tensors(gpucomp_context *context, const struct form *form)
{
    const gpucomp_model *model = context->model;
    const struct plan *plan = &form->program->plan;
    struct device_context *own = context->device;
    memcpy(own->now, own->tensors, (plan->inputs.count + plan->outputs.count) * sizeof *own->now);
    for (size_t s = 0; s < model->state_count; s++) {
        own->now[model->states[s]] = context->kept[s].now;
        if (model->state_outputs[s] >= 0)
            own->now[plan->inputs.count + (size_t)model->state_outputs[s]] = context->kept[s].spare;
    }
}

int gcrt_device_alone(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    own_tensors(context, form);
    return ((const struct device_context *)context->device)->device->bind(context, form, error);
}

/* Find where inputs, outputs and states lie in this run. */
static void find_tensors(gpucomp_context *context, const struct form *form, const gpucomp_tensor *inputs,
                         const gpucomp_tensor *outputs)
{
    const gpucomp_model *model = context->model;
    const struct plan *plan = &form->program->plan;
    struct device_context *own = context->device;
    own_tensors(context, form);
    for (size_t k = 0; k < model->input_count; k++)
        if (is_ready(context, gcrt_tensor_at(inputs, k)))
            own->now[model->inputs[k]] = gcrt_tensor_at(inputs, k)->data;
    for (size_t k = 0; k < model->output_count; k++) {
        size_t number = model->outputs[k];
        int64_t position = gcrt_output_buffer(form, number);
        bool first = ITEMS(plan->buffers, struct buffer)[position].kind == OUTPUT &&
                     form->program->output_of[position] == (int64_t)number; /* others of one buffer are copies */
        if (first && is_ready(context, gcrt_tensor_at(outputs, k)))
            own->now[plan->inputs.count + number] = gcrt_tensor_at(outputs, k)->data;
    }
}

/* Copy what kernels cannot have where it is from the caller's memory on the device. */
static int take_inputs(gpucomp_context *context, const struct form *form, const gpucomp_tensor *inputs, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct device_context *own = context->device;
    int code = 0;
    for (size_t k = 0; k < model->input_count && code == 0; k++) {
        const gpucomp_tensor *tensor = gcrt_tensor_at(inputs, k);
        void *memory = own->now[model->inputs[k]];
        uint64_t bytes = (uint64_t)form->nbytes[ITEMS(form->program->plan.inputs, int64_t)[model->inputs[k]]];
        if (gcrt_on_device(tensor) && bytes && memory != tensor->data)
            code = own->device->copy(context, tensor->data, 0, memory, 0, bytes, error);
    }
    return code;
}

/* The same to it. */
static int give_outputs(gpucomp_context *context, const struct form *form, const gpucomp_tensor *outputs, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct device_context *own = context->device;
    int code = 0;
    for (size_t k = 0; k < model->output_count && code == 0; k++) {
        const gpucomp_tensor *tensor = gcrt_tensor_at(outputs, k);
        int64_t position = gcrt_output_buffer(form, model->outputs[k]);
        void *memory = gcrt_device_memory(context, form, position);
        uint64_t bytes = gcrt_shape_bytes(form, ITEMS(form->program->plan.buffers, struct buffer) + position);
        if (gcrt_on_device(tensor) && bytes && memory != tensor->data)
            code = own->device->copy(context, memory, 0, tensor->data, 0, bytes, error);
    }
    return code;
}

/* After a run that failed, counters may hold anything. */
static int mend(gpucomp_context *context, gpucomp_error *error)
{
    const struct device_context *own = context->device;
    int code = 0;
    if (!own->broken)
        return 0;
    own->device->wait(context, NULL); /* launches of the failed run may still be running */
    for (size_t p = 0; p < context->model->program_count; p++) {
        const struct device_form *made = context->forms[p].calls;
        struct list buffers = context->model->programs[p].plan.buffers;
        for (size_t k = 0; k < buffers.count && code == 0; k++)
            if (ITEMS(buffers, struct buffer)[k].kind == COUNTER && made->memory[k])
                code = own->device->zero(context, made->memory[k], made->rooms[k], error);
    }
    return code;
}

/* Copy the moving parts of a launch's buffers before it, or after it where it wrote them. */
static int move(gpucomp_context *context, const struct form *form, size_t row, int64_t step, bool after, gpucomp_error *error)
{
    const struct program *program = form->program;
    const struct device_calls *device = ((const struct device_context *)context->device)->device;
    const struct device_form *made = form->calls;
    int code = 0;
    for (size_t a = program->begins[row]; a < program->begins[row + 1] && code == 0; a++) {
        const struct device_argument *argument = made->arguments + a;
        if (!argument->advance || !argument->copied || !(after ? argument->written : argument->read))
            continue;
        void *whole = gcrt_device_memory(context, form, program->arguments[a].buffer);
        uint64_t at = (uint64_t)(argument->start + step * argument->advance);
        uint64_t bytes = (uint64_t)(argument->advance < 0 ? -argument->advance : argument->advance);
        code = after ? device->copy(context, argument->slice, 0, whole, at, bytes, error)
                     : device->copy(context, whole, at, argument->slice, 0, bytes, error);
    }
    return code;
}

static int launch_all(gpucomp_context *context, const struct form *form, gpucomp_error *error)
{
    const struct device_calls *device = ((const struct device_context *)context->device)->device;
    size_t row = 0;
    int code = 0;
    while (row < form->program->rows && code == 0) {
        const struct repeat *repeat = gcrt_repeat_of(form->program, row);
        int64_t steps = repeat ? gcrt_value(form, repeat->count) : 1;
        size_t last = repeat ? (size_t)repeat->last : row + 1;
        for (int64_t step = 0; step < steps && code == 0; step++)
            for (size_t inner = row; inner < last && code == 0; inner++) {
                code = repeat ? move(context, form, inner, step, false, error) : 0;
                if (code == 0)
                    code = device->launch(context, form, inner, step, error);
                if (code == 0 && repeat)
                    code = move(context, form, inner, step, true, error);
            }
        row = last;
    }
    return code;
}

/* Copy states that no kernel writes where they go. */
static int copy_states(gpucomp_context *context, const struct form *form, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct device_calls *device = ((const struct device_context *)context->device)->device;
    int code = 0;
    for (size_t s = 0; s < model->state_count && code == 0; s++) {
        int64_t output = model->state_outputs[s];
        if (output < 0)
            continue;
        int64_t position = gcrt_output_buffer(form, (size_t)output);
        void *from = gcrt_device_memory(context, form, position), *to = context->kept[s].spare;
        uint64_t bytes = gcrt_shape_bytes(form, ITEMS(form->program->plan.buffers, struct buffer) + position);
        if (from != to && bytes)
            code = device->copy(context, from, 0, to, 0, bytes, error);
    }
    return code;
}

int gcrt_device_wait(gpucomp_context *context, gpucomp_error *error)
{
    struct device_context *own = context->device;
    int code = own->pending ? own->device->wait(context, error) : 0;
    own->pending = false;
    own->broken = own->broken || code != 0;
    return code;
}

int gcrt_device_run(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs,
                    bool complete, gpucomp_error *error)
{
    struct device_context *own = context->device;
    const struct device_calls *device = own->device;
    int code = complete ? gcrt_device_wait(context, error) : 0;
    if (code == 0)
        code = mend(context, error);
    if (code)
        return code;
    own->broken = true;
    find_tensors(context, form, inputs, outputs);
    code = device->bind(context, form, error);
    if (code == 0)
        code = device->upload(context, form, inputs, complete, error);
    if (code == 0)
        code = take_inputs(context, form, inputs, error);
    if (code == 0)
        code = launch_all(context, form, error);
    if (code == 0)
        code = copy_states(context, form, error);
    if (code == 0)
        code = give_outputs(context, form, outputs, error);
    if (code == 0)
        code = device->download(context, form, outputs, complete, error);
    if (code)
        device->wait(context, NULL); /* the caller's memory is no longer in use */
    own->broken = code != 0;
    own->pending = !complete && code == 0;
    return code;
}
