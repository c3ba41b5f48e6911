/* A model on an OpenCL device: what contexts share. */
#ifndef GCRT_CL_MODEL_H
#define GCRT_CL_MODEL_H

#include "cl.h"
#include "device.h"

struct cl_model {
    struct cl cl;
    struct cl_found device;
    cl_context context;
    cl_program *built; /* all programs of the driver's, each once */
    size_t built_count, built_room;
    cl_program **programs; /* for each program of the model and each of its kernels */
    struct device_weights weights;
    size_t compiled; /* programs that came neither from the file nor from the cache */
};

/* Build the programs of all kernels: from the file's binaries, from the cache, or from source. GPC5100, GPC5104. */
int gcrt_cl_build(gpucomp_model *model, const struct container *container, gpucomp_error *error);

/* A kernel of a program; NULL after an error: GPC5104. */
cl_kernel gcrt_cl_kernel(const struct cl_model *own, cl_program program, const struct kernel *kernel, gpucomp_error *error);

/* Memory for a weight. GPC5004. */
int gcrt_cl_weight(const gpucomp_model *model, struct device_weight *weight, gpucomp_error *error);
#endif
