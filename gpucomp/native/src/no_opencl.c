/* In a library without OpenCL: what it says of it. */
#include "context.h"

static int refuse(gpucomp_error *error)
{
    return gcrt_fail(error, GCRT_ONLY_PYTHON, "this library does not run models for OpenCL: build it with -DGPUCOMP_OPENCL=ON");
}

static int open_all(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    (void)model, (void)container;
    return refuse(error);
}

static void close_all(gpucomp_model *model) { (void)model; }

const struct engine gcrt_opencl = {.open = open_all, .close = close_all}; /* there are no contexts */

int gpucomp_opencl_device(const char *library, size_t number, gpucomp_device_info *info, gpucomp_error *error)
{
    (void)library, (void)number, (void)info;
    gcrt_clear(error);
    return refuse(error);
}
