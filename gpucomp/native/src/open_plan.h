/* A plan for every size in a range: formulas, conditions, and the order of temporaries. See gpucomp/artifact/open_plan.py. */
#ifndef GCRT_OPEN_PLAN_H
#define GCRT_OPEN_PLAN_H

#include "plan.h"

enum step_kind { STEP_SUM, STEP_QUOTIENT, STEP_LEAST, STEP_GREATEST };

/* A sum: number + terms, divided by divisor. `numbers` holds factor, count, places ... of each term.
 * A quotient: of the numbers at places[0] and places[1]. Else the least or the greatest of the numbers at `places`. */
struct step {
    enum step_kind kind;
    int64_t number, divisor;
    size_t count;
    int64_t *numbers;
};

struct dim {
    struct text name, said;
    int64_t low, high, multiple, example;
};

enum relation { EQUAL, LESS, AT_MOST };

struct condition {
    int64_t place;
    enum relation relation;
    bool truth;
};

struct stack {
    struct list buffers, above; /* int64_t */
};

struct choice {
    int64_t kernel, points;
    struct list starts, kernels; /* int64_t */
};

struct open_plan {
    struct dim *dims;
    size_t dim_count;
    struct step *steps;
    size_t step_count;
    struct condition *conditions;
    size_t condition_count;
    struct list *orders; /* of struct stack */
    size_t order_count;
    int64_t alignment;
    struct choice *choices;
    size_t choice_count;
    struct list *outputs; /* of struct shown: the shapes of outputs for people */
};

/* An extent of an output: a number, a place, or the name of a dimension. */
struct shown {
    struct number number;
    struct text name;
};

/* Read `open` and `plan` of the manifest. */
int gcrt_open_plan(struct store *store, const struct json *open, const struct json *plan_data, struct open_plan *found,
                   struct plan *plan, gpucomp_error *error);

static inline size_t gcrt_formula_count(const struct open_plan *open) { return open->dim_count + open->step_count; }

/* All numbers at these sizes of the dimensions: `numbers` holds the sizes and has room for all. False if one is not whole or
 * does not fit 64 bits. */
bool gcrt_formulas_at(const struct open_plan *open, int64_t *numbers);

/* The first condition that does not hold, or NULL. */
const struct condition *gcrt_broken(const struct open_plan *open, const int64_t *numbers);

bool gcrt_dim_has(const struct dim *dim, int64_t size);
int64_t gcrt_dim_nearest(const struct dim *dim, int64_t size);
#endif
