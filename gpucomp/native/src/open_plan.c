/* Reads what manifest.json says of a plan for any size, and checks it, as gpucomp/artifact/open_model.py does. */
#include "open_plan.h"

#include <stdlib.h>
#include <string.h>

#include "formulas.h"

#define MOST_ALIGNMENT (1 << 20)
#define MOST_VARIANTS 64
#define MOST_REGRETS 10000
#define MOST_ORDERS 4
#define MOST_SHOWN 1000
#define MOST_SIZE ((int64_t)1 << 48)
#define MOST_ITEMS 10000000
#define LARGEST_DIM INT32_MAX
#define COUNT(array) (sizeof(array) / sizeof *(array))

struct loader {
    struct store *store;
    struct reader reader;
    struct open_plan *open;
    struct plan *plan;
    gpucomp_error *error;
};

static const struct where OPEN = {NULL, "open", {NULL, 0}, 0};

static int refuse(struct loader *loader, const char *name, const char *what)
{
    const struct where where = {&OPEN, name, {NULL, 0}, 0};
    return gcrt_refuse(loader->error, &where, "%s", what);
}

static int refuse_item(struct loader *loader, const char *name, size_t number, const char *what)
{
    const struct where outer = {&OPEN, name, {NULL, 0}, 0}, where = {&outer, NULL, {NULL, 0}, number};
    return gcrt_refuse(loader->error, &where, "%s", what);
}

static int refuse_buffer(struct loader *loader, size_t number, const char *what)
{
    const struct where plan = {NULL, "plan", {NULL, 0}, 0}, outer = {&plan, "buffers", {NULL, 0}, 0};
    const struct where where = {&outer, NULL, {NULL, 0}, number};
    return gcrt_refuse(loader->error, &where, "%s", what);
}

/* Whether a table has these keys, in alphabetical order, and no others. */
static bool has_keys(const struct json *json, const char *const *keys, size_t count)
{
    bool same = json->kind == JSON_TABLE && json->count == count;
    for (size_t k = 0; same && k < count; k++)
        same = gcrt_same(gcrt_json_text(json->as.items + 2 * k), gcrt_text(keys[k]));
    return same;
}

static bool integer_of(const struct json *table, const char *key, int64_t *found)
{
    const struct json *json = gcrt_json_find(table, key);
    *found = json->as.integer;
    return json->kind == JSON_INTEGER;
}

static int read_dim(struct loader *loader, const struct json *json, size_t number, struct dim *dim)
{
    static const char *const keys[] = {"example", "high", "low", "multiple", "name", "said"};
    if (!has_keys(json, keys, COUNT(keys)))
        return refuse_item(loader, "dims", number, "the fields example, high, low, multiple, name, said expected");
    const struct json *name = gcrt_json_find(json, "name"), *said = gcrt_json_find(json, "said");
    if (said->kind != JSON_TEXT)
        return refuse_item(loader, "dims", number, "who says so is a text");
    if (name->kind != JSON_TEXT || name->count == 0)
        return refuse_item(loader, "dims", number, "Dim: a name expected");
    dim->name = gcrt_json_text(name);
    dim->said = gcrt_json_text(said);
    if (!integer_of(json, "low", &dim->low) || !integer_of(json, "high", &dim->high) ||
        !integer_of(json, "multiple", &dim->multiple))
        return refuse_item(loader, "dims", number, "whole numbers expected");
    if (dim->low < 0 || dim->multiple < 1 || dim->high > LARGEST_DIM || dim->low > dim->high ||
        dim->multiple > LARGEST_DIM || gcrt_dim_nearest(dim, dim->low) > dim->high)
        return refuse_item(loader, "dims", number, "there is no size in its range");
    for (size_t k = 0; k < number; k++)
        if (gcrt_same(loader->open->dims[k].name, dim->name))
            return refuse_item(loader, "dims", number, "a second dimension of this name");
    if (!integer_of(json, "example", &dim->example) || !gcrt_dim_has(dim, dim->example))
        return refuse_item(loader, "dims", number, "its example is not in its range");
    if (!gcrt_copy_text(loader->store, &dim->name) || !gcrt_copy_text(loader->store, &dim->said))
        return gcrt_no_memory(loader->error);
    return 0;
}

static int read_dims(struct loader *loader, const struct json *json)
{
    if (json->kind != JSON_LIST)
        return refuse(loader, "dims", "a list expected");
    if (!(loader->open->dims = gcrt_new(loader->store, json->count, sizeof(struct dim))))
        return gcrt_no_memory(loader->error);
    for (size_t k = 0; k < json->count; k++) {
        int code = read_dim(loader, json->as.items + k, k, loader->open->dims + k);
        if (code)
            return code;
        loader->open->dim_count = k + 1;
    }
    return json->count ? 0 : refuse(loader, "dims", "at least one dimension expected");
}

static int read_conditions(struct loader *loader, const struct json *json)
{
    static const char *const relations[] = {"==", "<", "<="};
    struct open_plan *open = loader->open;
    if (json->kind != JSON_LIST)
        return refuse(loader, "conditions", "a list expected");
    if (!(open->conditions = gcrt_new(loader->store, json->count, sizeof *open->conditions)))
        return gcrt_no_memory(loader->error);
    for (size_t k = 0; k < json->count; k++) {
        const struct json *one = json->as.items + k, *parts = one->kind == JSON_LIST && one->count == 3 ? one->as.items : NULL;
        int relation = 3;
        for (int r = 0; parts && parts[1].kind == JSON_TEXT && r < 3; r++)
            if (gcrt_same(gcrt_json_text(parts + 1), gcrt_text(relations[r])))
                relation = r;
        if (relation == 3 || (parts[2].kind != JSON_TRUE && parts[2].kind != JSON_FALSE) || parts[0].kind != JSON_INTEGER ||
            parts[0].as.integer < 0 || (uint64_t)parts[0].as.integer >= gcrt_formula_count(open))
            return refuse_item(loader, "conditions", k, "a place, a relation, and whether it holds expected");
        open->conditions[k] =
            (struct condition){parts[0].as.integer, (enum relation)relation, parts[2].kind == JSON_TRUE};
    }
    open->condition_count = json->count;
    return 0;
}

/* A list of whole numbers from 0 to `high`. */
static int read_positions(struct loader *loader, const struct json *json, int64_t high, size_t most, const struct where *where,
                          struct list *to)
{
    if (json->kind != JSON_LIST || json->count > most)
        return gcrt_refuse(loader->error, where, "a list of at most %zu values expected, found %s", most, QUOTE_JSON(json));
    int64_t *items = gcrt_new(loader->store, json->count, sizeof *items);
    if (!items)
        return gcrt_no_memory(loader->error);
    for (size_t k = 0; k < json->count; k++) {
        struct where inner = {where, NULL, {NULL, 0}, k};
        int code = gcrt_read_integer(&loader->reader, json->as.items + k, 0, high, &inner, items + k);
        if (code)
            return code;
    }
    *to = (struct list){items, json->count};
    return 0;
}

static int read_order(struct loader *loader, const struct json *json, size_t number, struct list *to)
{
    const struct where outer = {&OPEN, "orders", {NULL, 0}, 0}, where = {&outer, NULL, {NULL, 0}, number};
    if (json->kind != JSON_LIST)
        return gcrt_refuse(loader->error, &where, "a list of stacks expected, found %s", QUOTE_JSON(json));
    struct stack *stacks = gcrt_new(loader->store, json->count, sizeof *stacks);
    if (!stacks)
        return gcrt_no_memory(loader->error);
    for (size_t k = 0; k < json->count; k++) {
        const struct json *one = json->as.items + k;
        struct where inner = {&where, NULL, {NULL, 0}, k};
        if (one->kind != JSON_LIST || one->count != 2)
            return gcrt_refuse(loader->error, &inner, "two lists of positions expected, found %s", QUOTE_JSON(one));
        int code = read_positions(loader, one->as.items, MOST_ITEMS, MOST_ITEMS, &inner, &stacks[k].buffers);
        if (code == 0)
            code = read_positions(loader, one->as.items + 1, (int64_t)k - 1, MOST_ITEMS, &inner, &stacks[k].above);
        if (code)
            return code;
    }
    *to = (struct list){stacks, json->count};
    return 0;
}

/* Whether an order holds each temporary once and nothing else. `seen` has a byte for each buffer. */
static bool is_whole_order(const struct plan *plan, struct list order, char *seen)
{
    memset(seen, 0, plan->buffers.count);
    for (size_t k = 0; k < order.count; k++) {
        struct list buffers = ITEMS(order, struct stack)[k].buffers;
        for (size_t n = 0; n < buffers.count; n++) {
            int64_t position = ITEMS(buffers, int64_t)[n];
            if (position >= (int64_t)plan->buffers.count || seen[position]++)
                return false;
        }
    }
    for (size_t k = 0; k < plan->buffers.count; k++)
        if ((ITEMS(plan->buffers, struct buffer)[k].kind == TEMP) != seen[k])
            return false;
    return true;
}

static int read_orders(struct loader *loader, const struct json *json)
{
    struct open_plan *open = loader->open;
    if (json->kind != JSON_LIST)
        return refuse(loader, "orders", "a list expected");
    char *seen = gcrt_new(loader->store, loader->plan->buffers.count, 1);
    open->orders = gcrt_new(loader->store, json->count, sizeof *open->orders);
    if (!seen || !open->orders)
        return gcrt_no_memory(loader->error);
    for (size_t k = 0; k < json->count; k++) {
        int code = read_order(loader, json->as.items + k, k, open->orders + k);
        if (code)
            return code;
        if (!is_whole_order(loader->plan, open->orders[k], seen))
            return refuse(loader, "orders", "every temporary expected, each once");
    }
    open->order_count = json->count;
    return open->order_count >= 1 && open->order_count <= MOST_ORDERS ? 0 : refuse(loader, "orders", "1 to 4 expected");
}

static int check_regrets(struct loader *loader, const struct json *json, size_t number)
{
    bool fits = json->kind == JSON_LIST && json->count <= MOST_REGRETS;
    for (size_t k = 0; fits && k < json->count; k++) {
        const struct json *one = json->as.items + k, *parts = one->kind == JSON_LIST && one->count == 2 ? one->as.items : NULL;
        fits = parts && (parts[1].kind == JSON_INTEGER || parts[1].kind == JSON_LONG || parts[1].kind == JSON_FLOAT);
        if (fits) {
            double ratio = gcrt_json_number(parts + 1);
            fits = ratio >= 0 && ratio <= (double)INT64_MAX && parts[0].kind == JSON_LIST &&
                parts[0].count == loader->open->dim_count;
        }
        for (size_t d = 0; fits && d < parts[0].count; d++) {
            const struct json *size = parts[0].as.items + d;
            fits = size->kind == JSON_INTEGER && size->as.integer >= 0 && size->as.integer <= LARGEST_DIM;
        }
    }
    return fits ? 0 : refuse_item(loader, "choices", number, "sizes and a ratio expected");
}

static int read_choice(struct loader *loader, const struct json *json, size_t number, struct choice *choice)
{
    static const char *const keys[] = {"kernel", "kernels", "points", "regrets", "starts"};
    const struct where outer = {&OPEN, "choices", {NULL, 0}, 0}, where = {&outer, NULL, {NULL, 0}, number};
    const struct kernel *kernels = ITEMS(loader->plan->kernels, struct kernel);
    int64_t last = (int64_t)loader->plan->kernels.count - 1, place = (int64_t)gcrt_formula_count(loader->open) - 1;
    if (!has_keys(json, keys, COUNT(keys)))
        return refuse_item(loader, "choices", number, "the fields kernel, kernels, points, regrets, starts expected");
    int code = gcrt_read_integer(&loader->reader, gcrt_json_find(json, "points"), 0, place, &where, &choice->points);
    if (code == 0)
        code = read_positions(loader, gcrt_json_find(json, "starts"), INT64_MAX, MOST_VARIANTS, &where, &choice->starts);
    if (code == 0)
        code = read_positions(loader, gcrt_json_find(json, "kernels"), last, MOST_VARIANTS, &where, &choice->kernels);
    if (code == 0)
        code = gcrt_read_integer(&loader->reader, gcrt_json_find(json, "kernel"), 0, last, &where, &choice->kernel);
    if (code)
        return code;
    const int64_t *starts = ITEMS(choice->starts, int64_t);
    bool rises = choice->starts.count && starts[0] == 0 && choice->kernels.count == choice->starts.count;
    for (size_t k = 1; rises && k < choice->starts.count; k++)
        rises = starts[k - 1] < starts[k];
    if (!rises)
        return refuse_item(loader, "choices", number, "starts that rise from 0, and as many kernels, expected");
    const struct kernel *own = kernels + choice->kernel;
    for (size_t k = 0; k < choice->kernels.count; k++) { /* they are called with the same arguments */
        const struct kernel *other = kernels + ITEMS(choice->kernels, int64_t)[k];
        if (other->language != own->language || (other->numbers.count > 0) != (own->numbers.count > 0))
            return refuse_item(loader, "choices", number, "a kernel cannot take the place of another");
    }
    return check_regrets(loader, gcrt_json_find(json, "regrets"), number);
}

/* Each variant belongs to one choice, and nothing else launches it. */
static int check_variants(struct loader *loader)
{
    const struct open_plan *open = loader->open;
    char *of = gcrt_new(loader->store, loader->plan->kernels.count, 1); /* 1: of a choice's own, 2: of its others */
    if (!of)
        return gcrt_no_memory(loader->error);
    bool apart = true;
    for (size_t c = 0; c < open->choice_count; c++) {
        const struct choice *choice = open->choices + c;
        const int64_t *kernels = ITEMS(choice->kernels, int64_t);
        for (size_t k = 0; k <= choice->kernels.count; k++) {
            int64_t kernel = k < choice->kernels.count ? kernels[k] : choice->kernel;
            bool again = k == choice->kernels.count ? false : kernel == choice->kernel;
            for (size_t n = 0; n < k && n < choice->kernels.count; n++)
                again = again || (k < choice->kernels.count && kernels[n] == kernel);
            if (again)
                continue;
            apart = apart && !of[kernel];
            of[kernel] = kernel == choice->kernel ? 1 : 2;
        }
    }
    for (size_t k = 0; k < loader->plan->launches.count; k++) {
        int64_t kernel = ITEMS(loader->plan->launches, struct launch)[k].kernel;
        apart = apart && (kernel < 0 || of[kernel] != 2);
    }
    return apart ? 0 : refuse(loader, "choices", "a variant of a kernel is launched elsewhere");
}

static int read_choices(struct loader *loader, const struct json *json)
{
    struct open_plan *open = loader->open;
    if (json->kind != JSON_LIST)
        return refuse(loader, "choices", "a list expected");
    if (!(open->choices = gcrt_new(loader->store, json->count, sizeof *open->choices)))
        return gcrt_no_memory(loader->error);
    for (open->choice_count = 0; open->choice_count < json->count; open->choice_count++) {
        size_t k = open->choice_count;
        int code = read_choice(loader, json->as.items + k, k, open->choices + k);
        if (code)
            return code;
    }
    return check_variants(loader);
}

static int read_output(struct loader *loader, const struct json *json, size_t number, struct list *to)
{
    if (json->kind != JSON_LIST || json->count > GPUCOMP_MAX_RANK)
        return refuse_item(loader, "outputs", number, "a list of at most 32 extents expected");
    struct shown *items = gcrt_new(loader->store, json->count, sizeof *items);
    if (!items)
        return gcrt_no_memory(loader->error);
    for (size_t k = 0; k < json->count; k++) {
        const struct json *one = json->as.items + k;
        const struct json *place = one->kind == JSON_TABLE && one->count == 1 ? gcrt_json_find(one, "place") : NULL;
        const struct json *value = place ? place : one;
        items[k].number.open = place != NULL;
        if (one->kind == JSON_TEXT && one->count > 0 && one->count <= (size_t)6 * MOST_SHOWN) {
            items[k].name = gcrt_json_text(one);
            if (!gcrt_copy_text(loader->store, &items[k].name))
                return gcrt_no_memory(loader->error);
        } else if (value->kind != JSON_INTEGER || value->as.integer < 0 ||
                   value->as.integer > (place ? (int64_t)gcrt_formula_count(loader->open) - 1 : MOST_SIZE)) {
            return refuse_item(loader, "outputs", number, "a number, a place or a name expected");
        } else {
            items[k].number.value = value->as.integer;
        }
    }
    *to = (struct list){items, json->count};
    return 0;
}

static int read_outputs(struct loader *loader, const struct json *json)
{
    if (json->kind != JSON_LIST)
        return refuse(loader, "outputs", "a list expected");
    if (!(loader->open->outputs = gcrt_new(loader->store, json->count, sizeof(struct list))))
        return gcrt_no_memory(loader->error);
    for (size_t k = 0; k < json->count; k++) {
        int code = read_output(loader, json->as.items + k, k, loader->open->outputs + k);
        if (code)
            return code;
    }
    return json->count == loader->plan->outputs.count ? 0 : refuse(loader, "outputs", "a shape for each output expected");
}

static bool in_a_container(const struct plan *plan, struct text name)
{
    for (size_t k = 0; k < plan->input_containers.count; k++) {
        struct list names = ITEMS(plan->input_containers, struct named)[k].names;
        for (size_t n = 0; n < names.count; n++)
            if (gcrt_same(ITEMS(names, struct text)[n], name))
                return true;
    }
    return false;
}

/* Note which dimensions an input has; a state that grows has its own where the buffer has the capacity. */
static int check_input(struct loader *loader, size_t position, char *had)
{
    const struct buffer *buffer = ITEMS(loader->plan->buffers, struct buffer) + position;
    bool inside = in_a_container(loader->plan, buffer->name);
    for (size_t k = 0; k < buffer->shape.count; k++) {
        struct number extent = ITEMS(buffer->shape, struct number)[k];
        if (!extent.open)
            continue;
        if (extent.value >= (int64_t)loader->open->dim_count)
            return refuse_buffer(loader, position, "an extent of an input is a number or a dimension");
        if (inside)
            return refuse_buffer(loader, position, "an element of a sequence has the same shape at every size");
        had[extent.value] = 1;
    }
    for (size_t k = 0; k < loader->plan->states.count; k++) {
        const struct state *state = ITEMS(loader->plan->states, struct state) + k;
        if (state->axis < 0 || !gcrt_same(state->input, buffer->name))
            continue;
        size_t d = 0;
        while (d < loader->open->dim_count && !gcrt_same(loader->open->dims[d].name, state->dim))
            d++;
        struct number extent = ITEMS(buffer->shape, struct number)[state->axis];
        if (d == loader->open->dim_count || extent.open || loader->open->dims[d].high != extent.value) {
            const struct where plan = {NULL, "plan", {NULL, 0}, 0}, where = {&plan, "states", {NULL, 0}, 0};
            return gcrt_refuse(loader->error, &where, "a dimension that ends at the capacity expected, found %s",
                               QUOTE(state->dim));
        }
        had[d] = 1;
    }
    return 0;
}

static int check_inputs(struct loader *loader)
{
    char *had = gcrt_new(loader->store, loader->open->dim_count, 1);
    if (!had)
        return gcrt_no_memory(loader->error);
    for (size_t k = 0; k < loader->plan->inputs.count; k++) {
        int code = check_input(loader, (size_t)ITEMS(loader->plan->inputs, int64_t)[k], had);
        if (code)
            return code;
    }
    for (size_t d = 0; d < loader->open->dim_count; d++)
        if (!had[d])
            return refuse(loader, "dims", "a dimension that no input has");
    return 0;
}

static int check_buffers(struct loader *loader)
{
    const struct plan *plan = loader->plan;
    for (size_t k = 0; k < plan->buffers.count; k++) {
        const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + k;
        bool open = false, other = false;
        for (size_t n = 0; n < buffer->shape.count; n++) {
            struct number extent = ITEMS(buffer->shape, struct number)[n];
            open = open || extent.open;
            other = other || (extent.open && extent.value >= (int64_t)loader->open->dim_count);
        }
        if (open && (buffer->kind == WEIGHT || (buffer->kind == COUNTER && plan->device == ON_CPU)))
            return refuse_buffer(loader, k, "weights and counters have the same shape at every size");
        if (buffer->kind == INPUT && other)
            return refuse_buffer(loader, k, "an extent of an input is a number or a dimension");
        if (open && gcrt_dtypes[buffer->dtype].kind == 's')
            return refuse_buffer(loader, k, "strings have the same shape at every size");
    }
    return 0;
}

int gcrt_open_plan(struct store *store, const struct json *json, const struct json *plan_data, struct open_plan *found,
                   struct plan *plan, gpucomp_error *error)
{
    static const char *const keys[] = {"alignment", "choices", "conditions", "dims", "orders", "outputs", "steps"};
    struct loader loader = {store, {store, 0, error}, found, plan, error};
    if (!has_keys(json, keys, COUNT(keys)))
        return gcrt_refuse(error, &OPEN, "the fields alignment, choices, conditions, dims, orders, outputs, steps expected");
    const struct json *steps = gcrt_json_find(json, "steps");
    const struct where alignment = {&OPEN, "alignment", {NULL, 0}, 0};
    int code = read_dims(&loader, gcrt_json_find(json, "dims"));
    if (code == 0 && steps->kind != JSON_LIST)
        code = refuse(&loader, "steps", "a list expected");
    if (code == 0)
        code = gcrt_read_steps(store, steps, found, error);
    if (code == 0)
        code = gcrt_plan(store, plan_data, (int64_t)gcrt_formula_count(found), plan, error);
    if (code == 0)
        code = read_orders(&loader, gcrt_json_find(json, "orders"));
    if (code == 0)
        code = read_conditions(&loader, gcrt_json_find(json, "conditions"));
    if (code == 0)
        code = gcrt_read_integer(&loader.reader, gcrt_json_find(json, "alignment"), 1, MOST_ALIGNMENT, &alignment,
                                 &found->alignment);
    if (code == 0)
        code = check_inputs(&loader);
    if (code == 0)
        code = read_outputs(&loader, gcrt_json_find(json, "outputs"));
    if (code == 0)
        code = read_choices(&loader, gcrt_json_find(json, "choices"));
    return code ? code : check_buffers(&loader);
}
