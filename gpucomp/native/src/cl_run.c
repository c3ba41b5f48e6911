/* Runs on an OpenCL device: one in-order queue, no synchronisation before the results. As gpucomp/runtime/opencl.py. */
#include "cl_run.h"

#include <string.h>

#include "states.h"

#define FLUSHED 16 /* launches after which the queue is flushed: otherwise Mali and Adreno do not start before the last one */

cl_mem gcrt_cl_memory_of(const gpucomp_context *context, const struct form *form, int64_t position)
{
    const struct program *program = form->program;
    const struct cl_model *device = context->model->device;
    const struct cl_own *own = context->device;
    const struct cl_form *calls = form->calls;
    size_t p = (size_t)(program - context->model->programs);
    switch (ITEMS(program->plan.buffers, struct buffer)[position].kind) {
    case INPUT: return own->now[program->input_of[position]];
    case OUTPUT: return own->now[program->plan.inputs.count + (size_t)program->output_of[position]];
    case WEIGHT: return device->memory[p][position];
    default: return calls->memory[position] ? calls->memory[position] : own->arena; /* one without elements is anywhere */
    }
}

int gcrt_cl_zero(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error)
{
    static const uint8_t zero = 0;
    const struct cl_model *device = context->model->device;
    const struct cl_own *own = context->device;
    if (!bytes)
        return 0;
    cl_int status = device->cl.clEnqueueFillBuffer(own->queue, memory, &zero, 1, 0, (size_t)bytes, 0, NULL, NULL);
    return status ? gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, "clEnqueueFillBuffer", status) : 0;
}

int gcrt_cl_copy(gpucomp_context *context, void *memory, const struct strided *rows, void *packed, bool out, gpucomp_error *error)
{
    static const size_t origin[3] = {0, 0, 0};
    const struct cl_model *device = context->model->device;
    const struct cl_own *own = context->device;
    const struct cl *cl = &device->cl;
    const size_t region[3] = {rows->bytes, rows->count, 1};
    cl_int status;
    if (!rows->bytes || !rows->count)
        return 0;
    if (out)
        status = cl->clEnqueueReadBufferRect(own->queue, memory, 1, origin, origin, region, rows->pitch, 0, rows->bytes, 0,
                                             packed, 0, NULL, NULL);
    else
        status = cl->clEnqueueWriteBufferRect(own->queue, memory, 1, origin, origin, region, rows->pitch, 0, rows->bytes, 0,
                                              packed, 0, NULL, NULL);
    return status ? gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, "the copy of a state", status) : 0;
}

/* Let kernels have this run's memory, as far as they do not have it yet. */
static cl_int bind(gpucomp_context *context, struct form *form)
{
    const gpucomp_model *model = context->model;
    const struct cl_model *device = model->device;
    const struct program *program = form->program;
    struct cl_own *own = context->device;
    struct cl_form *calls = form->calls;
    size_t behind = program->plan.inputs.count;
    memcpy(own->now, own->tensors, (behind + program->plan.outputs.count) * sizeof *own->now);
    for (size_t s = 0; s < model->state_count; s++) {
        own->now[model->states[s]] = context->kept[s].now;
        if (model->state_outputs[s] >= 0)
            own->now[behind + (size_t)model->state_outputs[s]] = context->kept[s].spare;
    }
    cl_int status = 0;
    for (size_t a = 0; a < program->argument_count && !status; a++) {
        struct cl_argument *argument = calls->arguments + a;
        size_t row = program->arguments[a].row;
        if (program->arguments[a].buffer < 0)
            continue;
        cl_mem memory = argument->advance ? argument->slice
                                          : gcrt_cl_memory_of(context, form, program->arguments[a].buffer);
        if (memory != argument->bound)
            status = device->cl.clSetKernelArg(calls->calls[row].kernel, (cl_uint)(a - program->begins[row]), sizeof memory,
                                               &memory);
        argument->bound = status ? NULL : memory;
    }
    return status;
}

/* After a run that failed, counters may hold anything. */
static int mend(gpucomp_context *context, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    struct cl_own *own = context->device;
    int code = 0;
    if (!own->broken)
        return 0;
    device->cl.clFinish(own->queue); /* launches of the failed run may still be running */
    for (size_t p = 0; p < context->model->program_count; p++) {
        const struct cl_form *calls = context->forms[p].calls;
        struct list buffers = context->model->programs[p].plan.buffers;
        for (size_t k = 0; k < buffers.count && code == 0; k++)
            if (ITEMS(buffers, struct buffer)[k].kind == COUNTER && calls->memory[k])
                code = gcrt_cl_zero(context, calls->memory[k], calls->rooms[k], error);
    }
    return code;
}

static cl_int upload(gpucomp_context *context, const struct form *form, const gpucomp_tensor *inputs)
{
    const gpucomp_model *model = context->model;
    const struct cl_model *device = model->device;
    const struct cl_own *own = context->device;
    const struct cl *cl = &device->cl;
    cl_int status = 0;
    for (size_t k = 0; k < model->input_count && !status; k++) {
        const gpucomp_tensor *tensor = gcrt_tensor_at(inputs, k);
        size_t number = model->inputs[k];
        size_t bytes = (size_t)form->nbytes[ITEMS(form->program->plan.inputs, int64_t)[number]];
        if (!bytes)
            continue;
        if (!device->device.unified) {
            status = cl->clEnqueueWriteBuffer(own->queue, own->tensors[number], 0, 0, bytes, tensor->data, 0, NULL, NULL);
            continue;
        }
        /* the queue is empty when a run begins, so that this does not wait */
        void *view = cl->clEnqueueMapBuffer(own->queue, own->tensors[number], 1, CL_MAP_WRITE_INVALIDATE_REGION, 0, bytes, 0,
                                            NULL, NULL, &status);
        if (view && !status) {
            memcpy(view, tensor->data, bytes);
            status = cl->clEnqueueUnmapMemObject(own->queue, own->tensors[number], view, 0, NULL, NULL);
        }
    }
    return status;
}

/* Copy the moving parts of a launch's buffers before it, or after it where it wrote them. */
static cl_int move(gpucomp_context *context, const struct form *form, size_t row, int64_t step, bool after)
{
    const struct program *program = form->program;
    const struct cl_model *device = context->model->device;
    const struct cl_own *own = context->device;
    const struct cl_form *calls = form->calls;
    cl_int status = 0;
    for (size_t a = program->begins[row]; a < program->begins[row + 1] && !status; a++) {
        const struct cl_argument *argument = calls->arguments + a;
        if (!argument->advance || !(after ? argument->written : argument->read))
            continue;
        cl_mem whole = gcrt_cl_memory_of(context, form, program->arguments[a].buffer);
        size_t at = (size_t)(argument->start + step * argument->advance);
        size_t bytes = (size_t)(argument->advance < 0 ? -argument->advance : argument->advance);
        status = after ? device->cl.clEnqueueCopyBuffer(own->queue, argument->slice, whole, 0, at, bytes, 0, NULL, NULL)
                       : device->cl.clEnqueueCopyBuffer(own->queue, whole, argument->slice, at, 0, bytes, 0, NULL, NULL);
    }
    return status;
}

static cl_int launch(gpucomp_context *context, const struct form *form, size_t row, int64_t step, size_t *enqueued)
{
    const struct cl_model *device = context->model->device;
    const struct cl_own *own = context->device;
    const struct cl_call *call = ((const struct cl_form *)form->calls)->calls + row;
    const struct kernel *kernel = ITEMS(form->program->plan.kernels, struct kernel) + call->which;
    size_t local[3], global[3], all = 1;
    for (size_t axis = 0; axis < 3; axis++) {
        local[axis] = (size_t)ITEMS(kernel->items, int64_t)[axis];
        global[axis] = local[axis] * (size_t)gcrt_value(form, ITEMS(kernel->groups, struct number)[axis]);
        all = global[axis] ? all : 0;
    }
    cl_int status = move(context, form, row, step, false);
    if (!status && all)
        status = device->cl.clEnqueueNDRangeKernel(own->queue, call->kernel, 3, NULL, global, local, 0, NULL, NULL);
    if (!status)
        status = move(context, form, row, step, true);
    if (!status && ++*enqueued % FLUSHED == 0)
        status = device->cl.clFlush(own->queue);
    return status;
}

static cl_int launch_all(gpucomp_context *context, const struct form *form)
{
    size_t enqueued = 0, row = 0;
    cl_int status = 0;
    while (row < form->program->rows && !status) {
        const struct repeat *repeat = gcrt_repeat_of(form->program, row);
        int64_t steps = repeat ? gcrt_value(form, repeat->count) : 1;
        size_t last = repeat ? (size_t)repeat->last : row + 1;
        for (int64_t step = 0; step < steps && !status; step++)
            for (size_t inner = row; inner < last && !status; inner++)
                status = launch(context, form, inner, step, &enqueued);
        row = last;
    }
    return status;
}

/* Copy states that no kernel writes where they go. */
static cl_int copy_states(gpucomp_context *context, const struct form *form)
{
    const gpucomp_model *model = context->model;
    const struct cl_model *device = model->device;
    const struct cl_own *own = context->device;
    cl_int status = 0;
    for (size_t s = 0; s < model->state_count && !status; s++) {
        int64_t output = model->state_outputs[s];
        if (output < 0)
            continue;
        int64_t position = gcrt_output_buffer(form, (size_t)output);
        const struct buffer *buffer = ITEMS(form->program->plan.buffers, struct buffer) + position;
        cl_mem from = gcrt_cl_memory_of(context, form, position), to = context->kept[s].spare;
        uint64_t bytes = gcrt_shape_bytes(form, buffer);
        if (from != to && bytes)
            status = device->cl.clEnqueueCopyBuffer(own->queue, from, to, 0, 0, (size_t)bytes, 0, NULL, NULL);
    }
    return status;
}

/* The results, after everything that was enqueued. */
static cl_int download(gpucomp_context *context, const struct form *form, const gpucomp_tensor *outputs)
{
    const gpucomp_model *model = context->model;
    const struct cl_model *device = model->device;
    struct cl_own *own = context->device;
    const struct cl *cl = &device->cl;
    cl_int status = 0;
    memset(own->views, 0, model->output_count * sizeof *own->views);
    for (size_t k = 0; k < model->output_count && !status; k++) {
        int64_t position = gcrt_output_buffer(form, model->outputs[k]);
        const struct buffer *buffer = ITEMS(form->program->plan.buffers, struct buffer) + position;
        cl_mem memory = gcrt_cl_memory_of(context, form, position);
        size_t bytes = (size_t)gcrt_shape_bytes(form, buffer);
        if (!bytes)
            continue;
        if (device->device.unified && (buffer->kind == INPUT || buffer->kind == OUTPUT))
            own->views[k] = cl->clEnqueueMapBuffer(own->queue, memory, 0, CL_MAP_READ, 0, bytes, 0, NULL, NULL, &status);
        else
            status = cl->clEnqueueReadBuffer(own->queue, memory, 0, 0, bytes, gcrt_tensor_at(outputs, k)->data, 0, NULL, NULL);
    }
    cl_int finished = cl->clFinish(own->queue);
    status = status ? status : finished;
    for (size_t k = 0; k < model->output_count; k++) {
        int64_t position = gcrt_output_buffer(form, model->outputs[k]);
        if (!own->views[k])
            continue;
        if (!status)
            memcpy(gcrt_tensor_at(outputs, k)->data, own->views[k],
                   (size_t)gcrt_shape_bytes(form, ITEMS(form->program->plan.buffers, struct buffer) + position));
        cl_int unmapped = cl->clEnqueueUnmapMemObject(own->queue, gcrt_cl_memory_of(context, form, position), own->views[k], 0,
                                                      NULL, NULL);
        status = status ? status : unmapped;
    }
    return status;
}

int gcrt_cl_run(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs,
                gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    struct cl_own *own = context->device;
    int code = mend(context, error);
    if (code)
        return code;
    own->broken = true;
    cl_int status = bind(context, form);
    if (!status)
        status = upload(context, form, inputs);
    if (!status)
        status = launch_all(context, form);
    if (!status)
        status = copy_states(context, form);
    if (!status)
        status = download(context, form, outputs);
    if (status) {
        device->cl.clFinish(own->queue); /* the caller's memory is no longer in use */
        return gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, "the run", status);
    }
    own->broken = false;
    return 0;
}
