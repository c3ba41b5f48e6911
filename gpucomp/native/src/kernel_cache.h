/* Compiled kernels that are kept on the disk: the files of gpucomp/targets/cache.py, which programs in Python read too. */
#ifndef GCRT_KERNEL_CACHE_H
#define GCRT_KERNEL_CACHE_H

#include "store.h"

struct kernel_cache {
    const char *folder; /* NULL: nothing is kept */
    uint64_t most_bytes;
    bool written; /* something, since it was opened */
};

/* `folder` as gpucomp_open_options has it. GPC5013. */
int gcrt_cache_open(struct store *store, const char *folder, struct kernel_cache *cache, gpucomp_error *error);

/* What is kept for a key, a SHA-256 in hexadecimal; false if nothing is, if it is damaged, or if others could have written it. */
bool gcrt_cache_get(const struct kernel_cache *cache, struct store *store, const char key[65], const uint8_t **data,
                    size_t *bytes);

/* Keep it: as a whole, or not at all where the disk is full or the folder cannot be written. */
void gcrt_cache_put(struct kernel_cache *cache, const char key[65], const uint8_t *data, size_t bytes);

/* After entries were written: delete those that were used longest ago, until the rest fits. */
void gcrt_cache_trim(const struct kernel_cache *cache);
#endif
