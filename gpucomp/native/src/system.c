/* What is asked of the operating system: files, large pages, the processor's features. */
#define _GNU_SOURCE /* sched_getaffinity, MAP_ANONYMOUS, madvise, O_CLOEXEC */
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define DEFAULT_CACHE ((size_t)1 << 20)
#define MOST_TOLD 400

int gcrt_map(const char *path, struct mapped *mapped, gpucomp_error *error)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe would block for ever */
    if (file < 0 || fstat(file, &status)) {
        int code = gcrt_fail(error, GCRT_UNREADABLE, "cannot read %s: %s", QUOTE(gcrt_text(path)), strerror(errno));
        if (file >= 0)
            close(file);
        return code;
    }
    int code = 0;
    if (S_ISDIR(status.st_mode))
        code = gcrt_fail(error, GCRT_UNREADABLE, "cannot read %s: %s", QUOTE(gcrt_text(path)), strerror(EISDIR));
    else if (!S_ISREG(status.st_mode))
        code = gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: not a regular file", QUOTE(gcrt_text(path)));
    else if (status.st_size == 0)
        code = gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: 0 bytes are too few", QUOTE(gcrt_text(path)));
    if (code == 0) {
        mapped->bytes = (size_t)status.st_size;
        void *data = mmap(NULL, mapped->bytes, PROT_READ, MAP_PRIVATE, file, 0);
        mapped->data = data == MAP_FAILED ? NULL : data;
        if (!mapped->data)
            code = gcrt_fail(error, GCRT_UNREADABLE, "cannot read %s: %s", QUOTE(gcrt_text(path)), strerror(errno));
    }
    close(file);
    return code;
}

void gcrt_unmap(struct mapped *mapped)
{
    if (mapped->data)
        munmap((void *)(uintptr_t)mapped->data, mapped->bytes);
    mapped->data = NULL;
}

uint64_t gcrt_page(void)
{
    long page = sysconf(_SC_PAGESIZE);
    return page > 0 ? (uint64_t)page : 4096;
}

void *gcrt_reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void gcrt_touch(void *memory, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if (bytes)
        madvise(memory, bytes, MADV_POPULATE_WRITE); /* fails before Linux 5.14: then runs do it */
#else
    (void)memory, (void)bytes;
#endif
}

void gcrt_release(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}

/* Read a small file of the system; how many bytes. */
static size_t contents(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = file < 0 ? -1 : read(file, text, room - 1);
    if (file >= 0)
        close(file);
    text[count > 0 ? count : 0] = 0;
    return count > 0 ? (size_t)count : 0;
}

/* Linux has a setting for each page size in newer versions, else one for all (Documentation/admin-guide/mm/transhuge.rst). */
static bool large_pages_given(void)
{
    static const char *const paths[] = {"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
                                        "/sys/kernel/mm/transparent_hugepage/enabled"};
    char text[128];
    for (int k = 0; k < 2; k++)
        if (contents(paths[k], text, sizeof text) && !strstr(text, "[inherit]"))
            return !strstr(text, "[never]");
    return false;
}

void *gcrt_large_pages(size_t bytes)
{
#ifdef MADV_HUGEPAGE
    if (!large_pages_given())
        return NULL;
    size_t room = (size_t)gcrt_up(bytes, GCRT_LARGE_PAGE) + GCRT_LARGE_PAGE;
    uint8_t *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    size_t before = (size_t)(gcrt_up((uintptr_t)memory, GCRT_LARGE_PAGE) - (uintptr_t)memory);
    size_t kept = (size_t)gcrt_up(bytes, gcrt_page());
    if (before)
        munmap(memory, before);
    munmap(memory + before + kept, room - before - kept);
    if (madvise(memory + before, kept, MADV_HUGEPAGE) == 0)
        return memory + before;
    munmap(memory + before, kept);
#else
    (void)bytes, (void)large_pages_given;
#endif
    return NULL;
}

void gcrt_give_back(const void *from, size_t bytes)
{
#ifdef MADV_DONTNEED
    uint64_t page = gcrt_page(), first = gcrt_up((uintptr_t)from, page), last = ((uintptr_t)from + bytes) / page * page;
    if (first < last)
        madvise((void *)(uintptr_t)first, (size_t)(last - first), MADV_DONTNEED); /* fails where memory is locked */
#else
    (void)from, (void)bytes;
#endif
}

size_t gcrt_second_cache(void)
{
    char text[32];
    if (!contents("/sys/devices/system/cpu/cpu0/cache/index2/size", text, sizeof text))
        return DEFAULT_CACHE;
    char *end;
    unsigned long count = strtoul(text, &end, 10);
    return *end == 'K' && count ? (size_t)count << 10 : DEFAULT_CACHE;
}

int gcrt_processors(void)
{
#ifdef CPU_COUNT
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

const char *gcrt_own_machine(void)
{
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "another processor";
#endif
}

#if defined(__x86_64__)
#define OF_AVX 0x6u    /* what the system must keep of a thread, as XGETBV tells: xmm, ymm */
#define OF_AVX512 0xe6u /* and opmask, zmm */
#define OF_TILES 0x60000u

/* By LLVM's names: leaf, subleaf, register (0 to 3: eax, ebx, ecx, edx) and bit of CPUID, and what the system must keep. */
static const struct {
    const char *name;
    uint8_t leaf, subleaf, where, bit;
    uint32_t kept;
} FEATURES[] = {
    {"sse4.1", 1, 0, 2, 19, 0},           {"avx", 1, 0, 2, 28, OF_AVX},           {"f16c", 1, 0, 2, 29, OF_AVX},
    {"fma", 1, 0, 2, 12, OF_AVX},         {"avx2", 7, 0, 1, 5, OF_AVX},           {"avx512f", 7, 0, 1, 16, OF_AVX512},
    {"avx512dq", 7, 0, 1, 17, OF_AVX512}, {"avx512bw", 7, 0, 1, 30, OF_AVX512},   {"avx512vl", 7, 0, 1, 31, OF_AVX512},
    {"avx512vnni", 7, 0, 2, 11, OF_AVX512}, {"avx512bf16", 7, 1, 0, 5, OF_AVX512}, {"avx512fp16", 7, 0, 3, 23, OF_AVX512},
    {"avxvnni", 7, 1, 0, 4, OF_AVX},      {"amx-tile", 7, 0, 3, 24, OF_TILES},    {"amx-bf16", 7, 0, 3, 22, OF_TILES},
    {"amx-int8", 7, 0, 3, 25, OF_TILES},
};

/* What CPUID says, asked once: each question takes microseconds, on a virtual machine tens of them. */
struct processor {
    unsigned leaves[8][2][4]; /* by leaf and subleaf: eax, ebx, ecx, edx */
    uint32_t kept;            /* what the system keeps of a thread */
};

static void ask(struct processor *found)
{
    memset(found, 0, sizeof *found);
    for (unsigned k = 0; k < 3; k++) {
        unsigned leaf = k ? 7 : 1, subleaf = k == 2, *to = found->leaves[leaf][subleaf];
        __get_cpuid_count(leaf, subleaf, to, to + 1, to + 2, to + 3);
    }
    if (found->leaves[1][0][2] >> 27 & 1) { /* OSXSAVE */
        unsigned high;
        __asm__ volatile("xgetbv" : "=a"(found->kept), "=d"(high) : "c"(0));
    }
}

static bool has(const struct processor *found, struct text name)
{
    for (size_t k = 0; k < sizeof FEATURES / sizeof *FEATURES; k++)
        if (gcrt_same(name, gcrt_text(FEATURES[k].name))) {
            unsigned word = found->leaves[FEATURES[k].leaf][FEATURES[k].subleaf][FEATURES[k].where];
            return (word >> FEATURES[k].bit & 1) && (found->kept & FEATURES[k].kept) == FEATURES[k].kept;
        }
    return false;
}

/* Linux gives permission to use tile registers to a process that asks (Documentation/arch/x86/xstate.rst). */
static bool tiles_refused(void)
{
#ifdef SYS_arch_prctl
    return syscall(SYS_arch_prctl, 0x1023, 18) != 0;
#else
    return true;
#endif
}
#else
struct processor {
    bool arm;
};

static void ask(struct processor *found) { found->arm = strcmp(gcrt_own_machine(), "aarch64") == 0; }
static bool has(const struct processor *found, struct text name) { return found->arm && gcrt_same(name, gcrt_text("neon")); }
static bool tiles_refused(void) { return true; }
#endif

static int by_text(const void *one, const void *other) { return gcrt_order(*(const struct text *)one,
                                                                           *(const struct text *)other); }

/* The features that this processor lacks, sorted, in one text; how many. */
static size_t lacking(const struct processor *processor, const struct text *features, size_t count, char told[MOST_TOLD])
{
    struct text missing[32];
    size_t found = 0, at = 0;
    for (size_t k = 0; k < count && found < 32; k++)
        if (features[k].count && !has(processor, features[k]))
            missing[found++] = features[k];
    qsort(missing, found, sizeof *missing, by_text);
    told[0] = 0;
    for (size_t k = 0; k < found && at < MOST_TOLD; k++)
        at += (size_t)snprintf(told + at, MOST_TOLD - at, "%s%.*s", k ? ", " : "", (int)(missing[k].count < 60 ? missing[k].count
            : 60), missing[k].at);
    return found;
}

int gcrt_require(const struct text *features, size_t count, struct text arch, gpucomp_error *error)
{
    char told[MOST_TOLD];
    struct processor processor;
    ask(&processor);
    if (lacking(&processor, features, count, told))
        return gcrt_fail(error, GCRT_OTHER_PROCESSOR,
                         "the model is compiled for %.100s, and this processor (%s) has no %s: compile it here, or for a smaller "
                         "target such as cpu:x86-64-v3",
                         arch.at, gcrt_own_machine(), told);
    for (size_t k = 0; k < count; k++)
        if (features[k].count > 4 && memcmp(features[k].at, "amx-", 4) == 0 && tiles_refused())
            return gcrt_fail(error, GCRT_OTHER_PROCESSOR,
                             "the model is compiled for tile registers (AMX), and the system refuses them: compile it here, or "
                             "for a smaller target such as cpu:x86-64-v4");
    return 0;
}

int gcrt_require_listed(struct text features, struct text target, gpucomp_error *error)
{
    char told[MOST_TOLD];
    const char *at = features.at, *end = at + features.count;
    struct processor processor;
    ask(&processor);
    while (at < end) {
        const char *stop = memchr(at, ',', (size_t)(end - at));
        stop = stop ? stop : end;
        struct text name = {at, (size_t)(stop - at)};
        if (lacking(&processor, &name, 1, told))
            return gcrt_fail(error, GCRT_OTHER_PROCESSOR,
                             "the model was compiled for %.100s with %s, which this processor lacks; compile it here, or for "
                             "cpu:x86-64-v3",
                             target.at, told);
        at = stop + 1;
    }
    return 0;
}
