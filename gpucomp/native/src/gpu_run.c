/* Contexts and runs on a GPU: plain launches on one stream. As gpucomp/runtime/gpu.py, without graphs. */
#include "gpu_model.h"

#include <string.h>

#include "states.h"

#define PROGRAMMATIC 6      /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */

static struct gpu_own *own_of(const gpucomp_context *context)
{
    return ((const struct device_context *)context->device)->own;
}

static const struct gpu_model *model_of(const gpucomp_context *context) { return context->model->device; }

static int failed(const gpucomp_context *context, const char *what, int status, gpucomp_error *error)
{
    return status ? gcrt_gpu_fail(&model_of(context)->gpu, error, GCRT_FAILED_RUN, what, status) : 0;
}

static const struct device_weights *weights(const gpucomp_model *model)
{
    return &((const struct gpu_model *)model->device)->weights;
}

static void release(const gpucomp_model *model, void *memory)
{
    ((const struct gpu_model *)model->device)->gpu.release(memory);
}

static int part(const gpucomp_context *context, uint64_t start, uint64_t bytes, void **made, gpucomp_error *error)
{
    (void)bytes, (void)error;
    *made = (uint8_t *)((const struct device_context *)context->device)->arena + start;
    return 0;
}

static void end_part(const gpucomp_model *model, void *made) { (void)model, (void)made; }

static int zero(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error)
{
    int status = bytes ? model_of(context)->gpu.fill(memory, 0, (size_t)bytes, own_of(context)->stream) : 0;
    return failed(context, "memory cannot be filled", status, error);
}

static int write(gpucomp_context *context, void *memory, const void *data, uint64_t bytes, gpucomp_error *error)
{
    const struct gpu *gpu = &model_of(context)->gpu;
    int status = gpu->upload(memory, data, (size_t)bytes, own_of(context)->stream);
    int finished = gpu->wait(own_of(context)->stream);
    return failed(context, "a copy to the GPU", status ? status : finished, error);
}

static int copy(gpucomp_context *context, void *from, uint64_t from_at, void *to, uint64_t to_at, uint64_t bytes,
                gpucomp_error *error)
{
    int status = model_of(context)->gpu.copy((uint8_t *)to + to_at, (uint8_t *)from + from_at, (size_t)bytes,
                                             own_of(context)->stream);
    return failed(context, "a copy on the GPU", status, error);
}

/* A tensor map is encoded for one address, and kernels need their alignment. */
static bool copies(const struct program *program, size_t row, size_t argument, int64_t advance)
{
    const struct plan *plan = &program->plan;
    bool copied = advance % GCRT_LOADED != 0;
    (void)row;
    for (size_t k = 0; k < plan->kernels.count && !copied; k++) { /* of all: variants take the place of the launch's own */
        struct list maps = ITEMS(plan->kernels, struct kernel)[k].tensor_maps;
        for (size_t m = 0; m < maps.count; m++)
            copied = copied || ITEMS(maps, struct tensor_map)[m].parameter == (int64_t)argument;
    }
    return copied;
}

/* The most tensor maps, and the most parameters of any kind, that a kernel of a program takes. */
static void most_of(const struct program *program, size_t *maps, size_t *parameters)
{
    size_t arguments = 0, others = 0;
    *maps = 0;
    for (size_t k = 0; k < program->plan.kernels.count; k++) {
        const struct kernel *kernel = ITEMS(program->plan.kernels, struct kernel) + k;
        size_t count = kernel->tensor_maps.count + kernel->numbers.count;
        *maps = kernel->tensor_maps.count > *maps ? kernel->tensor_maps.count : *maps;
        others = count > others ? count : others;
    }
    for (size_t row = 0; row < program->rows; row++) {
        size_t count = ITEMS(program->plan.launches, struct launch)[row].args.count;
        arguments = count > arguments ? count : arguments;
    }
    *parameters = arguments + others;
}

static int make_form(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    size_t rows = form->program->rows, maps, parameters;
    most_of(form->program, &maps, &parameters);
    struct gpu_call *calls = gcrt_new(&context->store, rows, sizeof *calls);
    uint8_t *memory = gcrt_new(&context->store, rows * maps * GPU_MAP_BYTES + GPU_MAP_ALIGNMENT, 1);
    if (!calls || !memory)
        return gcrt_no_memory(error);
    memory += gcrt_up((uintptr_t)memory, GPU_MAP_ALIGNMENT) - (uintptr_t)memory;
    for (size_t row = 0; row < rows; row++)
        calls[row] = (struct gpu_call){-1, NULL, memory + row * maps * GPU_MAP_BYTES};
    ((struct device_form *)form->calls)->calls = calls;
    return 0;
}

static void end_form(gpucomp_context *context, struct form *form) { (void)context, (void)form; }

static int prepare(gpucomp_context *context, struct form *form, size_t row, gpucomp_error *error)
{
    const struct program *program = form->program;
    const struct launch *launch = ITEMS(program->plan.launches, struct launch) + row;
    struct gpu_call *call = (struct gpu_call *)((struct device_form *)form->calls)->calls + row;
    call->which = form->chosen[launch->kernel];
    call->function = model_of(context)->functions[gcrt_program_number(context, program)][call->which];
    const struct kernel *kernel = ITEMS(program->plan.kernels, struct kernel) + call->which;
    for (size_t m = 0; m < kernel->tensor_maps.count; m++)
        if (ITEMS(kernel->tensor_maps, struct tensor_map)[m].parameter >= (int64_t)launch->args.count)
            return gcrt_fail(error, GCRT_WRONG_MANIFEST, "kernel %s: a tensor map of a parameter that it does not have",
                             kernel->name.at);
    return 0;
}

/* Encode the tensor maps of a row for an argument that lies elsewhere now. */
static int encode(gpucomp_context *context, const struct form *form, size_t row, size_t argument, gpucomp_error *error)
{
    const struct device_form *made = form->calls;
    const struct gpu_call *call = (const struct gpu_call *)made->calls + row;
    const struct kernel *kernel = ITEMS(form->program->plan.kernels, struct kernel) + call->which;
    size_t a = form->program->begins[row] + argument;
    int64_t by = made->arguments[a].advance;
    uint64_t bytes = by ? (uint64_t)(by < 0 ? -by : by) : (uint64_t)form->nbytes[form->program->arguments[a].buffer];
    int code = 0;
    for (size_t m = 0; m < kernel->tensor_maps.count && code == 0; m++) {
        const struct tensor_map *map = ITEMS(kernel->tensor_maps, struct tensor_map) + m;
        if (map->parameter == (int64_t)argument)
            code = gcrt_gpu_encode(model_of(context), form, kernel, map, made->arguments[a].bound, bytes,
                                   call->maps + m * GPU_MAP_BYTES, error);
    }
    return code;
}

static int bind(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    const struct program *program = form->program;
    struct device_form *made = form->calls;
    int code = 0;
    for (size_t a = 0; a < program->argument_count && code == 0; a++) {
        struct device_argument *argument = made->arguments + a;
        size_t row = program->arguments[a].row;
        if (program->arguments[a].buffer < 0)
            continue;
        void *memory = argument->advance && argument->copied ? argument->slice
                                                             : gcrt_device_memory(context, form, program->arguments[a].buffer);
        if (memory == argument->bound)
            continue;
        argument->bound = memory;
        code = encode(context, form, row, a - program->begins[row], error);
        argument->bound = code ? NULL : memory;
    }
    return code;
}

/* The inputs are in the caller's memory, which stays as it is until the run ends. */
static int upload(gpucomp_context *context, const struct form *form, const gpucomp_tensor *inputs, bool complete,
                  gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct device_context *own = context->device;
    int status = 0;
    (void)complete;
    for (size_t k = 0; k < model->input_count && !status; k++) {
        size_t number = model->inputs[k];
        size_t bytes = (size_t)form->nbytes[ITEMS(form->program->plan.inputs, int64_t)[number]];
        if (bytes && !gcrt_on_device(gcrt_tensor_at(inputs, k)))
            status = model_of(context)->gpu.upload(own->tensors[number], gcrt_tensor_at(inputs, k)->data, bytes,
                                                   own_of(context)->stream);
    }
    return failed(context, "the copy of an input", status, error);
}

static int start(const gpucomp_context *context, const struct kernel *kernel, void *function, const unsigned *grid, bool overlap)
{
    static const struct gpu_attribute early = {PROGRAMMATIC, {.programmatic = 1}};
    const struct gpu *gpu = &model_of(context)->gpu;
    const struct gpu_own *own = own_of(context);
    const int64_t *items = ITEMS(kernel->items, int64_t);
    if (gpu->hip)
        return gpu->hipModuleLaunchKernel(function, grid[0], grid[1], grid[2], (unsigned)items[0], (unsigned)items[1],
                                          (unsigned)items[2], (unsigned)kernel->shared, own->stream, own->parameters, NULL);
    const struct gpu_launch how = {{grid[0], grid[1], grid[2]},
                                   {(unsigned)items[0], (unsigned)items[1], (unsigned)items[2]},
                                   (unsigned)kernel->shared,
                                   own->stream,
                                   &early,
                                   kernel->programmatic && overlap};
    return gpu->cuLaunchKernelEx(&how, function, own->parameters, NULL);
}

static int launch(gpucomp_context *context, const struct form *form, size_t row, int64_t step, gpucomp_error *error)
{
    const struct program *program = form->program;
    const struct device_form *made = form->calls;
    const struct gpu_call *call = (const struct gpu_call *)made->calls + row;
    const struct kernel *kernel = ITEMS(program->plan.kernels, struct kernel) + call->which;
    struct gpu_own *own = own_of(context);
    size_t begin = program->begins[row], count = ITEMS(program->plan.launches, struct launch)[row].args.count, next = count;
    unsigned grid[3], all = 1;
    bool overlap = true; /* not with copies between the launches, which nothing but their order holds back */
    for (size_t axis = 0; axis < 3; axis++) {
        grid[axis] = (unsigned)gcrt_value(form, ITEMS(kernel->groups, struct number)[axis]);
        all = grid[axis] ? all : 0;
    }
    if (!all)
        return 0;
    for (size_t a = 0; a < count; a++) {
        const struct device_argument *argument = made->arguments + begin + a;
        int64_t moved = argument->advance && !argument->copied ? argument->start + step * argument->advance : 0;
        own->addresses[a] = (uint64_t)(uintptr_t)argument->bound + (uint64_t)moved;
        own->parameters[a] = own->addresses + a;
        overlap = overlap && !(argument->advance && argument->copied);
    }
    for (size_t m = 0; m < kernel->tensor_maps.count; m++)
        own->parameters[next++] = call->maps + m * GPU_MAP_BYTES;
    for (size_t n = 0; n < kernel->numbers.count; n++)
        own->parameters[next++] = form->given + program->number_starts[call->which] + n;
    return failed(context, kernel->name.at, start(context, kernel, call->function, grid, overlap), error);
}

static int download(gpucomp_context *context, const struct form *form, const gpucomp_tensor *outputs, bool complete,
                    gpucomp_error *error)
{
    const gpucomp_model *model = context->model;
    const struct gpu *gpu = &model_of(context)->gpu;
    int status = 0;
    for (size_t k = 0; k < model->output_count && !status; k++) {
        int64_t position = gcrt_output_buffer(form, model->outputs[k]);
        size_t bytes = (size_t)gcrt_shape_bytes(form, ITEMS(form->program->plan.buffers, struct buffer) + position);
        if (bytes && !gcrt_on_device(gcrt_tensor_at(outputs, k)))
            status = gpu->download(gcrt_tensor_at(outputs, k)->data, gcrt_device_memory(context, form, position), bytes,
                                   own_of(context)->stream);
    }
    int finished = complete ? gpu->wait(own_of(context)->stream) : 0;
    return failed(context, "the run failed", status ? status : finished, error);
}

static int wait(gpucomp_context *context, gpucomp_error *error)
{
    return failed(context, "the run failed", model_of(context)->gpu.wait(own_of(context)->stream), error);
}

static const struct device_calls CALLS = {
    .weights = weights, .allocate = gcrt_gpu_allocate, .release = release, .part = part, .end_part = end_part, .zero = zero,
    .write = write, .copy = copy, .copies = copies, .make = make_form, .end = end_form, .prepare = prepare, .bind = bind,
    .upload = upload, .launch = launch, .download = download, .wait = wait,
};

/* ---- what the engine has: the same, with the GPU as the current one of the thread ---- */

static int make(gpucomp_context *context, void *stream, gpucomp_error *error)
{
    struct gpu_own *own = own_of(context);
    size_t most = 0;
    for (size_t p = 0; p < context->model->program_count; p++) {
        size_t maps, parameters;
        most_of(context->model->programs + p, &maps, &parameters);
        most = parameters > most ? parameters : most;
    }
    own->addresses = gcrt_new(&context->store, most, sizeof *own->addresses);
    own->parameters = gcrt_new(&context->store, most, sizeof *own->parameters);
    if (!own->addresses || !own->parameters)
        return gcrt_no_memory(error);
    own->stream = stream;
    own->foreign = stream != NULL;
    int status = stream ? 0 : model_of(context)->gpu.make_stream(&own->stream, GPU_NON_BLOCKING);
    if (status) {
        own->stream = NULL;
        return gcrt_gpu_fail(&model_of(context)->gpu, error, GCRT_NOT_OPENED, "a stream", status);
    }
    return gcrt_device_reserve(context, error);
}

int gcrt_gpu_make(gpucomp_context *context, const gpucomp_context_options *options, gpucomp_error *error)
{
    int before, code = gcrt_device_make(context, &CALLS, sizeof(struct gpu_own), options, error);
    if (code == 0)
        code = gcrt_gpu_enter(model_of(context), &before, error);
    if (code)
        return code;
    code = make(context, options->stream, error);
    gcrt_gpu_leave(model_of(context), before);
    return code;
}

void gcrt_gpu_end(gpucomp_context *context)
{
    const struct gpu_model *model = model_of(context);
    struct gpu_own *own = context->device ? own_of(context) : NULL;
    int before;
    if (!own || !own->stream || gcrt_gpu_enter(model, &before, NULL))
        return; /* it has no memory, or the GPU is lost */
    model->gpu.wait(own->stream);
    gcrt_device_end(context);
    if (!own->foreign)
        model->gpu.end_stream(own->stream);
    gcrt_gpu_leave(model, before);
}

int gcrt_gpu_plan(gpucomp_context *context, struct form *form, gpucomp_error *error)
{
    int before, code = gcrt_gpu_enter(model_of(context), &before, error);
    if (code)
        return code;
    code = gcrt_device_plan(context, form, error);
    gcrt_gpu_leave(model_of(context), before);
    return code;
}

int gcrt_gpu_wait(gpucomp_context *context, gpucomp_error *error)
{
    int before, code = gcrt_gpu_enter(model_of(context), &before, error);
    if (code)
        return code;
    code = gcrt_device_wait(context, error);
    gcrt_gpu_leave(model_of(context), before);
    return code;
}

int gcrt_gpu_run(gpucomp_context *context, struct form *form, const gpucomp_tensor *inputs, const gpucomp_tensor *outputs,
                 bool complete, gpucomp_error *error)
{
    int before, code = gcrt_gpu_enter(model_of(context), &before, error);
    if (code)
        return code;
    code = gcrt_device_run(context, form, inputs, outputs, complete, error);
    gcrt_gpu_leave(model_of(context), before);
    return code;
}

int gcrt_gpu_zero(gpucomp_context *context, void *memory, uint64_t bytes, gpucomp_error *error)
{
    int before, code = gcrt_gpu_enter(model_of(context), &before, error);
    if (code)
        return code;
    code = zero(context, memory, bytes, error);
    gcrt_gpu_leave(model_of(context), before);
    return code;
}

int gcrt_gpu_copy(gpucomp_context *context, void *memory, const struct strided *rows, void *packed, bool out,
                  gpucomp_error *error)
{
    const struct gpu *gpu = &model_of(context)->gpu;
    void *stream = own_of(context)->stream;
    int status = 0, before, code = rows->bytes && rows->count ? gcrt_gpu_enter(model_of(context), &before, error) : 0;
    if (code || !rows->bytes || !rows->count)
        return code;
    for (size_t k = 0; k < rows->count && !status; k++) {
        uint8_t *own = (uint8_t *)memory + k * rows->pitch, *other = (uint8_t *)packed + k * rows->bytes;
        status = out ? gpu->download(other, own, rows->bytes, stream) : gpu->upload(own, other, rows->bytes, stream);
    }
    int finished = gpu->wait(stream);
    code = failed(context, "the copy of a state", status ? status : finished, error);
    gcrt_gpu_leave(model_of(context), before);
    return code;
}
