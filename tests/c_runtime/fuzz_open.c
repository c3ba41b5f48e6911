/* libFuzzer's target: opens a file and prepares to run. A changed file gets right digests and checksums, so that what is behind them is
 * reached; one that is no container any more is tried as it is. Parts of the manifest that grow take the place of spaces behind it. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "digest.h"
#include "gpucomp.h"
#include "mutations.h"

#define MANIFEST ((struct text){"manifest.json", 13})
#define TRUNCATED 64 /* one of so many mutations is of the bytes as they are */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    void *exact; /* the sanitizer tells if anything behind it is read */
    if (posix_memalign(&exact, 64, bytes ? bytes : 1))
        return -1;
    memcpy(exact, data, bytes);
    opened(exact, bytes);
    free(exact);
    return 0;
}

/* Let libFuzzer change a member; it keeps its size. */
static void change_member(uint8_t *data, size_t bytes, const struct member *member, const struct member *manifest)
{
    char before[65];
    uint8_t *own = data + (member->data - data), *copy = malloc((size_t)member->bytes + 1);
    size_t room = (size_t)member->bytes, used = room;
    if (!copy || !room) {
        free(copy);
        return;
    }
    gcrt_sha256(own, room, before);
    memcpy(copy, own, room);
    while (member == manifest && used > 1 && copy[used - 1] == ' ')
        used--;
    used = LLVMFuzzerMutate(copy, used, room);
    memcpy(own, copy, used);
    memset(own + used, member == manifest ? ' ' : 0, room - used);
    free(copy);
    if (member != manifest)
        seal_digest(member, manifest, before);
    seal(data, bytes, manifest);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    struct store store = {0};
    struct container all;
    uint8_t *aligned;
    mutation_seed = seed * 0x9e3779b97f4a7c15u + 1;
    if (drawn(TRUNCATED) == 0)
        return LLVMFuzzerMutate(data, bytes, most);
    if (posix_memalign((void **)&aligned, 64, bytes ? bytes : 1))
        return bytes;
    memcpy(aligned, data, bytes);
    const struct member *manifest =
        gcrt_container(&store, aligned, bytes, "m.gpuc", "none", &all, NULL) ? NULL : gcrt_member(&all, "", MANIFEST);
    if (!manifest)
        bytes = LLVMFuzzerMutate(aligned, bytes, bytes);
    else if (drawn(3) == 0)
        mutate(aligned, bytes, &all, manifest);
    else
        change_member(aligned, bytes, drawn(3) ? manifest : all.members + drawn(all.count), manifest);
    memcpy(data, aligned, bytes);
    free(aligned);
    gcrt_free(&store);
    return bytes;
}
