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

static int upload(const gpucomp_model *model, cl_command_queue queue, gpucomp_error *error)
{
    const struct cl_model *own = model->device;
    for (size_t k = 0; k < own->weights.count; k++) {
        struct device_weight *weight = own->weights.all + k;
        int code = gcrt_cl_weight(model, weight, error);
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
        code = gcrt_list_weights(model, &own->weights, error);
    if (code)
        return code;
    cl_command_queue queue = own->cl.clCreateCommandQueue(own->context, own->device.id, 0, &status);
    if (!queue)
        return gcrt_cl_fail(error, &own->device, GCRT_NOT_OPENED, "clCreateCommandQueue", status);
    code = upload(model, queue, error);
    own->cl.clReleaseCommandQueue(queue);
    if (code == 0 && model->mapped.data) /* the device has them now */
        gcrt_give_back(model->mapped.data, model->mapped.bytes);
    model->compiled = own->compiled;
    model->device_name = own->device.name;
    model->native_context = own->context;
    model->native_device = own->device.id;
    return code ? code : gcrt_place_weights(model, &own->weights, error);
}

static void close_all(gpucomp_model *model)
{
    struct cl_model *own = model->device;
    if (!own)
        return;
    for (size_t k = 0; k < own->weights.count; k++)
        if (own->weights.all[k].memory)
            own->cl.clReleaseMemObject(own->weights.all[k].memory);
    for (size_t k = 0; k < own->built_count; k++)
        own->cl.clReleaseProgram(own->built[k]);
    if (own->context)
        own->cl.clReleaseContext(own->context);
    gcrt_cl_close(&own->cl);
}

/* Drivers return errors for what is no handle, as far as they can see that. */
static const char *refuses(const gpucomp_model *model, void *memory, uint64_t bytes, bool written)
{
    const struct cl_model *own = model->device;
    cl_context of = NULL;
    size_t room = 0;
    cl_uint type = 0;
    cl_flags flags = 0;
    if (own->cl.clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof(cl_context), &of, NULL) || of != own->context)
        return "a buffer of the model's OpenCL context expected, which gpucomp_describe tells";
    if (own->cl.clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof room, &room, NULL) || room < bytes)
        return "the buffer is smaller than the tensor";
    if (own->cl.clGetMemObjectInfo(memory, CL_MEM_TYPE, sizeof type, &type, NULL) || type != CL_MEM_OBJECT_BUFFER ||
        own->cl.clGetMemObjectInfo(memory, CL_MEM_FLAGS, sizeof flags, &flags, NULL) ||
        (flags & (written ? CL_MEM_READ_ONLY : CL_MEM_WRITE_ONLY)))
        return written ? "a buffer that kernels can write expected" : "a buffer that kernels can read expected";
    return "";
}

/* Where a tensor begins in the memory of its own, which is returned. */
static cl_mem place_of(const struct cl *cl, const gpucomp_tensor *tensor, size_t *begin)
{
    cl_mem whole = NULL;
    *begin = 0;
    if (cl->clGetMemObjectInfo(tensor->data, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof(cl_mem), &whole, NULL) || !whole)
        return tensor->data;
    cl->clGetMemObjectInfo(tensor->data, CL_MEM_OFFSET, sizeof *begin, begin, NULL);
    return whole;
}

static bool meet(const gpucomp_model *model, const gpucomp_tensor *one, const gpucomp_tensor *other)
{
    const struct cl *cl = &((const struct cl_model *)model->device)->cl;
    size_t a, b;
    cl_mem of_one = place_of(cl, one, &a), of_other = place_of(cl, other, &b);
    return of_one == of_other && a < b + other->bytes && b < a + one->bytes;
}

static int test(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    const struct cl_found *device = &((const struct cl_model *)model->device)->device;
    char driver[3 * CL_TEXT + 8];
    snprintf(driver, sizeof driver, "%s | %s | %s", device->platform_version, device->name, device->driver);
    return gcrt_device_test(model, container, driver, !gcrt_cl_is_pocl(device), error);
}

const struct engine gcrt_opencl = {open_all, close_all, gcrt_cl_make, gcrt_cl_end, gcrt_device_plan, gcrt_device_run,
                                   gcrt_device_wait, gcrt_cl_zero, gcrt_cl_copy, refuses, meet, true, test};

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
