/* Opens mutations of a compiled model: mutate FILE SEED COUNT. Digests and checksums are made right again after most of them,
 * so that what is behind these checks is reached. Nothing of them is run. Prints how many opened, and how often each code was. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container.h"
#include "digest.h"
#include "gpucomp.h"

static uint64_t seed;

static uint64_t drawn(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
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

/* Make the digest of a member in the manifest right. */
static void seal_digest(const struct member *member, const struct member *manifest, const char *before)
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

/* Make the checksum of the manifest right, in its header and in the directory. */
static void seal(uint8_t *data, size_t bytes, const struct member *manifest)
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

static void mutate(uint8_t *data, size_t bytes, const struct container *all, const struct member *manifest)
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

static size_t different(int codes[10000])
{
    size_t count = 0;
    for (int k = 1; k < 10000; k++)
        count += codes[k] > 0;
    return count;
}

/* Open, and prepare to run. */
static int opened(const uint8_t *data, size_t bytes)
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

int main(int count, char **given)
{
    static int codes[10000];
    FILE *file = count == 4 ? fopen(given[1], "rb") : NULL;
    if (!file || fseek(file, 0, SEEK_END))
        return 2;
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *whole = malloc(bytes), *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    struct store store = {0};
    struct container all;
    if (!whole || !data || fread(whole, 1, bytes, file) != bytes)
        return 2;
    fclose(file);
    seed = strtoull(given[2], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
    for (long k = strtol(given[3], NULL, 10); k > 0; k--) {
        memcpy(data, whole, bytes);
        if (gcrt_container(&store, data, bytes, "m.gpuc", "manifest.json", &all, NULL))
            return 4;
        size_t kept = bytes;
        if (drawn(20) == 0)
            kept = drawn(bytes);
        else
            mutate(data, bytes, &all, gcrt_member(&all, "", (struct text){"manifest.json", 13}));
        gcrt_free(&store);
        uint8_t *exact; /* the sanitizer tells if anything behind it is read */
        if (posix_memalign((void **)&exact, 64, kept ? kept : 1))
            return 2;
        memcpy(exact, data, kept);
        codes[opened(exact, kept)]++;
        free(exact);
    }
    printf("%d opened, %zu codes\n", codes[0], different(codes));
    for (int k = 1; k < 10000; k++)
        if (codes[k])
            printf("GPC%04d %d\n", k, codes[k]);
    free(whole);
    free(data);
    return 0;
}
