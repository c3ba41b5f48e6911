/* In a library without GPUs: what it says of them. */
#include "context.h"

static int refuse(gpucomp_error *error)
{
    return gcrt_fail(error, GCRT_ONLY_PYTHON, "this library does not run models for GPUs of CUDA and HIP: build it with "
                                              "-DGPUCOMP_GPU=ON");
}

static int open_all(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    (void)model, (void)container;
    return refuse(error);
}

static void close_all(gpucomp_model *model) { (void)model; }

const struct engine gcrt_gpu = {.open = open_all, .close = close_all}; /* there are no contexts */

int gcrt_gpu_device(bool hip, const char *library, size_t number, gpucomp_device_info *info, gpucomp_error *error)
{
    (void)hip, (void)library, (void)number, (void)info;
    return refuse(error);
}
