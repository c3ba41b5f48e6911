/* Tensor maps: boxes of arrays that one instruction of sm_90 and newer loads. As `encoded` of gpucomp/runtime/cuda_driver.py. */
#include <stdio.h>

#include "gpu_model.h"

/* CUtensorMapDataType, CUtensorMapL2promotion */
static const struct {
    int type, bytes;
} ELEMENTS[] = {[MAP_F16] = {6, 2}, [MAP_BF16] = {9, 2}, [MAP_F32] = {7, 4}, [MAP_TF32] = {11, 4}, [MAP_I8] = {0, 1}};
#define PROMOTE_256_BYTES 3
/* Drivers of CUDA 13.1 and before set a bit in maps of small memory by mistake: see gpucomp/runtime/cuda_driver.py. */
#define SMALL_BYTES (128 << 10)
#define LAST_FAULTY 13010
#define FAULT_BYTE 10
#define FAULT_BIT 0x20

/* A map as the driver takes it. */
struct sized {
    uint32_t rank, box[MOST_MAP_AXES], steps[MOST_MAP_AXES];
    uint64_t extents[MOST_MAP_AXES], strides[MOST_MAP_AXES];
    int lower[MOST_MAP_AXES], upper[MOST_MAP_AXES];
    uint64_t offset, end; /* bytes behind the beginning of the parameter */
};

/* The numbers of a map at the sizes of a form; false if their counts do not fit together. */
static bool measure(const struct form *form, const struct tensor_map *map, struct sized *sized)
{
    size_t rank = map->extents.count;
    bool im2col = map->channels > 0;
    sized->rank = (uint32_t)rank;
    sized->offset = (uint64_t)gcrt_value(form, map->offset);
    if (!rank || map->strides.count != rank - 1 || (map->steps.count && map->steps.count != rank) ||
        (!im2col && map->box.count != rank) || map->lower.count != map->upper.count ||
        (im2col && map->lower.count != rank - 2))
        return false;
    int64_t last = 0, bytes = ELEMENTS[map->dtype].bytes;
    for (size_t k = 0; k < rank; k++) {
        int64_t extent = gcrt_value(form, ITEMS(map->extents, struct number)[k]);
        int64_t stride = k ? gcrt_value(form, ITEMS(map->strides, struct number)[k - 1]) : bytes;
        if (extent < 1 || stride < 0)
            return false;
        sized->extents[k] = (uint64_t)extent;
        if (k)
            sized->strides[k - 1] = (uint64_t)stride;
        sized->box[k] = im2col ? 0 : (uint32_t)ITEMS(map->box, int64_t)[k];
        sized->steps[k] = map->steps.count ? (uint32_t)ITEMS(map->steps, int64_t)[k] : 1;
        int64_t more = gcrt_times(extent - 1, stride);
        if (more > INT64_MAX - last)
            return false;
        last += more;
    }
    for (size_t k = 0; k < map->lower.count; k++) {
        sized->lower[k] = (int)ITEMS(map->lower, int64_t)[k];
        sized->upper[k] = (int)gcrt_value(form, ITEMS(map->upper, struct number)[k]);
    }
    sized->end = (uint64_t)last + (uint64_t)bytes + sized->offset;
    return true;
}

int gcrt_gpu_encode(const struct gpu_model *own, const struct form *form, const struct kernel *kernel,
                    const struct tensor_map *map, void *address, uint64_t bytes, uint8_t *to, gpucomp_error *error)
{
    const struct gpu *gpu = &own->gpu;
    struct sized sized = {0};
    char what[GPU_TEXT];
    if (!measure(form, map, &sized) || sized.end > bytes)
        return gcrt_fail(error, GCRT_WRONG_MANIFEST, "kernel %s: a tensor map that does not fit its parameter of %llu bytes",
                         kernel->name.at, (unsigned long long)bytes);
    bool im2col = map->channels > 0, there = im2col ? gpu->cuTensorMapEncodeIm2col != NULL : gpu->cuTensorMapEncodeTiled != NULL;
    int swizzle = map->swizzle == 32 ? 1 : map->swizzle == 64 ? 2 : map->swizzle == 128 ? 3 : 0, status;
    if (!there)
        return gcrt_fail(error, GCRT_REFUSED_MAP,
                         "CUDA: kernel %s: this driver has no tensor maps: install one of CUDA 12 or newer", kernel->name.at);
    void *start = (uint8_t *)address + sized.offset;
    int type = ELEMENTS[map->dtype].type;
    if (im2col)
        status = gpu->cuTensorMapEncodeIm2col(to, type, sized.rank, start, sized.extents, sized.strides, sized.lower, sized.upper,
                                              (uint32_t)map->channels, (uint32_t)map->pixels, sized.steps, 0, swizzle,
                                              PROMOTE_256_BYTES, 0);
    else
        status = gpu->cuTensorMapEncodeTiled(to, type, sized.rank, start, sized.extents, sized.strides, sized.box, sized.steps, 0,
                                             swizzle, PROMOTE_256_BYTES, 0);
    snprintf(what, sizeof what, "kernel %.100s: no tensor map of its parameter %d", kernel->name.at, (int)map->parameter);
    if (status)
        return gcrt_gpu_fail(gpu, error, GCRT_REFUSED_MAP, what, status);
    int version = 0;
    if (sized.end - sized.offset < SMALL_BYTES && gpu->version(&version) == 0 && version <= LAST_FAULTY)
        to[FAULT_BYTE] &= (uint8_t)~FAULT_BIT;
    return 0;
}
