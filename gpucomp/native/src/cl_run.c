/* Runs on an OpenCL device: one in-order queue, no synchronisation before the results. As gpucomp/runtime/opencl.py. */
#include "cl_run.h"

#include <string.h>

#include "states.h"

#define FLUSHED 16 /* launches after which the queue is flushed: otherwise Mali and Adreno do not start before the last one */

static int failed(const gpucomp_context *context, cl_int status, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    return status ? gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, "the run", status) : 0;
}

int gcrt_cl_zero(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error)
{
    static const uint8_t zero = 0;
    const struct cl_model *device = context->model->device;
    if (!bytes)
        return 0;
    cl_int status = device->cl.clEnqueueFillBuffer(gcrt_cl_own(context)->queue, memory, &zero, 1, 0, (size_t)bytes, 0, NULL,
                                                   NULL);
    return status ? gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, "clEnqueueFillBuffer", status) : 0;
}

int gcrt_cl_copy(gpucomp_context *context, void *memory, const struct strided *rows, void *packed, bool out, gpucomp_error *error)
{
    static const size_t origin[3] = {0, 0, 0};
    const struct cl_model *device = context->model->device;
    const struct cl_own *own = gcrt_cl_own(context);
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

/* Let kernels have this run's memory, as far as they do not have it yet. A handle of the caller's may be that of another buffer
 * than before. */
int gcrt_cl_bind(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    const struct program *program = form->program;
    struct device_form *made = form->calls;
    cl_int status = 0;
    for (size_t a = 0; a < program->argument_count && !status; a++) {
        struct device_argument *argument = made->arguments + a;
        size_t row = program->arguments[a].row;
        if (program->arguments[a].buffer < 0)
            continue;
        cl_mem memory = argument->advance ? argument->slice : gcrt_device_memory(context, form, program->arguments[a].buffer);
        if (memory != argument->bound || gcrt_is_callers(context, form, program->arguments[a].buffer))
            status = device->cl.clSetKernelArg(((const struct cl_call *)made->calls)[row].kernel,
                                               (cl_uint)(a - program->begins[row]), sizeof(cl_mem), &memory);
        argument->bound = status ? NULL : memory;
    }
    gcrt_cl_own(context)->enqueued = 0;
    return failed(context, status, error);
}

int gcrt_cl_upload(gpucomp_context *context, const struct form *form, const gpucomp_tensor *inputs, bool complete,
                   gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct cl_model *device = model->device;
    const struct device_context *whole = context->device;
    const struct cl_own *own = whole->own;
    const struct cl *cl = &device->cl;
    cl_int status = 0;
    for (size_t k = 0; k < model->input_count && !status; k++) {
        const gpucomp_tensor *tensor = gcrt_tensor_at(inputs, k);
        size_t number = model->inputs[k];
        size_t bytes = (size_t)form->nbytes[ITEMS(form->program->plan.inputs, int64_t)[number]];
        if (!bytes || gcrt_on_device(tensor))
            continue;
        if (!device->device.unified || !complete || own->foreign) {
            status = cl->clEnqueueWriteBuffer(own->queue, whole->tensors[number], 0, 0, bytes, tensor->data, 0, NULL, NULL);
            continue;
        }
        /* the context's own queue is empty when a complete run begins, so that this does not wait */
        void *view = cl->clEnqueueMapBuffer(own->queue, whole->tensors[number], 1, CL_MAP_WRITE_INVALIDATE_REGION, 0, bytes, 0,
                                            NULL, NULL, &status);
        if (view && !status) {
            memcpy(view, tensor->data, bytes);
            status = cl->clEnqueueUnmapMemObject(own->queue, whole->tensors[number], view, 0, NULL, NULL);
        }
    }
    return failed(context, status, error);
}

int gcrt_cl_launch(gpucomp_context *context, const struct form *form, size_t row, int64_t step, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    struct cl_own *own = gcrt_cl_own(context);
    const struct cl_call *call = (const struct cl_call *)((const struct device_form *)form->calls)->calls + row;
    const struct kernel *kernel = ITEMS(form->program->plan.kernels, struct kernel) + call->which;
    size_t local[3], global[3], all = 1;
    (void)step;
    for (size_t axis = 0; axis < 3; axis++) {
        local[axis] = (size_t)ITEMS(kernel->items, int64_t)[axis];
        global[axis] = local[axis] * (size_t)gcrt_value(form, ITEMS(kernel->groups, struct number)[axis]);
        all = global[axis] ? all : 0;
    }
    cl_int status = 0;
    if (all)
        status = device->cl.clEnqueueNDRangeKernel(own->queue, call->kernel, 3, NULL, global, local, 0, NULL, NULL);
    if (!status && ++own->enqueued % FLUSHED == 0)
        status = device->cl.clFlush(own->queue);
    return failed(context, status, error);
}

int gcrt_cl_copy_between(gpucomp_context *context, void *from, uint64_t from_at, void *to, uint64_t to_at, uint64_t bytes,
                         gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    return failed(context, device->cl.clEnqueueCopyBuffer(gcrt_cl_own(context)->queue, from, to, (size_t)from_at, (size_t)to_at,
                                                          (size_t)bytes, 0, NULL, NULL), error);
}

/* The results, after everything that was enqueued. */
int gcrt_cl_download(gpucomp_context *context, const struct form *form, const gpucomp_tensor *outputs, bool complete,
                     gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct cl_model *device = model->device;
    struct cl_own *own = gcrt_cl_own(context);
    const struct cl *cl = &device->cl;
    cl_int status = 0;
    memset(own->views, 0, model->output_count * sizeof *own->views);
    for (size_t k = 0; k < model->output_count && !status; k++) {
        int64_t position = gcrt_output_buffer(form, model->outputs[k]);
        const struct buffer *buffer = ITEMS(form->program->plan.buffers, struct buffer) + position;
        cl_mem memory = gcrt_device_memory(context, form, position);
        size_t bytes = (size_t)gcrt_shape_bytes(form, buffer);
        if (!bytes || gcrt_on_device(gcrt_tensor_at(outputs, k)))
            continue;
        if (complete && device->device.unified && (buffer->kind == INPUT || buffer->kind == OUTPUT))
            own->views[k] = cl->clEnqueueMapBuffer(own->queue, memory, 0, CL_MAP_READ, 0, bytes, 0, NULL, NULL, &status);
        else
            status = cl->clEnqueueReadBuffer(own->queue, memory, 0, 0, bytes, gcrt_tensor_at(outputs, k)->data, 0, NULL, NULL);
    }
    cl_int finished = complete ? cl->clFinish(own->queue) : cl->clFlush(own->queue);
    status = status ? status : finished;
    for (size_t k = 0; k < model->output_count; k++) {
        int64_t position = gcrt_output_buffer(form, model->outputs[k]);
        if (!own->views[k])
            continue;
        if (!status)
            memcpy(gcrt_tensor_at(outputs, k)->data, own->views[k],
                   (size_t)gcrt_shape_bytes(form, ITEMS(form->program->plan.buffers, struct buffer) + position));
        cl_int unmapped = cl->clEnqueueUnmapMemObject(own->queue, gcrt_device_memory(context, form, position), own->views[k], 0,
                                                      NULL, NULL);
        status = status ? status : unmapped;
    }
    return failed(context, status, error);
}
