/* Changes to compiled models that most checks do not see: see mutations.h. */
#include "mutations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digest.h"
#include "gpucomp.h"

#define MOST_INPUTS 16

uint64_t mutation_seed;

uint64_t drawn(uint64_t below)
{
    mutation_seed ^= mutation_seed << 13;
    mutation_seed ^= mutation_seed >> 7;
    mutation_seed ^= mutation_seed << 17;
    return mutation_seed % below;
}

static void change(uint8_t *data, uint64_t bytes)
{
    static const char characters[] = "0123456789-\"[]{},:.ex \\nulltrue";
    uint64_t at = drawn(bytes), count = 1 + drawn(8);
    count = count < bytes - at ? count : bytes - at;
    switch (drawn(5)) {
    case 0: data[at] ^= (uint8_t)(1 << drawn(8)); break;
    case 1: data[at] = (uint8_t)characters[drawn(sizeof characters - 1)]; break;
    case 2: memset(data + at, drawn(2) ? 0xff : 0, count); break;
    case 3: memmove(data + at, data + drawn(bytes - count + 1), count); break;
    default: /* another digit, where there is one */
        while (at < bytes && (data[at] < '0' || data[at] > '9'))
            at++;
        if (at < bytes)
            data[at] = (uint8_t)('0' + drawn(10));
    }
}

static void put(uint8_t *at, uint32_t value)
{
    for (int k = 0; k < 4; k++)
        at[k] = (uint8_t)(value >> 8 * k);
}

void seal_digest(const struct member *member, const struct member *manifest, const char *before)
{
    char now[65];
    gcrt_sha256(member->data, (size_t)member->bytes, now);
    uint8_t *text = (uint8_t *)(uintptr_t)manifest->data;
    for (uint64_t at = 0; at + 64 <= manifest->bytes; at++)
        if (memcmp(text + at, before, 64) == 0) {
            memcpy(text + at, now, 64);
            return;
        }
}

void seal(uint8_t *data, size_t bytes, const struct member *manifest)
{
    uint32_t crc = gcrt_crc32(manifest->data, (size_t)manifest->bytes);
    put(data + manifest->start + 14, crc);
    for (size_t at = bytes - 4; at-- > 0;)
        if (memcmp(data + at, "PK\1\2", 4) == 0 && at + 46 + manifest->name.count < bytes &&
            memcmp(data + at + 46, manifest->name.at, manifest->name.count) == 0) {
            put(data + at + 16, crc);
            return;
        }
}

void mutate(uint8_t *data, size_t bytes, const struct container *all, const struct member *manifest)
{
    int changes = 1 + (int)drawn(3);
    switch (drawn(8)) {
    case 0: /* anything, found by a checksum or a digest */
        while (changes--)
            change(data, bytes);
        return;
    case 1:
    case 2: { /* machine code, weights or a source */
        const struct member *member = all->members + drawn(all->count);
        char before[65];
        gcrt_sha256(member->data, (size_t)member->bytes, before);
        while (changes-- && member->bytes)
            change((uint8_t *)(uintptr_t)member->data, member->bytes);
        if (member != manifest)
            seal_digest(member, manifest, before);
        break;
    }
    default:
        while (changes--)
            change((uint8_t *)(uintptr_t)manifest->data, manifest->bytes);
    }
    seal(data, bytes, manifest);
}

static void agree(int code, const gpucomp_error *error)
{
    if (code == error->code && (!code || strlen(error->text) >= 10))
        return;
    fprintf(stderr, "code %d, told %d: %s\n", code, error->code, error->text);
    exit(3);
}

/* Plan runs at the least and at the largest sizes of the inputs, and ask for the shapes of their results. */
static void plan(const gpucomp_model *model, gpucomp_context *context, bool largest)
{
    static int64_t shapes[MOST_INPUTS][GPUCOMP_MAX_RANK];
    gpucomp_tensor inputs[MOST_INPUTS];
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_model_info info = {.size = sizeof info};
    gpucomp_tensor_info told = {.size = sizeof told};
    agree(gpucomp_describe(model, &info, &error), &error);
    for (size_t k = 0; k < info.inputs && k < MOST_INPUTS; k++) {
        agree(gpucomp_input(model, k, &told, &error), &error);
        inputs[k] = (gpucomp_tensor)GPUCOMP_TENSOR_INIT;
        inputs[k].shape = shapes[k];
        inputs[k].rank = told.rank;
        for (size_t d = 0; d < told.rank; d++)
            shapes[k][d] = largest ? told.axes[d].high / told.axes[d].multiple * told.axes[d].multiple : told.axes[d].low;
    }
    int code = info.inputs <= MOST_INPUTS ? gpucomp_plan(context, inputs, info.inputs, &error) : 0;
    agree(code, &error);
    for (size_t k = 0; k < info.outputs; k++) {
        uint64_t bytes;
        size_t rank;
        agree(gpucomp_output(model, k, &told, &error), &error);
        agree(gpucomp_output_shape(context, k, shapes[0], &rank, &bytes, &error), &error);
    }
    for (size_t k = 0; k < info.states; k++)
        agree(gpucomp_state(model, k, &told, &error), &error);
}

int opened(const uint8_t *data, size_t bytes)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_model *model;
    gpucomp_context *context;
    gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    int code = gpucomp_open_memory(data, bytes, NULL, &model, &error);
    agree(code, &error);
    if (code)
        return code;
    code = gpucomp_context_create(model, &options, &context, &error);
    agree(code, &error);
    if (code == 0) {
        plan(model, context, false);
        plan(model, context, true);
    }
    gpucomp_context_destroy(context);
    gpucomp_close(model);
    return code;
}
