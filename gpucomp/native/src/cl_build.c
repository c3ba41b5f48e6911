/* Builds kernels on an OpenCL device. As gpucomp/targets/opencl_build.py, but each source is a program of its own. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cl_model.h"
#include "digest.h"
#include "kernel_cache.h"

#define MOST_FLAGS 256
#define MOST_MARK 128
#define ADVICE "compile the model on this device (%s): smaller schedules are then tried"

struct source {
    const char *at;
    size_t count;
};

struct builder {
    gpucomp_model *model;
    struct cl_model *own;
    struct kernel_cache cache;
    struct store scratch;
    char mark[MOST_MARK]; /* the first bytes of every binary that this driver made */
    char compiler[3 * CL_TEXT + 8];
    int c_version;
    gpucomp_error *error;
};

static const char *found_in(struct source source, const char *part)
{
    size_t count = strlen(part);
    const char *at = source.at, *end = source.at + source.count;
    while ((size_t)(end - at) >= count && (at = memchr(at, part[0], (size_t)(end - at) - count + 1))) {
        if (memcmp(at, part, count) == 0)
            return at;
        at++;
    }
    return NULL;
}

static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/* f32_to_i8 and its like */
static bool converts(struct text name)
{
    size_t k = 1;
    while (k < name.count && name.at[k] >= '0' && name.at[k] <= '9')
        k++;
    return name.count > k + 5 && name.at[0] == 'f' && k > 1 && memcmp(name.at + k, "_to_", 4) == 0 &&
           (name.at[k + 4] == 'i' || name.at[k + 4] == 'u') && strspn(name.at + k + 5, "0123456789") >= name.count - k - 5;
}

/* Whether a text makes whole numbers, such as quantized values: a quotient that is one bit off may give another number. */
static bool makes_whole_numbers(struct source source)
{
    for (size_t k = 1; k < source.count; k++) {
        size_t begin = k;
        if (source.at[k] != '(')
            continue;
        while (begin && is_word(source.at[begin - 1]))
            begin--;
        struct text name = {source.at + begin, k - begin};
        if (gcrt_same(name, gcrt_text("rint")) || gcrt_same(name, gcrt_text("floor")) || gcrt_same(name, gcrt_text("ceil")) ||
            converts(name))
            return true;
    }
    return false;
}

static void find_flags(const struct builder *builder, const struct plan *plan, const struct kernel *kernel, struct source source,
                       char flags[MOST_FLAGS])
{
    const struct cl_found *device = &builder->own->device;
    const char *version = "-cl-std=CL1.2", *cautious = "", *exact = "";
    if (found_in(source, "dot_4x8packed") || found_in(source, "atomic_work_item_fence"))
        version = builder->c_version == 3 ? "-cl-std=CL3.0" : builder->c_version == 2 ? "-cl-std=CL2.0" : version;
    if (gcrt_cl_is_pocl(device) && found_in(source, "barrier(") && ITEMS(kernel->items, int64_t)[0] > 1)
        cautious = " -cl-opt-disable"; /* wrong numbers otherwise */
    if (device->rounds && (gcrt_same(plan->precision, gcrt_text("fp32")) || makes_whole_numbers(source)))
        exact = " -cl-fp32-correctly-rounded-divide-sqrt";
    snprintf(flags, MOST_FLAGS, "%s%s%s", version, cautious, exact);
}

/* The key of the cache in Python. */
static bool find_key(struct builder *builder, const struct kernel *kernel, struct source source, const char *flags, char key[65])
{
    char digest[65];
    size_t room = source.count + kernel->name.count + sizeof builder->compiler + MOST_FLAGS + 256;
    char *text = gcrt_new(&builder->scratch, room, 1);
    if (!text)
        return false;
    int count = snprintf(text, room, "opencl\n%s\n", kernel->name.at);
    memcpy(text + count, source.at, source.count);
    gcrt_sha256((const uint8_t *)text, (size_t)count + source.count, digest);
    count = snprintf(text, room, "1\n%s\nopencl\n%s\n", digest, builder->compiler);
    size_t before = (size_t)count;
    count += snprintf(text + count, room - (size_t)count, "%s", flags);
    for (char *at = text + before; *at; at++)
        if (*at == ' ')
            *at = '\n';
    gcrt_sha256((const uint8_t *)text, (size_t)count, key);
    return true;
}

/* For an Adreno without the sizes of work-groups, with which kernels are slower. */
static struct source for_driver(struct builder *builder, struct source source)
{
    static const char required[] = "__attribute__((reqd_work_group_size(", ends[] = "))) ";
    const struct cl_found *device = &builder->own->device;
    char names[2 * CL_TEXT], *copy;
    snprintf(names, sizeof names, "%s %s", device->platform, device->vendor);
    if ((!strstr(names, "QUALCOMM") && !strstr(names, "Qualcomm")) || !(copy = gcrt_new(&builder->scratch, source.count, 1)))
        return source;
    size_t count = 0;
    for (const char *at = source.at, *end = source.at + source.count; at < end;) {
        const char *next = found_in((struct source){at, (size_t)(end - at)}, required);
        const char *stop = next ? found_in((struct source){next, (size_t)(end - next)}, ends) : NULL;
        size_t kept = stop ? (size_t)(next - at) : (size_t)(end - at);
        memcpy(copy + count, at, kept);
        count += kept;
        at = stop ? stop + strlen(ends) : end;
    }
    return (struct source){copy, count};
}

static bool has_kernel(const struct cl *cl, cl_program program, struct text name)
{
    size_t bytes = 0;
    if (cl->clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &bytes) != 0 || !bytes)
        return false;
    char *names = malloc(bytes + 1), *at = names;
    bool found = false;
    if (names && cl->clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, bytes, names, NULL) == 0) {
        names[bytes] = 0;
        while (at && !found) {
            found = strncmp(at, name.at, name.count) == 0 && (at[name.count] == ';' || at[name.count] == 0);
            at = strchr(at, ';');
            at = at ? at + 1 : NULL;
        }
    }
    free(names);
    return found;
}

/* The compiler's first error. */
static int refuse(struct builder *builder, cl_program program, const struct kernel *kernel, cl_int status)
{
    const struct cl_model *own = builder->own;
    size_t bytes = 0;
    char *log = NULL;
    if (own->cl.clGetProgramBuildInfo(program, own->device.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) == 0 && bytes)
        log = gcrt_new(&builder->scratch, bytes + 1, 1);
    if (log)
        own->cl.clGetProgramBuildInfo(program, own->device.id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL);
    const char *first = log ? strstr(log, "error:") : NULL;
    while (first && first > log && first[-1] != '\n')
        first--;
    first = first ? first : log ? log + strspn(log, " \n\t") : "";
    struct text line = {first, strcspn(first, "\n")};
    line.count = line.count < 300 ? line.count : 300;
    return gcrt_fail(builder->error, GCRT_REFUSED_KERNEL, "kernel %s: %.*s (OpenCL's error %d); " ADVICE, kernel->name.at,
                     line.count ? (int)line.count : 10, line.count ? line.at : "no message", (int)status, own->device.name);
}

static int keep(struct builder *builder, cl_program program)
{
    struct cl_model *own = builder->own;
    if (own->built_count == own->built_room) {
        own->cl.clReleaseProgram(program);
        return gcrt_no_memory(builder->error);
    }
    own->built[own->built_count++] = program;
    return 0;
}

static int from_source(struct builder *builder, const struct kernel *kernel, struct source source, const char *flags,
                       cl_program *found)
{
    const struct cl *cl = &builder->own->cl;
    const char *texts[2] = {source.at, ""};
    size_t counts[2] = {source.count, 0};
    char again[96];
    for (int turn = 0; turn < 2; turn++) {
        cl_int status = 0;
        cl_program program = cl->clCreateProgramWithSource(builder->own->context, turn ? 2 : 1, texts, counts, &status);
        if (!program)
            return gcrt_cl_fail(builder->error, &builder->own->device, GCRT_REFUSED_KERNEL, "clCreateProgramWithSource", status);
        status = cl->clBuildProgram(program, 1, &builder->own->device.id, flags, NULL, NULL);
        if (status != 0) {
            int code = refuse(builder, program, kernel, status);
            cl->clReleaseProgram(program);
            return code;
        }
        if (turn || !gcrt_cl_is_pocl(&builder->own->device) || has_kernel(cl, program, kernel->name)) {
            builder->own->compiled++;
            *found = program;
            return keep(builder, program);
        }
        /* PoCL 3.0 may not find a kernel in its own cache: one more name in the text makes it build the program anew */
        cl->clReleaseProgram(program);
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        texts[1] = again;
        counts[1] = (size_t)snprintf(again, sizeof again, "\ntypedef int again_%lx_%llx_%lx;\n", (long)getpid(),
                                     (unsigned long long)time.tv_sec, (long)time.tv_nsec);
    }
    return GCRT_REFUSED_KERNEL;
}

/* A program from what this driver made; false for what it did not make, or does not take. */
static bool from_binary(struct builder *builder, const uint8_t *data, size_t bytes, cl_program *found)
{
    const struct cl *cl = &builder->own->cl;
    size_t before = strlen(builder->mark);
    if (bytes <= before || memcmp(data, builder->mark, before) != 0) /* rusticl aborts on a foreign binary */
        return false;
    cl_int status = 0, own = 0;
    data += before;
    bytes -= before;
    cl_program program = cl->clCreateProgramWithBinary(builder->own->context, 1, &builder->own->device.id, &bytes, &data, &own,
                                                       &status);
    if (!program)
        return false;
    if (own != 0 || cl->clBuildProgram(program, 1, &builder->own->device.id, "", NULL, NULL) != 0) {
        cl->clReleaseProgram(program);
        return false;
    }
    *found = program;
    return keep(builder, program) == 0;
}

/* Keep what the driver made, behind its mark. */
static void store_binary(struct builder *builder, const char key[65], cl_program program)
{
    const struct cl *cl = &builder->own->cl;
    size_t bytes = 0, before = strlen(builder->mark);
    if (!builder->cache.folder ||
        cl->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != 0 || !bytes)
        return;
    uint8_t *data = malloc(before + bytes), *at = data + before;
    if (data && cl->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof at, &at, NULL) == 0) {
        memcpy(data, builder->mark, before);
        gcrt_cache_put(&builder->cache, key, data, before + bytes);
    }
    free(data);
}

static int build_kernel(struct builder *builder, const struct plan *plan, const struct kernel *kernel,
                        const struct member *member, cl_program *found)
{
    struct source source = {(const char *)member->data, (size_t)member->bytes};
    char flags[MOST_FLAGS], key[65];
    const uint8_t *data;
    size_t bytes;
    find_flags(builder, plan, kernel, source, flags);
    if (!find_key(builder, kernel, source, flags, key))
        return gcrt_no_memory(builder->error);
    if (gcrt_cache_get(&builder->cache, &builder->scratch, key, &data, &bytes) && from_binary(builder, data, bytes, found) &&
        has_kernel(&builder->own->cl, *found, kernel->name))
        return 0;
    int code = from_source(builder, kernel, for_driver(builder, source), flags, found);
    if (code == 0)
        store_binary(builder, key, *found);
    gcrt_free(&builder->scratch);
    return code;
}

static int build_program(struct builder *builder, const struct container *container, size_t p)
{
    struct cl_model *own = builder->own;
    const struct plan *plan = &builder->model->programs[p].plan;
    const struct kernel *kernels = ITEMS(plan->kernels, struct kernel);
    size_t first = own->built_count;
    for (size_t k = 0; k < plan->kernels.count; k++) {
        const struct member *binary = gcrt_member(container, GCRT_BINARIES, kernels[k].binary);
        cl_program ignored;
        from_binary(builder, binary->data, (size_t)binary->bytes, &ignored);
    }
    size_t of_file = own->built_count;
    for (size_t k = 0; k < plan->kernels.count; k++) {
        cl_program *found = own->programs[p] + k;
        for (size_t n = first; n < of_file && !*found; n++)
            *found = has_kernel(&own->cl, own->built[n], kernels[k].name) ? own->built[n] : NULL;
        if (!*found) {
            int code = build_kernel(builder, plan, kernels + k, gcrt_member(container, GCRT_SOURCES, kernels[k].source), found);
            if (code)
                return code;
        }
        cl_kernel tried = gcrt_cl_kernel(own, *found, kernels + k, builder->error);
        if (!tried)
            return builder->error->code;
        own->cl.clReleaseKernel(tried);
    }
    return 0;
}

int gcrt_cl_build(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    struct cl_model *own = model->device;
    struct builder builder = {.model = model, .own = own, .error = error};
    char digest[65];
    snprintf(builder.compiler, sizeof builder.compiler, "%s | %s | %s", own->device.platform_version, own->device.name,
             own->device.driver);
    gcrt_sha256((const uint8_t *)builder.compiler, strlen(builder.compiler), digest);
    snprintf(builder.mark, sizeof builder.mark, "gpucomp opencl %s\n", digest);
    builder.c_version = gcrt_cl_c_version(&own->cl, &own->device);
    for (size_t p = 0; p < model->program_count; p++)
        own->built_room += 3 * model->programs[p].plan.kernels.count; /* of the file, of the cache, from source */
    own->built = gcrt_new(&model->store, own->built_room, sizeof *own->built);
    own->programs = gcrt_new(&model->store, model->program_count, sizeof *own->programs);
    int code = own->built && own->programs ? 0 : gcrt_no_memory(error);
    if (code == 0 && !gcrt_cl_is_pocl(&own->device)) /* which keeps what it builds itself */
        code = gcrt_cache_open(&model->store, model->options.cache, &builder.cache, error);
    for (size_t p = 0; p < model->program_count && code == 0; p++) {
        own->programs[p] = gcrt_new(&model->store, model->programs[p].plan.kernels.count, sizeof **own->programs);
        code = own->programs[p] ? build_program(&builder, container, p) : gcrt_no_memory(error);
    }
    gcrt_cache_trim(&builder.cache);
    gcrt_free(&builder.scratch);
    return code;
}

cl_kernel gcrt_cl_kernel(const struct cl_model *own, cl_program program, const struct kernel *kernel, gpucomp_error *error)
{
    cl_int status = 0;
    size_t most = 0;
    uint64_t local = 0;
    cl_kernel made = own->cl.clCreateKernel(program, kernel->name.at, &status);
    if (!made) {
        gcrt_fail(error, GCRT_NO_LAUNCH, "kernel %s: %s does not give it (OpenCL's error %d); " ADVICE, kernel->name.at,
                  own->device.name, (int)status, own->device.name);
        return NULL;
    }
    const int64_t *items = ITEMS(kernel->items, int64_t);
    int64_t count = gcrt_times(gcrt_times(items[0], items[1]), items[2]);
    if (own->cl.clGetKernelWorkGroupInfo(made, own->device.id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL) != 0)
        most = 0;
    if (own->cl.clGetKernelWorkGroupInfo(made, own->device.id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL) != 0)
        local = 0;
    /* Mesa's rusticl told the lanes of a subgroup instead of the largest work-group in its first year */
    bool tells_lanes = strstr(own->device.platform, "rusticl") && strncmp(own->device.driver, "22.", 3) == 0;
    bool large = (uint64_t)count > most && !tells_lanes, full = own->device.local_apart && local > own->device.local_bytes;
    if (!large && !full)
        return made;
    own->cl.clReleaseKernel(made);
    if (large)
        gcrt_fail(error, GCRT_NO_LAUNCH, "kernel %s: %lld work-items in a work-group, %s can run %zu of this kernel; " ADVICE,
                  kernel->name.at, (long long)count, own->device.name, most, own->device.name);
    else
        gcrt_fail(error, GCRT_NO_LAUNCH, "kernel %s: %llu bytes of local memory, %s has %llu; " ADVICE, kernel->name.at,
                  (unsigned long long)local, own->device.name, (unsigned long long)own->device.local_bytes, own->device.name);
    return NULL;
}
