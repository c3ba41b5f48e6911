/* Runs a .gpuc file by libgpucomp_rt: runtime FILE SCRIPT THREADS RESULTS. With `-` as RESULTS it waits for numbers on its
 * standard input, each on a line, makes the first run of the script so many times, and prints their nanoseconds on a line. */
#define _POSIX_C_SOURCE 200809L
#include <gpucomp.h>
#include <inttypes.h>
#include <time.h>

#include "script.h"

static gpucomp_tensor given[MOST];

static int fail(const gpucomp_error *error)
{
    fprintf(stderr, "%s\n", error->text);
    return 1;
}

static void tell(const struct step *step)
{
    for (size_t k = 0; k < step->input_count + step->output_count; k++) {
        const struct tensor *tensor = step->tensors + k;
        given[k] = (gpucomp_tensor){sizeof *given, tensor->data, tensor->bytes, tensor->extents, tensor->rank, GPUCOMP_HOST};
    }
}

static int run(gpucomp_context *context, const struct step *step, gpucomp_error *error)
{
    return gpucomp_run(context, given, step->input_count, given + step->input_count, step->output_count, error);
}

/* Whether the outputs of the planned run are as large as the script says. */
static int is_as_large(gpucomp_context *context, const struct step *step)
{
    int64_t shape[GPUCOMP_MAX_RANK];
    size_t rank;
    uint64_t bytes;
    for (size_t k = 0; k < step->output_count; k++) {
        const struct tensor *wanted = step->tensors + step->input_count + k;
        if (gpucomp_output_shape(context, k, shape, &rank, &bytes, NULL) || rank != wanted->rank || bytes != wanted->bytes ||
            memcmp(shape, wanted->extents, rank * sizeof *shape) != 0) {
            fprintf(stderr, "output %zu has another shape than onnxruntime's\n", k);
            return 0;
        }
    }
    return 1;
}

static int run_all(gpucomp_context *context, const struct script *script, int has_states)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    for (const struct step *step = script->steps; step < script->steps + script->count; step++) {
        tell(step);
        if (has_states && step->anew && gpucomp_reset(context, &error))
            return fail(&error);
        if (gpucomp_plan(context, given, step->input_count, &error))
            return fail(&error);
        if (!is_as_large(context, step))
            return 1;
        if (run(context, step, &error))
            return fail(&error);
    }
    return 0;
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int serve(gpucomp_context *context, const struct step *step)
{
    static int64_t times[100000];
    char line[64];
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    tell(step);
    while (fgets(line, sizeof line, stdin)) {
        long count = strtol(line, NULL, 10);
        if (count < 1 || count > (long)(sizeof times / sizeof *times))
            return 2;
        for (long k = 0; k < count; k++) {
            int64_t begin = now();
            if (run(context, step, &error))
                return fail(&error);
            times[k] = now() - begin;
        }
        for (long k = 0; k < count; k++)
            printf("%" PRId64 "%c", times[k], k + 1 < count ? ' ' : '\n');
        fflush(stdout);
    }
    return 0;
}

int main(int count, char **words)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
    gpucomp_model_info info = {.size = sizeof info};
    gpucomp_model *model;
    gpucomp_context *context;
    if (count != 5)
        return 2;
    struct script script = read_script(words[2]);
    options.threads = (int)strtol(words[3], NULL, 10);
    if (gpucomp_open(words[1], NULL, &model, &error) || gpucomp_describe(model, &info, &error) ||
        gpucomp_context_create(model, &options, &context, &error))
        return fail(&error);
    int code = run_all(context, &script, info.states > 0);
    if (code == 0)
        code = strcmp(words[4], "-") == 0 ? serve(context, script.steps) : write_results(&script, words[4]);
    gpucomp_context_destroy(context);
    gpucomp_close(model);
    return code;
}
