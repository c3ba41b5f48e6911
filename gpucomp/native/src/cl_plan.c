/* Prepares runs on an OpenCL device: memory, kernels and their arguments. */
#include "cl_run.h"

static const struct device_weights *weights(const gpucomp_model *model)
{
    return &((const struct cl_model *)model->device)->weights;
}

static int allocate(const gpucomp_model *model, uint64_t bytes, bool tensor, void **memory, gpucomp_error *error)
{
    const struct cl_model *own = model->device;
    cl_int status = 0;
    cl_flags flags = tensor && own->device.unified ? CL_MEM_ALLOC_HOST_PTR : 0;
    *memory = own->cl.clCreateBuffer(own->context, CL_MEM_READ_WRITE | flags, bytes ? (size_t)bytes : 1, NULL, &status);
    if (*memory)
        return 0;
    return gcrt_fail(error, GCRT_NO_DEVICE_MEMORY,
                     "%s: cannot allocate a buffer of %llu bytes (OpenCL's error %d; its largest is %llu bytes): smaller sizes "
                     "in `largest`, or another device, expected", own->device.name, (unsigned long long)bytes, (int)status,
                     (unsigned long long)own->device.most_bytes);
}

static void release(const gpucomp_model *model, void *memory)
{
    ((const struct cl_model *)model->device)->cl.clReleaseMemObject(memory);
}

static int part(const gpucomp_context *context, uint64_t start, uint64_t bytes, void **made, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    struct cl_region region = {(size_t)start, (size_t)bytes};
    cl_int status = 0;
    if (device->device.alignment && region.origin % device->device.alignment)
        return gcrt_fail(error, GCRT_ONLY_PYTHON,
                         "%s: parts of buffers begin at multiples of %llu bytes there, and this model's do not: only Python "
                         "runs it; compile it on this device", device->device.name,
                         (unsigned long long)device->device.alignment);
    *made = device->cl.clCreateSubBuffer(((const struct device_context *)context->device)->arena, CL_MEM_READ_WRITE,
                                         CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    return *made ? 0 : gcrt_cl_fail(error, &device->device, GCRT_NOT_OPENED, "clCreateSubBuffer", status);
}

static int write(gpucomp_context *context, void *memory, const void *data, uint64_t bytes, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    cl_int status = device->cl.clEnqueueWriteBuffer(gcrt_cl_own(context)->queue, memory, 1, 0, (size_t)bytes, data, 0, NULL,
                                                    NULL);
    return status ? gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, "the copy of numbers", status) : 0;
}

/* Parts of buffers are objects, which a launch cannot make anew in every step. */
static bool copies(const struct program *program, size_t row, size_t argument, int64_t advance)
{
    (void)program, (void)row, (void)argument, (void)advance;
    return true;
}

static int make_form(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    size_t rows = form->program->rows;
    struct cl_call *calls = gcrt_new(&context->store, rows, sizeof *calls);
    if (!calls)
        return gcrt_no_memory(error);
    for (size_t row = 0; row < rows; row++)
        calls[row].which = -1;
    ((struct device_form *)form->calls)->calls = calls;
    return 0;
}

static void end_form(gpucomp_context *context, struct form *form)
{
    const struct cl_model *device = context->model->device;
    const struct cl_call *calls = ((const struct device_form *)form->calls)->calls;
    for (size_t row = 0; row < form->program->rows; row++)
        if (calls[row].kernel)
            device->cl.clReleaseKernel(calls[row].kernel);
}

/* The kernel of a launch at these sizes, with the numbers that the run gives it. */
static int prepare(gpucomp_context *context, struct form *form, size_t row, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    const struct program *program = form->program;
    const struct launch *launch = ITEMS(program->plan.launches, struct launch) + row;
    struct cl_call *call = (struct cl_call *)((struct device_form *)form->calls)->calls + row;
    int64_t which = form->chosen[launch->kernel];
    const struct kernel *kernel = ITEMS(program->plan.kernels, struct kernel) + which;
    if (call->which != which || !call->kernel) {
        if (call->kernel)
            device->cl.clReleaseKernel(call->kernel);
        gpucomp_error own = GPUCOMP_ERROR_INIT;
        call->which = which;
        call->kernel = gcrt_cl_kernel(device, device->programs[gcrt_program_number(context, program)][which], kernel, &own);
        if (!call->kernel) {
            gcrt_tell(error, &own);
            return own.code;
        }
    }
    for (size_t n = 0; n < kernel->numbers.count; n++) {
        cl_int status = device->cl.clSetKernelArg(call->kernel, (cl_uint)(launch->args.count + n), sizeof(int64_t),
                                                  form->given + program->number_starts[which] + n);
        if (status)
            return gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, kernel->name.at, status);
    }
    return 0;
}

static int wait(gpucomp_context *context, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    cl_int status = device->cl.clFinish(gcrt_cl_own(context)->queue);
    return status ? gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, "the run", status) : 0;
}

/* The queue of a context: its own, or the caller's, which must be of the model's and in order. */
static int make_queue(gpucomp_context *context, void *stream, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    struct cl_own *own = gcrt_cl_own(context);
    cl_context of = NULL;
    cl_flags properties = 0;
    cl_int status = 0;
    if (!stream) {
        own->queue = device->cl.clCreateCommandQueue(device->context, device->device.id, 0, &status);
        return own->queue ? 0 : gcrt_cl_fail(error, &device->device, GCRT_NOT_OPENED, "clCreateCommandQueue", status);
    }
    if (device->cl.clGetCommandQueueInfo(stream, CL_QUEUE_CONTEXT, sizeof(cl_context), &of, NULL) || of != device->context ||
        device->cl.clGetCommandQueueInfo(stream, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL) ||
        (properties & CL_QUEUE_OUT_OF_ORDER))
        return gcrt_fail(error, GCRT_WRONG_CALL,
                         "options.stream: an in-order queue of the model's OpenCL context expected; gpucomp_describe tells that");
    own->queue = stream;
    own->foreign = true;
    return 0;
}

static const struct device_calls CALLS = {
    .weights = weights, .allocate = allocate, .release = release, .part = part, .end_part = release, .zero = gcrt_cl_zero,
    .write = write, .copy = gcrt_cl_copy_between, .copies = copies, .make = make_form, .end = end_form, .prepare = prepare,
    .bind = gcrt_cl_bind, .upload = gcrt_cl_upload, .launch = gcrt_cl_launch, .download = gcrt_cl_download, .wait = wait,
};

int gcrt_cl_make(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    int code = gcrt_device_make(context, &CALLS, sizeof(struct cl_own), options, error);
    if (code)
        return code;
    struct cl_own *own = gcrt_cl_own(context);
    if (!(own->views = gcrt_new(&context->store, model->output_count, sizeof *own->views)))
        return gcrt_no_memory(error);
    code = make_queue(context, options->stream, error);
    return code ? code : gcrt_device_reserve(context, error);
}

void gcrt_cl_end(gpucomp_context *context)
{
    const struct cl_model *device = context->model->device;
    struct cl_own *own = context->device ? gcrt_cl_own(context) : NULL;
    if (own && own->queue)
        device->cl.clFinish(own->queue);
    gcrt_device_end(context);
    if (own && own->queue && !own->foreign)
        device->cl.clReleaseCommandQueue(own->queue);
}

int gcrt_cl_weight(const gpucomp_model *model, struct device_weight *weight, gpucomp_error *error)
{
    return allocate(model, weight->bytes, false, &weight->memory, error);
}
