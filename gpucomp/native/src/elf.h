/* Loads the relocatable ELF objects of a model into executable memory; see gpucomp/artifact/elf.py. */
#ifndef GCRT_ELF_H
#define GCRT_ELF_H

#include "store.h"

struct symbol {
    struct text name;
    uint64_t offset, bytes;
};

/* Objects in memory, which is never writable and executable at once. */
struct image {
    uint8_t *base;
    size_t bytes, code_bytes;
    struct symbol *symbols; /* by name */
    size_t symbol_count;
    unsigned machine; /* as ELF numbers it */
};

/* Load the objects of a blob, each of which follows its length in eight bytes. Everything in them is checked: GPC7010.
 * GPC5007 for another machine, GPC5011 where memory cannot be made executable. */
int gcrt_load(struct store *store, const uint8_t *blob, size_t bytes, struct image *image, gpucomp_error *error);
void gcrt_unload(struct image *image);

/* Where the function or constant is that is called `name`, or NULL. */
const uint8_t *gcrt_address(const struct image *image, struct text name, uint64_t *bytes);

const char *gcrt_machine(unsigned number); /* as platform.machine() names it; "" for others */

/* The bytes that a relocation of this type changes; 0 if the type is not supported. `got`: it points to an address in a table. */
int gcrt_relocation_bytes(unsigned machine, uint32_t type, bool *got);

/* The new value of `current`, the bytes at address `place`, for a target of `value` (S + A); false if it is out of range. */
bool gcrt_relocated(unsigned machine, uint32_t type, uint64_t current, uint64_t value, uint64_t place, uint64_t *found);
#endif
