/* Prepares runs on an OpenCL device: memory, kernels and their arguments. */
#include <string.h>

#include "cl_run.h"

static bool is_temporary(const struct buffer *buffer) { return buffer->kind == TEMP; }

static int make_form(gpucomp_context *context, struct form *form)
{
    const struct program *program = form->program;
    struct cl_form *made = form->calls = gcrt_new(&context->store, 1, sizeof *made);
    size_t buffers = program->plan.buffers.count;
    if (!made)
        return 1;
    made->calls = gcrt_new(&context->store, program->rows, sizeof *made->calls);
    made->arguments = gcrt_new(&context->store, program->argument_count, sizeof *made->arguments);
    made->memory = gcrt_new(&context->store, buffers, sizeof *made->memory);
    made->rooms = gcrt_new(&context->store, buffers, sizeof *made->rooms);
    if (!made->calls || !made->arguments || !made->memory || !made->rooms)
        return 1;
    for (size_t row = 0; row < program->rows; row++)
        made->calls[row].which = -1;
    return 0;
}

static int make_states(gpucomp_context *context, struct cl_own *own, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    size_t behind = model->programs->plan.inputs.count;
    int code = 0;
    for (size_t s = 0; s < model->state_count && code == 0; s++) {
        struct kept *kept = context->kept + s;
        cl_mem now = NULL, spare = NULL;
        int64_t output = model->state_outputs[s];
        own->kept[model->states[s]] = true;
        if (output >= 0)
            own->kept[behind + (size_t)output] = true;
        code = gcrt_cl_buffer(model->device, 0, kept->room, &now, error);
        kept->now = kept->spare = now;
        if (code == 0 && output >= 0) {
            code = gcrt_cl_buffer(model->device, 0, kept->room, &spare, error);
            kept->spare = spare;
        }
    }
    return code;
}

int gcrt_cl_make(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct cl_model *device = model->device;
    size_t tensors = model->programs->plan.inputs.count + model->programs->plan.outputs.count;
    cl_int status = 0;
    if (options->arena)
        return gcrt_fail(error, GCRT_WRONG_CALL, "options.arena: none expected, as this model's arena is in the device's memory");
    if (options->arena_bytes && model->open.dim_count)
        context->arena_bytes = options->arena_bytes;
    struct cl_own *own = context->device = gcrt_new(&context->store, 1, sizeof *own);
    if (!own)
        return gcrt_no_memory(error);
    own->tensors = gcrt_new(&context->store, tensors, sizeof *own->tensors);
    own->now = gcrt_new(&context->store, tensors, sizeof *own->now);
    own->rooms = gcrt_new(&context->store, tensors, sizeof *own->rooms);
    own->kept = gcrt_new(&context->store, tensors, sizeof *own->kept);
    own->views = gcrt_new(&context->store, tensors, sizeof *own->views);
    if (!own->tensors || !own->now || !own->rooms || !own->kept || !own->views)
        return gcrt_no_memory(error);
    for (size_t p = 0; p < model->program_count; p++)
        if (make_form(context, context->forms + p))
            return gcrt_no_memory(error);
    own->queue = device->cl.clCreateCommandQueue(device->context, device->device.id, 0, &status);
    if (!own->queue)
        return gcrt_cl_fail(error, &device->device, GCRT_NOT_OPENED, "clCreateCommandQueue", status);
    int code = gcrt_cl_buffer(device, 0, context->arena_bytes, &own->arena, error);
    return code ? code : make_states(context, own, error);
}

static void release(const struct cl_model *device, cl_mem *memory)
{
    if (*memory)
        device->cl.clReleaseMemObject(*memory);
    *memory = NULL;
}

static void end_form(const struct cl_model *device, const struct form *form)
{
    struct cl_form *own = form->calls;
    const struct program *program = form->program;
    for (size_t row = 0; own && own->calls && row < program->rows; row++)
        if (own->calls[row].kernel)
            device->cl.clReleaseKernel(own->calls[row].kernel);
    for (size_t a = 0; own && own->arguments && a < program->argument_count; a++)
        release(device, &own->arguments[a].slice);
    for (size_t k = 0; own && own->memory && k < program->plan.buffers.count; k++)
        release(device, own->memory + k);
}

void gcrt_cl_end(gpucomp_context *context)
{
    const gpucomp_model *model = context->model;
    const struct cl_model *device = model->device;
    struct cl_own *own = context->device;
    if (!own)
        return;
    if (own->queue)
        device->cl.clFinish(own->queue);
    for (size_t p = 0; p < model->program_count; p++)
        end_form(device, context->forms + p);
    size_t tensors = model->programs->plan.inputs.count + model->programs->plan.outputs.count;
    for (size_t k = 0; own->tensors && k < tensors; k++)
        release(device, own->tensors + k);
    for (size_t s = 0; s < model->state_count; s++) {
        cl_mem now = context->kept[s].now, spare = context->kept[s].spare;
        if (spare != now)
            release(device, &spare);
        release(device, &now);
    }
    release(device, &own->arena);
    if (own->queue)
        device->cl.clReleaseCommandQueue(own->queue);
}

/* Memory of at least `bytes`: what there is, or else new. */
static int grow(const struct cl_model *device, cl_flags flags, uint64_t bytes, cl_mem *memory, uint64_t *room, bool *grown,
                gpucomp_error *error)
{
    *grown = !*memory || *room < bytes;
    if (!*grown)
        return 0;
    release(device, memory);
    *room = bytes;
    return gcrt_cl_buffer(device, flags, bytes, memory, error);
}

static int place_temporary(gpucomp_context *context, struct form *form, size_t k, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    const struct cl_own *own = context->device;
    struct cl_form *calls = form->calls;
    struct cl_region region = {(size_t)form->offsets[k], (size_t)form->nbytes[k]};
    cl_int status = 0;
    release(device, calls->memory + k);
    if (!region.size || form->offsets[k] < 0)
        return 0;
    if (device->device.alignment && region.origin % device->device.alignment)
        return gcrt_fail(error, GCRT_ONLY_PYTHON,
                         "%s: parts of buffers begin at multiples of %llu bytes there, and this model's do not: only Python "
                         "runs it; compile it on this device", device->device.name,
                         (unsigned long long)device->device.alignment);
    calls->memory[k] = device->cl.clCreateSubBuffer(own->arena, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region,
                                                    &status);
    return calls->memory[k] ? 0 : gcrt_cl_fail(error, &device->device, GCRT_NOT_OPENED, "clCreateSubBuffer", status);
}

/* Counters begin with zeros, which every run leaves behind; numbers are this form's. */
static int place_buffer(gpucomp_context *context, struct form *form, size_t k, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    const struct cl_own *own = context->device;
    struct cl_form *calls = form->calls;
    const struct buffer *buffer = ITEMS(form->program->plan.buffers, struct buffer) + k;
    uint64_t bytes = (uint64_t)form->nbytes[k];
    bool grown = false;
    if (is_temporary(buffer))
        return place_temporary(context, form, k, error);
    if (buffer->kind != COUNTER && buffer->kind != NUMBERS)
        return 0;
    int code = grow(device, 0, bytes, calls->memory + k, calls->rooms + k, &grown, error);
    if (code || !bytes)
        return code;
    if (buffer->kind == COUNTER)
        return grown ? gcrt_cl_zero(context, calls->memory[k], bytes, error) : 0;
    cl_int status = device->cl.clEnqueueWriteBuffer(own->queue, calls->memory[k], 1, 0, (size_t)bytes, form->memory[k], 0, NULL,
                                                    NULL);
    return status ? gcrt_cl_fail(error, &device->device, GCRT_FAILED_RUN, "the copy of numbers", status) : 0;
}

/* Memory of inputs and outputs, which programs of all sizes share. */
static int place_tensors(gpucomp_context *context, const struct form *form, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    struct cl_own *own = context->device;
    const struct plan *plan = &form->program->plan;
    cl_flags flags = device->device.unified ? CL_MEM_ALLOC_HOST_PTR : 0;
    bool grown;
    int code = 0;
    for (size_t k = 0; k < plan->inputs.count + plan->outputs.count && code == 0; k++) {
        bool input = k < plan->inputs.count;
        int64_t position = input ? ITEMS(plan->inputs, int64_t)[k] : ITEMS(plan->outputs, int64_t)[k - plan->inputs.count];
        if (!own->kept[k] && (input || ITEMS(plan->buffers, struct buffer)[position].kind == OUTPUT))
            code = grow(device, flags, (uint64_t)form->nbytes[position], own->tensors + k, own->rooms + k, &grown, error);
    }
    return code;
}

/* A part of a buffer that moves with the steps of a loop. Where several launches write parts of it, each also keeps what the
 * others wrote. */
static int place_slice(const gpucomp_context *context, const struct form *form, const struct repeat *repeat, size_t row, size_t a,
                       gpucomp_error *error)
{
    const struct program *program = form->program;
    const struct launch *launches = ITEMS(program->plan.launches, struct launch);
    struct cl_argument *argument = ((struct cl_form *)form->calls)->arguments + a;
    size_t index = a - program->begins[row];
    int64_t by = gcrt_advance_of(form, repeat, row, index), count = gcrt_value(form, repeat->count);
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
    argument->start = by < 0 && count > 1 ? -by * (count - 1) : 0;
    argument->written = index >= (size_t)launches[row].inputs;
    argument->read = !argument->written || writers > 1;
    return grow(context->model->device, 0, (uint64_t)(by < 0 ? -by : by), &argument->slice, &argument->room, &grown, error);
}

/* The kernel of a launch at these sizes, with the numbers that the run gives it. */
static int place_call(const gpucomp_context *context, struct form *form, size_t row, gpucomp_error *error)
{
    const struct cl_model *device = context->model->device;
    const struct program *program = form->program;
    const struct launch *launch = ITEMS(program->plan.launches, struct launch) + row;
    struct cl_call *call = ((struct cl_form *)form->calls)->calls + row;
    int64_t which = form->chosen[launch->kernel];
    const struct kernel *kernel = ITEMS(program->plan.kernels, struct kernel) + which;
    if (call->which != which || !call->kernel) {
        if (call->kernel)
            device->cl.clReleaseKernel(call->kernel);
        size_t p = (size_t)(program - context->model->programs);
        gpucomp_error own = GPUCOMP_ERROR_INIT;
        call->which = which;
        call->kernel = gcrt_cl_kernel(device, device->programs[p][which], kernel, &own);
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

int gcrt_cl_plan(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    const struct program *program = form->program;
    struct cl_form *calls = form->calls;
    int code = place_tensors(context, form, error); /* another form may have let them grow, and others use them */
    for (size_t a = 0; a < program->argument_count; a++)
        calls->arguments[a].bound = NULL;
    if (code || form->planned)
        return code;
    code = gcrt_fill_numbers(form, error);
    for (size_t k = 0; k < program->plan.buffers.count && code == 0; k++)
        code = place_buffer(context, form, k, error);
    for (size_t a = 0; a < program->argument_count; a++)
        calls->arguments[a].advance = 0;
    for (size_t row = 0; row < program->rows && code == 0; row++) {
        const struct repeat *repeat = gcrt_repeat_of(program, row);
        code = place_call(context, form, row, error);
        for (size_t a = program->begins[row]; repeat && a < program->begins[row + 1] && code == 0; a++)
            code = place_slice(context, form, repeat, row, a, error);
    }
    form->planned = code == 0;
    return code;
}
