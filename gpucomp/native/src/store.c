/* Memory that is freed all at once, texts, and errors. */
#include "store.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (64u << 10)
#define MOST_QUOTED 120 /* characters, as in gpucomp.errors */
#define ALIGNMENT 16
#define SMALLEST_ERROR (offsetof(gpucomp_error, text) + 16) /* room for the code and some of its sentence */

struct piece {
    struct piece *before;
    size_t padding; /* so that what follows is aligned */
};

void *gcrt_new(struct store *store, size_t count, size_t size)
{
    if (size && count > (SIZE_MAX / 2) / size)
        return NULL;
    size_t bytes = gcrt_up(count * size, ALIGNMENT);
    if (bytes == 0)
        bytes = ALIGNMENT; /* no two things have one address */
    if (bytes > store->left) {
        size_t room = bytes > PIECE ? bytes : PIECE;
        struct piece *piece = calloc(1, sizeof *piece + room);
        if (!piece)
            return NULL;
        piece->before = store->pieces;
        store->pieces = piece;
        if (bytes > PIECE / 2) /* what is left of the piece before stays in use */
            return piece + 1;
        store->next = (char *)(piece + 1);
        store->left = room;
    }
    void *found = store->next;
    store->next += bytes;
    store->left -= bytes;
    return found;
}

void gcrt_free(struct store *store)
{
    while (store->pieces) {
        struct piece *before = store->pieces->before;
        free(store->pieces);
        store->pieces = before;
    }
    *store = (struct store){0};
}

struct text gcrt_text(const char *text) { return (struct text){text, strlen(text)}; }

bool gcrt_same(struct text one, struct text other)
{
    return one.count == other.count && memcmp(one.at, other.at, one.count) == 0;
}

int gcrt_order(struct text one, struct text other)
{
    size_t least = one.count < other.count ? one.count : other.count;
    int found = memcmp(one.at, other.at, least);
    return found ? found : (one.count > other.count) - (one.count < other.count);
}

bool gcrt_copy_text(struct store *store, struct text *text)
{
    char *copy = gcrt_new(store, text->count + 1, 1);
    if (!copy)
        return false;
    memcpy(copy, text->at, text->count);
    text->at = copy;
    return true;
}

/* The characters of one byte of a text in quotes `mark`; how many. */
static int escaped(char *to, unsigned char byte, char mark)
{
    static const char named[] = "\t\n\r\\";
    static const char names[] = "tnr\\";
    const char *which = byte ? strchr(named, byte) : NULL;
    if (which)
        return snprintf(to, 5, "\\%c", names[which - named]);
    if (byte == (unsigned char)mark)
        return snprintf(to, 5, "\\%c", mark);
    if (byte < 0x20 || byte == 0x7f)
        return snprintf(to, 5, "\\x%02x", byte);
    to[0] = (char)byte;
    return 1;
}

struct quoted gcrt_quote(struct text text)
{
    struct quoted quoted;
    const char *ends = text.at + text.count;
    char mark = memchr(text.at, '\'', text.count) && !memchr(text.at, '"', text.count) ? '"' : '\'';
    size_t at = 1, kept = 1, characters = 2;
    quoted.text[0] = mark;
    for (const char *next = text.at; next < ends && characters <= MOST_QUOTED; next++) {
        char one[8];
        int count = escaped(one, (unsigned char)*next, mark);
        bool begins = ((unsigned char)*next & 0xc0) != 0x80; /* a character in UTF-8 */
        if (at + 8 > sizeof quoted.text)
            break;
        characters += begins ? (size_t)count : 0;
        memcpy(quoted.text + at, one, (size_t)count);
        at += (size_t)count;
        if (characters - 1 <= MOST_QUOTED - 4)
            kept = at;
    }
    if (characters > MOST_QUOTED) {
        memcpy(quoted.text + kept, "...'", 5);
        return quoted;
    }
    quoted.text[at] = mark;
    quoted.text[at + 1] = 0;
    return quoted;
}

int gcrt_fail(gpucomp_error *error, int code, const char *format, ...)
{
    if (!error || error->size < SMALLEST_ERROR)
        return code;
    size_t room = error->size - offsetof(gpucomp_error, text);
    error->code = code;
    int count = snprintf(error->text, room, "GPC%04d ", code);
    va_list given;
    va_start(given, format);
    if (count > 0 && (size_t)count < room)
        vsnprintf(error->text + count, room - (size_t)count, format, given);
    va_end(given);
    return code;
}

void gcrt_tell(gpucomp_error *error, const gpucomp_error *own)
{
    if (!error || error->size < SMALLEST_ERROR)
        return;
    error->code = own->code;
    snprintf(error->text, error->size - offsetof(gpucomp_error, text), "%s", own->text);
}

int gcrt_no_memory(gpucomp_error *error)
{
    return gcrt_fail(error, GCRT_NO_MEMORY, "cpu: memory is not available");
}

void gcrt_clear(gpucomp_error *error)
{
    if (error && error->size >= SMALLEST_ERROR) {
        error->code = 0;
        error->text[0] = 0;
    }
}

int64_t gcrt_times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}
