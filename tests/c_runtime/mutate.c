/* Opens mutations of a compiled model: mutate FILE SEED COUNT. Digests and checksums are made right again after most of them,
 * so that what is behind these checks is reached. Nothing of them is run. Prints how many opened, and how often each code was. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucomp.h"
#include "mutations.h"

static size_t different(int codes[10000])
{
    size_t count = 0;
    for (int k = 1; k < 10000; k++)
        count += codes[k] > 0;
    return count;
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
    mutation_seed = strtoull(given[2], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
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
