/* Opens a model on a GPU: finds the GPU, loads the machine code, uploads the weights. As gpucomp/runtime/cuda.py and hip.py. */
#include "gpu_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool contains(const char *text, const char *part)
{
    size_t count = strlen(part);
    for (; *text; text++) {
        size_t k = 0;
        while (k < count && text[k] && (text[k] | 32) == (part[k] | 32))
            k++;
        if (k == count)
            return true;
    }
    return count == 0;
}

/* Whether a GPU is the one that the caller asked for: by its number, or by a part of its name. */
static bool is_asked_for(const struct gpu_found *device, const char *asked)
{
    char *end = NULL;
    if (!asked || !*asked)
        return true;
    unsigned long wanted = strtoul(asked, &end, 10);
    return *end ? contains(device->name, asked) : wanted == (unsigned long)device->number;
}

/* The most shared memory that a kernel needs, and whether the file has PTX of all kernels. */
static int64_t examine(const gpucomp_model *model, const struct container *container, bool *has_ptx)
{
    int64_t most = 0;
    *has_ptx = true;
    for (size_t p = 0; p < model->program_count; p++)
        for (size_t k = 0; k < model->programs[p].plan.kernels.count; k++) {
            const struct kernel *kernel = ITEMS(model->programs[p].plan.kernels, struct kernel) + k;
            const struct member *ptx = gcrt_ptx(container, kernel);
            *has_ptx = *has_ptx && ptx && ptx->bytes;
            most = kernel->shared > most ? kernel->shared : most;
        }
    return most;
}

/* Why a GPU does not run the model; an empty text if it does. */
static void object(const gpucomp_model *model, const struct gpu_model *own, const struct gpu_found *device, int64_t shared,
                   bool has_ptx, char why[400])
{
    const char *arch = model->programs->plan.arch.at;
    char target[64];
    gcrt_gpu_target(&own->gpu, device, target);
    why[0] = 0;
    if (own->gpu.hip && strcmp(device->arch, arch) != 0)
        snprintf(why, 400, "the model is compiled for %.32s, the GPU %.100s is %s: compile for %s", arch, device->name,
                 *device->arch ? device->arch : "of none that is known", target);
    else if (!own->gpu.hip && !gcrt_gpu_loads(device, arch) && !(has_ptx && gcrt_gpu_compiles(device, arch)))
        snprintf(why, 400, "the model is compiled for %.32s, the GPU %.100s has compute capability %d.%d: compile for %s", arch,
                 device->name, device->major, device->minor, target);
    else if (!own->gpu.hip && shared > device->shared)
        snprintf(why, 400, "a kernel needs %lld bytes of shared memory, the GPU %.100s has %d: compile for %s",
                 (long long)shared, device->name, device->shared, target);
}

static int choose_device(const gpucomp_model *model, struct gpu_model *own, const struct container *container,
                         gpucomp_error *error)
{
    char told[600] = "", first[400] = "", why[400];
    const char *asked = model->options.device;
    bool has_ptx;
    int64_t shared = examine(model, container, &has_ptx);
    size_t at = 0;
    for (int k = 0, count = gcrt_gpu_count(&own->gpu); k < count; k++) {
        struct gpu_found device;
        int code = gcrt_gpu_describe(&own->gpu, k, &device, error);
        if (code)
            return code;
        if (at < sizeof told)
            at += (size_t)snprintf(told + at, sizeof told - at, "%s'%.100s'", k ? ", " : "", device.name);
        if (!is_asked_for(&device, asked))
            continue;
        object(model, own, &device, shared, has_ptx, why);
        if (!*why) {
            own->device = device;
            own->by_ptx = !own->gpu.hip && !gcrt_gpu_loads(&device, model->programs->plan.arch.at);
            return 0;
        }
        if (!*first)
            memcpy(first, why, sizeof first);
    }
    if (*first)
        return gcrt_fail(error, GCRT_OTHER_GPU, "%s", first);
    return gcrt_fail(error, GCRT_NO_DEVICE, "no GPU %s; %s finds %s", QUOTE(gcrt_text(asked ? asked : "")),
                     gcrt_gpu_name(&own->gpu), told);
}

int gcrt_gpu_enter(const struct gpu_model *own, int *before, gpucomp_error *error)
{
    int status = 0;
    *before = own->device.number;
    if (own->gpu.hip)
        status = own->gpu.hipGetDevice(before);
    if (!status)
        status = own->gpu.hip ? own->gpu.hipSetDevice(own->device.number) : own->gpu.cuCtxPushCurrent_v2(own->context);
    return status ? gcrt_gpu_fail(&own->gpu, error, GCRT_FAILED_RUN, "the GPU cannot be entered", status) : 0;
}

void gcrt_gpu_leave(const struct gpu_model *own, int before)
{
    void *context;
    if (own->gpu.hip)
        own->gpu.hipSetDevice(before);
    else
        own->gpu.cuCtxPopCurrent_v2(&context);
}

int gcrt_gpu_allocate(const gpucomp_model *model, uint64_t bytes, bool tensor, void **memory, gpucomp_error *error)
{
    const struct gpu_model *own = model->device;
    char what[64];
    (void)tensor;
    int status = own->gpu.allocate(memory, bytes ? (size_t)bytes : 1);
    if (!status)
        return 0;
    *memory = NULL;
    snprintf(what, sizeof what, "memory of %llu bytes", (unsigned long long)bytes);
    return gcrt_gpu_fail(&own->gpu, error, GCRT_NO_DEVICE_MEMORY, what, status);
}

static int upload(const gpucomp_model *model, gpucomp_error *error)
{
    struct gpu_model *own = model->device;
    void *stream;
    int status = own->gpu.make_stream(&stream, GPU_NON_BLOCKING), code = 0;
    if (status)
        return gcrt_gpu_fail(&own->gpu, error, GCRT_NOT_OPENED, "a stream", status);
    for (size_t k = 0; k < own->weights.count && code == 0 && !status; k++) {
        struct device_weight *weight = own->weights.all + k;
        code = gcrt_gpu_allocate(model, weight->bytes, false, &weight->memory, error);
        if (code == 0 && weight->bytes)
            status = own->gpu.upload(weight->memory, weight->data, (size_t)weight->bytes, stream);
    }
    int finished = own->gpu.wait(stream); /* the file is read until then */
    status = status ? status : finished;
    own->gpu.end_stream(stream);
    return code || !status ? code : gcrt_gpu_fail(&own->gpu, error, GCRT_NOT_OPENED, "the copy of a weight", status);
}

static int fill(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    struct gpu_model *own = model->device;
    int before, code = gcrt_gpu_enter(own, &before, error);
    if (code)
        return code;
    code = gcrt_gpu_load(model, container, error);
    if (code == 0)
        code = gcrt_list_weights(model, &own->weights, error);
    if (code == 0)
        code = upload(model, error);
    gcrt_gpu_leave(own, before);
    return code;
}

static int open_all(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    struct gpu_model *own = model->device = gcrt_new(&model->store, 1, sizeof *own);
    if (!own)
        return gcrt_no_memory(error);
    int code = gcrt_gpu_open(&own->gpu, model->programs->plan.device == ON_HIP, model->options.library, error);
    if (code == 0)
        code = choose_device(model, own, container, error);
    if (code)
        return code;
    if (!own->gpu.hip) {
        int status = own->gpu.cuDevicePrimaryCtxRetain(&own->context, own->device.handle);
        if (status) {
            own->context = NULL;
            return gcrt_gpu_fail(&own->gpu, error, GCRT_NOT_OPENED, "the GPU's context", status);
        }
    }
    code = fill(model, container, error);
    if (code == 0 && model->mapped.data) /* the GPU has them now */
        gcrt_give_back(model->mapped.data, model->mapped.bytes);
    model->compiled = own->by_ptx ? own->module_count : 0;
    model->device_name = own->device.name;
    model->native_context = own->context;
    model->device_number = own->device.number;
    return code ? code : gcrt_place_weights(model, &own->weights, error);
}

static void close_all(gpucomp_model *model)
{
    struct gpu_model *own = model->device;
    int before;
    if (!own)
        return;
    if ((own->module_count || own->weights.count) && gcrt_gpu_enter(own, &before, NULL) == 0) {
        for (size_t k = 0; k < own->weights.count; k++)
            if (own->weights.all[k].memory)
                own->gpu.release(own->weights.all[k].memory);
        for (size_t k = 0; k < own->module_count; k++)
            own->gpu.unload(own->modules[k].module);
        gcrt_gpu_leave(own, before);
    }
    if (own->context)
        own->gpu.cuDevicePrimaryCtxRelease_v2(own->device.handle);
    gcrt_gpu_close(&own->gpu);
}

static int test(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    const struct gpu_model *own = model->device;
    char driver[GPU_TEXT + 32];
    int version = 0, before, code = gcrt_gpu_enter(own, &before, error);
    if (code)
        return code;
    own->gpu.version(&version);
    snprintf(driver, sizeof driver, "%s %d | %s", gcrt_gpu_name(&own->gpu), version, own->device.name);
    code = gcrt_device_test(model, container, driver, false, error);
    gcrt_gpu_leave(own, before);
    return code;
}

const struct engine gcrt_gpu = {open_all, close_all, gcrt_gpu_make, gcrt_gpu_end, gcrt_gpu_plan, gcrt_gpu_run, gcrt_gpu_wait,
                                gcrt_gpu_zero, gcrt_gpu_copy, NULL, NULL, true, test};

int gcrt_gpu_device(bool hip, const char *library, size_t number, gpucomp_device_info *info, gpucomp_error *error)
{
    struct gpu gpu = {0};
    struct gpu_found device;
    int version = 0, code = gcrt_gpu_open(&gpu, hip, library, error), count = code ? 0 : gcrt_gpu_count(&gpu);
    if (code == 0 && number >= (size_t)count)
        code = gcrt_fail(error, GCRT_NO_DEVICE, "%s GPU %zu: this machine has %d", gcrt_gpu_name(&gpu), number, count);
    if (code == 0)
        code = gcrt_gpu_describe(&gpu, (int)number, &device, error);
    if (code == 0) {
        char target[64];
        gcrt_gpu_target(&gpu, &device, target);
        gpu.version(&version); /* 13010 for 13.1; of HIP 60342134 for 6.3.42134 */
        int unit = hip ? 10000000 : 1000, part = hip ? 100000 : 10;
        snprintf(info->name, sizeof info->name, "%s", device.name);
        snprintf(info->platform, sizeof info->platform, "%s", target);
        snprintf(info->driver, sizeof info->driver, "%d.%d", version / unit, version % unit / part);
        info->gpu = 1;
    }
    gcrt_gpu_close(&gpu);
    return code;
}
