/* The zip file of a compiled model; see gpucomp/artifact/container.py, whose layout this checks. */
#ifndef GCRT_CONTAINER_H
#define GCRT_CONTAINER_H

#include "store.h"

struct member {
    struct text name;
    const uint8_t *data;
    uint64_t bytes;
    uint32_t crc;
    uint64_t start; /* of its header in the file */
};

struct container {
    struct member *members; /* in the order of their names */
    size_t count;
};

/* Find the members of a file in memory that gpucomp wrote: any other is an error, GPC7001. The data of member `sealed` is
 * checked against the zip's checksum; it holds the digests of the others. `path` is for messages. */
int gcrt_container(struct store *store, const uint8_t *data, uint64_t bytes, const char *path, const char *sealed,
                   struct container *found, gpucomp_error *error);

const struct member *gcrt_member(const struct container *container, const char *prefix, struct text name);
#endif
