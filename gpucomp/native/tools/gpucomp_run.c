/* gpucomp-run: runs a compiled model on .npy files, measures it, or says what it holds.
 *
 *     gpucomp-run model.gpuc                                         what the file holds
 *     gpucomp-run model.gpuc --input x=x.npy --output y=y.npy        one run
 *     gpucomp-run model.gpuc --input x=x.npy --bench 100             latency of 100 runs after one that warms up
 *     gpucomp-run model.gpuc --steps 10                              ten runs on the same inputs, which a state goes on from
 *     gpucomp-run --devices                                          the devices of OpenCL, CUDA and HIP of this machine
 *     gpucomp-run model.gpuc --device 1 --cache folder --bench 100   on one of them; where compiled kernels are kept
 *
 * An input without a file gets zeros, of the smallest sizes that the model allows. Exit status: 0, 1 if the model or a file is
 * wrong, 2 if the command line is. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpucomp.h"
#include "npy.h"

#define MOST_FILES 256

struct arguments {
    const char *model, *device, *cache;
    const char *inputs[MOST_FILES], *outputs[MOST_FILES]; /* NAME=FILE */
    size_t input_count, output_count;
    int threads, runs, steps; /* -1: not given */
};

struct arrays {
    gpucomp_tensor *tensors;
    struct npy *files;
    size_t count;
};

static int fail(const char *what, const char *name)
{
    fprintf(stderr, "gpucomp-run: %s: %s\n", name, what);
    return 1;
}

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void print_tensor(const char *kind, const gpucomp_tensor_info *info)
{
    printf("%-7s %s: %s[", kind, info->name, info->dtype);
    for (size_t d = 0; d < info->rank; d++) {
        const gpucomp_axis *axis = info->axes + d;
        const char *comma = d ? "," : "";
        if (axis->low == axis->high)
            printf("%s%" PRId64, comma, axis->low);
        else
            printf("%s%s", comma, axis->name ? axis->name : "?");
    }
    printf("]\n");
}

static int describe(const gpucomp_model *model)
{
    gpucomp_model_info info = {.size = sizeof info};
    gpucomp_tensor_info tensor = {.size = sizeof tensor};
    gpucomp_axis axis;
    gpucomp_describe(model, &info, NULL);
    printf("model   %s\ntarget  %s (%s)\n", *info.name ? info.name : "without a name", info.target, info.processor);
    if (info.device)
        printf("device  %s, %" PRIu64 " programs were compiled for it now\n", info.device, info.compiled);
    printf("weights %" PRIu64 " bytes, code %" PRIu64 " bytes, ", info.weight_bytes, info.code_bytes);
    if (info.dims)
        printf("the arena depends on the sizes\n");
    else
        printf("arena %" PRIu64 " bytes\n", info.arena_bytes);
    for (size_t k = 0; k < info.inputs && !gpucomp_input(model, k, &tensor, NULL); k++)
        print_tensor("input", &tensor);
    for (size_t k = 0; k < info.outputs && !gpucomp_output(model, k, &tensor, NULL); k++)
        print_tensor("output", &tensor);
    for (size_t k = 0; k < info.states && !gpucomp_state(model, k, &tensor, NULL); k++)
        print_tensor("state", &tensor);
    for (size_t k = 0; k < info.dims && !gpucomp_dim(model, k, &axis, NULL); k++)
        printf("dim     %s: %" PRId64 " to %" PRId64 ", a multiple of %" PRId64 "\n", axis.name, axis.low, axis.high,
               axis.multiple);
    printf("%zu kernels in %zu launches, %zu sets of sizes with a program of their own\n", info.kernels, info.launches,
           info.fixed);
    return 0;
}

static int list_devices(void)
{
    static const char *const kinds[] = {"opencl", "cuda", "hip"};
    gpucomp_error first = GPUCOMP_ERROR_INIT, error = GPUCOMP_ERROR_INIT;
    gpucomp_device_info info = {.size = sizeof info};
    size_t found = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t number = 0; gpucomp_device(kinds[k], NULL, number, &info, &error) == 0; number++, found++)
            printf("%s %zu  %s (%s, driver %s%s)\n", kinds[k], number, info.name, info.platform, info.driver,
                   info.gpu ? ", GPU" : "");
        first = k ? first : error;
    }
    return found ? 0 : fail(first.text, "devices");
}

/* The file of NAME=FILE for this name, or NULL. */
static const char *file_of(const char *const *given, size_t count, const char *name)
{
    size_t length = strlen(name);
    for (size_t k = 0; k < count; k++)
        if (strncmp(given[k], name, length) == 0 && given[k][length] == '=')
            return given[k] + length + 1;
    return NULL;
}

static int read_input(const struct arguments *arguments, const gpucomp_tensor_info *info, struct npy *array)
{
    const char *path = file_of(arguments->inputs, arguments->input_count, info->name);
    if (path) {
        const char *wrong = npy_read(path, array);
        if (wrong)
            return fail(wrong, path);
        if (strcmp(array->type, npy_type(info->dtype)) != 0 && !strchr(npy_type(info->dtype), 'V'))
            return fail("another element type than the model's", path);
        return 0;
    }
    array->bytes = info->element_bytes;
    array->rank = info->rank;
    for (size_t d = 0; d < info->rank; d++) {
        const gpucomp_axis *axis = info->axes + d;
        array->shape[d] = (axis->low + axis->multiple - 1) / axis->multiple * axis->multiple;
        array->bytes *= (size_t)array->shape[d];
    }
    array->data = aligned_alloc(64, (array->bytes + 64) / 64 * 64);
    if (!array->data)
        return fail("no memory", info->name);
    memset(array->data, 0, array->bytes);
    return 0;
}

static int allocate(struct arrays *arrays, size_t count)
{
    arrays->count = count;
    arrays->tensors = calloc(count + 1, sizeof *arrays->tensors);
    arrays->files = calloc(count + 1, sizeof *arrays->files);
    return arrays->tensors && arrays->files ? 0 : fail("no memory", "tensors");
}

static void tell(struct arrays *arrays, size_t k)
{
    struct npy *array = arrays->files + k;
    arrays->tensors[k] =
        (gpucomp_tensor){sizeof(gpucomp_tensor), array->data, array->bytes, array->shape, array->rank, GPUCOMP_HOST};
}

static int prepare_outputs(gpucomp_context *context, const gpucomp_model *model, struct arrays *outputs)
{
    gpucomp_tensor_info info = {.size = sizeof info};
    for (size_t k = 0; k < outputs->count; k++) {
        struct npy *array = outputs->files + k;
        uint64_t bytes = 0;
        if (gpucomp_output(model, k, &info, NULL) || gpucomp_output_shape(context, k, array->shape, &array->rank, &bytes, NULL))
            return fail("cannot be described", "output");
        array->bytes = (size_t)bytes;
        snprintf(array->type, sizeof array->type, "%s", npy_type(info.dtype));
        array->data = aligned_alloc(64, (array->bytes + 64) / 64 * 64);
        if (!array->data)
            return fail("no memory", info.name);
        tell(outputs, k);
    }
    return 0;
}

static int write_outputs(const struct arguments *arguments, const gpucomp_model *model, const struct arrays *outputs)
{
    gpucomp_tensor_info info = {.size = sizeof info};
    for (size_t k = 0; k < outputs->count && !gpucomp_output(model, k, &info, NULL); k++) {
        const char *path = file_of(arguments->outputs, arguments->output_count, info.name);
        const char *wrong = path ? npy_write(path, outputs->files + k) : NULL;
        if (wrong)
            return fail(wrong, path);
    }
    return 0;
}

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static int bench(gpucomp_context *context, const char *name, const struct arrays *inputs, const struct arrays *outputs, int runs)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    double *times = calloc((size_t)runs, sizeof *times);
    if (!times)
        return fail("no memory", "times");
    for (int k = 0; k < runs; k++) {
        double begin = now_us();
        if (gpucomp_run(context, inputs->tensors, inputs->count, outputs->tensors, outputs->count, &error)) {
            free(times);
            return fail(error.text, name);
        }
        times[k] = now_us() - begin;
    }
    qsort(times, (size_t)runs, sizeof *times, by_value);
    printf("%d runs: median %.1f us, least %.1f us, 90 %% within %.1f us\n", runs, times[runs / 2], times[0],
           times[runs * 9 / 10]);
    free(times);
    return 0;
}

static int run(const struct arguments *arguments, const gpucomp_model *model, gpucomp_context *context, struct arrays *inputs,
               struct arrays *outputs)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_model_info info = {.size = sizeof info};
    gpucomp_tensor_info tensor = {.size = sizeof tensor};
    gpucomp_describe(model, &info, NULL);
    if (allocate(inputs, info.inputs) || allocate(outputs, info.outputs))
        return 1;
    for (size_t k = 0; k < info.inputs; k++) {
        if (gpucomp_input(model, k, &tensor, NULL) || read_input(arguments, &tensor, inputs->files + k))
            return 1;
        tell(inputs, k);
    }
    if (gpucomp_plan(context, inputs->tensors, inputs->count, &error))
        return fail(error.text, arguments->model);
    if (prepare_outputs(context, model, outputs))
        return 1;
    for (int step = 0; step < (arguments->steps < 0 ? 1 : arguments->steps); step++)
        if (gpucomp_run(context, inputs->tensors, inputs->count, outputs->tensors, outputs->count, &error))
            return fail(error.text, arguments->model);
    if (write_outputs(arguments, model, outputs))
        return 1;
    return arguments->runs > 0 ? bench(context, arguments->model, inputs, outputs, arguments->runs) : 0;
}

static void release(struct arrays *arrays)
{
    for (size_t k = 0; arrays->files && k < arrays->count; k++)
        free(arrays->files[k].data);
    free(arrays->files);
    free(arrays->tensors);
}

static int usage(void)
{
    fputs("usage: gpucomp-run MODEL.gpuc [--input NAME=FILE.npy]... [--output NAME=FILE.npy]... [--threads N] [--steps N] "
          "[--bench RUNS] [--device NUMBER|NAME] [--cache FOLDER]\n       gpucomp-run --devices\n",
          stderr);
    return 2;
}

/* A number of at least `least`, or -1. */
static int number(const char *text, int least)
{
    char *end;
    long value = strtol(text, &end, 10);
    return *text && !*end && value >= least && value <= 1000000000 ? (int)value : -1;
}

/* Whether the model has all the inputs or outputs that were named. */
static int check_names(const gpucomp_model *model, const char *const *given, size_t count, bool output)
{
    gpucomp_tensor_info info = {.size = sizeof info};
    for (size_t k = 0; k < count; k++) {
        bool found = false;
        for (size_t n = 0; !found && !(output ? gpucomp_output : gpucomp_input)(model, n, &info, NULL); n++)
            found = file_of(given + k, 1, info.name) != NULL;
        if (!found)
            return fail(output ? "the model has no output of this name" : "the model has no input of this name", given[k]) + 1;
    }
    return 0;
}

static int parse(int count, char **given, struct arguments *arguments)
{
    for (int k = 1; k < count; k++) {
        const char *option = given[k], *value = k + 1 < count ? given[k + 1] : NULL;
        if (option[0] != '-' && !arguments->model) {
            arguments->model = option;
            continue;
        }
        if (!value)
            return usage();
        bool wrong = false;
        k++;
        if (strcmp(option, "--input") == 0 && arguments->input_count < MOST_FILES && strchr(value, '='))
            arguments->inputs[arguments->input_count++] = value;
        else if (strcmp(option, "--output") == 0 && arguments->output_count < MOST_FILES && strchr(value, '='))
            arguments->outputs[arguments->output_count++] = value;
        else if (strcmp(option, "--device") == 0)
            arguments->device = value;
        else if (strcmp(option, "--cache") == 0)
            arguments->cache = value;
        else if (strcmp(option, "--threads") == 0)
            wrong = (arguments->threads = number(value, 0)) < 0;
        else if (strcmp(option, "--steps") == 0)
            wrong = (arguments->steps = number(value, 1)) < 0;
        else if (strcmp(option, "--bench") == 0)
            wrong = (arguments->runs = number(value, 1)) < 0;
        else
            wrong = true;
        if (wrong)
            return usage();
    }
    return arguments->model ? 0 : usage();
}

int main(int count, char **given)
{
    struct arguments arguments = {.steps = -1, .runs = -1};
    if (count == 2 && strcmp(given[1], "--devices") == 0)
        return list_devices();
    int code = parse(count, given, &arguments);
    if (code)
        return code;
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_model *model;
    gpucomp_open_options how = GPUCOMP_OPEN_OPTIONS_INIT;
    how.device = arguments.device;
    how.cache = arguments.cache;
    if (gpucomp_open(arguments.model, &how, &model, &error))
        return fail(error.text, arguments.model);
    if (!arguments.input_count && !arguments.output_count && arguments.runs < 0 && arguments.steps < 0) {
        code = describe(model);
    } else if ((code = check_names(model, arguments.inputs, arguments.input_count, false)) != 0 ||
               (code = check_names(model, arguments.outputs, arguments.output_count, true)) != 0) {
        ; /* told */
    } else {
        gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
        gpucomp_context *context;
        struct arrays inputs = {NULL, NULL, 0}, outputs = {NULL, NULL, 0};
        options.threads = arguments.threads;
        code = gpucomp_context_create(model, &options, &context, &error) ? fail(error.text, arguments.model)
                                                                        : run(&arguments, model, context, &inputs, &outputs);
        release(&inputs);
        release(&outputs);
        gpucomp_context_destroy(context);
    }
    gpucomp_close(model);
    return code;
}
