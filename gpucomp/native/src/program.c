/* What is alike at all sizes of a program: its launches as rows of the native runner's table. */
#include "model.h"

static int wrong_plan(gpucomp_error *error, const char *what, struct text name)
{
    return gcrt_fail(error, GCRT_WRONG_PLAN, "%s %s", what, QUOTE(name));
}

static int list_arguments(gpucomp_model *model, struct program *program, gpucomp_error *error)
{
    const struct launch *launches = ITEMS(program->plan.launches, struct launch);
    const struct kernel *kernels = ITEMS(program->plan.kernels, struct kernel);
    size_t count = 0;
    for (size_t row = 0; row < program->rows; row++)
        count += launches[row].args.count + 1;
    program->arguments = gcrt_new(&model->store, count, sizeof *program->arguments);
    program->begins = gcrt_new(&model->store, program->rows + 1, sizeof *program->begins);
    if (!program->arguments || !program->begins)
        return gcrt_no_memory(error);
    count = 0;
    for (size_t row = 0; row < program->rows; row++) {
        program->begins[row] = count;
        for (size_t a = 0; a < launches[row].args.count; a++)
            program->arguments[count++] = (struct argument){ITEMS(launches[row].args, int64_t)[a], (uint32_t)row};
        if (kernels[launches[row].kernel].numbers.count)
            program->arguments[count++] = (struct argument){-1, (uint32_t)row};
    }
    program->begins[program->rows] = program->argument_count = count;
    return 0;
}

/* Which buffers are inputs and outputs. Those that launches use must be some. */
static int find_tensors(gpucomp_model *model, struct program *program, gpucomp_error *error)
{
    const struct plan *plan = &program->plan;
    const struct buffer *buffers = ITEMS(plan->buffers, struct buffer);
    size_t count = plan->buffers.count;
    program->input_of = gcrt_new(&model->store, count, sizeof *program->input_of);
    program->output_of = gcrt_new(&model->store, count, sizeof *program->output_of);
    if (!program->input_of || !program->output_of)
        return gcrt_no_memory(error);
    for (size_t k = 0; k < count; k++)
        program->input_of[k] = program->output_of[k] = -1;
    for (size_t k = 0; k < plan->inputs.count; k++)
        program->input_of[ITEMS(plan->inputs, int64_t)[k]] = (int64_t)k;
    for (size_t k = plan->outputs.count; k--;) /* the first output that is a buffer gets it, others a copy */
        program->output_of[ITEMS(plan->outputs, int64_t)[k]] = (int64_t)k;
    for (size_t a = 0; a < program->argument_count; a++) {
        int64_t b = program->arguments[a].buffer;
        if (b >= 0 && buffers[b].kind == INPUT && program->input_of[b] < 0)
            return wrong_plan(error, "a kernel reads what is no input of the model:", buffers[b].name);
        if (b >= 0 && buffers[b].kind == OUTPUT && program->output_of[b] < 0)
            return wrong_plan(error, "a kernel writes what is no output of the model:", buffers[b].name);
    }
    for (size_t k = 0; k < plan->inputs.count; k++)
        for (size_t n = 0; n < k; n++)
            if (ITEMS(plan->inputs, int64_t)[k] == ITEMS(plan->inputs, int64_t)[n])
                return wrong_plan(error, "two inputs are one buffer:", buffers[ITEMS(plan->inputs, int64_t)[k]].name);
    return 0;
}

int gcrt_program(gpucomp_model *model, struct program *program, gpucomp_error *error)
{
    const struct plan *plan = &program->plan;
    program->rows = plan->launches.count;
    for (size_t k = 0; k < plan->kernels.count && plan->device != ON_CUDA; k++)
        if (ITEMS(plan->kernels, struct kernel)[k].tensor_maps.count)
            return wrong_plan(error, "only GPUs of CUDA have tensor maps: kernel", ITEMS(plan->kernels, struct kernel)[k].name);
    if (!(program->number_starts = gcrt_new(&model->store, plan->kernels.count, sizeof *program->number_starts)))
        return gcrt_no_memory(error);
    for (size_t k = 0; k < plan->kernels.count; k++) {
        program->number_starts[k] = program->number_count;
        program->number_count += ITEMS(plan->kernels, struct kernel)[k].numbers.count;
    }
    int code = list_arguments(model, program, error);
    return code ? code : find_tensors(model, program, error);
}
