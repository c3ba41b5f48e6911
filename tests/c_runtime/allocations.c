/* Counts allocations of the whole program while a context runs: allocations FILE THREADS. Runs at several sizes in turn.
 * With WRAPPED, and the linker's --wrap: those of the files that are linked with it alone, and not of shared libraries. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucomp.h"

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_long counted;
static atomic_int counts;

static void count(void) { counted += counts; }

#ifdef WRAPPED
#define malloc __wrap_malloc
#define calloc __wrap_calloc
#define realloc __wrap_realloc
void *malloc(size_t);
void *calloc(size_t, size_t);
void *realloc(void *, size_t);
#endif

void *malloc(size_t bytes)
{
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
    count();
    return __libc_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    count();
    return __libc_realloc(memory, bytes);
}

#ifndef WRAPPED
void *aligned_alloc(size_t alignment, size_t bytes)
{
    count();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    count();
    return (*memory = __libc_memalign(alignment, bytes)) ? 0 : 12;
}
#endif

#define MOST 64
#define ROOM ((size_t)64 << 20)

static gpucomp_tensor inputs[MOST], outputs[MOST];
static int64_t shapes[MOST][GPUCOMP_MAX_RANK];

/* Inputs of zeros, of the smallest sizes or some more. */
static void shape(const gpucomp_model *model, size_t input, int64_t more)
{
    gpucomp_tensor_info info;
    info.size = sizeof info;
    gpucomp_input(model, input, &info, NULL);
    size_t bytes = info.element_bytes;
    for (size_t d = 0; d < info.rank; d++) {
        int64_t low = (info.axes[d].low + info.axes[d].multiple - 1) / info.axes[d].multiple * info.axes[d].multiple;
        int64_t size = low + (info.axes[d].low < info.axes[d].high ? more * info.axes[d].multiple : 0);
        shapes[input][d] = size <= info.axes[d].high ? size : low;
        bytes *= (size_t)shapes[input][d];
    }
    inputs[input].bytes = bytes;
    inputs[input].shape = shapes[input];
    inputs[input].rank = info.rank;
}

int main(int given_count, char **given)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
    gpucomp_model *model;
    gpucomp_context *context;
    gpucomp_model_info info;
    info.size = sizeof info;
    options.threads = given_count == 3 ? atoi(given[2]) : 1;
    if (gpucomp_open(given[1], NULL, &model, &error) || gpucomp_describe(model, &info, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (size_t k = 0; k < MOST; k++) {
        inputs[k] = outputs[k] = (gpucomp_tensor)GPUCOMP_TENSOR_INIT;
        inputs[k].data = k < info.inputs ? calloc(1, ROOM) : NULL;
        outputs[k].data = k < info.outputs ? malloc(ROOM) : NULL;
        outputs[k].bytes = ROOM;
    }
    counts = 1;
    void *volatile one = malloc(1);
    free(one);
    if (counted != 1) /* else the hook does not work */
        return 3;
    counts = 0;
    counted = 0;
    if (gpucomp_context_create(model, &options, &context, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    int right = 0;
    counts = 1;
    for (int64_t run = 0; run < 40; run++) {
        for (size_t k = 0; k < info.inputs; k++)
            shape(model, k, info.states ? 0 : run % 7); /* where states grow, sizes change by themselves */
        if (info.states && run % 5 == 0)
            gpucomp_reset(context, NULL);
        int code = gpucomp_run(context, inputs, info.inputs, outputs, info.outputs, &error);
        right += code == 0;
        if (code)
            fprintf(stderr, "%s\n", error.text);
    }
    counts = 0;
    printf("%d runs, %ld allocations\n", right, (long)counted);
    gpucomp_context_destroy(context);
    gpucomp_close(model);
    return 0;
}
