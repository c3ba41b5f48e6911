/* Formulas of sizes: reads their steps, which a file holds, and computes them. As gpucomp/artifact/formulas.py. */
#include <stdlib.h>
#include <string.h>

#include "formulas.h"

#define MOST_DIMS 1000
#define MOST_STEPS 100000
#define MOST_TERMS 1000
#define MOST_FACTORS 64
#define MOST_PLACES 500000

#ifdef __SIZEOF_INT128__
__extension__ typedef __int128 wide; /* what a sum may be before it is divided */
#else
typedef int64_t wide;
#endif

static int damaged(gpucomp_error *error, size_t number)
{
    return gcrt_fail(error, GCRT_WRONG_FORMULAS, "the formulas of the model's sizes are damaged: step %zu is not one", number);
}

static bool is_whole(const struct json *json) { return json->kind == JSON_INTEGER && json->as.integer != INT64_MIN; }

/* A list of places before `number`; how many, or -1. */
static int64_t places_in(const struct json *json, size_t number, size_t most, int64_t *to)
{
    if (json->kind != JSON_LIST || json->count > most)
        return -1;
    for (size_t k = 0; k < json->count; k++) {
        const struct json *place = json->as.items + k;
        if (!is_whole(place) || place->as.integer < 0 || (uint64_t)place->as.integer >= number)
            return -1;
        if (to)
            to[k] = place->as.integer;
    }
    return (int64_t)json->count;
}

/* ["sum", number, [[factor, [place, ...]], ...], divisor]: how many numbers it takes, or -1; written to `step` if it has room. */
static int64_t read_sum(const struct json *parts, size_t number, struct step *step)
{
    const struct json *terms = parts + 2;
    if (!is_whole(parts + 1) || !is_whole(parts + 3) || parts[3].as.integer <= 0 || terms->kind != JSON_LIST ||
        terms->count > MOST_TERMS)
        return -1;
    int64_t count = 0;
    for (size_t k = 0; k < terms->count; k++) {
        const struct json *term = terms->as.items + k;
        if (term->kind != JSON_LIST || term->count != 2 || !is_whole(term->as.items))
            return -1;
        int64_t *to = step->numbers ? step->numbers + count : NULL;
        int64_t factors = places_in(term->as.items + 1, number, MOST_FACTORS, to ? to + 2 : NULL);
        if (factors < 0)
            return -1;
        if (to) {
            to[0] = term->as.items->as.integer;
            to[1] = factors;
        }
        count += 2 + factors;
    }
    step->count = terms->count;
    step->number = parts[1].as.integer;
    step->divisor = parts[3].as.integer;
    return count;
}

/* How many numbers the step takes in memory, or -1; `*places` is how many it counts for the limit. */
static int64_t read_step(const struct json *json, size_t number, struct step *step, int64_t *places)
{
    static const char *const kinds[] = {"sum", "quotient", "least", "greatest"};
    const struct json *parts = json->kind == JSON_LIST && json->count ? json->as.items : NULL;
    int kind = 4;
    for (int k = 0; parts && parts->kind == JSON_TEXT && k < 4; k++)
        if (gcrt_same(gcrt_json_text(parts), gcrt_text(kinds[k])))
            kind = k;
    step->kind = (enum step_kind)kind;
    if (kind == STEP_SUM && json->count == 4) {
        int64_t count = read_sum(parts, number, step);
        *places = count < 0 ? 0 : count - (int64_t)step->count;
        return count;
    }
    if (kind == STEP_QUOTIENT && json->count == 3) {
        const struct json both = {JSON_LIST, 2, {.items = parts + 1}};
        *places = 2;
        return places_in(&both, number, 2, step->numbers);
    }
    if ((kind == STEP_LEAST || kind == STEP_GREATEST) && json->count == 2) {
        int64_t count = places_in(parts + 1, number, MOST_TERMS, step->numbers);
        step->count = count > 0 ? (size_t)count : 0;
        *places = count;
        return count > 0 ? count : -1;
    }
    return -1;
}

int gcrt_read_steps(struct store *store, const struct json *json, struct open_plan *open, gpucomp_error *error)
{
    if (json->count > MOST_STEPS || open->dim_count > MOST_DIMS)
        return gcrt_fail(error, GCRT_WRONG_FORMULAS,
                         "the formulas of the model's sizes are damaged: %zu steps for %zu dimensions",
                         json->count, open->dim_count);
    open->steps = gcrt_new(store, json->count, sizeof *open->steps);
    if (!open->steps)
        return gcrt_no_memory(error);
    int64_t all = 0;
    for (open->step_count = 0; open->step_count < json->count; open->step_count++) {
        size_t number = gcrt_formula_count(open);
        struct step *step = open->steps + open->step_count;
        const struct json *data = json->as.items + open->step_count;
        int64_t places = 0, count = read_step(data, number, step, &places);
        if (count < 0)
            return damaged(error, number);
        all += places;
        if (all > MOST_PLACES)
            return gcrt_fail(error, GCRT_WRONG_FORMULAS,
                             "the formulas of the model's sizes are damaged: more than %d numbers are read", MOST_PLACES);
        if (!(step->numbers = gcrt_new(store, (size_t)count, sizeof *step->numbers)))
            return gcrt_no_memory(error);
        read_step(data, number, step, &places);
    }
    return 0;
}

static bool sum_at(const struct step *step, const int64_t *numbers, int64_t *found)
{
    wide total = step->number;
    const int64_t *next = step->numbers;
    for (size_t k = 0; k < step->count; k++) {
        wide product = next[0];
        int64_t factors = next[1];
        next += 2;
        for (int64_t f = 0; f < factors; f++)
            if (__builtin_mul_overflow(product, (wide)numbers[*next++], &product)) /* no step has such terms */
                return false;
        if (__builtin_add_overflow(total, product, &total))
            return false;
    }
    if (step->divisor != 1) {
        if (total % step->divisor)
            return false;
        total /= step->divisor;
    }
    *found = (int64_t)total;
    return total >= -INT64_MAX && total <= INT64_MAX;
}

static bool step_at(const struct step *step, const int64_t *numbers, int64_t *found)
{
    if (step->kind == STEP_SUM)
        return sum_at(step, numbers, found);
    int64_t first = numbers[step->numbers[0]];
    if (step->kind == STEP_QUOTIENT) {
        int64_t by = numbers[step->numbers[1]];
        if (by <= 0)
            return false;
        *found = first / by - (first % by < 0);
        return true;
    }
    for (size_t k = 1; k < step->count; k++) {
        int64_t other = numbers[step->numbers[k]];
        if (step->kind == STEP_LEAST ? other < first : other > first)
            first = other;
    }
    *found = first;
    return true;
}

bool gcrt_formulas_at(const struct open_plan *open, int64_t *numbers)
{
    for (size_t k = 0; k < open->step_count; k++)
        if (!step_at(open->steps + k, numbers, numbers + open->dim_count + k))
            return false;
    return true;
}

const struct condition *gcrt_broken(const struct open_plan *open, const int64_t *numbers)
{
    for (size_t k = 0; k < open->condition_count; k++) {
        const struct condition *condition = open->conditions + k;
        int64_t value = numbers[condition->place];
        bool holds = condition->relation == EQUAL ? value == 0 : condition->relation == LESS ? value < 0 : value <= 0;
        if (holds != condition->truth)
            return condition;
    }
    return NULL;
}

bool gcrt_dim_has(const struct dim *dim, int64_t size)
{
    return dim->low <= size && size <= dim->high && size % dim->multiple == 0;
}

int64_t gcrt_dim_nearest(const struct dim *dim, int64_t size)
{
    int64_t unit = dim->multiple, most = dim->high / unit * unit;
    int64_t up = (size + unit - 1) / unit * unit, least = (dim->low + unit - 1) / unit * unit;
    up = up < most ? up : most;
    return up > least ? up : least;
}

/* As gpucomp/ir/run_numbers.py: what a kernel divides by a size with. */
bool gcrt_given(int64_t kind, int64_t size, int64_t *found)
{
    const int dividend_bits = 31;
    *found = size;
    if (kind == GIVEN_SIZE || size <= 0) /* nothing is divided by a size of 0: there are no elements */
        return true;
    int bits = 0;
    while (bits < 63 && (size - 1) >> bits)
        bits++;
    *found = dividend_bits + bits;
    if (kind == GIVEN_SHIFT)
        return true;
    if (dividend_bits + bits > (int)(8 * sizeof(wide)) - 2)
        return false;
    *found = (int64_t)((((wide)1 << (dividend_bits + bits)) + size - 1) / size);
    return true;
}
