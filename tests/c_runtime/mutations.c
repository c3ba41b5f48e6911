/* Changes to compiled models that most checks do not see: see mutations.h. */
#include "mutations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digest.h"
#include "gpucomp.h"

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

int opened(const uint8_t *data, size_t bytes)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_model *model;
    gpucomp_context *context;
    gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    int code = gpucomp_open_memory(data, bytes, NULL, &model, &error);
    if (code == 0) {
        code = gpucomp_context_create(model, &options, &context, &error);
        gpucomp_context_destroy(context);
        gpucomp_close(model);
    }
    if (code != error.code || (code && strlen(error.text) < 10)) {
        fprintf(stderr, "code %d, told %d: %s\n", code, error.code, error.text);
        exit(3);
    }
    return code;
}
