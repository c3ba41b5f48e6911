/* What a model is. */
#include <string.h>

#include "model.h"

int gpucomp_api_version(void) { return GPUCOMP_API_VERSION; }
const char *gpucomp_version(void) { return GPUCOMP_VERSION; }

static int too_large(gpucomp_error *error, const char *what, size_t number, size_t count)
{
    return gcrt_fail(error, GCRT_WRONG_CALL, "%s %zu: the model has %zu, and a structure whose size is set is expected", what,
                     number, count);
}

/* Give a caller as much of a structure as its own has room for: an older program's ends earlier, a newer one's later. */
static void give(void *to, size_t size, void *made, size_t bytes)
{
    memcpy(made, &size, sizeof size); /* both begin with it */
    memcpy(to, made, size < bytes ? size : bytes);
}

static bool is_whole(const gpucomp_tensor_info *info) { return info && info->size >= GCRT_END(gpucomp_tensor_info, bytes); }

int gpucomp_describe(const gpucomp_model *model, gpucomp_model_info *info, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !info || info->size < GCRT_END(gpucomp_model_info, arena_bytes))
        return gcrt_fail(error, GCRT_WRONG_CALL, "gpucomp_describe: a model, and a structure whose size is set, expected");
    const struct plan *plan = &model->programs->plan;
    gpucomp_model_info made = {0};
    made.name = plan->model.at;
    made.target = plan->target.at;
    made.processor = plan->arch.at;
    made.inputs = model->input_count;
    made.outputs = model->output_count;
    made.states = model->state_count;
    made.dims = model->open.dim_count;
    made.kernels = plan->kernels.count;
    made.launches = plan->launches.count;
    made.fixed = model->program_count - 1;
    made.weight_bytes = model->weight_bytes;
    made.code_bytes = model->programs->image.code_bytes;
    made.arena_bytes = model->open.dim_count ? 0 : (uint64_t)plan->arena_bytes;
    made.device = model->device_name;
    made.compiled = model->compiled;
    made.native_context = model->native_context;
    made.native_device = model->native_device;
    made.device_number = model->device_number;
    give(info, info->size, &made, sizeof made);
    return 0;
}

int gpucomp_device(const char *kind, const char *library, size_t number, gpucomp_device_info *info, gpucomp_error *error)
{
    struct text asked = gcrt_text(kind ? kind : "");
    bool hip = gcrt_same(asked, gcrt_text("hip"));
    gcrt_clear(error);
    if (!info || info->size < GCRT_END(gpucomp_device_info, gpu))
        return gcrt_fail(error, GCRT_WRONG_CALL, "gpucomp_device: a structure whose size is set expected");
    if (gcrt_same(asked, gcrt_text("opencl")))
        return gpucomp_opencl_device(library, number, info, error);
    if (hip || gcrt_same(asked, gcrt_text("cuda")))
        return gcrt_gpu_device(hip, library, number, info, error);
    return gcrt_fail(error, GCRT_WRONG_CALL, "gpucomp_device: opencl, cuda or hip expected, found %s", QUOTE(asked));
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
    if (!model || !is_whole(info) || number >= model->input_count)
        return too_large(error, "input", number, model ? model->input_count : 0);
    gpucomp_tensor_info made = {0};
    const struct plan *plan = &model->programs->plan;
    const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs, int64_t)[model->inputs[number]];
    describe(model, buffer, buffer->name.at, &made);
    give(info, info->size, &made, sizeof made);
    return 0;
}

int gpucomp_output(const gpucomp_model *model, size_t number, gpucomp_tensor_info *info, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !is_whole(info) || number >= model->output_count)
        return too_large(error, "output", number, model ? model->output_count : 0);
    gpucomp_tensor_info made = {0};
    const struct plan *plan = &model->programs->plan;
    size_t own = model->outputs[number];
    describe(model, ITEMS(plan->buffers, struct buffer) + ITEMS(plan->outputs, int64_t)[own],
             ITEMS(plan->output_names, struct text)[own].at, &made);
    struct list shown = model->open.outputs ? model->open.outputs[own] : (struct list){NULL, 0};
    for (size_t d = 0; d < shown.count && d < made.rank; d++)
        if (ITEMS(shown, struct shown)[d].name.at && !made.axes[d].name)
            made.axes[d].name = ITEMS(shown, struct shown)[d].name.at;
    give(info, info->size, &made, sizeof made);
    return 0;
}

int gpucomp_state(const gpucomp_model *model, size_t number, gpucomp_tensor_info *info, gpucomp_error *error)
{
    gcrt_clear(error);
    if (!model || !is_whole(info) || number >= model->state_count)
        return too_large(error, "state", number, model ? model->state_count : 0);
    gpucomp_tensor_info made = {0};
    const struct plan *plan = &model->programs->plan;
    const struct state *state = ITEMS(plan->states, struct state) + number;
    const struct buffer *buffer = ITEMS(plan->buffers, struct buffer) + ITEMS(plan->inputs, int64_t)[model->states[number]];
    describe(model, buffer, buffer->name.at, &made);
    for (size_t d = 0; state->axis >= 0 && d < model->open.dim_count; d++)
        if (gcrt_same(model->open.dims[d].name, state->dim))
            made.axes[state->axis] = axis_of(model->open.dims + d);
    give(info, info->size, &made, sizeof made);
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
