/* Reads and writes .npy files, versions 1 and 2, in the order of C and the byte order of the machine. */
#ifndef NPY_H
#define NPY_H

#include <stddef.h>
#include <stdint.h>

struct npy {
    char type[16]; /* <f4, |u1 ... */
    int64_t shape[32];
    size_t rank, bytes;
    void *data; /* to be freed by the caller */
};

/* NULL, or what is wrong. */
const char *npy_read(const char *path, struct npy *array);
const char *npy_write(const char *path, const struct npy *array);

/* numpy's name of an element type of gpucomp's; for those that numpy lacks, bytes. */
const char *npy_type(const char *dtype);
#endif
