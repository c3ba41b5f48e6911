/* Changes to compiled models. Digests and checksums are made right again after most of them, so that what is behind these checks is
 * reached. */
#ifndef MUTATIONS_H
#define MUTATIONS_H

#include "container.h"

/* The state of `drawn`, which is not 0. */
extern uint64_t mutation_seed;
uint64_t drawn(uint64_t below);

/* Make the digest of a member in the manifest right, which was `before`: 64 digits. */
void seal_digest(const struct member *member, const struct member *manifest, const char *before);

/* Make the checksum of the manifest right, in its header and in the directory. */
void seal(uint8_t *data, size_t bytes, const struct member *manifest);

/* Change a file at random. */
void mutate(uint8_t *data, size_t bytes, const struct container *all, const struct member *manifest);

/* Open a file in memory, make a context, and plan runs; the code of the first two. An error whose parts contradict each other ends the process. */
int opened(const uint8_t *data, size_t bytes);
#endif
