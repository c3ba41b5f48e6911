/* Strict JSON of limited size, as gpucomp.artifact.manifest.loads reads it: ASCII, no NaN, no key twice. */
#ifndef GCRT_JSON_H
#define GCRT_JSON_H

#include "store.h"

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_INTEGER, JSON_LONG, JSON_FLOAT, JSON_TEXT, JSON_LIST, JSON_TABLE };

/* A value. A whole number that does not fit 64 bits is JSON_LONG; its text is kept, as that of a JSON_FLOAT is. */
struct json {
    enum json_kind kind;
    size_t count; /* bytes of a text, values of a list, pairs of a table */
    union {
        int64_t integer;
        const char *text;
        const struct json *items; /* of a table: key, value, key, value ... in the order of the keys */
    } as;
};

/* Parse `count` bytes; what is returned lives in `store`. NULL after an error: GPC7004 or GPC7006, named `name`. */
const struct json *gcrt_json(struct store *store, const char *data, size_t count, const char *name, gpucomp_error *error);

struct text gcrt_json_text(const struct json *json);
const struct json *gcrt_json_find(const struct json *table, const char *key); /* NULL if there is none */
double gcrt_json_number(const struct json *json);                             /* of any of the three kinds of numbers */

/* The value for a message, as Python's str writes it, then as gcrt_quote. */
struct quoted gcrt_json_quote(const struct json *json);
#define QUOTE_JSON(given) (gcrt_json_quote(given).text)
#endif
