/* Measured by c_cold_start.py in a fresh process: cold_start read|run FILE THREADS. Prints milliseconds and bytes. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <gpucomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_TENSORS 64
#define WARM_RUNS 15

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* Read the whole file into memory of its own. */
static int read_all(const char *path)
{
    double begin = now_ms();
    struct stat status;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status))
        return 1;
    size_t at = 0, bytes = (size_t)status.st_size;
    char *memory = malloc(bytes);
    for (ssize_t count; memory && at < bytes && (count = read(file, memory + at, bytes - at)) > 0;)
        at += (size_t)count;
    printf("%.3f\n", now_ms() - begin);
    close(file);
    free(memory);
    return at != bytes;
}

static long resident(const char *name)
{
    char line[256];
    long found = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            found = strtol(line + strlen(name) + 1, NULL, 10);
    if (file)
        fclose(file);
    return 1024 * found;
}

static gpucomp_tensor tensor_of(const gpucomp_tensor_info *info)
{
    gpucomp_tensor tensor = GPUCOMP_TENSOR_INIT;
    tensor.data = aligned_alloc(64, (info->bytes + 63) / 64 * 64);
    if (tensor.data)
        memset(tensor.data, 0, info->bytes);
    tensor.bytes = info->bytes;
    return tensor;
}

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static int fail(const gpucomp_error *error)
{
    fprintf(stderr, "%s\n", error->text);
    return 1;
}

int main(int count, char **given)
{
    static gpucomp_tensor inputs[MOST_TENSORS], outputs[MOST_TENSORS];
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
    gpucomp_model_info info = {.size = sizeof info};
    gpucomp_tensor_info tensor = {.size = sizeof tensor};
    gpucomp_model *model;
    gpucomp_context *context;
    if (count != 4)
        return 2;
    if (strcmp(given[1], "read") == 0)
        return read_all(given[2]);
    options.threads = (int)strtol(given[3], NULL, 10);
    long before = resident("VmRSS");
    double begin = now_ms();
    if (gpucomp_open(given[2], NULL, &model, &error))
        return fail(&error);
    double opened = now_ms();
    if (gpucomp_context_create(model, &options, &context, &error) || gpucomp_describe(model, &info, &error))
        return fail(&error);
    double made = now_ms();
    for (size_t k = 0; k < info.inputs && k < MOST_TENSORS && !gpucomp_input(model, k, &tensor, &error); k++)
        inputs[k] = tensor_of(&tensor);
    for (size_t k = 0; k < info.outputs && k < MOST_TENSORS && !gpucomp_output(model, k, &tensor, &error); k++)
        outputs[k] = tensor_of(&tensor);
    double filled = now_ms(), warm[WARM_RUNS];
    if (gpucomp_run(context, inputs, info.inputs, outputs, info.outputs, &error))
        return fail(&error);
    double end = now_ms();
    long after = resident("VmRSS"), most = resident("VmHWM");
    size_t tensors = 0;
    for (size_t k = 0; k < MOST_TENSORS; k++)
        tensors += inputs[k].bytes + outputs[k].bytes;
    for (int k = 0; k < WARM_RUNS; k++) {
        double from = now_ms();
        gpucomp_run(context, inputs, info.inputs, outputs, info.outputs, &error);
        warm[k] = now_ms() - from;
    }
    qsort(warm, WARM_RUNS, sizeof *warm, by_value);
    printf("%.3f %.3f %.3f %.3f %ld %ld %llu %llu %ld %zu\n", opened - begin, made - opened, end - filled, warm[WARM_RUNS / 2],
           after, most, (unsigned long long)info.weight_bytes, (unsigned long long)info.arena_bytes, before, tensors);
    gpucomp_context_destroy(context);
    gpucomp_close(model);
    return 0;
}
