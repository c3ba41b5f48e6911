/* A recursive parser of strict JSON. Numbers of values, their depth and the bytes are limited before anything is allocated. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (64u << 20)
#define MOST_VALUES 3000000u
#define MOST_DEPTH 900
#define MOST_DIGITS 4300 /* of a whole number, as Python's limit */

struct parser {
    struct store *store;
    const char *at, *end;
    struct json *pending; /* values of lists and tables that have no end yet */
    size_t pending_count, pending_room;
    const char *fault; /* what is wrong; NULL without memory */
    bool too_deep;
};

static bool wrong(struct parser *parser, const char *what)
{
    parser->fault = what;
    return false;
}

static void skip_spaces(struct parser *parser)
{
    static const char spaces[] = {' ', '\t', '\n', '\r'};
    while (parser->at < parser->end && memchr(spaces, *parser->at, sizeof spaces))
        parser->at++;
}

static bool take(struct parser *parser, char wanted)
{
    skip_spaces(parser);
    if (parser->at == parser->end || *parser->at != wanted)
        return false;
    parser->at++;
    return true;
}

static bool keep(struct parser *parser, struct json value)
{
    if (parser->pending_count == parser->pending_room) {
        size_t room = parser->pending_room ? 2 * parser->pending_room : 256;
        struct json *more = realloc(parser->pending, room * sizeof *more);
        if (!more)
            return wrong(parser, NULL);
        parser->pending = more;
        parser->pending_room = room;
    }
    parser->pending[parser->pending_count++] = value;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static long hex4(const struct parser *parser, const char *at)
{
    long value = 0;
    if (parser->end - at < 4)
        return -1;
    for (int k = 0; k < 4; k++) {
        int digit = hex_digit(at[k]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static char *put_utf8(char *to, long code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int first[] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(first[more] | code >> (6 * more));
    while (more--)
        *to++ = (char)(0x80 | (code >> (6 * more) & 0x3f));
    return to;
}

/* The character of \uXXXX at `at`, where two surrogates are one; -1 if it is none. */
static long escape_u(struct parser *parser)
{
    long code = hex4(parser, parser->at);
    if (code < 0)
        return -1;
    parser->at += 4;
    if (code >= 0xd800 && code < 0xdc00 && parser->end - parser->at >= 6 && parser->at[0] == '\\' && parser->at[1] == 'u') {
        long low = hex4(parser, parser->at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            parser->at += 6;
            return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return code;
}

/* A text, after its first quote. */
static bool parse_text(struct parser *parser, struct json *found)
{
    const char *stop = parser->at;
    while (stop < parser->end && *stop != '"')
        stop += *stop == '\\' && parser->end - stop > 1 ? 2 : 1;
    char *text = gcrt_new(parser->store, (size_t)(stop - parser->at) + 1, 1); /* no escape is shorter than its character */
    if (!text)
        return wrong(parser, NULL);
    char *to = text;
    while (parser->at < parser->end && *parser->at != '"') {
        char c = *parser->at++;
        if ((unsigned char)c < 0x20)
            return wrong(parser, "Invalid control character");
        if (c != '\\') {
            *to++ = c;
            continue;
        }
        static const char named[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
        const char *which = parser->at < parser->end && *parser->at ? strchr(named, *parser->at) : NULL;
        if (which) {
            *to++ = codes[which - named];
            parser->at++;
            continue;
        }
        bool coded = parser->at < parser->end && *parser->at == 'u';
        parser->at += parser->at < parser->end;
        if (!coded)
            return wrong(parser, "Invalid \\escape");
        long code = escape_u(parser);
        if (code < 0)
            return wrong(parser, "Invalid \\uXXXX escape");
        to = put_utf8(to, code);
    }
    if (parser->at == parser->end)
        return wrong(parser, "Unterminated string");
    parser->at++;
    *found = (struct json){JSON_TEXT, (size_t)(to - text), {.text = text}};
    return true;
}

static const char *digits(const struct parser *parser, const char *at)
{
    while (at < parser->end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static bool parse_number(struct parser *parser, struct json *found)
{
    const char *start = parser->at, *at = start + (*start == '-'), *stop = digits(parser, at);
    if (stop == at)
        return wrong(parser, "Expecting value");
    if (*at == '0')
        stop = at + 1;
    bool whole = true;
    if (parser->end - stop > 1 && *stop == '.' && digits(parser, stop + 1) > stop + 1) {
        stop = digits(parser, stop + 1);
        whole = false;
    }
    if (parser->end - stop > 1 && (*stop | 0x20) == 'e') {
        const char *power = stop + 1 + (stop[1] == '-' || stop[1] == '+');
        if (digits(parser, power) > power) {
            stop = digits(parser, power);
            whole = false;
        }
    }
    parser->at = stop;
    if (whole && stop - at > MOST_DIGITS)
        return wrong(parser, "Exceeds the limit (4300 digits) for integer string conversion");
    int64_t value = 0;
    bool fits = whole;
    for (const char *next = at; fits && next < stop; next++)
        fits = !__builtin_mul_overflow(value, 10, &value) && !__builtin_sub_overflow(value, *next - '0', &value);
    if (fits && *start != '-')
        fits = !__builtin_sub_overflow((int64_t)0, value, &value);
    if (fits) {
        *found = (struct json){JSON_INTEGER, 0, {.integer = value}};
        return true;
    }
    struct text text = {start, (size_t)(stop - start)};
    if (!gcrt_copy_text(parser->store, &text))
        return wrong(parser, NULL);
    *found = (struct json){whole ? JSON_LONG : JSON_FLOAT, text.count, {.text = text.at}};
    return true;
}

static bool parse_value(struct parser *parser, struct json *found, int depth);

/* Move the values since `first` from the pending ones to where they stay. */
static bool close_values(struct parser *parser, size_t first, struct json *found, enum json_kind kind)
{
    size_t count = parser->pending_count - first;
    struct json *items = gcrt_new(parser->store, count, sizeof *items);
    if (!items)
        return wrong(parser, NULL);
    if (count)
        memcpy(items, parser->pending + first, count * sizeof *items);
    parser->pending_count = first;
    *found = (struct json){kind, kind == JSON_TABLE ? count / 2 : count, {.items = items}};
    return true;
}

static bool parse_list(struct parser *parser, struct json *found, int depth)
{
    size_t first = parser->pending_count;
    if (take(parser, ']'))
        return close_values(parser, first, found, JSON_LIST);
    do {
        struct json value;
        if (!parse_value(parser, &value, depth + 1) || !keep(parser, value))
            return false;
    } while (take(parser, ','));
    if (!take(parser, ']'))
        return wrong(parser, "Expecting ',' delimiter");
    return close_values(parser, first, found, JSON_LIST);
}

static int by_key(const void *one, const void *other)
{
    return gcrt_order(gcrt_json_text(one), gcrt_json_text(other));
}

static bool parse_table(struct parser *parser, struct json *found, int depth)
{
    size_t first = parser->pending_count;
    if (!take(parser, '}')) {
        do {
            struct json key, value;
            if (!take(parser, '"'))
                return wrong(parser, "Expecting property name enclosed in double quotes");
            if (!parse_text(parser, &key))
                return false;
            if (!take(parser, ':'))
                return wrong(parser, "Expecting ':' delimiter");
            if (!parse_value(parser, &value, depth + 1) || !keep(parser, key) || !keep(parser, value))
                return false;
        } while (take(parser, ','));
        if (!take(parser, '}'))
            return wrong(parser, "Expecting ',' delimiter");
    }
    if (!close_values(parser, first, found, JSON_TABLE))
        return false;
    struct json *items = (struct json *)(uintptr_t)found->as.items;
    bool sorted = true;
    for (size_t k = 1; k < found->count; k++)
        sorted = sorted && by_key(items + 2 * k - 2, items + 2 * k) < 0;
    if (!sorted)
        qsort(items, found->count, 2 * sizeof *items, by_key);
    for (size_t k = 1; k < found->count && !sorted; k++)
        if (by_key(items + 2 * k - 2, items + 2 * k) == 0)
            return wrong(parser, "a key occurs twice");
    return true;
}

static bool parse_value(struct parser *parser, struct json *found, int depth)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } words[] = {{"null", JSON_NULL}, {"false", JSON_FALSE}, {"true", JSON_TRUE}};
    if (depth > MOST_DEPTH) {
        parser->too_deep = true;
        return wrong(parser, "nested too deep");
    }
    skip_spaces(parser);
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        size_t count = strlen(words[k].name);
        if ((size_t)(parser->end - parser->at) >= count && memcmp(parser->at, words[k].name, count) == 0) {
            parser->at += count;
            *found = (struct json){words[k].kind, 0, {0}};
            return true;
        }
    }
    if (take(parser, '"'))
        return parse_text(parser, found);
    if (take(parser, '['))
        return parse_list(parser, found, depth);
    if (take(parser, '{'))
        return parse_table(parser, found, depth);
    if (parser->at == parser->end)
        return wrong(parser, "Expecting value");
    return parse_number(parser, found);
}

const struct json *gcrt_json(struct store *store, const char *data, size_t count, const char *name, gpucomp_error *error)
{
    if (count > MOST_BYTES) {
        gcrt_fail(error, GCRT_TOO_LARGE, "%s has %zu bytes, at most %u are allowed", name, count, MOST_BYTES);
        return NULL;
    }
    size_t values = 0;
    bool ascii = true;
    for (size_t k = 0; k < count; k++) {
        values += data[k] == ',' || data[k] == '[' || data[k] == '{';
        ascii = ascii && (unsigned char)data[k] < 0x80;
    }
    if (values > MOST_VALUES) {
        gcrt_fail(error, GCRT_TOO_LARGE, "%s has more than %u values", name, MOST_VALUES);
        return NULL;
    }
    struct parser parser = {.store = store, .at = data, .end = data + count, .fault = ""};
    struct json *found = gcrt_new(store, 1, sizeof *found);
    bool good = ascii && found && parse_value(&parser, found, 0);
    if (good) {
        skip_spaces(&parser);
        good = parser.at == parser.end || wrong(&parser, "Extra data");
    }
    free(parser.pending);
    if (good)
        return found;
    if (parser.too_deep)
        gcrt_fail(error, GCRT_TOO_LARGE, "%s is nested too deep", name);
    else if (!ascii)
        gcrt_fail(error, GCRT_WRONG_MANIFEST, "%s is not JSON: a byte that is not ASCII", name);
    else if (found && parser.fault)
        gcrt_fail(error, GCRT_WRONG_MANIFEST, "%s is not JSON: %s at byte %zu", name, parser.fault, (size_t)(parser.at - data));
    else
        gcrt_no_memory(error);
    return NULL;
}

struct text gcrt_json_text(const struct json *json) { return (struct text){json->as.text, json->count}; }

const struct json *gcrt_json_find(const struct json *table, const char *key)
{
    struct text wanted = gcrt_text(key);
    size_t first = 0, last = table->count;
    while (first < last) {
        size_t middle = first + (last - first) / 2;
        int order = gcrt_order(gcrt_json_text(table->as.items + 2 * middle), wanted);
        if (order == 0)
            return table->as.items + 2 * middle + 1;
        if (order < 0)
            first = middle + 1;
        else
            last = middle;
    }
    return NULL;
}

/* By hand: strtod reads a comma where the user's locale has one. What is compared with it needs no last digit. */
double gcrt_json_number(const struct json *json)
{
    if (json->kind == JSON_INTEGER)
        return (double)json->as.integer;
    const char *at = json->as.text, *end = at + json->count;
    bool negative = *at == '-', behind = false;
    double value = 0;
    long power = 0, given = 0, sign = 1;
    for (at += negative; at < end && (*at | 0x20) != 'e'; at++) {
        if (*at == '.') {
            behind = true;
            continue;
        }
        value = value * 10 + (*at - '0');
        power -= behind;
    }
    if (at < end) {
        at++;
        sign = *at == '-' ? -1 : 1;
        at += *at == '-' || *at == '+';
        for (; at < end && given < 100000; at++)
            given = given * 10 + (*at - '0');
    }
    power += sign * given;
    for (; power > 0 && value < 1e308 && value > 0; power--)
        value *= 10;
    for (; power < 0 && value > 0; power++)
        value /= 10;
    return negative ? -value : value;
}

struct writer {
    char text[160];
    size_t count;
};

static void put(struct writer *writer, const char *text, size_t count)
{
    size_t room = sizeof writer->text - writer->count;
    count = count < room ? count : room;
    memcpy(writer->text + writer->count, text, count);
    writer->count += count;
}

static void write_value(struct writer *writer, const struct json *json, bool inside)
{
    static const char *const words[] = {"None", "False", "True"};
    char number[24];
    if (writer->count == sizeof writer->text)
        return;
    switch (json->kind) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
        put(writer, words[json->kind], strlen(words[json->kind]));
        return;
    case JSON_INTEGER:
        put(writer, number, (size_t)snprintf(number, sizeof number, "%lld", (long long)json->as.integer));
        return;
    case JSON_TEXT:
        if (inside) {
            struct quoted quoted = gcrt_quote(gcrt_json_text(json));
            put(writer, quoted.text, strlen(quoted.text));
            return;
        } /* fall through */
    case JSON_LONG:
    case JSON_FLOAT:
        put(writer, json->as.text, json->count);
        return;
    case JSON_LIST:
    case JSON_TABLE:
        break;
    }
    bool table = json->kind == JSON_TABLE;
    put(writer, table ? "{" : "[", 1);
    for (size_t k = 0; k < (table ? 2 : 1) * json->count && writer->count < sizeof writer->text; k++) {
        if (k)
            put(writer, table && k % 2 ? ": " : ", ", 2);
        write_value(writer, json->as.items + k, true);
    }
    put(writer, table ? "}" : "]", 1);
}

struct quoted gcrt_json_quote(const struct json *json)
{
    if (json->kind == JSON_TEXT)
        return gcrt_quote(gcrt_json_text(json));
    struct writer writer = {.count = 0};
    write_value(&writer, json, false);
    return gcrt_quote((struct text){writer.text, writer.count});
}
