/* A compiled model as plain data, with the fields of gpucomp/artifact/plan.py and open_plan.py that a run needs. */
#ifndef GCRT_PLAN_H
#define GCRT_PLAN_H

#include "json.h"

enum kind_of_buffer { INPUT, OUTPUT, WEIGHT, TEMP, COUNTER, NUMBERS };
enum device { ON_CPU, ON_OPENCL, ON_CUDA, ON_HIP };
enum given { GIVEN_SIZE, GIVEN_MAGIC, GIVEN_SHIFT };

/* A whole number, or in a plan for any size the place of a formula. */
struct number {
    int64_t value;
    bool open; /* `value` is a place among the formulas */
};

struct list {
    void *items;
    size_t count;
};
#define ITEMS(list, type) ((const type *)(list).items)

struct buffer {
    int64_t kind, dtype, nbytes, offset;
    struct text name;
    struct list shape, numbers; /* struct number */
};

struct kernel {
    struct text name, source, binary, family;
    int64_t language;
    struct list groups;  /* struct number */
    struct list items;   /* int64_t */
    struct list numbers; /* struct number_given */
    struct list tensor_maps;
    int64_t shared; /* bytes of dynamic shared memory */
    bool programmatic; /* it waits by itself for the launches before it */
};

/* See gpucomp/artifact/tensor_map.py. */
struct tensor_map {
    int64_t parameter, dtype, swizzle, channels, pixels; /* dtype: enum map_type */
    struct list extents, strides, upper; /* struct number */
    struct list box, steps, lower; /* int64_t */
    struct number offset;
};
enum map_type { MAP_F16, MAP_BF16, MAP_F32, MAP_TF32, MAP_I8 };
#define MOST_MAP_AXES 5

struct number_given {
    int64_t kind; /* enum given */
    int64_t value; /* or its place in a plan for any size */
};

struct launch {
    int64_t kernel, inputs;
    struct list args; /* int64_t: positions of buffers */
    struct text name, host;
    struct list nodes; /* struct text: ONNX nodes that it computes */
};

struct repeat {
    int64_t first, last, before;
    struct number count, after; /* other loops run steps before and after these, on the same buffers */
    struct list advances;       /* struct list of struct number, for each launch */
};

struct state {
    struct text input, output, dim, why;
    int64_t axis, capacity;
    struct number rows;
};

struct plan {
    struct text target, arch, model, precision;
    int64_t device, arena_bytes;
    struct list buffers, kernels, launches, inputs, outputs, output_names, features, repeats, states;
    struct list input_containers, output_containers; /* struct named */
    bool open; /* numbers can be places */
};

/* An entry of a table whose values are lists of texts, or null. */
struct named {
    struct text key;
    struct list names;
};

/* Element types, by their numbers. */
struct dtype {
    const char *name, *in_weights; /* in_weights: in a safetensors file, NULL if it is stored as bytes */
    uint8_t bytes;
    char kind; /* f i u b s */
};
extern const struct dtype gcrt_dtypes[];
#define DTYPE_COUNT 24

/* Where in the manifest a value is, for messages. */
struct where {
    const struct where *parent;
    const char *name;
    struct text key;
    size_t index; /* where there is neither name nor key */
};

/* What a value of the manifest must be; see manifest.c. */
struct spec;
extern const struct spec gcrt_positions; /* a list of int64_t */
extern const struct spec gcrt_texts;

struct reader {
    struct store *store;
    int64_t places; /* of formulas; 0 for a plan without */
    gpucomp_error *error;
};

/* Check `json` and write it to `to`. */
int gcrt_read(struct reader *reader, const struct spec *spec, const struct json *json, const struct where *where, void *to);
int gcrt_read_integer(struct reader *reader, const struct json *json, int64_t low, int64_t high, const struct where *where,
                      int64_t *to);
/* Note an error of the manifest at this place; returns GPC7004. */
int gcrt_refuse(gpucomp_error *error, const struct where *where, const char *format, ...);

/* Read and check a plan. `places` is the number of formulas, 0 for a plan of one set of sizes. */
int gcrt_plan(struct store *store, const struct json *json, int64_t places, struct plan *plan, gpucomp_error *error);

/* Elements of a shape, or INT64_MAX; 0 if an extent is open. */
int64_t gcrt_elements(struct list shape);
#endif
