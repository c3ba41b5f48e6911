/* Reads a zip file by computing the layout that its names and sizes imply, and comparing every byte that is no data with it. */
#include "container.h"

#include <stdlib.h>
#include <string.h>

#include "digest.h"

#define MEMBER_ALIGNMENT 64
#define MOST_MEMBERS 60000
#define LOCAL_BYTES 30
#define CENTRAL_BYTES 46
#define CENTRAL_EXTRA 28
#define TAIL_BYTES (56 + 20 + 22)
#define LONGEST_NAME 401
#define ZIP64 45
#define UNIX (3 << 8)
#define DATE (1 << 5 | 1)
#define REGULAR_FILE ((uint32_t)0100644 << 16)
#define PADDING 0xd935

struct writer {
    uint8_t *at;
};

static void put(struct writer *writer, uint64_t value, int bytes)
{
    for (int k = 0; k < bytes; k++)
        *writer->at++ = (uint8_t)(value >> 8 * k);
}

static void put_text(struct writer *writer, struct text text)
{
    memcpy(writer->at, text.at, text.count);
    writer->at += text.count;
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int k = bytes; k--;)
        value = value << 8 | at[k];
    return value;
}

/* What local headers and entries of the directory have in common, from the version to the length of the extra field. */
static void put_common(struct writer *writer, const struct member *member, unsigned extra)
{
    put(writer, ZIP64, 2);
    put(writer, 0, 4); /* flags, stored */
    put(writer, 0, 2); /* time */
    put(writer, DATE, 2);
    put(writer, member->crc, 4);
    put(writer, 0xffffffffffffffff, 8); /* both sizes: in the zip64 field */
    put(writer, member->name.count, 2);
    put(writer, extra, 2);
}

static size_t local_header(uint8_t *to, const struct member *member)
{
    struct writer writer = {to};
    uint64_t end = member->start + LOCAL_BYTES + member->name.count + 20 + 4;
    unsigned fill = (unsigned)(gcrt_up(end, MEMBER_ALIGNMENT) - end);
    put(&writer, 0x04034b50, 4);
    put_common(&writer, member, 24 + fill);
    put_text(&writer, member->name);
    put(&writer, 1, 2);
    put(&writer, 16, 2);
    put(&writer, member->bytes, 8);
    put(&writer, member->bytes, 8);
    put(&writer, PADDING, 2);
    put(&writer, fill, 2);
    memset(writer.at, 0, fill);
    return (size_t)(writer.at - to) + fill;
}

static size_t central_entry(uint8_t *to, const struct member *member)
{
    struct writer writer = {to};
    put(&writer, 0x02014b50, 4);
    put(&writer, UNIX | ZIP64, 2);
    put_common(&writer, member, CENTRAL_EXTRA);
    put(&writer, 0, 6); /* comment, disk, internal attributes */
    put(&writer, REGULAR_FILE, 4);
    put(&writer, 0xffffffff, 4);
    put_text(&writer, member->name);
    put(&writer, 1, 2);
    put(&writer, 24, 2);
    put(&writer, member->bytes, 8);
    put(&writer, member->bytes, 8);
    put(&writer, member->start, 8);
    return (size_t)(writer.at - to);
}

static void tail(uint8_t *to, uint64_t count, uint64_t directory_bytes, uint64_t directory_start)
{
    struct writer writer = {to};
    put(&writer, 0x06064b50, 4);
    put(&writer, 44, 8);
    put(&writer, UNIX | ZIP64, 2);
    put(&writer, ZIP64, 2);
    put(&writer, 0, 8); /* disks */
    put(&writer, count, 8);
    put(&writer, count, 8);
    put(&writer, directory_bytes, 8);
    put(&writer, directory_start, 8);
    put(&writer, 0x07064b50, 4);
    put(&writer, 0, 4);
    put(&writer, directory_start + directory_bytes, 8);
    put(&writer, 1, 4);
    put(&writer, 0x06054b50, 4);
    put(&writer, 0, 4);
    put(&writer, 0xffffffff, 4);
    put(&writer, 0xffffffffffffffff, 8);
    put(&writer, 0, 2);
}

static bool in_name(char c, bool first)
{
    bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    return letter || (!first && (c == '.' || c == '+' || c == '-'));
}

/* One or two parts of 1 to 200 characters, with a slash between. */
static bool is_member_name(struct text name)
{
    size_t part = 0, slashes = 0;
    for (size_t k = 0; k < name.count; k++) {
        if (name.at[k] == '/' && part) {
            slashes++;
            part = 0;
        } else if (in_name(name.at[k], part == 0) && part < 200) {
            part++;
        } else {
            return false;
        }
    }
    return part && slashes <= 1;
}

static int bad(gpucomp_error *error, const char *path, const char *what)
{
    return gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: %s", QUOTE(gcrt_text(path)), what);
}

static int by_name(const void *one, const void *other)
{
    return gcrt_order(((const struct member *)one)->name, ((const struct member *)other)->name);
}

/* The entry of the directory at `at`; its bytes, or 0 after an error. */
static size_t read_entry(const uint8_t *at, const uint8_t *end, uint64_t total, struct member *member, const char *path,
                         gpucomp_error *error)
{
    if (end - at < CENTRAL_BYTES) {
        bad(error, path, "its directory is truncated");
        return 0;
    }
    size_t length = (size_t)get(at + 28, 2), extra = (size_t)get(at + 30, 2), room = (size_t)(end - at) - CENTRAL_BYTES;
    if (get(at, 4) != 0x02014b50 || extra != CENTRAL_EXTRA || room < length + extra) {
        bad(error, path, "an entry of its directory is not one that gpucomp writes");
        return 0;
    }
    *member = (struct member){.name = {(const char *)at + CENTRAL_BYTES, length}, .crc = (uint32_t)get(at + 16, 4)};
    member->bytes = get(at + CENTRAL_BYTES + length + 4, 8);
    if (!is_member_name(member->name))
        gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: member name %s is not allowed", QUOTE(gcrt_text(path)),
                  QUOTE(member->name));
    else if (get(at + 10, 2))
        gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: member %s is compressed", QUOTE(gcrt_text(path)),
                  QUOTE(member->name));
    else if (member->bytes > total)
        gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: member %s claims %llu bytes, the file has %llu",
                  QUOTE(gcrt_text(path)), QUOTE(member->name), (unsigned long long)member->bytes, (unsigned long long)total);
    else
        return CENTRAL_BYTES + length + extra;
    return 0;
}

static int read_entries(struct store *store, const uint8_t *data, uint64_t bytes, const char *path, struct container *found,
                        gpucomp_error *error)
{
    const uint8_t *end = data + bytes - TAIL_BYTES;
    uint64_t count = get(end + 32, 8), directory_bytes = get(end + 40, 8), start = get(end + 48, 8);
    if (get(end, 4) != 0x06064b50)
        return bad(error, path, "no zip directory at the end of the file: truncated, or another kind of file");
    if (count > MOST_MEMBERS)
        return gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: %llu members, at most %d are allowed",
                         QUOTE(gcrt_text(path)), (unsigned long long)count, MOST_MEMBERS);
    if (start > bytes || directory_bytes != bytes - TAIL_BYTES - start)
        return bad(error, path, "its directory is not where the file says: truncated or extended");
    found->members = gcrt_new(store, (size_t)count, sizeof *found->members);
    if (!found->members)
        return gcrt_no_memory(error);
    const uint8_t *at = data + start;
    for (found->count = 0; found->count < count; found->count++) {
        size_t taken = read_entry(at, end, bytes, found->members + found->count, path, error);
        if (!taken)
            return GCRT_DAMAGED_FILE;
        at += taken;
    }
    return 0;
}

/* Compute where everything lies, and compare what is no data. */
static int check_layout(const uint8_t *data, uint64_t bytes, const char *path, struct container *found, gpucomp_error *error)
{
    uint8_t text[LOCAL_BYTES + LONGEST_NAME + CENTRAL_BYTES + CENTRAL_EXTRA + MEMBER_ALIGNMENT];
    uint64_t at = 0, directory_bytes = 0;
    for (size_t k = 0; k < found->count; k++) { /* at most MOST_MEMBERS sizes, each no larger than the file */
        struct member *member = found->members + k;
        member->start = at;
        at += local_header(text, member) + member->bytes;
        directory_bytes += CENTRAL_BYTES + member->name.count + CENTRAL_EXTRA;
    }
    uint64_t taken = at + directory_bytes + TAIL_BYTES;
    if (taken != bytes)
        return gcrt_fail(error, GCRT_DAMAGED_FILE,
                         "%s is not a compiled model: its members take %llu bytes and the file has %llu: truncated or extended",
                         QUOTE(gcrt_text(path)), (unsigned long long)taken, (unsigned long long)bytes);
    const uint8_t *entry = data + at;
    for (size_t k = 0; k < found->count; k++) {
        size_t count = central_entry(text, found->members + k);
        if (memcmp(entry, text, count) != 0)
            return bad(error, path, "its directory is not one that gpucomp writes");
        entry += count;
    }
    tail(text, found->count, directory_bytes, at);
    if (memcmp(entry, text, TAIL_BYTES) != 0)
        return bad(error, path, "its directory is not one that gpucomp writes");
    for (size_t k = 0; k < found->count; k++) {
        struct member *member = found->members + k;
        size_t count = local_header(text, member);
        if (memcmp(data + member->start, text, count) != 0)
            return gcrt_fail(error, GCRT_DAMAGED_FILE,
                             "%s is not a compiled model: the header of member %s is not one that gpucomp writes",
                             QUOTE(gcrt_text(path)), QUOTE(member->name));
        member->data = data + member->start + count;
    }
    return 0;
}

int gcrt_container(struct store *store, const uint8_t *data, uint64_t bytes, const char *path, const char *sealed,
                   struct container *found, gpucomp_error *error)
{
    if (bytes < TAIL_BYTES)
        return gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: %llu bytes are too few", QUOTE(gcrt_text(path)),
                         (unsigned long long)bytes);
    int code = read_entries(store, data, bytes, path, found, error);
    if (code || (code = check_layout(data, bytes, path, found, error)) != 0)
        return code;
    qsort(found->members, found->count, sizeof *found->members, by_name);
    for (size_t k = 0; k < found->count; k++) {
        const struct member *member = found->members + k;
        if (k && by_name(member - 1, member) == 0)
            return gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: member %s occurs twice",
                             QUOTE(gcrt_text(path)), QUOTE(member->name));
        if (gcrt_same(member->name, gcrt_text(sealed)) && gcrt_crc32(member->data, (size_t)member->bytes) != member->crc)
            return gcrt_fail(error, GCRT_DAMAGED_FILE, "%s is not a compiled model: member %s is damaged: its checksum differs",
                             QUOTE(gcrt_text(path)), QUOTE(member->name));
    }
    return 0;
}

const struct member *gcrt_member(const struct container *container, const char *prefix, struct text name)
{
    size_t before = strlen(prefix), first = 0, last = container->count;
    while (first < last) {
        size_t middle = first + (last - first) / 2;
        struct text own = container->members[middle].name;
        size_t least = own.count < before ? own.count : before;
        int order = memcmp(own.at, prefix, least);
        if (order == 0)
            order = own.count < before ? -1 : gcrt_order((struct text){own.at + before, own.count - before}, name);
        if (order == 0)
            return container->members + middle;
        if (order < 0)
            first = middle + 1;
        else
            last = middle;
    }
    return NULL;
}
