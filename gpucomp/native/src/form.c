/* A program at some sizes: computes the numbers of its plan, places temporaries, and fills the table of the native runner.
 * As gpucomp/artifact/open_plan.py and gpucomp/runtime/launches.py. */
#include <math.h>
#include <string.h>

#include "context.h"
#include "formulas.h"

#define MOST_BYTES ((int64_t)1 << 48)
#define MOST_COUNT INT32_MAX
#define ADVANCES 5 /* words of a launch's loop before its advances */
#define MOST_CLAIMS ((int64_t)1 << 31) /* of a launch in all steps of its loop: the native runner counts them in 32 bits */
#define SMALLEST_SHARED_STEP_NS 50000.0
/* about how long launches take, as gpucomp/runtime/estimates.py has it */
#define MULTIPLY_ADDS_A_NS 16.0
#define CONTRACTION "contraction"
#define BYTES_A_NS 8.0

static void *aligned(struct store *store, size_t count, size_t size)
{
    char *memory = gcrt_new(store, count * size + GCRT_LINE, 1);
    return memory ? memory + (gcrt_up((uintptr_t)memory, GCRT_LINE) - (uintptr_t)memory) : NULL;
}

/* Memory of counters and of numbers, and where weights are. */
static bool find_memory(struct store *store, const struct program *program, struct form *form)
{
    const struct plan *plan = &program->plan;
    for (size_t k = 0; k < plan->buffers.count; k++) {
        const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + k;
        if (buffer->kind == WEIGHT)
            form->memory[k] = (uint8_t *)(uintptr_t)program->weights[k]; /* no kernel writes it */
        else if ((buffer->kind == COUNTER || buffer->kind == NUMBERS) &&
                 !(form->memory[k] = aligned(store, (size_t)buffer->nbytes, 1)))
            return false;
    }
    return true;
}

static void lay_table(struct form *form, int threads)
{
    const struct program *program = form->program;
    size_t words = 0;
    for (size_t row = 0; row < program->rows; row++) {
        size_t count = program->begins[row + 1] - program->begins[row];
        form->table[4 * row + 1] = (uint64_t)(uintptr_t)(form->arguments + program->begins[row]);
        form->table[4 * row + 3] = (uint64_t)(uintptr_t)(form->states + row * (size_t)threads * GCRT_STATE_WORDS);
        if (!form->loops)
            continue;
        for (size_t r = 0; r < program->plan.repeats.count; r++) {
            const struct repeat *repeat = ITEMS(program->plan.repeats, struct repeat) + r;
            if ((int64_t)row >= repeat->first && (int64_t)row < repeat->last) {
                form->loops[row] = (int64_t)(intptr_t)(form->loop_words + words);
                form->loop_words[words + 4] = (int64_t)count;
                words += ADVANCES + count;
            }
        }
    }
}

int gcrt_make_form(struct store *store, const gpucomp_model *model, const struct program *program, struct form *form,
                   gpucomp_error *error)
{
    const struct plan *plan = &program->plan;
    size_t buffers = plan->buffers.count, stacks = 0;
    for (size_t k = 0; program->open && k < program->open->order_count; k++)
        stacks = program->open->orders[k].count > stacks ? program->open->orders[k].count : stacks;
    form->program = program;
    form->numbers = gcrt_new(store, gcrt_formula_count(&model->open), sizeof *form->numbers);
    form->nbytes = gcrt_new(store, buffers, sizeof *form->nbytes);
    form->offsets = gcrt_new(store, buffers, sizeof *form->offsets);
    form->ends = gcrt_new(store, stacks, sizeof *form->ends);
    form->chosen = gcrt_new(store, plan->kernels.count, sizeof *form->chosen);
    form->given = aligned(store, program->number_count, sizeof *form->given);
    form->memory = gcrt_new(store, buffers, sizeof *form->memory);
    bool whole = form->numbers && form->nbytes && form->offsets && form->ends && form->chosen && form->given && form->memory;
    return whole && find_memory(store, program, form) ? 0 : gcrt_no_memory(error);
}

int gcrt_make_table(struct store *store, int threads, struct form *form, gpucomp_error *error)
{
    const struct program *program = form->program;
    size_t rows = program->rows;
    form->table = aligned(store, 4 * rows, sizeof *form->table);
    form->arguments = aligned(store, program->argument_count, sizeof *form->arguments);
    form->starts = gcrt_new(store, program->argument_count, sizeof *form->starts);
    form->states = aligned(store, rows * (size_t)threads * GCRT_STATE_WORDS, sizeof *form->states);
    form->costs = gcrt_new(store, rows, sizeof *form->costs);
    bool whole = form->table && form->arguments && form->starts && form->states && form->costs;
    if (whole && program->plan.repeats.count) {
        form->loops = gcrt_new(store, rows, sizeof *form->loops);
        form->loop_words = gcrt_new(store, ADVANCES * rows + program->argument_count, sizeof *form->loop_words);
        whole = form->loops && form->loop_words;
    }
    if (!whole)
        return gcrt_no_memory(error);
    lay_table(form, threads);
    return 0;
}

static int damaged(gpucomp_error *error, const char *what)
{
    return gcrt_fail(error, GCRT_WRONG_FORMULAS, "the formulas of the model's sizes are damaged: %s", what);
}

/* Shapes, and what follows from them: bytes of each buffer. */
static int measure_buffers(struct form *form, gpucomp_error *error)
{
    const struct plan *plan = &form->program->plan;
    for (size_t k = 0; k < plan->buffers.count; k++) {
        const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + k;
        int64_t elements = 1;
        bool open = false;
        for (size_t d = 0; d < buffer->shape.count; d++) {
            struct number extent = ITEMS(buffer->shape, struct number)[d];
            int64_t value = gcrt_value(form, extent);
            open = open || extent.open;
            if (value < 0)
                return damaged(error, "an extent below 0");
            elements = gcrt_times(elements, value);
        }
        form->nbytes[k] = open ? gcrt_times(elements, gcrt_dtypes[buffer->dtype].bytes) : buffer->nbytes;
        form->offsets[k] = buffer->kind == TEMP ? buffer->offset : -1;
        if (form->nbytes[k] > MOST_BYTES)
            return damaged(error, "more bytes than any memory has");
    }
    return 0;
}

/* Place temporaries in one order; the bytes of the arena. */
static int64_t placed(struct form *form, struct list order)
{
    const int64_t alignment = form->program->open->alignment;
    int64_t arena = 0;
    for (size_t k = 0; k < order.count; k++) {
        const struct stack *stack = ITEMS(order, struct stack) + k;
        int64_t start = 0, most = 0;
        for (size_t n = 0; n < stack->above.count; n++) {
            int64_t end = form->ends[ITEMS(stack->above, int64_t)[n]];
            start = end > start ? end : start;
        }
        for (size_t n = 0; n < stack->buffers.count; n++) {
            int64_t buffer = ITEMS(stack->buffers, int64_t)[n];
            form->offsets[buffer] = start;
            most = form->nbytes[buffer] > most ? form->nbytes[buffer] : most;
        }
        form->ends[k] = (start + most + alignment - 1) / alignment * alignment; /* all are at most MOST_BYTES, 10^7 times */
        if (form->ends[k] > 2 * MOST_BYTES)
            return form->ends[k];
        arena = form->ends[k] > arena ? form->ends[k] : arena;
    }
    return arena;
}

static int place_all(struct form *form, gpucomp_error *error)
{
    const struct open_plan *open = form->program->open;
    size_t best = 0;
    int64_t least = INT64_MAX;
    for (size_t k = 0; k < open->order_count; k++) {
        int64_t arena = placed(form, open->orders[k]);
        if (arena < least) {
            least = arena;
            best = k;
        }
    }
    if (best + 1 < open->order_count)
        placed(form, open->orders[best]);
    form->arena_bytes = (uint64_t)least;
    return least > MOST_BYTES ? damaged(error, "an arena of more bytes than any memory has") : 0;
}

static int check_loops(const struct form *form, gpucomp_error *error)
{
    const struct plan *plan = &form->program->plan;
    for (size_t r = 0; r < plan->repeats.count; r++) {
        const struct repeat *repeat = ITEMS(plan->repeats, struct repeat) + r;
        int64_t count = gcrt_value(form, repeat->count), after = gcrt_value(form, repeat->after);
        if (count < 0 || count > MOST_COUNT || after < 0 || after > MOST_COUNT)
            return damaged(error, "a loop of an impossible number of steps");
        count += repeat->before + after;
        for (size_t n = 0; n < repeat->advances.count; n++) {
            struct list advances = ITEMS(repeat->advances, struct list)[n];
            const struct launch *launch = ITEMS(plan->launches, struct launch) + repeat->first + (int64_t)n;
            for (size_t a = 0; a < advances.count; a++) {
                int64_t by = gcrt_value(form, ITEMS(advances, struct number)[a]);
                if (by == INT64_MIN || gcrt_times(count, by < 0 ? -by : by) > form->nbytes[ITEMS(launch->args, int64_t)[a]])
                    return damaged(error, "a loop leaves a buffer");
            }
        }
    }
    return 0;
}

static void choose(struct form *form)
{
    const struct open_plan *open = form->program->open;
    for (size_t k = 0; k < form->program->plan.kernels.count; k++)
        form->chosen[k] = (int64_t)k;
    for (size_t c = 0; open && c < open->choice_count; c++) {
        const struct choice *choice = open->choices + c;
        const int64_t *starts = ITEMS(choice->starts, int64_t);
        size_t last = 0;
        while (last + 1 < choice->starts.count && starts[last + 1] <= form->numbers[choice->points])
            last++;
        form->chosen[choice->kernel] = ITEMS(choice->kernels, int64_t)[last];
    }
}

static int check_groups(const struct form *form, gpucomp_error *error)
{
    struct list kernels = form->program->plan.kernels;
    for (size_t k = 0; k < kernels.count; k++)
        for (size_t axis = 0; axis < 3; axis++) {
            int64_t groups = gcrt_value(form, ITEMS(ITEMS(kernels, struct kernel)[k].groups, struct number)[axis]);
            if (groups < 0 || groups > MOST_COUNT)
                return damaged(error, "an impossible number of groups");
        }
    return 0;
}

int gcrt_measure(struct form *form, const int64_t *sizes, gpucomp_error *error)
{
    const struct open_plan *open = form->program->open;
    form->planned = false;
    if (open) {
        memcpy(form->numbers, sizes, open->dim_count * sizeof *sizes);
        if (!gcrt_formulas_at(open, form->numbers) || gcrt_broken(open, form->numbers))
            return GCRT_NOT_FOR_SIZES; /* the caller knows how to tell */
    }
    int code = measure_buffers(form, error);
    form->arena_bytes = (uint64_t)form->program->plan.arena_bytes;
    if (code == 0 && open)
        code = place_all(form, error);
    if (code == 0)
        code = check_groups(form, error);
    if (code == 0)
        code = check_loops(form, error);
    choose(form);
    return code;
}

/* Write a number of a kernel's buffer as its type; false if it does not fit. */
static bool store_number(uint8_t *to, int64_t value, const struct dtype *dtype)
{
    int bits = 8 * dtype->bytes;
    bool is_signed = dtype->kind == 'i';
    if (bits < 64) {
        int64_t most = ((int64_t)1 << (bits - is_signed)) - 1, least = is_signed ? -most - 1 : 0;
        if (value < least || value > most)
            return false;
    } else if (!is_signed && value < 0) {
        return false;
    }
    switch (dtype->bytes) {
    case 1: { uint8_t n = (uint8_t)value; memcpy(to, &n, 1); break; }
    case 2: { uint16_t n = (uint16_t)value; memcpy(to, &n, 2); break; }
    case 4: { uint32_t n = (uint32_t)value; memcpy(to, &n, 4); break; }
    default: memcpy(to, &value, 8);
    }
    return true;
}

int gcrt_fill_numbers(struct form *form, gpucomp_error *error)
{
    const struct program *program = form->program;
    for (size_t k = 0; k < program->plan.kernels.count; k++) {
        struct list numbers = ITEMS(program->plan.kernels, struct kernel)[k].numbers;
        int64_t *to = form->given + program->number_starts[k];
        for (size_t n = 0; n < numbers.count; n++) {
            struct number_given one = ITEMS(numbers, struct number_given)[n];
            int64_t size = program->open ? form->numbers[one.value] : one.value;
            if (!gcrt_given(program->open ? one.kind : GIVEN_SIZE, size, to + n))
                return damaged(error, "a divisor that is too large");
        }
    }
    for (size_t k = 0; k < program->plan.buffers.count; k++) {
        const struct buffer *buffer = ITEMS(program->plan.buffers, struct buffer) + k;
        const struct dtype *dtype = gcrt_dtypes + buffer->dtype;
        for (size_t n = 0; buffer->kind == NUMBERS && n < buffer->numbers.count; n++) {
            int64_t value = gcrt_value(form, ITEMS(buffer->numbers, struct number)[n]);
            if (!store_number(form->memory[k] + n * dtype->bytes, value, dtype))
                return damaged(error, "a number that its type does not hold");
        }
    }
    return 0;
}

/* The loop of a row, or NULL. */
const struct repeat *gcrt_repeat_of(const struct program *program, size_t row)
{
    for (size_t r = 0; r < program->plan.repeats.count; r++) {
        const struct repeat *repeat = ITEMS(program->plan.repeats, struct repeat) + r;
        if ((int64_t)row >= repeat->first && (int64_t)row < repeat->last)
            return repeat;
    }
    return NULL;
}

int64_t gcrt_advance_of(const struct form *form, const struct repeat *repeat, size_t row, size_t argument)
{
    struct list advances = ITEMS(repeat->advances, struct list)[row - (size_t)repeat->first];
    return argument < advances.count ? gcrt_value(form, ITEMS(advances, struct number)[argument]) : 0;
}

int64_t gcrt_start_of(const struct form *form, const struct repeat *repeat, int64_t by)
{
    int64_t following = gcrt_value(form, repeat->count) - 1 + gcrt_value(form, repeat->after);
    return by > 0 ? by * repeat->before : following > 0 ? -by * following : 0;
}

/* About the nanoseconds of one step of a row that threads can share. A contraction of m x k with k x n elements has
 * sqrt(mk * kn * mn) multiply-adds; every other launch is assumed to move its bytes through the cache. */
static double cost_of(const struct form *form, size_t row, const struct repeat *repeat)
{
    const struct program *program = form->program;
    const struct buffer *buffers = ITEMS(program->plan.buffers, struct buffer);
    const struct launch *launch = ITEMS(program->plan.launches, struct launch) + row;
    const int64_t *args = ITEMS(launch->args, int64_t);
    double bytes = 0, largest[3] = {0, 0, 0};
    if ((int64_t)form->table[4 * row + 2] <= 1)
        return 0;
    for (size_t a = 0; a < launch->args.count; a++) {
        bool again = false;
        double size = (double)form->nbytes[args[a]];
        for (size_t n = 0; n < launch->args.count; n++) {
            again = again || (n < a && args[n] == args[a]);
            int64_t by = repeat && args[n] == args[a] ? gcrt_advance_of(form, repeat, row, n) : 0;
            size = by ? (double)(by < 0 ? -by : by) : size;
        }
        if (again)
            continue;
        bytes += size;
        uint8_t each = gcrt_dtypes[buffers[args[a]].dtype].bytes;
        double elements = size / (each ? each : 1);
        for (int k = 0; k < 3; k++)
            if (elements > largest[k]) {
                double smaller = largest[k];
                largest[k] = elements;
                elements = smaller;
            }
    }
    double cost = bytes / BYTES_A_NS;
    /* engines have names behind that of the family and a slash */
    struct text family = ITEMS(program->plan.kernels, struct kernel)[launch->kernel].family;
    if (family.count >= strlen(CONTRACTION) && memcmp(family.at, CONTRACTION, strlen(CONTRACTION)) == 0)
        cost = fmax(cost, sqrt(largest[0] * largest[1] * largest[2]) / MULTIPLY_ADDS_A_NS);
    return cost;
}

/* The rows of the table: their code, tasks, and the arguments that do not move. */
static void fill_rows(struct form *form)
{
    const struct program *program = form->program;
    const struct launch *launches = ITEMS(program->plan.launches, struct launch);
    const struct kernel *kernels = ITEMS(program->plan.kernels, struct kernel);
    for (size_t row = 0; row < program->rows; row++) {
        size_t kernel = (size_t)form->chosen[launches[row].kernel];
        const struct repeat *repeat = form->loops ? gcrt_repeat_of(program, row) : NULL;
        form->table[4 * row] = (uint64_t)(uintptr_t)program->codes[kernel];
        bool any = !repeat || gcrt_value(form, repeat->count);
        form->table[4 * row + 2] = any ? (uint64_t)gcrt_value(form, ITEMS(kernels[kernel].groups, struct number)[0]) : 0;
        for (size_t a = program->begins[row]; a < program->begins[row + 1]; a++) {
            int64_t buffer = program->arguments[a].buffer;
            int64_t by = repeat ? gcrt_advance_of(form, repeat, row, a - program->begins[row]) : 0;
            form->starts[a] = repeat ? (uint64_t)gcrt_start_of(form, repeat, by) : 0;
            uint64_t at = 0;
            if (buffer < 0)
                at = (uint64_t)(uintptr_t)(form->given + program->number_starts[kernel]);
            else if (form->memory[buffer])
                at = (uint64_t)(uintptr_t)form->memory[buffer] + form->starts[a];
            form->arguments[a] = at;
        }
        form->costs[row] = cost_of(form, row, repeat);
    }
}

/* One thread runs a loop whose steps are short; in turns forwards and backwards if a step reads more than the cache holds.
 * The native runner takes a loop of no steps for one step, in which there is nothing to do. */
static void fill_loop(struct form *form, const struct repeat *repeat, size_t second_cache)
{
    const struct program *program = form->program;
    int64_t count = gcrt_value(form, repeat->count), most = 0;
    double step = 0, held = 0;
    for (int64_t row = repeat->first; row < repeat->last; row++) {
        int64_t tasks = (int64_t)form->table[4 * row + 2];
        step += form->costs[row];
        most = tasks > most ? tasks : most;
    }
    bool alone = step < SMALLEST_SHARED_STEP_NS || gcrt_times(count, most) >= MOST_CLAIMS;
    for (size_t k = 0; k < program->plan.buffers.count; k++) {
        bool used = false;
        for (size_t a = program->begins[repeat->first]; a < program->begins[repeat->last] && !used; a++) {
            size_t row = program->arguments[a].row;
            used = program->arguments[a].buffer == (int64_t)k && !gcrt_advance_of(form, repeat, row, a - program->begins[row]);
        }
        held += used ? (double)form->nbytes[k] : 0;
    }
    for (int64_t row = repeat->first; row < repeat->last; row++) {
        int64_t *words = (int64_t *)(intptr_t)form->loops[row];
        words[0] = repeat->first;
        words[1] = repeat->last;
        words[2] = count > 0 ? count : 1;
        words[3] = alone + 2 * (held > (double)second_cache);
        for (int64_t a = 0; a < words[4]; a++)
            words[ADVANCES + a] = gcrt_advance_of(form, repeat, (size_t)row, (size_t)a);
        form->costs[row] *= alone ? 0 : (double)count;
    }
}

int gcrt_fill(struct form *form, size_t second_cache, gpucomp_error *error)
{
    const struct program *program = form->program;
    int code = gcrt_fill_numbers(form, error);
    if (code)
        return code;
    fill_rows(form);
    for (size_t r = 0; r < program->plan.repeats.count; r++)
        fill_loop(form, ITEMS(program->plan.repeats, struct repeat) + r, second_cache);
    form->shared_ns = 0;
    for (size_t row = 0; row < program->rows; row++)
        form->shared_ns += form->costs[row];
    form->planned = true;
    return 0;
}

void gcrt_place(struct form *form, uint8_t *arena)
{
    const struct program *program = form->program;
    for (size_t a = 0; a < program->argument_count; a++) {
        int64_t buffer = program->arguments[a].buffer;
        if (buffer >= 0 && ITEMS(program->plan.buffers, struct buffer)[buffer].kind == TEMP)
            form->arguments[a] = (uint64_t)(uintptr_t)arena + (uint64_t)form->offsets[buffer] + form->starts[a];
    }
}
