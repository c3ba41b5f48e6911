/* Weights as safetensors: names and types imply the header, which is compared and never parsed. As
 * gpucomp/artifact/weights.py. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define TENSOR_ALIGNMENT 64
#define PART (8 * GCRT_LARGE_PAGE) /* copied at a time */
/* Smaller weights stay in a cache, and are read as fast where they are mapped: within 1 % from mobilenet_v2 (14 MB) to ViT-tiny
 * (23 MB). The copy took as long as half a run of mobilenet_v2. */
#define WORTH_COPYING ((uint64_t)32 << 20)

struct weight {
    struct text name;
    const struct buffer *buffer;
    size_t order; /* of its first occurrence */
    uint64_t begin;
    struct program *program;
    size_t position;
};

/* Compares text, as it is made, with the header. */
struct header {
    const uint8_t *at, *end;
    uint64_t written;
    bool same;
};

static void put(struct header *header, const char *text, size_t count)
{
    header->written += count;
    if (!header->same || (size_t)(header->end - header->at) < count || memcmp(header->at, text, count) != 0) {
        header->same = false;
        return;
    }
    header->at += count;
}

static void put_number(struct header *header, const char *before, uint64_t number)
{
    char text[64];
    put(header, text, (size_t)snprintf(text, sizeof text, "%s%" PRIu64, before, number));
}

/* The next character of a text in UTF-8. */
static long next_character(const char **at, const char *end)
{
    unsigned char first = (unsigned char)*(*at)++;
    int more = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    long code = more ? first & (0x3f >> more) : first;
    for (; more && *at < end; more--)
        code = code << 6 | (*(*at)++ & 0x3f);
    return code;
}

/* A text as Python's json writes it: ASCII. */
static void put_text(struct header *header, struct text text)
{
    static const char named[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *at = text.at, *end = at + text.count;
    put(header, "\"", 1);
    while (at < end) {
        long code = next_character(&at, end);
        char one[16] = {(char)code};
        size_t count = 1;
        const char *which = code && code < 0x80 ? strchr(named, (int)code) : NULL;
        if (which)
            count = (size_t)snprintf(one, sizeof one, "\\%c", names[which - named]);
        else if (code >= 0x10000)
            count = (size_t)snprintf(one, sizeof one, "\\u%04lx\\u%04lx", 0xd800 + ((code - 0x10000) >> 10),
                                     0xdc00 + (code & 0x3ff));
        else if (code < 0x20 || code > 0x7e)
            count = (size_t)snprintf(one, sizeof one, "\\u%04lx", code);
        put(header, one, count);
    }
    put(header, "\"", 1);
}

static void put_offsets(struct header *header, uint64_t from, uint64_t to)
{
    put_number(header, "],\"data_offsets\":[", from);
    put_number(header, ",", to);
    put(header, "]}", 2);
}

static void put_tensor(struct header *header, const struct weight *weight)
{
    const struct dtype *dtype = gcrt_dtypes + weight->buffer->dtype;
    put_text(header, weight->name);
    put(header, ":{\"dtype\":\"", 11);
    const char *name = dtype->in_weights ? dtype->in_weights : "U8";
    put(header, name, strlen(name));
    put(header, "\",\"shape\":[", 11);
    for (size_t k = 0; k < weight->buffer->shape.count; k++)
        put_number(header, k ? "," : "", (uint64_t)ITEMS(weight->buffer->shape, struct number)[k].value);
    if (!dtype->in_weights) /* stored as bytes, with one more axis */
        put_number(header, weight->buffer->shape.count ? "," : "", dtype->bytes);
    put_offsets(header, weight->begin, weight->begin + (uint64_t)weight->buffer->nbytes);
}

/* Write the header and place the tensors; the bytes behind the header. It stops once there are more than `most`. */
static uint64_t put_header(struct header *header, struct weight **weights, size_t count, uint64_t most)
{
    uint64_t position = 0; /* a buffer has at most 2^48 bytes, so that no sum wraps before it is compared */
    put(header, "{", 1);
    for (size_t k = 0; k < count && position <= most; k++) {
        uint64_t begin = gcrt_up(position, TENSOR_ALIGNMENT), gap = begin - position;
        if (k)
            put(header, ",", 1);
        if (gap) {
            put_number(header, "\"pad.", k);
            put_number(header, "\":{\"dtype\":\"U8\",\"shape\":[", gap);
            put_offsets(header, position, begin);
            put(header, ",", 1);
        }
        weights[k]->begin = begin;
        put_tensor(header, weights[k]);
        position = begin + (uint64_t)weights[k]->buffer->nbytes;
    }
    put(header, "}", 1);
    while ((8 + header->written) % TENSOR_ALIGNMENT && header->same)
        put(header, " ", 1);
    return position;
}

static int by_name(const void *one, const void *other)
{
    const struct weight *a = one, *b = other;
    int order = gcrt_order(a->name, b->name);
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

static int by_order(const void *one, const void *other)
{
    const struct weight *a = *(struct weight *const *)one, *b = *(struct weight *const *)other;
    return (a->order > b->order) - (a->order < b->order);
}

static bool same_type(const struct buffer *one, const struct buffer *other)
{
    bool same = one->dtype == other->dtype && one->shape.count == other->shape.count;
    for (size_t k = 0; same && k < one->shape.count; k++)
        same = ITEMS(one->shape, struct number)[k].value == ITEMS(other->shape, struct number)[k].value;
    return same;
}

/* All weights of all programs, by name. */
static struct weight *listed(struct store *store, gpucomp_model *model, size_t *count)
{
    size_t most = 0;
    for (size_t p = 0; p < model->program_count; p++)
        most += model->programs[p].plan.buffers.count;
    struct weight *weights = gcrt_new(store, most, sizeof *weights);
    for (size_t p = 0; weights && p < model->program_count; p++) {
        struct program *program = model->programs + p;
        for (size_t k = 0; k < program->plan.buffers.count; k++) {
            const struct buffer *buffer = ITEMS(program->plan.buffers, struct buffer) + k;
            if (buffer->kind == WEIGHT && gcrt_dtypes[buffer->dtype].kind != 's') {
                weights[*count] = (struct weight){buffer->name, buffer, *count, 0, program, k};
                ++*count;
            }
        }
    }
    if (weights)
        qsort(weights, *count, sizeof *weights, by_name);
    return weights;
}

/* Copy the weights side by side into large pages, if that is worth it; where they are then. */
static const uint8_t *moved(gpucomp_model *model, const uint8_t *body, uint64_t bytes)
{
    if (bytes < WORTH_COPYING || model->keep_mapped || !(model->large = gcrt_large_pages((size_t)bytes)))
        return body;
    model->large_bytes = (size_t)gcrt_up(bytes, gcrt_page());
    for (uint64_t at = 0; at < bytes; at += PART) { /* so that memory is not needed twice */
        size_t count = (size_t)(bytes - at < PART ? bytes - at : PART);
        memcpy((uint8_t *)model->large + at, body + at, count);
        if (model->mapped.data)
            gcrt_give_back(body + at, count);
    }
    return model->large;
}

int gcrt_weights(gpucomp_model *model, const struct member *member, gpucomp_error *error)
{
    struct store scratch = {0};
    size_t count = 0, unique = 0;
    struct weight *weights = listed(&scratch, model, &count);
    struct weight **first = gcrt_new(&scratch, count, sizeof *first);
    int code = weights && first ? 0 : gcrt_no_memory(error);
    for (size_t k = 0; k < count && code == 0; k++) {
        bool known = k && gcrt_same(weights[k - 1].name, weights[k].name);
        if (known && !same_type(weights[k - 1].buffer, weights[k].buffer))
            code = gcrt_fail(error, GCRT_WRONG_MANIFEST, "weight %s is of two types", QUOTE(weights[k].name));
        if (!known)
            first[unique++] = weights + k;
    }
    if (code == 0 && unique)
        qsort(first, unique, sizeof *first, by_order);
    bool whole = code == 0 && member->bytes >= 8;
    if (whole) {
        struct header header = {member->data + 8, member->data + member->bytes, 0, true};
        uint64_t bytes = put_header(&header, first, unique, member->bytes), stated = 0;
        for (int k = 8; k--;)
            stated = stated << 8 | member->data[k];
        whole = header.same && stated == header.written && member->bytes - 8 - header.written == bytes;
        if (whole) {
            model->weight_bytes = bytes;
            const uint8_t *body = moved(model, header.at, bytes);
            const struct weight *own = NULL;
            for (size_t k = 0; k < count; k++) {
                own = k && gcrt_same(weights[k - 1].name, weights[k].name) ? own : weights + k;
                weights[k].program->weights[weights[k].position] = body + own->begin;
            }
        }
    }
    gcrt_free(&scratch);
    if (code == 0 && !whole)
        code = gcrt_fail(error, GCRT_WRONG_MANIFEST, "weights.safetensors does not hold the weights that the manifest lists");
    return code;
}
