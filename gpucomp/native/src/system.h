/* What is asked of the operating system: files, large pages, the processor's features. */
#ifndef GCRT_SYSTEM_H
#define GCRT_SYSTEM_H

#include "store.h"

/* A file in memory that cannot be written. */
struct mapped {
    const uint8_t *data;
    size_t bytes;
};

int gcrt_map(const char *path, struct mapped *mapped, gpucomp_error *error);
void gcrt_unmap(struct mapped *mapped);

uint64_t gcrt_page(void); /* bytes of a page */

/* Zeroed memory that the system provides page by page when it is touched, aligned to a page; NULL if there is none. */
void *gcrt_reserve(size_t bytes);
void gcrt_touch(void *memory, size_t bytes); /* have all of it provided, which costs less than page by page */
void gcrt_release(void *memory, size_t bytes);

/* The same in large pages, aligned to one; NULL if the system does not give them. */
void *gcrt_large_pages(size_t bytes);
#define GCRT_LARGE_PAGE ((size_t)2 << 20)

/* Give pages of a mapped file back, which the system loads again when they are read. */
void gcrt_give_back(const void *from, size_t bytes);

size_t gcrt_second_cache(void); /* bytes of the processor's L2 cache */
int gcrt_processors(void);      /* that this process may use */
const char *gcrt_own_machine(void);

/* GPC5007 if this processor lacks one of the features, which have LLVM's names, or the system refuses tile registers. */
int gcrt_require(const struct text *features, size_t count, struct text arch, gpucomp_error *error);

/* The same for names with commas between, of code for `target`. */
int gcrt_require_listed(struct text features, struct text target, gpucomp_error *error);
#endif
