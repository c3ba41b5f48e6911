/* Runs an exported C project that is called net: project SCRIPT RESULTS. SIZED: its calls take sizes. STATES: it has states. */
#include "net.h"
#include "script.h"

static int fail(const char *call, int code)
{
    fprintf(stderr, "net_%s: %s\n", call, net_error(code));
    return 1;
}

#ifdef SIZED
/* Whether the outputs are as large as the script says. */
static int is_as_large(void *arena, const net_sizes *sizes, const struct step *step)
{
    net_output_shapes shapes;
    int64_t wanted[sizeof shapes / sizeof(int64_t)];
    size_t count = 0;
    const struct tensor *outputs = step->tensors + step->input_count;
    for (size_t k = 0; k < step->output_count; k++)
        for (size_t d = 0; d < outputs[k].rank; d++)
            wanted[count++] = outputs[k].extents[d];
    int code = net_shapes(arena, sizes, &shapes);
    return code ? !fail("shapes", code) : memcmp(&shapes, wanted, count * sizeof *wanted) == 0;
}
#endif

static int run(void *arena, const struct step *step)
{
    net_inputs inputs;
    net_outputs outputs;
    void *pointers[MOST];
    for (size_t k = 0; k < step->input_count + step->output_count; k++)
        pointers[k] = step->tensors[k].data;
    memcpy(&inputs, pointers, step->input_count * sizeof *pointers); /* structures of pointers */
    memcpy(&outputs, pointers + step->input_count, step->output_count * sizeof *pointers);
#ifdef STATES
    if (step->anew && net_reset(arena))
        return 1;
#endif
#ifdef SIZED
    net_sizes sizes;
    memcpy(&sizes, step->sizes, sizeof sizes);
    if (!is_as_large(arena, &sizes, step)) {
        fputs("an output has another shape than onnxruntime's\n", stderr);
        return 1;
    }
    int code = net_run(arena, &sizes, &inputs, &outputs, NULL);
#else
    int code = net_run(arena, &inputs, &outputs, NULL);
#endif
    return code ? fail("run", code) : 0;
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    struct script script = read_script(words[1]);
    size_t bytes = 0;
    for (const struct step *step = script.steps; step < script.steps + script.count; step++) {
#ifdef SIZED
        net_sizes sizes;
        memcpy(&sizes, step->sizes, sizeof sizes);
        size_t here = net_arena_size(&sizes);
#else
        size_t here = net_arena_size();
#endif
        bytes = here > bytes ? here : bytes;
    }
    void *arena = memory_of(bytes);
    int code = net_init(arena, bytes, net_weights);
    if (code)
        return fail("init", code);
    for (const struct step *step = script.steps; step < script.steps + script.count; step++)
        if (run(arena, step))
            return 1;
    return write_results(&script, words[2]);
}
