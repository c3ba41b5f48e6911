/* Contexts on several threads: contexts FILE THREADS RUNS. Each thread makes contexts of two threads, runs them and ends them; all share
 * one more context, which tells all but one of them that it is busy; and each opens the file once more. The results of all runs have
 * the same bits. For ThreadSanitizer and valgrind. */
#define _POSIX_C_SOURCE 200809L
#include <gpucomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TENSORS 16
#define MOST_THREADS 16
#define BUSY 2037

struct tensors {
    gpucomp_tensor inputs[MOST_TENSORS], outputs[MOST_TENSORS];
};

static const char *path;
static long runs;
static gpucomp_model *model;
static gpucomp_context *shared;
static gpucomp_model_info info;
static struct tensors expected;

static void check(int code, const gpucomp_error *error)
{
    if (code == 0)
        return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

static gpucomp_tensor tensor_of(size_t number, int input)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_tensor_info told = {.size = sizeof told};
    gpucomp_tensor tensor = GPUCOMP_TENSOR_INIT;
    check(input ? gpucomp_input(model, number, &told, &error) : gpucomp_output(model, number, &told, &error), &error);
    tensor.bytes = (size_t)told.bytes;
    tensor.data = aligned_alloc(64, (tensor.bytes / 64 + 1) * 64);
    if (!tensor.data)
        exit(2);
    for (size_t k = 0; k < tensor.bytes; k++) /* small numbers, whatever the type */
        ((unsigned char *)tensor.data)[k] = input && k % 4 == 0 ? (unsigned char)(k / 4 % 100) : 0;
    return tensor;
}

static void fill(struct tensors *tensors)
{
    for (size_t k = 0; k < info.inputs; k++)
        tensors->inputs[k] = tensor_of(k, 1);
    for (size_t k = 0; k < info.outputs; k++)
        tensors->outputs[k] = tensor_of(k, 0);
}

static void empty(struct tensors *tensors)
{
    for (size_t k = 0; k < info.inputs; k++)
        free(tensors->inputs[k].data);
    for (size_t k = 0; k < info.outputs; k++)
        free(tensors->outputs[k].data);
}

static int run(gpucomp_context *context, struct tensors *tensors)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    int code = gpucomp_run(context, tensors->inputs, info.inputs, tensors->outputs, info.outputs, &error);
    check(code == BUSY ? 0 : code, &error);
    return code;
}

static void compare(const struct tensors *tensors)
{
    for (size_t k = 0; k < info.outputs; k++)
        if (memcmp(tensors->outputs[k].data, expected.outputs[k].data, tensors->outputs[k].bytes) != 0) {
            fprintf(stderr, "output %zu has other bits\n", k);
            exit(3);
        }
}

static gpucomp_context *context_of_two(void)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
    gpucomp_context *made;
    options.threads = 2;
    check(gpucomp_context_create(model, &options, &made, &error), &error);
    return made;
}

static void *work(void *unused)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_model *again;
    struct tensors tensors;
    (void)unused;
    fill(&tensors);
    for (int round = 0; round < 2; round++) {
        gpucomp_context *own = context_of_two();
        for (long k = 0; k < runs; k++) {
            run(own, &tensors);
            compare(&tensors);
            if (run(shared, &tensors) == 0)
                compare(&tensors);
        }
        gpucomp_context_destroy(own);
    }
    check(gpucomp_open(path, NULL, &again, &error), &error);
    gpucomp_close(again);
    empty(&tensors);
    return NULL;
}

int main(int count, char **given)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    pthread_t threads[MOST_THREADS];
    long workers = count == 4 ? strtol(given[2], NULL, 10) : 0;
    if (workers < 1 || workers > MOST_THREADS)
        return 2;
    path = given[1], runs = strtol(given[3], NULL, 10);
    info.size = sizeof info;
    check(gpucomp_open(path, NULL, &model, &error), &error);
    check(gpucomp_describe(model, &info, &error), &error);
    if (info.inputs > MOST_TENSORS || info.outputs > MOST_TENSORS)
        return 2;
    shared = context_of_two();
    fill(&expected);
    run(shared, &expected);
    for (long k = 0; k < workers; k++)
        if (pthread_create(threads + k, NULL, work, NULL))
            return 2;
    for (long k = 0; k < workers; k++)
        pthread_join(threads[k], NULL);
    gpucomp_context_destroy(shared);
    gpucomp_close(model);
    empty(&expected);
    return 0;
}
