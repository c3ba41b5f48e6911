/* Tests kernels when a driver, a device and a model meet for the first time. As gpucomp/runtime/self_test.py, whose verdicts
 * this reads and writes; checks and their inputs are those of gpucomp/artifact/checks.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "digest.h"
#include "kernel_cache.h"
#include "states.h"

#define CHECKS "checks.bin"
#define MAGIC "GPCHECK1"
#define VERDICT "gpucomp self-test 1\n"
#define ELEMENT_BYTES 16 /* u32 where, f32 how far away, f64 what */
#define MOST_LINE 400    /* of a verdict: a kernel's name has at most 200 characters */
#define LAST_TYPE 12     /* of gcrt_dtypes: those before and this one have inputs made of them */
#define ADVICE                                                                                                                  \
    "update the driver, or compile the model on this device, where other schedules are then tried; GPUCOMP_SELF_TEST=0 runs "   \
    "the kernel as it is"

struct testing {
    gpucomp_context *context;
    struct form *form;
    const uint8_t *at, *end; /* what is left of the checks */
    char *verdict;
    size_t count, room;
    struct store scratch; /* of one check */
};

static bool next_word(struct testing *testing, uint32_t *word)
{
    if ((size_t)(testing->end - testing->at) < sizeof *word)
        return false;
    memcpy(word, testing->at, sizeof *word);
    testing->at += sizeof *word;
    return true;
}

static uint32_t mixed(uint32_t place, uint32_t seed)
{
    uint32_t x = place * 0x9e3779b1u + seed * 0x85ebca6bu;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Floats of all types from one that is exact in each of them. */
static void put_float(uint8_t *to, size_t type, float value)
{
    double wide = value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t brain = (uint16_t)(bits >> 16);
    uint16_t half = (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff));
    const void *forms[] = {&wide, &value, &half, &brain}; /* f64, f32, f16, bf16 */
    memcpy(to, forms[type], gcrt_dtypes[type].bytes);
}

static void generate(uint8_t *to, size_t type, size_t count, uint32_t seed, uint32_t limit)
{
    size_t bytes = gcrt_dtypes[type].bytes;
    char kind = gcrt_dtypes[type].kind;
    for (size_t k = 0; k < count; k++, to += bytes) {
        uint32_t x = mixed((uint32_t)k, seed);
        int64_t number = kind == 'i' ? (int64_t)(x >> 24) - 128 : kind == 'b' ? x >> 24 & 1 : x >> 24;
        if (limit)
            number = (x >> 8) % limit;
        if (kind == 'f')
            put_float(to, type, (float)(2 * (int)(x >> 24) - 255) / 128);
        else
            memcpy(to, &number, bytes);
    }
}

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                                  : ldexp(exponent ? fraction + 1024 : fraction, (exponent ? exponent : 1) - 25);
    return bits & 0x8000 ? -value : value;
}

static double value_of(const uint8_t *from, size_t type)
{
    size_t bytes = gcrt_dtypes[type].bytes;
    uint64_t bits = 0;
    double wide;
    float narrow;
    memcpy(&bits, from, bytes);
    if (gcrt_dtypes[type].kind == 'f') {
        uint32_t low = type == 3 ? (uint32_t)bits << 16 : (uint32_t)bits;
        memcpy(&wide, &bits, sizeof wide);
        memcpy(&narrow, &low, sizeof narrow);
        return type == 0 ? wide : type == 2 ? half_value((uint16_t)bits) : (double)narrow;
    }
    if (gcrt_dtypes[type].kind != 'i')
        return (double)bits;
    uint64_t sign = (uint64_t)1 << (8 * bytes - 1);
    return (double)(int64_t)((bits ^ sign) - sign);
}

static size_t elements_of(const struct testing *testing, const struct buffer *buffer)
{
    size_t bytes = gcrt_dtypes[buffer->dtype].bytes; /* none of a string */
    return bytes ? (size_t)gcrt_shape_bytes(testing->form, buffer) / bytes : 0;
}

/* The buffer of an argument, which a test may write and read; NULL for others. */
static const struct buffer *tried(const struct testing *testing, const struct launch *launch, uint32_t argument,
                                  int64_t *position)
{
    const gpucomp_model *model = testing->context->model;
    const struct plan *plan = &model->programs->plan;
    if (argument >= launch->args.count)
        return NULL;
    *position = ITEMS(launch->args, int64_t)[argument];
    const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + *position;
    bool fits = (buffer->kind == INPUT || buffer->kind == OUTPUT || buffer->kind == TEMP) && buffer->dtype <= LAST_TYPE &&
                elements_of(testing, buffer) < UINT32_MAX;
    for (size_t s = 0; s < plan->states.count; s++)
        fits = fits && !gcrt_same(ITEMS(plan->states, struct state)[s].input, buffer->name);
    return fits ? buffer : NULL;
}

static int damaged(gpucomp_error *error)
{
    return gcrt_fail(error, GCRT_WRONG_MANIFEST, CHECKS ": damaged, or of another version: compile the model again");
}

static int give_inputs(struct testing *testing, const struct launch *launch, uint32_t count, gpucomp_error *error)
{
    const struct device_calls *device = ((const struct device_context *)testing->context->device)->device;
    int code = 0;
    for (uint32_t k = 0; k < count && code == 0; k++) {
        uint32_t argument, limit;
        int64_t position;
        if (!next_word(testing, &argument) || !next_word(testing, &limit))
            return damaged(error);
        const struct buffer *buffer = tried(testing, launch, argument, &position);
        if (!buffer)
            return damaged(error);
        size_t elements = elements_of(testing, buffer), bytes = elements * gcrt_dtypes[buffer->dtype].bytes;
        uint8_t *data = gcrt_new(&testing->scratch, bytes, 1);
        if (!data)
            return gcrt_no_memory(error);
        generate(data, (size_t)buffer->dtype, elements, argument + 1, limit);
        if (bytes)
            code = device->write(testing->context, gcrt_device_memory(testing->context, testing->form, position), data, bytes,
                                 error);
    }
    return code;
}

/* How many elements were compared, how many are wrong, and the farthest of these. */
struct found {
    size_t count, wrong;
    double away, within;
};

static int compare(struct testing *testing, const struct launch *launch, struct found *found, gpucomp_error *error)
{
    uint32_t argument, count;
    int64_t position;
    if (!next_word(testing, &argument) || !next_word(testing, &count) ||
        (size_t)(testing->end - testing->at) / ELEMENT_BYTES < count)
        return damaged(error);
    const struct buffer *buffer = tried(testing, launch, argument, &position);
    if (!buffer)
        return damaged(error);
    size_t size = gcrt_dtypes[buffer->dtype].bytes, elements = elements_of(testing, buffer);
    uint8_t *data = gcrt_new(&testing->scratch, elements, size);
    if (!data)
        return gcrt_no_memory(error);
    struct strided whole = {1, elements * size, elements * size};
    int code = testing->context->engine->copy(testing->context,
                                              gcrt_device_memory(testing->context, testing->form, position), &whole, data, true,
                                              error);
    for (uint32_t k = 0; k < count && code == 0; k++, testing->at += ELEMENT_BYTES) {
        uint32_t at;
        float within;
        double value;
        memcpy(&at, testing->at, sizeof at);
        memcpy(&within, testing->at + 4, sizeof within);
        memcpy(&value, testing->at + 8, sizeof value);
        if (at >= elements)
            return damaged(error);
        double away = fabs(value_of(data + at * size, (size_t)buffer->dtype) - value);
        away = away == away ? away : INFINITY;
        found->count++;
        if (away <= within)
            continue;
        if (!found->wrong++ || away > found->away)
            found->away = away, found->within = within;
    }
    return code;
}

static bool in_a_loop(const struct plan *plan, uint32_t row)
{
    for (size_t k = 0; k < plan->repeats.count; k++)
        if (row >= ITEMS(plan->repeats, struct repeat)[k].first && row < ITEMS(plan->repeats, struct repeat)[k].last)
            return true;
    return false;
}

/* Run one kernel on its inputs, and note in the verdict what is wrong with its results. */
static int check(struct testing *testing, gpucomp_error *error)
{
    const struct plan *plan = &testing->context->model->programs->plan;
    const struct device_calls *device = ((const struct device_context *)testing->context->device)->device;
    uint32_t row, inputs, outputs;
    struct found found = {0};
    if (!next_word(testing, &row) || !next_word(testing, &inputs) || !next_word(testing, &outputs) ||
        row >= plan->launches.count || in_a_loop(plan, row))
        return damaged(error);
    const struct launch *launch = ITEMS(plan->launches, struct launch) + row;
    if (launch->kernel < 0 || inputs > launch->args.count || outputs > launch->args.count) /* each takes memory */
        return damaged(error);
    int code = give_inputs(testing, launch, inputs, error);
    if (code == 0)
        code = device->launch(testing->context, testing->form, row, 0, error);
    if (code == 0)
        code = device->wait(testing->context, error);
    for (uint32_t k = 0; k < outputs && code == 0; k++)
        code = compare(testing, launch, &found, error);
    if (code == 0 && found.wrong && testing->room - testing->count >= MOST_LINE)
        testing->count += (size_t)snprintf(testing->verdict + testing->count, MOST_LINE,
                                           "%.200s %zu of %zu elements are wrong, by up to %.3g where %.3g is allowed\n",
                                           ITEMS(plan->kernels, struct kernel)[testing->form->chosen[launch->kernel]].name.at,
                                           found.wrong,
                                           found.count, found.away, found.within);
    gcrt_free(&testing->scratch);
    return code;
}

/* A context for the sizes of the model's example, at which kernels are tested. */
static int open_context(gpucomp_model *model, struct testing *testing, struct store *store, gpucomp_error *error)
{
    const struct open_plan *open = &model->open;
    gpucomp_context_options options = GPUCOMP_CONTEXT_OPTIONS_INIT;
    gpucomp_size *largest = gcrt_new(store, open->dim_count, sizeof *largest);
    int64_t *sizes = gcrt_new(store, open->dim_count, sizeof *sizes);
    if (!largest || !sizes)
        return gcrt_no_memory(error);
    for (size_t d = 0; d < open->dim_count; d++) {
        sizes[d] = open->dims[d].example;
        largest[d] = (gpucomp_size){open->dims[d].name.at, sizes[d]};
    }
    options.largest = largest;
    options.largest_count = open->dim_count;
    int code = gpucomp_context_create(model, &options, &testing->context, error);
    if (code == 0) /* the program for any size, though there may be one for these alone, which has no checks */
        testing->form = testing->context->forms;
    if (code == 0 && open->dim_count)
        code = gcrt_measure(testing->form, sizes, error);
    if (code == 0 && open->dim_count)
        code = testing->context->engine->plan(testing->context, testing->form, error);
    return code ? code : gcrt_device_alone(testing->context, testing->form, error);
}

static int check_all(gpucomp_model *model, const struct member *checks, struct testing *testing, struct store *store,
                     gpucomp_error *error)
{
    uint32_t count;
    testing->at = checks->data + strlen(MAGIC);
    testing->end = checks->data + checks->bytes;
    if (checks->bytes < strlen(MAGIC) || memcmp(checks->data, MAGIC, strlen(MAGIC)) != 0 || !next_word(testing, &count) ||
        count > model->programs->plan.launches.count)
        return damaged(error);
    testing->room = strlen(VERDICT) + 1 + (size_t)count * MOST_LINE;
    testing->verdict = gcrt_new(store, testing->room, 1);
    if (!testing->verdict)
        return gcrt_no_memory(error);
    testing->count = (size_t)snprintf(testing->verdict, testing->room, VERDICT);
    int code = open_context(model, testing, store, error);
    for (uint32_t k = 0; k < count && code == 0; k++)
        code = check(testing, error);
    if (code == 0 && testing->at != testing->end)
        code = damaged(error);
    gcrt_free(&testing->scratch);
    gpucomp_context_destroy(testing->context);
    return code;
}

/* The hash that names a verdict: of the driver, the device, and the model's precision, sources, binaries and checks. */
static bool find_key(const struct container *container, const char *driver, struct text precision, struct store *store,
                     char key[65])
{
    static const char *const folders[] = {GCRT_SOURCES, GCRT_BINARIES};
    size_t room = strlen(driver) + precision.count + 64, count;
    for (size_t k = 0; k < container->count; k++)
        room += container->members[k].name.count + 70;
    char *text = gcrt_new(store, room, 1), digest[65];
    if (!text)
        return false;
    count = (size_t)snprintf(text, room, "self-test\n%s\n%.*s", driver, (int)precision.count, precision.at);
    for (size_t f = 0; f < 2; f++)
        for (size_t k = 0; k < container->count; k++) {
            const struct member *member = container->members + k;
            size_t before = strlen(folders[f]);
            if (member->name.count <= before || memcmp(member->name.at, folders[f], before) != 0)
                continue;
            gcrt_sha256(member->data, (size_t)member->bytes, digest);
            count += (size_t)snprintf(text + count, room - count, "\n%.*s %s", (int)(member->name.count - before),
                                      member->name.at + before, digest);
        }
    gcrt_sha256((const uint8_t *)text, count, key);
    return true;
}

/* GPC5106 with the first kernel that a verdict names. */
static int refuse(const char *verdict, size_t count, const char *driver, gpucomp_error *error)
{
    const char *line = verdict + strlen(VERDICT), *end = verdict + count, *more = line;
    size_t lines = 0;
    for (; more < end; more++)
        lines += *more == '\n';
    const char *stop = lines ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    const char *space = stop ? memchr(line, ' ', (size_t)(stop - line)) : NULL;
    char others[48] = "";
    if (!space)
        return 0;
    if (lines > 1)
        snprintf(others, sizeof others, ", and %zu more kernel%s", lines - 1, lines > 2 ? "s" : "");
    return gcrt_fail(error, GCRT_WRONG_KERNEL, "kernel %.*s: %.*s, on %.500s%s: " ADVICE, (int)(space - line), line,
                     (int)(stop - space - 1), space + 1, driver, others);
}

static bool is_wanted(bool usual)
{
    const char *setting = getenv("GPUCOMP_SELF_TEST");
    return setting && *setting ? strcmp(setting, "0") != 0 : usual;
}

int gcrt_device_test(gpucomp_model *model, const struct container *container, const char *driver, bool usual,
                     gpucomp_error *error)
{
    const struct member *checks = gcrt_member(container, GCRT_BINARIES, gcrt_text(CHECKS));
    struct store store = {0};
    struct kernel_cache cache = {0};
    struct testing testing = {0};
    const uint8_t *known = NULL;
    size_t count = 0;
    char key[65];
    if (!checks || !checks->bytes || !is_wanted(usual))
        return 0;
    struct text precision = model->programs->plan.precision;
    int code = find_key(container, driver, precision, &store, key) ? 0 : gcrt_no_memory(error);
    if (code == 0)
        code = gcrt_cache_open(&store, model->options.cache, &cache, error);
    if (code == 0 && (!gcrt_cache_get(&cache, &store, key, &known, &count) || count < strlen(VERDICT) ||
                      memcmp(known, VERDICT, strlen(VERDICT)) != 0)) {
        code = check_all(model, checks, &testing, &store, error);
        known = (const uint8_t *)testing.verdict;
        count = testing.count;
        if (code == 0)
            gcrt_cache_put(&cache, key, known, count);
        gcrt_cache_trim(&cache);
    }
    if (code == 0)
        code = refuse((const char *)known, count, driver, error);
    gcrt_free(&store);
    return code;
}
