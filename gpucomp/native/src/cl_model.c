/* Opens a model on an OpenCL device: finds the device, builds the kernels, uploads the weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cl_run.h"

/* Whether a device is the one that the caller asked for: by its number, or by a part of its name. */
static bool is_asked_for(const struct cl_found *device, size_t number, const char *asked)
{
    char *end = NULL;
    if (!asked || !*asked)
        return true;
    unsigned long wanted = strtoul(asked, &end, 10);
    return *end ? gcrt_cl_fits(device, gcrt_text(asked)) : wanted == number;
}

static int choose_device(gpucomp_model *model, struct cl_model *own, gpucomp_error *error)
{
    struct store scratch = {0};
    struct cl_found *devices = NULL;
    struct text target = model->programs->plan.target, which = {"", 0};
    size_t count = 0, at = 0, fitting = 0;
    char told[600] = "";
    const char *colon = strchr(target.at, ':');
    if (colon)
        which = gcrt_text(colon + 1);
    int code = gcrt_cl_devices(&own->cl, &scratch, &devices, &count, error);
    bool found = false;
    for (size_t k = 0; k < count && code == 0; k++) {
        bool fits = gcrt_cl_fits(devices + k, which);
        fitting += fits;
        if (fits && !found && is_asked_for(devices + k, k, model->options.device)) {
            found = true;
            own->device = devices[k];
        }
        if (at < sizeof told)
            at += (size_t)snprintf(told + at, sizeof told - at, "%s'%.100s' of %.60s", k ? ", " : "", devices[k].name,
                                   devices[k].platform);
    }
    gcrt_free(&scratch);
    if (code || found)
        return code;
    if (fitting)
        return gcrt_fail(error, GCRT_NO_DEVICE, "no device %s for target %.100s; this machine's OpenCL devices are %s",
                         QUOTE(gcrt_text(model->options.device)), target.at, told);
    return gcrt_fail(error, GCRT_NO_DEVICE, "this machine has no device for target %.100s; its OpenCL devices are %s", target.at,
                     count ? told : "none");
}

static int by_data(const void *one, const void *other)
{
    const struct cl_weight *a = one, *b = other;
    int order = ((uintptr_t)a->data > (uintptr_t)b->data) - ((uintptr_t)a->data < (uintptr_t)b->data);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* All weights of all programs, each once. */
static int list_weights(gpucomp_model *model, struct cl_model *own, gpucomp_error *error)
{
    size_t most = 0, count = 0;
    for (size_t p = 0; p < model->program_count; p++)
        for (size_t k = 0; k < model->programs[p].plan.buffers.count; k++)
            most += ITEMS(model->programs[p].plan.buffers, struct buffer)[k].kind == WEIGHT;
    if (!(own->weights = gcrt_new(&model->store, most, sizeof *own->weights)))
        return gcrt_no_memory(error);
    for (size_t p = 0; p < model->program_count; p++)
        for (size_t k = 0; k < model->programs[p].plan.buffers.count; k++) {
            const struct buffer *buffer = ITEMS(model->programs[p].plan.buffers, struct buffer) + k;
            if (buffer->kind == WEIGHT)
                own->weights[count++] = (struct cl_weight){model->programs[p].weights[k], (uint64_t)buffer->nbytes, NULL};
        }
    if (count)
        qsort(own->weights, count, sizeof *own->weights, by_data);
    for (size_t k = 0; k < count; k++)
        if (k == 0 || by_data(own->weights + own->weight_count - 1, own->weights + k) != 0)
            own->weights[own->weight_count++] = own->weights[k];
    return 0;
}

static int upload(struct cl_model *own, cl_command_queue queue, gpucomp_error *error)
{
    for (size_t k = 0; k < own->weight_count; k++) {
        struct cl_weight *weight = own->weights + k;
        int code = gcrt_cl_buffer(own, 0, weight->bytes, &weight->memory, error);
        if (code)
            return code;
        cl_int status = weight->bytes ? own->cl.clEnqueueWriteBuffer(queue, weight->memory, 1, 0, (size_t)weight->bytes,
                                                                     weight->data, 0, NULL, NULL)
                                      : 0;
        if (status)
            return gcrt_cl_fail(error, &own->device, GCRT_NOT_OPENED, "the copy of a weight", status);
    }
    return 0;
}

static int place_weights(gpucomp_model *model, struct cl_model *own, gpucomp_error *error)
{
    if (!(own->memory = gcrt_new(&model->store, model->program_count, sizeof *own->memory)))
        return gcrt_no_memory(error);
    for (size_t p = 0; p < model->program_count; p++) {
        struct list buffers = model->programs[p].plan.buffers;
        if (!(own->memory[p] = gcrt_new(&model->store, buffers.count, sizeof **own->memory)))
            return gcrt_no_memory(error);
        for (size_t k = 0; k < buffers.count; k++) {
            const struct buffer *buffer = ITEMS(buffers, struct buffer) + k;
            struct cl_weight wanted = {model->programs[p].weights[k], (uint64_t)buffer->nbytes, NULL};
            const struct cl_weight *found = buffer->kind == WEIGHT ? bsearch(&wanted, own->weights, own->weight_count,
                                                                             sizeof wanted, by_data)
                                                                   : NULL;
            own->memory[p][k] = found ? found->memory : NULL;
        }
    }
    return 0;
}

static int open_all(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    struct cl_model *own = model->device = gcrt_new(&model->store, 1, sizeof *own);
    cl_int status = 0;
    if (!own)
        return gcrt_no_memory(error);
    int code = gcrt_cl_open(&own->cl, model->options.library, error);
    if (code == 0)
        code = choose_device(model, own, error);
    if (code)
        return code;
    if (!gcrt_cl_has_parts(&own->device))
        return gcrt_fail(error, GCRT_ONLY_PYTHON, "%s: its driver fails with parts of buffers: only Python runs models there",
                         own->device.name);
    if (!(own->context = own->cl.clCreateContext(NULL, 1, &own->device.id, NULL, NULL, &status)))
        return gcrt_cl_fail(error, &own->device, GCRT_NOT_OPENED, "clCreateContext", status);
    code = gcrt_cl_build(model, container, error);
    if (code == 0)
        code = list_weights(model, own, error);
    if (code)
        return code;
    cl_command_queue queue = own->cl.clCreateCommandQueue(own->context, own->device.id, 0, &status);
    if (!queue)
        return gcrt_cl_fail(error, &own->device, GCRT_NOT_OPENED, "clCreateCommandQueue", status);
    code = upload(own, queue, error);
    own->cl.clReleaseCommandQueue(queue);
    if (code == 0 && model->mapped.data) /* the device has them now */
        gcrt_give_back(model->mapped.data, model->mapped.bytes);
    model->compiled = own->compiled;
    model->device_name = own->device.name;
    return code ? code : place_weights(model, own, error);
}

static void close_all(gpucomp_model *model)
{
    struct cl_model *own = model->device;
    if (!own)
        return;
    for (size_t k = 0; k < own->weight_count; k++)
        if (own->weights[k].memory)
            own->cl.clReleaseMemObject(own->weights[k].memory);
    for (size_t k = 0; k < own->built_count; k++)
        own->cl.clReleaseProgram(own->built[k]);
    if (own->context)
        own->cl.clReleaseContext(own->context);
    gcrt_cl_close(&own->cl);
}

int gcrt_cl_buffer(const struct cl_model *own, cl_flags flags, uint64_t bytes, cl_mem *memory, gpucomp_error *error)
{
    cl_int status = 0;
    *memory = own->cl.clCreateBuffer(own->context, CL_MEM_READ_WRITE | flags, bytes ? (size_t)bytes : 1, NULL, &status);
    if (*memory)
        return 0;
    return gcrt_fail(error, GCRT_NO_DEVICE_MEMORY,
                     "%s: cannot allocate a buffer of %llu bytes (OpenCL's error %d; its largest is %llu bytes): smaller sizes "
                     "in `largest`, or another device, expected", own->device.name, (unsigned long long)bytes, (int)status,
                     (unsigned long long)own->device.most_bytes);
}

const struct engine gcrt_opencl = {open_all, close_all, gcrt_cl_make, gcrt_cl_end, gcrt_cl_plan, gcrt_cl_run, gcrt_cl_zero,
                                   gcrt_cl_copy};

int gpucomp_opencl_device(const char *library, size_t number, gpucomp_device_info *info, gpucomp_error *error)
{
    struct store scratch = {0};
    struct cl cl = {0};
    struct cl_found *devices = NULL;
    size_t count = 0;
    gcrt_clear(error);
    if (!info || info->size < GCRT_END(gpucomp_device_info, gpu))
        return gcrt_fail(error, GCRT_WRONG_CALL, "gpucomp_opencl_device: a structure whose size is set expected");
    int code = gcrt_cl_open(&cl, library, error);
    if (code == 0)
        code = gcrt_cl_devices(&cl, &scratch, &devices, &count, error);
    if (code == 0 && number >= count)
        code = gcrt_fail(error, GCRT_NO_DEVICE, "OpenCL device %zu: this machine has %zu", number, count);
    if (code == 0) {
        const struct cl_found *device = devices + number;
        snprintf(info->name, sizeof info->name, "%s", device->name);
        snprintf(info->platform, sizeof info->platform, "%s", device->platform);
        snprintf(info->driver, sizeof info->driver, "%s", device->driver);
        info->gpu = device->gpu;
    }
    gcrt_free(&scratch);
    gcrt_cl_close(&cl);
    return code;
}
