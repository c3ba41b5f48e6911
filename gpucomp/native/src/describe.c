/* What a model is. */
#include <string.h>

#include "model.h"

int gpucomp_api_version(void) { return GPUCOMP_API_VERSION; }
const char *gpucomp_version(void) { return GPUCOMP_VERSION; }

static int too_large(gpucomp_error *error, const char *what, size_t number, size_t count)
{
    return gcrt_fail(error, GCRT_WRONG_CALL, "%s %zu: the model has %zu, and a structure from its _INIT macro is expected", what,
                     number, count);
}

int gpucomp_describe(const gpucomp_model *model, gpucomp_model_info *info, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !info || info->size < sizeof *info)
        return gcrt_fail(error, GCRT_WRONG_CALL, "gpucomp_describe: a model, and a structure whose size is set, expected");
    const struct plan *plan = &model->programs->plan;
    info->name = plan->model.at;
    info->target = plan->target.at;
    info->processor = plan->arch.at;
    info->inputs = model->input_count;
    info->outputs = model->output_count;
    info->states = model->state_count;
    info->dims = model->open.dim_count;
    info->kernels = plan->kernels.count;
    info->launches = plan->launches.count;
    info->fixed = model->program_count - 1;
    info->weight_bytes = model->weight_bytes;
    info->code_bytes = model->programs->image.code_bytes;
    info->arena_bytes = model->open.dim_count ? 0 : (uint64_t)plan->arena_bytes;
    return 0;
}

static gpucomp_axis axis_of(const struct dim *dim)
{
    return (gpucomp_axis){dim->name.at, dim->low, dim->high, dim->multiple};
}

/* Describe a buffer; an extent that a run decides is a dimension, or known to the run alone. */
static void describe(const gpucomp_model *model, const struct buffer *buffer, const char *name, gpucomp_tensor_info *info)
{
    const struct dtype *dtype = gcrt_dtypes + buffer->dtype;
    int64_t bytes = dtype->bytes;
    info->name = name;
    info->dtype = dtype->name;
    info->element_bytes = dtype->bytes;
    info->rank = buffer->shape.count;
    for (size_t d = 0; d < buffer->shape.count; d++) {
        struct number extent = ITEMS(buffer->shape, struct number)[d];
        info->axes[d] = (gpucomp_axis){NULL, extent.value, extent.value, 1};
        if (extent.open && extent.value < (int64_t)model->open.dim_count)
            info->axes[d] = axis_of(model->open.dims + extent.value);
        else if (extent.open)
            info->axes[d] = (gpucomp_axis){NULL, 0, -1, 1};
        bytes = extent.open ? 0 : gcrt_times(bytes, extent.value);
    }
    info->bytes = (uint64_t)bytes;
}

int gpucomp_input(const gpucomp_model *model, size_t number, gpucomp_tensor_info *info, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !info || info->size < sizeof *info || number >= model->input_count)
        return too_large(error, "input", number, model ? model->input_count : 0);
    const struct plan *plan = &model->programs->plan;
    const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs, int64_t)[model->inputs[number]];
    describe(model, buffer, buffer->name.at, info);
    return 0;
}

int gpucomp_output(const gpucomp_model *model, size_t number, gpucomp_tensor_info *info, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !info || info->size < sizeof *info || number >= model->output_count)
        return too_large(error, "output", number, model ? model->output_count : 0);
    const struct plan *plan = &model->programs->plan;
    size_t own = model->outputs[number];
    describe(model, ITEMS(plan->buffers, struct buffer) + ITEMS(plan->outputs, int64_t)[own],
             ITEMS(plan->output_names, struct text)[own].at, info);
    struct list shown = model->open.outputs ? model->open.outputs[own] : (struct list){NULL, 0};
    for (size_t d = 0; d < shown.count && d < info->rank; d++)
        if (ITEMS(shown, struct shown)[d].name.at && !info->axes[d].name)
            info->axes[d].name = ITEMS(shown, struct shown)[d].name.at;
    return 0;
}

int gpucomp_state(const gpucomp_model *model, size_t number, gpucomp_tensor_info *info, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !info || info->size < sizeof *info || number >= model->state_count)
        return too_large(error, "state", number, model ? model->state_count : 0);
    const struct plan *plan = &model->programs->plan;
    const struct state *state = ITEMS(plan->states, struct state) + number;
    const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs, int64_t)[model->states[number]];
    describe(model, buffer, buffer->name.at, info);
    for (size_t d = 0; state->axis >= 0 && d < model->open.dim_count; d++)
        if (gcrt_same(model->open.dims[d].name, state->dim))
            info->axes[state->axis] = axis_of(model->open.dims + d);
    return 0;
}

int gpucomp_dim(const gpucomp_model *model, size_t number, gpucomp_axis *axis, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !axis || number >= model->open.dim_count)
        return too_large(error, "dimension", number, model ? model->open.dim_count : 0);
    *axis = axis_of(model->open.dims + number);
    return 0;
}

const char *gpucomp_launch_name(const gpucomp_model *model, size_t number)
{
    const struct plan *plan = model ? &model->programs->plan : NULL;
    return plan && number < plan->launches.count ? ITEMS(plan->launches, struct launch)[number].name.at : NULL;
}

const char *gpucomp_launch_kernel(const gpucomp_model *model, size_t number)
{
    const struct plan *plan = model ? &model->programs->plan : NULL;
    if (!plan || number >= plan->launches.count)
        return NULL;
    return ITEMS(plan->kernels, struct kernel)[ITEMS(plan->launches, struct launch)[number].kernel].name.at;
}
