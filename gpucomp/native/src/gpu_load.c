/* Loads the machine code of a model on a GPU: code objects of HIP, cubins of CUDA, or PTX that the driver compiles. */
#include "gpu_model.h"

#include <stdio.h>
#include <string.h>

#define MAX_DYNAMIC_SHARED 8 /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
#define MOST_NAME 256        /* bytes; names of binaries are keys of at most 200 */

const struct member *gcrt_ptx(const struct container *container, const struct kernel *kernel)
{
    static const char cubin[] = ".cubin";
    char name[MOST_NAME];
    size_t count = kernel->binary.count, suffix = strlen(cubin);
    if (count > suffix && memcmp(kernel->binary.at + count - suffix, cubin, suffix) == 0)
        count -= suffix;
    if (count + 5 > sizeof name)
        return NULL;
    memcpy(name, kernel->binary.at, count);
    memcpy(name + count, ".ptx", 5);
    return gcrt_member(container, GCRT_BINARIES, gcrt_text(name));
}

/* The text that a PTX begins with: .version 8.4 */
static void find_version(const struct member *ptx, char version[16])
{
    const char *at = (const char *)ptx->data, *end = at + ptx->bytes;
    static const char word[] = ".version";
    size_t count = strlen(word);
    snprintf(version, 16, "of no version");
    for (; (size_t)(end - at) > count + 16; at++)
        if (memcmp(at, word, count) == 0) {
            at += count + strspn(at + count, " \t");
            snprintf(version, 16, "%.*s", (int)strspn(at, "0123456789."), at);
            return;
        }
}

static int refuse(const struct gpu_model *own, const struct plan *plan, const struct kernel *kernel,
                  const struct member *member, int status, gpucomp_error *error)
{
    char what[GPU_TEXT], version[16];
    int driver = 0;
    if (own->by_ptx && status == GPU_UNSUPPORTED_PTX) {
        find_version(member, version);
        own->gpu.version(&driver);
        return gcrt_fail(error, GCRT_OTHER_GPU,
                         "CUDA: kernel %.100s: it is PTX %s, which is newer than the driver's CUDA %d.%d: compile for the GPU's "
                         "own architecture, or install a newer driver", kernel->name.at, version, driver / 1000,
                         driver % 1000 / 10);
    }
    if (own->by_ptx)
        snprintf(what, sizeof what, "kernel %.100s, compiled by the driver from PTX for %.32s", kernel->name.at, plan->arch.at);
    else
        snprintf(what, sizeof what, "kernel %.100s", kernel->name.at);
    return gcrt_gpu_fail(&own->gpu, error, own->by_ptx ? GCRT_OTHER_GPU : GCRT_REFUSED_CODE, what, status);
}

/* Whether a code object, if it is one, is in its member: HIP reads up to the end of its table of sections, and knows no size. */
static int is_whole(const struct member *member)
{
    const uint8_t *at = member->data;
    uint64_t table;
    uint16_t width, number;
    if (member->bytes < 64)
        return 0;
    memcpy(&table, at + 40, 8), memcpy(&width, at + 58, 2), memcpy(&number, at + 60, 2);
    return memcmp(at, "\177ELF", 4) != 0 || (table <= member->bytes && (uint64_t)width * number <= member->bytes - table);
}

/* The module of a member, which several kernels may share. PTX must end with a zero byte. */
static int load(struct gpu_model *own, const struct plan *plan, const struct kernel *kernel, const struct member *member,
                void **module, gpucomp_error *error)
{
    struct store scratch = {0};
    const uint8_t *image = member->data;
    for (size_t k = 0; k < own->module_count; k++)
        if (own->modules[k].image == member->data) {
            *module = own->modules[k].module;
            return 0;
        }
    if (own->by_ptx && image[member->bytes - 1]) {
        uint8_t *copy = gcrt_new(&scratch, (size_t)member->bytes + 1, 1);
        if (!copy)
            return gcrt_no_memory(error);
        memcpy(copy, image, (size_t)member->bytes);
        image = copy;
    }
    if (own->gpu.hip && !is_whole(member))
        return gcrt_fail(error, GCRT_REFUSED_CODE, "kernel %.200s: its code object is damaged", kernel->name.at);
    int status = own->gpu.load(module, image);
    gcrt_free(&scratch);
    if (status)
        return refuse(own, plan, kernel, member, status, error);
    own->modules[own->module_count++] = (struct gpu_module){member->data, *module};
    return 0;
}

static int load_kernel(struct gpu_model *own, const struct container *container, const struct plan *plan,
                       const struct kernel *kernel, void **function, gpucomp_error *error)
{
    const struct member *member =
        own->by_ptx ? gcrt_ptx(container, kernel) : gcrt_member(container, GCRT_BINARIES, kernel->binary);
    char what[GPU_TEXT];
    void *module;
    if (!member->bytes)
        return gcrt_fail(error, GCRT_REFUSED_CODE,
                         "kernel %s: the file has no machine code of it, and only Python compiles sources for GPUs: compile the "
                         "model again", kernel->name.at);
    int code = load(own, plan, kernel, member, &module, error);
    if (code)
        return code;
    int status = own->gpu.find(function, module, kernel->name.at);
    /* without it a kernel gets at most 48 KiB less its static shared memory */
    if (!status && !own->gpu.hip && kernel->shared)
        status = own->gpu.cuFuncSetAttribute(*function, MAX_DYNAMIC_SHARED, (int)kernel->shared);
    snprintf(what, sizeof what, "kernel %.200s", kernel->name.at);
    return status ? gcrt_gpu_fail(&own->gpu, error, GCRT_REFUSED_CODE, what, status) : 0;
}

int gcrt_gpu_load(gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    struct gpu_model *own = model->device;
    size_t count = 0;
    for (size_t p = 0; p < model->program_count; p++)
        count += model->programs[p].plan.kernels.count;
    own->modules = gcrt_new(&model->store, count, sizeof *own->modules);
    own->functions = gcrt_new(&model->store, model->program_count, sizeof *own->functions);
    if (!own->modules || !own->functions)
        return gcrt_no_memory(error);
    for (size_t p = 0; p < model->program_count; p++) {
        const struct plan *plan = &model->programs[p].plan;
        if (!(own->functions[p] = gcrt_new(&model->store, plan->kernels.count, sizeof **own->functions)))
            return gcrt_no_memory(error);
        for (size_t k = 0; k < plan->kernels.count; k++) {
            int code = load_kernel(own, container, plan, ITEMS(plan->kernels, struct kernel) + k, own->functions[p] + k, error);
            if (code)
                return code;
        }
    }
    return 0;
}
