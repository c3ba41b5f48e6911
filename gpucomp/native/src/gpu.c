/* The libraries of CUDA's driver and of HIP's runtime, and their GPUs. As gpucomp/device/hip.py and gpucomp/targets/cuda.py. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PATH 4096
#define PROPERTIES_BYTES 8192 /* more than any version's structure takes */
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, SHARED_OF_BLOCK = 97 }; /* CU_DEVICE_ATTRIBUTE_ */

#ifdef RTLD_NODELETE
#define STAYS RTLD_NODELETE /* drivers have threads and handlers of exit, which need their code */
#else
#define STAYS 0
#endif

static const char *const CUDA_PLACES[] = {"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1", NULL};
/* ROCm 5, 6 and 7, by the number of the ABI */
static const char *const HIP_PLACES[] = {"libamdhip64.so",   "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                         "/opt/rocm/lib/libamdhip64.so", NULL};

void gcrt_gpu_close(struct gpu *gpu)
{
    if (gpu->library)
        dlclose(gpu->library);
    gpu->library = NULL;
}

static bool find(const struct gpu *gpu, const char *name, void *member)
{
    void *found = dlsym(gpu->library, name);
    memcpy(member, &found, sizeof found);
    return found != NULL;
}

/* Open a library that has all calls; the name of the one that is missing, or NULL. */
static const char *opened(struct gpu *gpu, const char *path)
{
    if (!(gpu->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | STAYS)))
        return "the library";
    const char *missing = NULL;
#define FIND_SHARED(member, cuda, hips, parameters)                                                                             \
    if (!find(gpu, gpu->hip ? (hips) : (cuda), &gpu->member))                                                                   \
        missing = missing ? missing : gpu->hip ? (hips) : (cuda);
#define FIND_OWN(name, parameters, optional)                                                                                    \
    if (!find(gpu, #name, &gpu->name) && !(optional))                                                                           \
        missing = missing ? missing : #name;
    GPU_SHARED(FIND_SHARED)
    if (gpu->hip) {
        GPU_HIP(FIND_OWN)
        if (!find(gpu, "hipGetErrorString", &gpu->hipGetErrorString))
            missing = missing ? missing : "hipGetErrorString";
    } else {
        GPU_CUDA(FIND_OWN)
    }
    if (missing)
        gcrt_gpu_close(gpu);
    return missing;
}

/* HIP's library in ROCm's folder, if the environment names one. */
static const char *opened_in_rocm(struct gpu *gpu)
{
    char path[MOST_PATH];
    const char *rocm = getenv("ROCM_PATH"), *older = getenv("HIP_PATH");
    rocm = rocm && *rocm ? rocm : older;
    if (!gpu->hip || !rocm || !*rocm || snprintf(path, sizeof path, "%s/lib/libamdhip64.so", rocm) >= MOST_PATH)
        return "the library";
    return opened(gpu, path);
}

static int refuse(const struct gpu *gpu, const char *given, const char *missing, gpucomp_error *error)
{
    const char *usual = gpu->hip ? "libamdhip64.so" : "libcuda.so.1";
    if (given)
        return gcrt_fail(error, GCRT_NO_DRIVER, "%s has no %s (%s is missing): the path of %s expected",
                         QUOTE(gcrt_text(given)), gcrt_gpu_name(gpu), missing, usual);
    return gcrt_fail(error, GCRT_NO_DRIVER, "%s's library is missing (%s: %s): install %s, or name the library in "
                     "options.library", gcrt_gpu_name(gpu), usual, missing,
                     gpu->hip ? "rocm-hip-runtime, name ROCm's folder in ROCM_PATH" : "NVIDIA's driver, 525 or newer");
}

int gcrt_gpu_open(struct gpu *gpu, bool hip, const char *path, gpucomp_error *error)
{
    const char *missing = "the library";
    gpu->hip = hip;
    if (path && *path) {
        if ((missing = opened(gpu, path)))
            return refuse(gpu, path, missing, error);
    } else {
        missing = opened_in_rocm(gpu);
        for (const char *const *place = hip ? HIP_PLACES : CUDA_PLACES; missing && *place; place++) {
            const char *lacks = opened(gpu, *place); /* one that is there and too old tells more than one that is not */
            missing = lacks && strcmp(lacks, "the library") == 0 ? missing : lacks;
        }
        if (missing)
            return refuse(gpu, NULL, missing, error);
    }
    int status = gpu->init(0), count = status ? 0 : gcrt_gpu_count(gpu);
    return count > 0 ? 0
                     : gcrt_fail(error, GCRT_NO_DEVICE, "%s finds no usable GPU (error %d): %s", gcrt_gpu_name(gpu), status,
                                 hip ? "rocminfo should list one, and the user must be in the groups render and video"
                                     : "nvidia-smi should list one");
}

int gcrt_gpu_count(const struct gpu *gpu)
{
    int count = 0;
    return gpu->count(&count) ? 0 : count;
}

/* The instruction set in HIP's description of a GPU: the structure differs between versions, but only gcnArchName begins with
 * gfx behind the name, which stands first. Features follow a colon. */
static void find_arch(const char *properties, struct gpu_found *found)
{
    size_t before = strlen(properties);
    snprintf(found->name, sizeof found->name, "%.255s", properties);
    for (size_t at = before; at + 4 < PROPERTIES_BYTES; at++)
        if (memcmp(properties + at, "gfx", 3) == 0) {
            size_t count = 3 + strspn(properties + at + 3, "0123456789abcdef");
            if (count == 3)
                continue;
            snprintf(found->arch, sizeof found->arch, "%.*s", (int)(count < 31 ? count : 31), properties + at);
            return;
        }
}

static int describe_hip(const struct gpu *gpu, struct gpu_found *found)
{
    char properties[PROPERTIES_BYTES + 1] = "";
    int (*ask)(char *, int) = gpu->hipGetDevicePropertiesR0600 ? gpu->hipGetDevicePropertiesR0600 : gpu->hipGetDeviceProperties;
    int status = ask ? ask(properties, found->number) : 1;
    if (status == 0)
        find_arch(properties, found);
    return status;
}

static int describe_cuda(const struct gpu *gpu, struct gpu_found *found)
{
    int status = gpu->cuDeviceGet(&found->handle, found->number);
    if (status == 0)
        status = gpu->cuDeviceGetName(found->name, sizeof found->name, found->handle);
    if (status == 0)
        status = gpu->cuDeviceGetAttribute(&found->major, CAPABILITY_MAJOR, found->handle);
    if (status == 0)
        status = gpu->cuDeviceGetAttribute(&found->minor, CAPABILITY_MINOR, found->handle);
    if (status == 0)
        status = gpu->cuDeviceGetAttribute(&found->shared, SHARED_OF_BLOCK, found->handle);
    return status;
}

int gcrt_gpu_describe(const struct gpu *gpu, int number, struct gpu_found *found, gpucomp_error *error)
{
    memset(found, 0, sizeof *found);
    found->number = number;
    int status = gpu->hip ? describe_hip(gpu, found) : describe_cuda(gpu, found);
    found->name[GPU_TEXT - 1] = 0;
    return status ? gcrt_gpu_fail(gpu, error, GCRT_NOT_OPENED, "the description of a GPU", status) : 0;
}

/* sm_90a: 90, and that only this very compute capability has it. False for what is none. */
static bool read_arch(const char *arch, int *number, bool *exact)
{
    char *end;
    if (strncmp(arch, "sm_", 3) != 0)
        return false;
    *number = (int)strtol(arch + 3, &end, 10);
    *exact = *end != 0;
    return *number > 0;
}

bool gcrt_gpu_loads(const struct gpu_found *device, const char *arch)
{
    int number;
    bool exact;
    if (!read_arch(arch, &number, &exact) || number / 10 != device->major)
        return false;
    return exact ? number % 10 == device->minor : number % 10 <= device->minor;
}

bool gcrt_gpu_compiles(const struct gpu_found *device, const char *arch)
{
    int number;
    bool exact;
    return read_arch(arch, &number, &exact) && !exact && number <= 10 * device->major + device->minor;
}

void gcrt_gpu_target(const struct gpu *gpu, const struct gpu_found *device, char target[64])
{
    static const char *const archs[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"};
    const char *best = "NAME"; /* of none that gpucomp knows */
    for (size_t k = 0; k < sizeof archs / sizeof *archs; k++)
        best = gcrt_gpu_loads(device, archs[k]) ? archs[k] : best;
    if (gpu->hip)
        snprintf(target, 64, "hip:%s", *device->arch ? device->arch : "NAME");
    else
        snprintf(target, 64, "cuda:%s", best);
}

/* Errors after which every call of the process fails; as STICKY of gpucomp/runtime/cuda_places.py. */
static bool is_lost(int status)
{
    static const int lost[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};
    bool found = false;
    for (size_t k = 0; k < sizeof lost / sizeof *lost; k++)
        found = found || lost[k] == status;
    return found;
}

int gcrt_gpu_fail(const struct gpu *gpu, gpucomp_error *error, int code, const char *what, int status)
{
    const char *text = NULL, *name = gcrt_gpu_name(gpu);
    if (gpu->hip)
        text = gpu->hipGetErrorString(status);
    else if (gpu->cuGetErrorString(status, &text) != 0)
        text = NULL;
    text = text ? text : "an unknown error";
    if (status == GPU_OUT_OF_MEMORY)
        return gcrt_fail(error, GCRT_NO_DEVICE_MEMORY,
                         "%s: %.200s: %.200s (error %d): smaller sizes in `largest`, or another device, expected", name, what,
                         text, status);
    if (is_lost(status))
        return gcrt_fail(error, GCRT_LOST_DEVICE,
                         "%s: %.200s: %.200s (error %d); the GPU no longer answers this process: start it anew", name, what, text,
                         status);
    return gcrt_fail(error, code, "%s: %.200s: %.200s (error %d)", name, what, text, status);
}
