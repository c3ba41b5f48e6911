/* Reads the plan in manifest.json: what each field must be is data, as in gpucomp/artifact/manifest.py. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"

#define MOST_SIZE ((int64_t)1 << 48)
#define MOST_RANK 32
#define MOST_NUMBERS 10000
#define MOST_ITEMS 10000000
#define MOST_ATTRIBUTE_DEPTH 16
#define MOST_WORK "1267650600228229401496703205376" /* 1 << 100 */
#define WIDE ((int64_t)1 << 62)
#define NOWHERE SIZE_MAX /* a field that is checked and not kept */
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum form { ANY_TEXT, KEY, INTEGER, SIZED, WORK, FLAG, CHOICE, LIST, RECORD, TABLE, NAMES, GIVEN, ATTRIBUTE };

struct field {
    const char *name;
    const struct spec *spec;
    size_t at;
    bool later; /* missing in older files */
};

struct spec {
    enum form form;
    int64_t low, high; /* of a number; the least and the most values of a list */
    const struct spec *element;
    size_t bytes; /* of an element in memory */
    const char *const *choices;
    const struct field *fields;
    size_t count; /* of choices or fields */
};

/* as DTYPES of gpucomp/ir/types.py, and strings */
const struct dtype gcrt_dtypes[DTYPE_COUNT] = {
    {"f64", "F64", 8, 'f'},      {"f32", "F32", 4, 'f'},          {"f16", "F16", 2, 'f'},     {"bf16", "BF16", 2, 'f'},
    {"i64", "I64", 8, 'i'},      {"i32", "I32", 4, 'i'},          {"i16", "I16", 2, 'i'},     {"i8", "I8", 1, 'i'},
    {"u64", "U64", 8, 'u'},      {"u32", "U32", 4, 'u'},          {"u16", "U16", 2, 'u'},     {"u8", "U8", 1, 'u'},
    {"bool", "BOOL", 1, 'b'},    {"f8e4m3fn", "F8_E4M3", 1, 'f'}, {"f8e4m3fnuz", NULL, 1, 'f'}, {"f8e5m2", "F8_E5M2", 1, 'f'},
    {"f8e5m2fnuz", NULL, 1, 'f'}, {"i4", NULL, 1, 'i'},           {"u4", NULL, 1, 'u'},       {"i2", NULL, 1, 'i'},
    {"u2", NULL, 1, 'u'},        {"f4e2m1fn", NULL, 1, 'f'},      {"f8e8m0fnu", NULL, 1, 'f'}, {"string", NULL, 0, 's'},
};

static const char *const DTYPE_NAMES[] = {"", "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8",
                                          "bool", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "i4", "u4", "i2", "u2",
                                          "f4e2m1fn", "f8e8m0fnu", "string"};
static const char *const BUFFER_KINDS[] = {"input", "output", "weight", "temp", "counter", "numbers"};
static const char *const DEVICES[] = {"cpu", "opencl", "cuda", "hip"};
static const char *const LANGUAGES[] = {"llvm", "opencl", "cuda", "hip"};
static const char *const GIVEN_KINDS[] = {"size", "magic", "shift"};
static const char *const MAP_TYPES[] = {"f16", "bf16", "f32", "tf32", "i8"};

#define NUMBER(low, high) {INTEGER, low, high, NULL, sizeof(int64_t), NULL, NULL, 0}
#define OPEN_NUMBER(low, high) {SIZED, low, high, NULL, sizeof(struct number), NULL, NULL, 0}
#define LIST_OF(spec, least, most) {LIST, least, most, &(spec), (spec).bytes, NULL, NULL, 0}
#define LISTED(element, type, least, most) {LIST, least, most, &(element), sizeof(type), NULL, NULL, 0}
#define ONE_OF(names, count) {CHOICE, 0, 0, NULL, sizeof(int64_t), names, NULL, count}
#define RECORD_OF(fields) {RECORD, 0, 0, NULL, 0, NULL, fields, COUNT(fields)}
#define AT(type, field) offsetof(struct type, field)

static const struct spec TEXT_SPEC = {.form = ANY_TEXT}, KEY_SPEC = {.form = KEY}, FLAG_SPEC = {.form = FLAG};
static const struct spec WORK_SPEC = {.form = WORK}, ATTRIBUTE_SPEC = {.form = ATTRIBUTE}, NAMES_SPEC = {.form = NAMES};
static const struct spec SIZE_SPEC = NUMBER(0, MOST_SIZE), POSITION = NUMBER(0, MOST_ITEMS);
static const struct spec OPEN_SIZE = OPEN_NUMBER(0, MOST_SIZE), OPEN_WIDE = OPEN_NUMBER(-WIDE, WIDE);
static const struct spec OPEN_COUNT = OPEN_NUMBER(0, INT32_MAX), OPEN_ADVANCE = OPEN_NUMBER(-MOST_SIZE, MOST_SIZE);
static const struct spec OFFSET = NUMBER(-1, MOST_SIZE), SCHEDULE_NUMBER = NUMBER(-WIDE, WIDE);
static const struct spec SHAPE = LISTED(OPEN_SIZE, struct number, 0, MOST_RANK);
static const struct spec BUFFER_NUMBERS = LISTED(OPEN_WIDE, struct number, 0, MOST_NUMBERS);
static const struct spec BUFFER_KIND = ONE_OF(BUFFER_KINDS, 6), BUFFER_TYPE = ONE_OF(DTYPE_NAMES + 1, DTYPE_COUNT);
const struct spec gcrt_positions = LISTED(POSITION, int64_t, 0, MOST_ITEMS);
const struct spec gcrt_texts = LISTED(TEXT_SPEC, struct text, 0, MOST_ITEMS);

static const struct field BUFFER_FIELDS[] = {
    {"kind", &BUFFER_KIND, AT(buffer, kind), false},       {"name", &TEXT_SPEC, AT(buffer, name), false},
    {"dtype", &BUFFER_TYPE, AT(buffer, dtype), false},     {"shape", &SHAPE, AT(buffer, shape), false},
    {"nbytes", &SIZE_SPEC, AT(buffer, nbytes), false},     {"offset", &OFFSET, AT(buffer, offset), false},
    {"numbers", &BUFFER_NUMBERS, AT(buffer, numbers), true},
};

static const struct spec MAP_SIZE = NUMBER(0, (int64_t)1 << 40), OPEN_MAP_SIZE = OPEN_NUMBER(0, (int64_t)1 << 40);
static const struct spec CORNER = NUMBER(-65536, 65536), OPEN_CORNER = OPEN_NUMBER(-65536, 65536);
static const struct spec PARAMETER = NUMBER(0, 10000), SWIZZLE = NUMBER(0, 128), PIXELS = NUMBER(0, 65536);
static const struct spec BOX = LISTED(MAP_SIZE, int64_t, 0, 5), EXTENTS = LISTED(OPEN_MAP_SIZE, struct number, 0, 5);
static const struct spec CORNERS = LISTED(CORNER, int64_t, 0, 5), OPEN_CORNERS = LISTED(OPEN_CORNER, struct number, 0, 5);
static const struct spec MAP_TYPE = ONE_OF(MAP_TYPES, COUNT(MAP_TYPES));
static const struct field MAP_FIELDS[] = {
    {"parameter", &PARAMETER, AT(tensor_map, parameter), false}, {"dtype", &MAP_TYPE, AT(tensor_map, dtype), false},
    {"extents", &EXTENTS, AT(tensor_map, extents), false},       {"strides", &EXTENTS, AT(tensor_map, strides), false},
    {"box", &BOX, AT(tensor_map, box), false},                   {"element_strides", &BOX, AT(tensor_map, steps), false},
    {"swizzle", &SWIZZLE, AT(tensor_map, swizzle), false},       {"channels", &PIXELS, AT(tensor_map, channels), false},
    {"pixels", &PIXELS, AT(tensor_map, pixels), false},          {"lower", &CORNERS, AT(tensor_map, lower), false},
    {"upper", &OPEN_CORNERS, AT(tensor_map, upper), false},      {"offset", &OPEN_SIZE, AT(tensor_map, offset), false},
};
static const struct spec MAP = RECORD_OF(MAP_FIELDS);
static const struct spec MAPS = {.form = LIST, .high = 16, .element = &MAP, .bytes = sizeof(struct tensor_map)};

static const struct spec GROUPS = LISTED(OPEN_COUNT, struct number, 3, 3), ITEM = NUMBER(1, 65536);
static const struct spec ITEM_COUNTS = LISTED(ITEM, int64_t, 3, 3), SHARED = NUMBER(0, (int64_t)1 << 24);
static const struct spec LANGUAGE = ONE_OF(LANGUAGES, COUNT(LANGUAGES));
static const struct spec ARITHMETIC = ONE_OF(DTYPE_NAMES, DTYPE_COUNT); /* or none, but no strings */
static const struct spec SCHEDULE = {.form = TABLE, .low = 1, .element = &SCHEDULE_NUMBER}; /* low: keys are names of gpucomp's */
static const struct spec GIVEN_SPEC = {.form = GIVEN};
static const struct field KERNEL_FIELDS[] = {
    {"name", &KEY_SPEC, AT(kernel, name), false},       {"language", &LANGUAGE, AT(kernel, language), false},
    {"source", &KEY_SPEC, AT(kernel, source), false},   {"binary", &KEY_SPEC, AT(kernel, binary), false},
    {"groups", &GROUPS, AT(kernel, groups), false},     {"items", &ITEM_COUNTS, AT(kernel, items), false},
    {"shared", &SHARED, AT(kernel, shared), false},     {"family", &TEXT_SPEC, AT(kernel, family), false},
    {"label", &TEXT_SPEC, NOWHERE, false},              {"tier", &TEXT_SPEC, NOWHERE, false},
    {"schedule", &SCHEDULE, NOWHERE, false},            {"tensor_maps", &MAPS, AT(kernel, tensor_maps), false},
    {"programmatic", &FLAG_SPEC, AT(kernel, programmatic), false},
    {"operations", &WORK_SPEC, NOWHERE, false},         {"traffic", &WORK_SPEC, NOWHERE, false},
    {"arithmetic", &ARITHMETIC, NOWHERE, false},        {"numbers", &GIVEN_SPEC, AT(kernel, numbers), true},
};

static const struct spec LAUNCH_KERNEL = NUMBER(-1, MOST_ITEMS), ATTRIBUTES = {.form = TABLE, .element = &ATTRIBUTE_SPEC};
static const struct field LAUNCH_FIELDS[] = {
    {"kernel", &LAUNCH_KERNEL, AT(launch, kernel), false}, {"args", &gcrt_positions, AT(launch, args), false},
    {"name", &TEXT_SPEC, AT(launch, name), false},         {"ops", &gcrt_texts, NOWHERE, false},
    {"nodes", &gcrt_texts, AT(launch, nodes), false},      {"why", &TEXT_SPEC, NOWHERE, false},
    {"inputs", &POSITION, AT(launch, inputs), false},      {"host", &TEXT_SPEC, AT(launch, host), false},
    {"attributes", &ATTRIBUTES, NOWHERE, false},
};

static const struct spec ADVANCES = LISTED(OPEN_ADVANCE, struct number, 0, 64);
static const struct spec ALL_ADVANCES = LISTED(ADVANCES, struct list, 0, MOST_ITEMS), BEFORE = NUMBER(0, INT32_MAX);
static const struct field REPEAT_FIELDS[] = {
    {"first", &POSITION, AT(repeat, first), false},
    {"last", &POSITION, AT(repeat, last), false},
    {"count", &OPEN_COUNT, AT(repeat, count), false},
    {"advances", &ALL_ADVANCES, AT(repeat, advances), false},
    {"before", &BEFORE, AT(repeat, before), true},
    {"after", &OPEN_COUNT, AT(repeat, after), true},
};

static const struct spec AXIS = NUMBER(-1, MOST_RANK - 1);
static const struct field STATE_FIELDS[] = {
    {"input", &TEXT_SPEC, AT(state, input), false},       {"output", &TEXT_SPEC, AT(state, output), false},
    {"axis", &AXIS, AT(state, axis), false},              {"dim", &TEXT_SPEC, AT(state, dim), false},
    {"capacity", &SIZE_SPEC, AT(state, capacity), false}, {"rows", &OPEN_SIZE, AT(state, rows), false},
    {"why", &TEXT_SPEC, AT(state, why), false},
};

static const struct spec BUFFER = RECORD_OF(BUFFER_FIELDS), KERNEL = RECORD_OF(KERNEL_FIELDS);
static const struct spec LAUNCH = RECORD_OF(LAUNCH_FIELDS), REPEAT = RECORD_OF(REPEAT_FIELDS), STATE = RECORD_OF(STATE_FIELDS);
static const struct spec BUFFERS = LISTED(BUFFER, struct buffer, 0, MOST_ITEMS);
static const struct spec KERNELS = LISTED(KERNEL, struct kernel, 0, MOST_ITEMS);
static const struct spec LAUNCHES = LISTED(LAUNCH, struct launch, 0, MOST_ITEMS);
static const struct spec REPEATS = LISTED(REPEAT, struct repeat, 0, MOST_ITEMS);
static const struct spec STATES = LISTED(STATE, struct state, 0, MOST_ITEMS);
static const struct spec DEVICE = ONE_OF(DEVICES, COUNT(DEVICES));
static const struct spec CONTAINERS = {.form = TABLE, .element = &NAMES_SPEC, .bytes = sizeof(struct named)};
static const struct field PLAN_FIELDS[] = {
    {"target", &TEXT_SPEC, AT(plan, target), false},
    {"kind", &DEVICE, AT(plan, device), false},
    {"arch", &TEXT_SPEC, AT(plan, arch), false},
    {"buffers", &BUFFERS, AT(plan, buffers), false},
    {"kernels", &KERNELS, AT(plan, kernels), false},
    {"launches", &LAUNCHES, AT(plan, launches), false},
    {"inputs", &gcrt_positions, AT(plan, inputs), false},
    {"outputs", &gcrt_positions, AT(plan, outputs), false},
    {"output_names", &gcrt_texts, AT(plan, output_names), false},
    {"arena_bytes", &SIZE_SPEC, AT(plan, arena_bytes), false},
    {"live_bytes", &SIZE_SPEC, NOWHERE, false},
    {"model", &TEXT_SPEC, AT(plan, model), false},
    {"features", &gcrt_texts, AT(plan, features), false},
    {"precision", &TEXT_SPEC, AT(plan, precision), false},
    {"keep_fp32", &gcrt_texts, NOWHERE, false},
    {"input_containers", &CONTAINERS, AT(plan, input_containers), false},
    {"output_containers", &CONTAINERS, AT(plan, output_containers), false},
    {"repeats", &REPEATS, AT(plan, repeats), true},
    {"cache_bytes", &SIZE_SPEC, NOWHERE, true},
    {"states", &STATES, AT(plan, states), true},
};
static const struct spec PLAN = RECORD_OF(PLAN_FIELDS);

static size_t write_where(char *to, size_t room, const struct where *where)
{
    size_t count = where->parent ? write_where(to, room, where->parent) : 0;
    const char *dot = where->parent ? "." : "";
    if (count + 1 >= room)
        return count;
    int more;
    if (where->name)
        more = snprintf(to + count, room - count, "%s%s", dot, where->name);
    else if (where->key.at)
        more = snprintf(to + count, room - count, "%s%.40s", dot, where->key.at);
    else
        more = snprintf(to + count, room - count, "[%zu]", where->index);
    return more < 0 ? count : count + (size_t)more;
}

int gcrt_refuse(gpucomp_error *error, const struct where *where, const char *format, ...)
{
    char place[400], what[1024];
    va_list given;
    va_start(given, format);
    vsnprintf(what, sizeof what, format, given);
    va_end(given);
    place[0] = 0;
    write_where(place, sizeof place, where);
    return gcrt_fail(error, GCRT_WRONG_MANIFEST, "manifest.json: %s: %s", place, what);
}

static int read_text(struct reader *reader, const struct json *json, const struct where *where, struct text *to)
{
    struct text text = {json->as.text, json->count};
    if (json->kind != JSON_TEXT)
        return gcrt_refuse(reader->error, where, "a string expected, found %s", QUOTE_JSON(json));
    if (!to)
        return 0;
    if (!gcrt_copy_text(reader->store, &text))
        return gcrt_no_memory(reader->error);
    *to = text;
    return 0;
}

static bool is_key(struct text text)
{
    for (size_t k = 0; k < text.count; k++) {
        char c = text.at[k];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        if (!letter && (k == 0 || (c != '.' && c != '+' && c != '-')))
            return false;
    }
    return text.count >= 1 && text.count <= 200;
}

static int read_key(struct reader *reader, const struct json *json, const struct where *where, struct text *to)
{
    int code = read_text(reader, json, where, to);
    if (code == 0 && !is_key(gcrt_json_text(json)))
        return gcrt_refuse(reader->error, where, "%s is not a name that gpucomp generates", QUOTE_JSON(json));
    return code;
}

int gcrt_read_integer(struct reader *reader, const struct json *json, int64_t low, int64_t high, const struct where *where,
                      int64_t *to)
{
    if (json->kind != JSON_INTEGER || json->as.integer < low || json->as.integer > high)
        return gcrt_refuse(reader->error, where, "a whole number from %lld to %lld expected, found %s", (long long)low,
                           (long long)high, QUOTE_JSON(json));
    if (to)
        *to = json->as.integer;
    return 0;
}

/* {"place": 3} */
static const struct json *place_in(const struct json *json)
{
    return json->kind == JSON_TABLE && json->count == 1 ? gcrt_json_find(json, "place") : NULL;
}

static int read_sized(struct reader *reader, const struct spec *spec, const struct json *json, const struct where *where,
                      struct number *to)
{
    struct number number = {0, false};
    const struct json *place = reader->places ? place_in(json) : NULL;
    number.open = place != NULL;
    int code = place ? gcrt_read_integer(reader, place, 0, reader->places - 1, where, &number.value)
                     : gcrt_read_integer(reader, json, spec->low, spec->high, where, &number.value);
    if (code == 0 && to)
        *to = number;
    return code;
}

static int read_work(struct reader *reader, const struct json *json, const struct where *where)
{
    size_t most = strlen(MOST_WORK);
    bool fits = json->kind == JSON_INTEGER && json->as.integer >= 0;
    if (json->kind == JSON_LONG && json->as.text[0] != '-')
        fits = json->count < most || (json->count == most && memcmp(json->as.text, MOST_WORK, most) <= 0);
    return fits ? 0
                : gcrt_refuse(reader->error, where, "a whole number from 0 to %s expected, found %s", MOST_WORK,
                              QUOTE_JSON(json));
}

static int read_choice(struct reader *reader, const struct spec *spec, const struct json *json, const struct where *where,
                       int64_t *to)
{
    for (size_t k = 0; json->kind == JSON_TEXT && k < spec->count; k++)
        if (gcrt_same(gcrt_json_text(json), gcrt_text(spec->choices[k]))) {
            if (to)
                *to = (int64_t)k;
            return 0;
        }
    char names[300] = "";
    for (size_t k = 0, at = 0; k < spec->count && at < sizeof names; k++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", k ? ", " : "", spec->choices[k]);
    return gcrt_refuse(reader->error, where, "one of %s expected, found %s", names, QUOTE_JSON(json));
}

static int read_list(struct reader *reader, const struct spec *spec, const struct json *json, const struct where *where,
                     struct list *to)
{
    if (json->kind != JSON_LIST || json->count > (uint64_t)spec->high || json->count < (uint64_t)spec->low)
        return gcrt_refuse(reader->error, where, "a list of %s%lld values expected, found %s", spec->low ? "" : "at most ",
                           (long long)spec->high, QUOTE_JSON(json));
    struct list list = {NULL, json->count};
    if (to && !(list.items = gcrt_new(reader->store, json->count, spec->bytes)))
        return gcrt_no_memory(reader->error);
    for (size_t k = 0; k < json->count; k++) {
        struct where inner = {where, NULL, {NULL, 0}, k};
        int code = gcrt_read(reader, spec->element, json->as.items + k, &inner, to ? (char *)list.items + k * spec->bytes : NULL);
        if (code)
            return code;
    }
    if (to)
        *to = list;
    return 0;
}

static int read_record(struct reader *reader, const struct spec *spec, const struct json *json, const struct where *where,
                       char *to)
{
    if (json->kind != JSON_TABLE)
        return gcrt_refuse(reader->error, where, "a table expected, found %s", QUOTE_JSON(json));
    const char *missing = NULL;
    for (size_t k = 0; k < spec->count; k++) {
        const struct field *field = spec->fields + k;
        if (!field->later && !gcrt_json_find(json, field->name) && (!missing || strcmp(field->name, missing) < 0))
            missing = field->name;
    }
    if (missing)
        return gcrt_refuse(reader->error, where, "field '%s' is missing", missing);
    for (size_t p = 0; p < json->count; p++) {
        bool known = false;
        for (size_t k = 0; k < spec->count && !known; k++)
            known = gcrt_same(gcrt_json_text(json->as.items + 2 * p), gcrt_text(spec->fields[k].name));
        if (!known)
            return gcrt_refuse(reader->error, where, "field %s is unknown", QUOTE_JSON(json->as.items + 2 * p));
    }
    for (size_t k = 0; k < spec->count; k++) {
        const struct field *field = spec->fields + k;
        const struct json *value = gcrt_json_find(json, field->name);
        struct where inner = {where, field->name, {NULL, 0}, 0};
        bool kept = to && field->at != NOWHERE;
        int code = value ? gcrt_read(reader, field->spec, value, &inner, kept ? to + field->at : NULL) : 0;
        if (code)
            return code;
    }
    return 0;
}

static int read_table(struct reader *reader, const struct spec *spec, const struct json *json, const struct where *where,
                      struct list *to)
{
    if (json->kind != JSON_TABLE)
        return gcrt_refuse(reader->error, where, "a table expected, found %s", QUOTE_JSON(json));
    struct named *items = NULL;
    if (to && spec->bytes && !(items = gcrt_new(reader->store, json->count, spec->bytes)))
        return gcrt_no_memory(reader->error);
    for (size_t k = 0; k < json->count; k++) {
        const struct json *key = json->as.items + 2 * k;
        struct where inner = {where, NULL, gcrt_json_text(key), 0};
        int code = spec->low ? read_key(reader, key, where, NULL) : 0;
        if (code == 0 && items)
            code = read_text(reader, key, where, &items[k].key);
        if (code == 0)
            code = gcrt_read(reader, spec->element, key + 1, &inner, items ? &items[k].names : NULL);
        if (code)
            return code;
    }
    if (items)
        *to = (struct list){items, json->count};
    return 0;
}

/* Numbers that a run gives a kernel: whole ones, or in a plan for any size pairs of a kind and a place. */
static int read_given(struct reader *reader, const struct json *json, const struct where *where, struct list *to)
{
    static const struct spec plain = NUMBER(-WIDE, WIDE), kinds = ONE_OF(GIVEN_KINDS, 3);
    if (json->kind != JSON_LIST || json->count > MOST_NUMBERS)
        return gcrt_refuse(reader->error, where, "a list of at most %d values expected, found %s", MOST_NUMBERS,
                           QUOTE_JSON(json));
    struct number_given *items = gcrt_new(reader->store, json->count, sizeof *items);
    if (!items)
        return gcrt_no_memory(reader->error);
    for (size_t k = 0; k < json->count; k++) {
        const struct json *one = json->as.items + k;
        struct where inner = {where, NULL, {NULL, 0}, k};
        int code;
        if (!reader->places)
            code = gcrt_read(reader, &plain, one, &inner, &items[k].value);
        else if (one->kind != JSON_LIST || one->count != 2)
            code = gcrt_refuse(reader->error, &inner, "a list of 2 values expected, found %s", QUOTE_JSON(one));
        else if ((code = gcrt_read(reader, &kinds, one->as.items, where, &items[k].kind)) == 0)
            code = gcrt_read_integer(reader, one->as.items + 1, 0, reader->places - 1, where, &items[k].value);
        if (code)
            return code;
    }
    if (to)
        *to = (struct list){items, json->count};
    return 0;
}

static int read_names(struct reader *reader, const struct json *json, const struct where *where, struct list *to)
{
    return json->kind == JSON_NULL ? 0 : gcrt_read(reader, &gcrt_texts, json, where, to);
}

/* How many bytes a text in base64 stands for; -1 if it is none. */
static int64_t base64_bytes(struct text text)
{
    size_t filled = 0;
    while (filled < text.count && filled < 2 && text.at[text.count - 1 - filled] == '=')
        filled++;
    for (size_t k = 0; k < text.count - filled; k++) {
        char c = text.at[k];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/'))
            return -1;
    }
    return text.count % 4 ? -1 : (int64_t)(text.count / 4 * 3 - filled);
}

static bool is_dtype(struct text text, size_t *number)
{
    for (*number = 0; *number < DTYPE_COUNT; ++*number)
        if (gcrt_same(text, gcrt_text(gcrt_dtypes[*number].name)))
            return true;
    return false;
}

/* An attribute that is a table: {"float": "inf"}, {"dtype": "f32"}, {"bytes": "..."} or {"array": [type, shape, "..."]}. */
static int check_tagged(struct reader *reader, const struct json *json, const struct where *where)
{
    const struct json *value = json->count == 1 ? json->as.items + 1 : NULL;
    struct text key = value ? gcrt_json_text(json->as.items) : (struct text){"", 0}, text = {"", 0};
    size_t number;
    if (value && value->kind == JSON_TEXT)
        text = gcrt_json_text(value);
    if (value && value->kind == JSON_TEXT) {
        if (gcrt_same(key, gcrt_text("float")) && (gcrt_same(text, gcrt_text("inf")) || gcrt_same(text, gcrt_text("-inf")) ||
                                                   gcrt_same(text, gcrt_text("nan"))))
            return 0;
        if (gcrt_same(key, gcrt_text("dtype")) && is_dtype(text, &number))
            return 0;
        if (gcrt_same(key, gcrt_text("bytes")))
            return base64_bytes(text) >= 0 ? 0 : gcrt_refuse(reader->error, where, "bytes in base64 expected");
    }
    const struct json *parts = value && value->kind == JSON_LIST && value->count == 3 ? value->as.items : NULL;
    if (parts && gcrt_same(key, gcrt_text("array")) && parts[0].kind == JSON_TEXT && parts[1].kind == JSON_LIST &&
        parts[2].kind == JSON_TEXT && is_dtype(gcrt_json_text(parts), &number) && number < DTYPE_COUNT - 1) {
        struct list shape;
        struct reader plain = {reader->store, 0, reader->error};
        int code = gcrt_read(&plain, &SHAPE, parts + 1, where, &shape);
        if (code)
            return code;
        int64_t bytes = base64_bytes(gcrt_json_text(parts + 2));
        if (bytes < 0)
            return gcrt_refuse(reader->error, where, "bytes in base64 expected");
        if (bytes != gcrt_times(gcrt_elements(shape), gcrt_dtypes[number].bytes))
            return gcrt_refuse(reader->error, where, "%lld bytes do not fill %s", (long long)bytes, gcrt_dtypes[number].name);
        return 0;
    }
    return gcrt_refuse(reader->error, where, "%s is not an attribute", QUOTE_JSON(json));
}

static int check_attribute(struct reader *reader, const struct json *json, const struct where *where, int depth)
{
    if (depth > MOST_ATTRIBUTE_DEPTH)
        return gcrt_refuse(reader->error, where, "lists nested too deep");
    if (json->kind == JSON_TABLE)
        return check_tagged(reader, json, where);
    if (json->kind == JSON_LONG) { /* up to 2^64 - 1 in both directions */
        bool negative = json->as.text[0] == '-';
        size_t count = json->count - negative;
        if (count > 20 || (count == 20 && memcmp(json->as.text + negative, "18446744073709551615", 20) > 0))
            return gcrt_refuse(reader->error, where, "%s is not an attribute", QUOTE_JSON(json));
    }
    for (size_t k = 0; json->kind == JSON_LIST && k < json->count; k++) {
        int code = check_attribute(reader, json->as.items + k, where, depth + 1);
        if (code)
            return code;
    }
    return 0;
}

int gcrt_read(struct reader *reader, const struct spec *spec, const struct json *json, const struct where *where, void *to)
{
    switch (spec->form) {
    case ANY_TEXT: return read_text(reader, json, where, to);
    case KEY: return read_key(reader, json, where, to);
    case INTEGER: return gcrt_read_integer(reader, json, spec->low, spec->high, where, to);
    case SIZED: return read_sized(reader, spec, json, where, to);
    case WORK: return read_work(reader, json, where);
    case FLAG:
        if (json->kind == JSON_TRUE || json->kind == JSON_FALSE) {
            if (to)
                *(bool *)to = json->kind == JSON_TRUE;
            return 0;
        }
        return gcrt_refuse(reader->error, where, "true or false expected, found %s", QUOTE_JSON(json));
    case CHOICE: return read_choice(reader, spec, json, where, to);
    case LIST: return read_list(reader, spec, json, where, to);
    case RECORD: return read_record(reader, spec, json, where, to);
    case TABLE: return read_table(reader, spec, json, where, to);
    case NAMES: return read_names(reader, json, where, to);
    case GIVEN: return read_given(reader, json, where, to);
    case ATTRIBUTE: return check_attribute(reader, json, where, 0);
    }
    return GCRT_WRONG_MANIFEST;
}

int64_t gcrt_elements(struct list shape)
{
    int64_t count = 1;
    for (size_t k = 0; k < shape.count; k++) {
        struct number extent = ITEMS(shape, struct number)[k];
        if (extent.open || extent.value == 0)
            return 0;
        count = gcrt_times(count, extent.value);
    }
    return count;
}

int gcrt_check_plan(const struct plan *plan, struct store *store, gpucomp_error *error); /* check_plan.c */

int gcrt_plan(struct store *store, const struct json *json, int64_t places, struct plan *plan, gpucomp_error *error)
{
    static const struct where where = {NULL, "plan", {NULL, 0}, 0};
    struct reader reader = {store, places, error};
    plan->open = places > 0;
    int code = gcrt_read(&reader, &PLAN, json, &where, plan);
    return code ? code : gcrt_check_plan(plan, store, error);
}
