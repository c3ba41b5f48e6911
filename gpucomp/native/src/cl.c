/* The library of OpenCL, and its devices. As gpucomp/targets/opencl.py. */
#include "cl.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 64 /* of a platform, and platforms */

#ifdef RTLD_NODELETE
#define STAYS RTLD_NODELETE /* drivers have threads and handlers of exit, which need their code */
#else
#define STAYS 0
#endif

static const char *const PLACES[] = {
    "libOpenCL.so.1", "libOpenCL.so",
    "/vendor/lib64/libOpenCL.so", "/system/vendor/lib64/libOpenCL.so", "/system/lib64/libOpenCL.so", /* Android */
    "/vendor/lib64/egl/libGLES_mali.so", "/system/vendor/lib64/egl/libGLES_mali.so", "libGLES_mali.so", "libmali.so",
    "libmali.so.1",
};
#define PLACE_COUNT (sizeof PLACES / sizeof *PLACES)

void gcrt_cl_close(struct cl *cl)
{
    if (cl->library)
        dlclose(cl->library);
    cl->library = NULL;
}

/* Open a library that has all calls; the name of the one that is missing, or NULL. */
static const char *opened(struct cl *cl, const char *path)
{
    if (!(cl->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | STAYS)))
        return "the library";
    const char *missing = NULL;
#define CL_FIND(result, name, parameters)                                                                                       \
    {                                                                                                                           \
        void *found = dlsym(cl->library, #name);                                                                                \
        memcpy(&cl->name, &found, sizeof found);                                                                                \
        missing = missing || found ? missing : #name;                                                                           \
    }
    CL_FUNCTIONS(CL_FIND)
    if (missing)
        gcrt_cl_close(cl);
    return missing;
}

int gcrt_cl_open(struct cl *cl, const char *path, gpucomp_error *error)
{
    const char *given = path ? path : getenv("GPUCOMP_OPENCL_LIBRARY");
    const char *missing = "the library";
    if (given && *given) {
        missing = opened(cl, given);
        return missing ? gcrt_fail(error, GCRT_NO_DRIVER, "%s has no OpenCL (%s is missing): the path of libOpenCL.so.1 expected",
                                   QUOTE(gcrt_text(given)), missing)
                       : 0;
    }
    for (size_t k = 0; missing && k < PLACE_COUNT; k++)
        missing = opened(cl, PLACES[k]);
    return missing ? gcrt_fail(error, GCRT_NO_DRIVER,
                               "OpenCL's library is missing (libOpenCL.so.1): install a driver, or name the library in "
                               "GPUCOMP_OPENCL_LIBRARY")
                   : 0;
}

static void ask(const struct cl *cl, const struct cl_found *device, cl_uint what, char *to)
{
    char text[4096] = "";
    size_t count = 0;
    if (cl->clGetDeviceInfo(device->id, what, sizeof text - 1, text, &count) != 0)
        text[0] = 0;
    snprintf(to, CL_TEXT, "%.255s", text);
}

static void ask_platform(const struct cl *cl, cl_platform_id platform, cl_uint what, char *to)
{
    char text[4096] = "";
    if (cl->clGetPlatformInfo(platform, what, sizeof text - 1, text, NULL) != 0)
        text[0] = 0;
    snprintf(to, CL_TEXT, "%.255s", text);
}

static uint64_t ask_number(const struct cl *cl, const struct cl_found *device, cl_uint what, size_t bytes)
{
    union {
        cl_uint narrow;
        uint64_t wide;
    } value = {.wide = 0};
    if (cl->clGetDeviceInfo(device->id, what, bytes, &value, NULL) != 0)
        return 0;
    return bytes == sizeof value.narrow ? value.narrow : value.wide;
}

static void examine(const struct cl *cl, cl_platform_id platform, struct cl_found *device)
{
    ask_platform(cl, platform, CL_PLATFORM_NAME, device->platform);
    ask_platform(cl, platform, CL_PLATFORM_VENDOR, device->platform_vendor);
    ask_platform(cl, platform, CL_PLATFORM_VERSION, device->platform_version);
    ask(cl, device, CL_DEVICE_NAME, device->name);
    ask(cl, device, CL_DEVICE_VENDOR, device->vendor);
    ask(cl, device, CL_DEVICE_VERSION, device->version);
    ask(cl, device, CL_DRIVER_VERSION, device->driver);
    ask(cl, device, CL_DEVICE_OPENCL_C_VERSION, device->c_version);
    device->gpu = (ask_number(cl, device, CL_DEVICE_TYPE, 8) & CL_DEVICE_TYPE_GPU) != 0;
    device->unified = ask_number(cl, device, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0;
    device->rounds = (ask_number(cl, device, CL_DEVICE_SINGLE_FP_CONFIG, 8) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
    device->alignment = ask_number(cl, device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 4) / 8; /* told in bits */
    device->most_bytes = ask_number(cl, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    device->local_bytes = ask_number(cl, device, CL_DEVICE_LOCAL_MEM_SIZE, 8);
    device->local_apart = ask_number(cl, device, CL_DEVICE_LOCAL_MEM_TYPE, 4) == CL_LOCAL;
}

static bool contains(const char *text, const char *part)
{
    size_t count = strlen(part);
    for (; *text; text++) {
        size_t k = 0;
        while (k < count && text[k] && tolower((unsigned char)text[k]) == tolower((unsigned char)part[k]))
            k++;
        if (k == count)
            return true;
    }
    return count == 0;
}

/* The two numbers of a version behind `prefix`; how many there are. */
static int version_in(const char *text, const char *prefix, int *major, int *minor)
{
    size_t count = strlen(prefix);
    if (strncmp(text, prefix, count) != 0)
        return 0;
    char *end;
    *major = (int)strtol(text += count, &end, 10);
    if (end == text || *end != '.')
        return end != text;
    *minor = (int)strtol(text = end + 1, &end, 10);
    return end == text ? 1 : 2;
}

/* Templates need OpenCL 1.2; Mesa's Clover has 1.1. */
static bool is_too_old(const struct cl_found *device)
{
    int major = 0, minor = 0;
    if (version_in(device->version, "OpenCL ", &major, &minor) != 2)
        return false;
    return major < 1 || (major == 1 && minor < 2);
}

static int rank_of(const struct cl_found *device)
{
    return (device->gpu ? 0 : 2) + contains(device->platform, "rusticl");
}

int gcrt_cl_devices(const struct cl *cl, struct store *store, struct cl_found **found, size_t *count, gpucomp_error *error)
{
    cl_platform_id platforms[MOST_DEVICES];
    cl_uint platform_count = 0;
    *count = 0;
    if (cl->clGetPlatformIDs(MOST_DEVICES, platforms, &platform_count) != 0)
        platform_count = 0;
    if (platform_count > MOST_DEVICES)
        platform_count = MOST_DEVICES;
    if (!(*found = gcrt_new(store, MOST_DEVICES, sizeof **found)))
        return gcrt_no_memory(error);
    for (cl_uint p = 0; p < platform_count; p++) {
        cl_device_id devices[MOST_DEVICES];
        cl_uint device_count = 0;
        if (cl->clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MOST_DEVICES, devices, &device_count) != 0)
            continue; /* a platform without a device */
        for (cl_uint d = 0; d < device_count && d < MOST_DEVICES && *count < MOST_DEVICES; d++) {
            struct cl_found one = {.id = devices[d]};
            examine(cl, platforms[p], &one);
            if (is_too_old(&one))
                continue;
            size_t at = (*count)++;
            for (; at && rank_of(*found + at - 1) > rank_of(&one); at--)
                (*found)[at] = (*found)[at - 1];
            (*found)[at] = one;
        }
    }
    return 0;
}

bool gcrt_cl_is_pocl(const struct cl_found *device)
{
    bool named = contains(device->platform, "pocl") || contains(device->platform, "portable computing") ||
                 contains(device->platform_vendor, "pocl") || contains(device->platform_vendor, "portable computing");
    return named && !device->gpu;
}

/* Whether a word is in a text. */
static bool has_word(const char *text, const char *word)
{
    size_t count = strlen(word);
    for (const char *at = text; *at; at++)
        if ((at == text || !isalnum((unsigned char)at[-1])) && strlen(at) >= count && !isalnum((unsigned char)at[count])) {
            size_t k = 0;
            while (k < count && tolower((unsigned char)at[k]) == word[k])
                k++;
            if (k == count)
                return true;
        }
    return false;
}

bool gcrt_cl_has_parts(const struct cl_found *device)
{
    static const char *const words[] = {"mali-g31", "mali-g51", "mali-g52", "mali-g71", "mali-g72", "mali-g76"};
    static const char *const parts[] = {"mali-t", "powervr", "imagination"}; /* Midgard, which has a number behind it */
    const char *const names[] = {device->platform_vendor, device->vendor, device->name};
    bool has = true;
    for (size_t n = 0; n < 3; n++) {
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            has = has && !has_word(names[n], words[k]);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            has = has && !contains(names[n], parts[k]);
    }
    return has;
}

bool gcrt_cl_fits(const struct cl_found *device, struct text which)
{
    const char *platform = device->platform, *vendor = device->platform_vendor;
    if (gcrt_same(which, gcrt_text("generic")) || which.count == 0)
        return true;
    if (gcrt_same(which, gcrt_text("pocl")))
        return gcrt_cl_is_pocl(device);
    bool mali = device->gpu && (has_word(platform, "arm") || has_word(vendor, "arm"));
    if (gcrt_same(which, gcrt_text("mali")))
        return mali;
    if (gcrt_same(which, gcrt_text("amd")))
        return device->gpu && !mali && (has_word(platform, "amd") || has_word(vendor, "amd") ||
                                        contains(platform, "advanced micro") || contains(vendor, "advanced micro"));
    char both[2 * CL_TEXT];
    snprintf(both, sizeof both, "%s %s", platform, device->name);
    return contains(both, which.at);
}

int gcrt_cl_c_version(const struct cl *cl, const struct cl_found *device)
{
    struct {
        cl_uint version;
        char name[64];
    } listed[16];
    int major = 1, minor = 0;
    size_t bytes = 0;
    bool third = strncmp(device->version, "OpenCL 3.", 9) == 0;
    if (version_in(device->c_version, "OpenCL C ", &major, &minor) < 1)
        major = 1;
    if (third && cl->clGetDeviceInfo(device->id, CL_DEVICE_OPENCL_C_ALL_VERSIONS, sizeof listed, listed, &bytes) == 0)
        for (size_t k = 0; k < bytes / sizeof *listed; k++)
            major = (int)(listed[k].version >> 22) > major ? (int)(listed[k].version >> 22) : major;
    return major == 2 && third ? 1 : major; /* what a device of OpenCL 3 lists of 2.0 is optional */
}

int gcrt_cl_fail(gpucomp_error *error, const struct cl_found *device, int code, const char *what, cl_int status)
{
    if (status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_HOST_MEMORY || status == CL_OUT_OF_RESOURCES)
        return gcrt_fail(error, GCRT_NO_DEVICE_MEMORY,
                         "%s: the device has not enough memory (%s gave OpenCL's error %d): smaller sizes, or another device, "
                         "expected", device->name, what, (int)status);
    return gcrt_fail(error, code, "%s: %s failed with OpenCL's error %d: see whether clinfo can open the device, and update its "
                     "driver", device->name, what, (int)status);
}
