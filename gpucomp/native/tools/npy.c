/* Reads and writes .npy files (numpy.lib.format). */
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_HEADER (1u << 16)

static const struct {
    const char *dtype, *type;
} TYPES[] = {{"f64", "<f8"}, {"f32", "<f4"}, {"f16", "<f2"}, {"i64", "<i8"}, {"i32", "<i4"}, {"i16", "<i2"}, {"i8", "|i1"},
             {"u64", "<u8"}, {"u32", "<u4"}, {"u16", "<u2"}, {"u8", "|u1"},  {"bool", "|b1"}, {"bf16", "<V2"}};

const char *npy_type(const char *dtype)
{
    for (size_t k = 0; k < sizeof TYPES / sizeof *TYPES; k++)
        if (strcmp(dtype, TYPES[k].dtype) == 0)
            return TYPES[k].type;
    return "|V1";
}

/* The text behind 'key': in the header. */
static const char *value_of(const char *header, const char *key)
{
    const char *found = strstr(header, key);
    return found ? found + strlen(key) + strspn(found + strlen(key), " ") : NULL;
}

static const char *parse(const char *header, struct npy *array)
{
    const char *type = value_of(header, "'descr':"), *order = value_of(header, "'fortran_order':");
    const char *shape = value_of(header, "'shape':");
    size_t count = type && *type == '\'' ? strcspn(type + 1, "'") : 0;
    if (!count || count >= sizeof array->type || !order || !shape || *shape != '(')
        return "a header that is not one of numpy's simple arrays";
    if (*order != 'F')
        return "an array in the order of C expected (numpy.ascontiguousarray)";
    if (type[1] == '>')
        return "a little-endian array expected";
    memcpy(array->type, type + 1, count);
    array->type[count] = 0;
    unsigned long each = strtoul(array->type + 2, NULL, 10);
    uint64_t bytes = each;
    for (shape++; *shape && *shape != ')';) {
        char *end;
        long long extent = strtoll(shape, &end, 10);
        if (end == shape || extent < 0 || array->rank == 32 || __builtin_mul_overflow(bytes, (uint64_t)extent, &bytes))
            return "a shape that cannot be understood";
        array->shape[array->rank++] = extent;
        shape = end + strspn(end, ", ");
    }
    array->bytes = (size_t)bytes;
    return bytes <= SIZE_MAX / 2 ? NULL : "a shape that is too large";
}

static const char *read_from(FILE *file, struct npy *array)
{
    unsigned char start[12];
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0 || (start[6] != 1 && start[6] != 2))
        return "not a .npy file";
    size_t count = start[8] | (size_t)start[9] << 8;
    if (start[6] == 2) {
        if (fread(start + 10, 1, 2, file) != 2)
            return "truncated";
        count |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    char *header = count <= MOST_HEADER ? calloc(1, count + 1) : NULL;
    const char *wrong = header && fread(header, 1, count, file) == count ? parse(header, array) : "a header that is too long";
    free(header);
    if (wrong)
        return wrong;
    array->data = aligned_alloc(64, (array->bytes + 64) / 64 * 64);
    if (!array->data)
        return "no memory";
    return fread(array->data, 1, array->bytes, file) == array->bytes ? NULL : "truncated";
}

const char *npy_read(const char *path, struct npy *array)
{
    *array = (struct npy){.rank = 0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return "cannot be opened";
    const char *wrong = read_from(file, array);
    fclose(file);
    if (wrong) {
        free(array->data);
        array->data = NULL;
    }
    return wrong;
}

const char *npy_write(const char *path, const struct npy *array)
{
    char header[1024];
    int count = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", array->type);
    for (size_t d = 0; d < array->rank; d++)
        count += snprintf(header + count, sizeof header - (size_t)count, "%lld,%s", (long long)array->shape[d],
                          d + 1 < array->rank ? " " : "");
    count += snprintf(header + count, sizeof header - (size_t)count, "), }");
    while ((10 + count + 1) % 64)
        header[count++] = ' ';
    header[count++] = '\n';
    unsigned char start[10] = "\x93NUMPY\x01";
    start[8] = (unsigned char)count;
    start[9] = (unsigned char)(count >> 8);
    FILE *file = fopen(path, "wb");
    if (!file)
        return "cannot be opened";
    size_t written = fwrite(start, 1, 10, file) + fwrite(header, 1, (size_t)count, file);
    written += array->bytes ? fwrite(array->data, 1, array->bytes, file) : 0;
    int failed = fclose(file);
    return failed || written != 10 + (size_t)count + array->bytes ? "cannot be written" : NULL;
}
