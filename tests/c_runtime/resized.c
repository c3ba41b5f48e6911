/* Runs a model of one input [n, width] at two sizes in turn, each on outputs of its own whose memory the next plan finds given
 * back: a helper that wakes late must touch neither.
 *
 *     resized MODEL.gpuc WIDTH ONE OTHER THREADS RUNS */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpucomp.h"

int main(int count, char **given)
{
    if (count != 7)
        return 2;
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_model *model = NULL;
    gpucomp_context *context = NULL;
    gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
    options.threads = atoi(given[5]);
    int64_t width = atol(given[2]), sizes[2] = {atol(given[3]), atol(given[4])}, most = sizes[sizes[1] > sizes[0]];
    float *x = calloc((size_t)(most * width), sizeof *x);
    int runs = atoi(given[6]), code = x ? 0 : 1;
    if (gpucomp_open(given[1], NULL, &model, &error) || gpucomp_context_create(model, &options, &context, &error))
        code = 1;
    for (int k = 0; k < runs && code == 0; k++) {
        int64_t shape[2] = {sizes[k % 2], width};
        size_t bytes = (size_t)(shape[0] * width) * sizeof *x;
        gpucomp_tensor in = {sizeof in, x, bytes, shape, 2, 0}, out = {sizeof out, NULL, bytes, NULL, 0, 0};
        code = gpucomp_plan(context, &in, 1, &error);
        out.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (out.data == MAP_FAILED)
            return 3;
        memset(out.data, 0, bytes);
        code = code ? code : gpucomp_run(context, &in, 1, &out, 1, &error);
        munmap(out.data, bytes);
    }
    if (code)
        fprintf(stderr, "%s\n", error.text);
    else
        printf("%d runs\n", runs);
    gpucomp_context_destroy(context);
    gpucomp_close(model);
    free(x);
    return code != 0;
}
