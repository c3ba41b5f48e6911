/* Memory that is freed all at once, texts, and errors. */
#ifndef GCRT_STORE_H
#define GCRT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpucomp.h"

#define GCRT_DAMAGED_FILE 7001
#define GCRT_OTHER_SCHEMA 7002
#define GCRT_WRONG_DIGEST 7003
#define GCRT_WRONG_MANIFEST 7004
#define GCRT_UNREADABLE 7005
#define GCRT_TOO_LARGE 7006
#define GCRT_DAMAGED_CODE 7010
#define GCRT_WRONG_PLAN 7020
#define GCRT_WRONG_BINARIES 7021
#define GCRT_WRONG_FORMULAS 7024
#define GCRT_NO_DEVICE 5001
#define GCRT_NO_DRIVER 5002
#define GCRT_NO_DEVICE_MEMORY 5004
#define GCRT_NOT_OPENED 5005
#define GCRT_FAILED_RUN 5006
#define GCRT_OTHER_PROCESSOR 5007
#define GCRT_OTHER_GPU 5008
#define GCRT_NOT_EXECUTABLE 5011
#define GCRT_NO_MEMORY 5013
#define GCRT_REFUSED_CODE 5015
#define GCRT_REFUSED_MAP 5016
#define GCRT_SMALL_ARENA 5020
#define GCRT_REFUSED_KERNEL 5100
#define GCRT_NO_LAUNCH 5104
#define GCRT_WRONG_KERNEL 5106
#define GCRT_LOST_DEVICE 5201
#define GCRT_ONLY_PYTHON 4102
#define GCRT_BUSY 2037
#define GCRT_NO_STATE 2041
#define GCRT_WRONG_CALL 2042
#define GCRT_WRONG_SHAPE 2103
#define GCRT_SIZE_OUTSIDE 2111
#define GCRT_SIZES_DIFFER 2112
#define GCRT_NOT_FOR_SIZES 2113
#define GCRT_NO_ROOM 2115
#define GCRT_SHARED_RESULT 2116
#define GCRT_WRONG_STATE 2117
#define GCRT_STATE_FULL 2118

/* Pieces of memory that belong together. All zero is an empty store. */
struct store {
    struct piece *pieces;
    char *next;
    size_t left;
};

/* `count` things of `size` bytes, zeroed and aligned to 16 bytes; NULL without memory. */
void *gcrt_new(struct store *store, size_t count, size_t size);
void gcrt_free(struct store *store);

/* A text in UTF-8, which may hold any byte, followed by a zero byte. */
struct text {
    const char *at;
    size_t count;
};

struct text gcrt_text(const char *text);
bool gcrt_same(struct text one, struct text other);
int gcrt_order(struct text one, struct text other); /* by bytes, as strcmp */
bool gcrt_copy_text(struct store *store, struct text *text);

/* A text of a file for a one-line message: in quotes, escaped, and cut off if it is long, as gpucomp.errors.quote does. */
struct quoted {
    char text[512];
};
struct quoted gcrt_quote(struct text text);
#define QUOTE(given) (gcrt_quote(given).text)

/* Note an error of this code in `error`, which may be NULL; returns the code. */
int gcrt_fail(gpucomp_error *error, int code, const char *format, ...);
int gcrt_no_memory(gpucomp_error *error);
void gcrt_tell(gpucomp_error *error, const gpucomp_error *own); /* copy as much as fits */
void gcrt_clear(gpucomp_error *error);

/* Where a structure of the caller ended in the first version of the interface, of which `last` was the last field. */
#define GCRT_END(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* a * b, or INT64_MAX if that is more. Neither is negative. */
int64_t gcrt_times(int64_t a, int64_t b);
/* `value` rounded up to a multiple of `unit`. */
static inline uint64_t gcrt_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
#endif
