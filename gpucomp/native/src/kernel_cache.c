/* Compiled kernels on the disk. As gpucomp/targets/cache.py and gpucomp/artifact/cache.py. */
#define _POSIX_C_SOURCE 200809L
#include "kernel_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest.h"
#include "json.h"

#define MOST_ENTRY ((int64_t)2 << 30) /* bytes */
#define MOST_HEADER 4096
#define MOST_PATH 4096
#define USUAL_BYTES ((uint64_t)8 << 30)
#define BLOCK 4096 /* bytes that the smallest file takes on most disks */

int gcrt_cache_open(struct store *store, const char *folder, struct kernel_cache *cache, gpucomp_error *error)
{
    char path[MOST_PATH];
    const char *given = folder ? folder : getenv("GPUCOMP_CACHE"), *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *limit = getenv("GPUCOMP_CACHE_BYTES");
    char *end = NULL;
    cache->most_bytes = limit && *limit ? strtoull(limit, &end, 10) : USUAL_BYTES;
    if (end && *end)
        cache->most_bytes = USUAL_BYTES;
    int count = -1;
    if (given)
        count = *given ? snprintf(path, sizeof path, "%s/kernels", given) : -1;
    else if (base && *base)
        count = snprintf(path, sizeof path, "%s/gpucomp/kernels", base);
    else if (home && *home)
        count = snprintf(path, sizeof path, "%s/.cache/gpucomp/kernels", home);
    if (count < 0 || count > MOST_PATH - 128) /* room for the name of an entry */
        return 0;
    struct text text = {path, (size_t)count};
    if (!gcrt_copy_text(store, &text))
        return gcrt_no_memory(error);
    cache->folder = text.at;
    return 0;
}

static void path_of(const struct kernel_cache *cache, const char *key, char path[MOST_PATH])
{
    snprintf(path, MOST_PATH, "%s/%.2s/%s.bin", cache->folder, key, key);
}

/* A regular file of this user or of root, which nobody else can write. */
static bool is_trusted(const struct stat *status)
{
    return S_ISREG(status->st_mode) && (status->st_uid == geteuid() || status->st_uid == 0) &&
           !(status->st_mode & (S_IWGRP | S_IWOTH)) && status->st_size <= MOST_ENTRY;
}

static bool read_all(int file, uint8_t *to, size_t bytes)
{
    while (bytes) {
        ssize_t count = read(file, to, bytes);
        if (count <= 0 && !(count < 0 && errno == EINTR))
            return false;
        if (count > 0) {
            to += count;
            bytes -= (size_t)count;
        }
    }
    return true;
}

static bool write_all(int file, const uint8_t *from, size_t bytes)
{
    while (bytes) {
        ssize_t count = write(file, from, bytes);
        if (count < 0 && errno != EINTR)
            return false;
        if (count > 0) {
            from += count;
            bytes -= (size_t)count;
        }
    }
    return true;
}

/* Whether a header says of a payload what it is. */
static bool is_right(const uint8_t *header, size_t count, const char *key, const uint8_t *data, size_t bytes)
{
    struct store scratch = {0};
    const struct json *json = gcrt_json(&scratch, (const char *)header, count, "header", NULL);
    bool table = json && json->kind == JSON_TABLE;
    const struct json *own = table ? gcrt_json_find(json, "key") : NULL, *size = table ? gcrt_json_find(json, "bytes") : NULL;
    const struct json *digest = table ? gcrt_json_find(json, "sha256") : NULL;
    bool right = own && own->kind == JSON_TEXT && gcrt_same(gcrt_json_text(own), gcrt_text(key)) && size &&
                 size->kind == JSON_INTEGER && size->as.integer == (int64_t)bytes && digest && digest->kind == JSON_TEXT;
    if (right) {
        char digits[65];
        gcrt_sha256(data, bytes, digits);
        right = gcrt_same(gcrt_json_text(digest), gcrt_text(digits));
    }
    gcrt_free(&scratch);
    return right;
}

bool gcrt_cache_get(const struct kernel_cache *cache, struct store *store, const char key[65], const uint8_t **data,
                    size_t *bytes)
{
    char path[MOST_PATH];
    struct stat status;
    if (!cache->folder)
        return false;
    path_of(cache, key, path);
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return false;
    uint8_t *content = NULL, *line = NULL;
    if (fstat(file, &status) == 0 && is_trusted(&status) && status.st_size > 0 &&
        (content = gcrt_new(store, (size_t)status.st_size, 1)) && read_all(file, content, (size_t)status.st_size)) {
        futimens(file, NULL); /* it counts as used; a folder that is read-only is a cache all the same */
        size_t most = (size_t)status.st_size < MOST_HEADER ? (size_t)status.st_size : MOST_HEADER;
        line = memchr(content, '\n', most);
    }
    close(file);
    if (!line)
        return false;
    *data = line + 1;
    *bytes = (size_t)status.st_size - (size_t)(*data - content);
    return is_right(content, (size_t)(line - content), key, *data, *bytes);
}

/* Make the folders of a path, as far as they are missing. */
static void make_folders(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0755); /* what fails here lets the file fail */
        *at = '/';
    }
}

void gcrt_cache_put(struct kernel_cache *cache, const char key[65], const uint8_t *data, size_t bytes)
{
    char path[MOST_PATH], temporary[MOST_PATH], header[512], digits[65];
    if (!cache->folder || (int64_t)bytes > MOST_ENTRY - MOST_HEADER)
        return;
    path_of(cache, key, path);
    make_folders(path);
    snprintf(temporary, sizeof temporary, "%s/%.2s/.gpucomp.XXXXXX", cache->folder, key);
    int file = mkstemp(temporary);
    if (file < 0)
        return;
    gcrt_sha256(data, bytes, digits);
    int count = snprintf(header, sizeof header, "{\"format\": 1, \"key\": \"%s\", \"bytes\": %zu, \"sha256\": \"%s\"}\n", key,
                         bytes, digits);
    bool whole = write_all(file, (const uint8_t *)header, (size_t)count) && write_all(file, data, bytes);
    whole = close(file) == 0 && whole;
    if (whole && rename(temporary, path) == 0)
        cache->written = true;
    else
        unlink(temporary);
}

struct entry {
    char name[72]; /* KK/KEY.bin, without KK/ */
    uint64_t bytes;
    struct timespec used;
};

struct entries {
    struct entry *items;
    size_t count, room;
    uint64_t bytes;
};

static void note_entry(struct entries *entries, const char *name, const struct stat *status)
{
    if (entries->count == entries->room) {
        size_t room = entries->room ? 2 * entries->room : 256;
        struct entry *more = realloc(entries->items, room * sizeof *more);
        if (!more)
            return;
        entries->items = more;
        entries->room = room;
    }
    struct entry *entry = entries->items + entries->count++;
    memcpy(entry->name, name, 69); /* with its zero byte */
    entry->bytes = gcrt_up((uint64_t)status->st_size, BLOCK);
    entry->used = status->st_mtim;
    entries->bytes += entry->bytes;
}

static void list_folder(const char *path, struct entries *entries)
{
    DIR *folder = opendir(path);
    struct dirent *one;
    struct stat status;
    while (folder && (one = readdir(folder)))
        if (strlen(one->d_name) == 68 && strcmp(one->d_name + 64, ".bin") == 0 &&
            fstatat(dirfd(folder), one->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode))
            note_entry(entries, one->d_name, &status);
    if (folder)
        closedir(folder);
}

static int by_use(const void *one, const void *other)
{
    const struct timespec *a = &((const struct entry *)one)->used, *b = &((const struct entry *)other)->used;
    int seconds = (a->tv_sec > b->tv_sec) - (a->tv_sec < b->tv_sec);
    return seconds ? seconds : (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

void gcrt_cache_trim(const struct kernel_cache *cache)
{
    char path[MOST_PATH];
    struct entries entries = {0};
    if (!cache->folder || !cache->written)
        return;
    for (unsigned k = 0; k < 256; k++) {
        snprintf(path, sizeof path, "%s/%02x", cache->folder, k);
        list_folder(path, &entries);
    }
    if (entries.count)
        qsort(entries.items, entries.count, sizeof *entries.items, by_use);
    for (size_t k = 0; k < entries.count && entries.bytes > cache->most_bytes; k++) {
        snprintf(path, sizeof path, "%s/%.2s/%s", cache->folder, entries.items[k].name, entries.items[k].name);
        unlink(path);
        entries.bytes -= entries.items[k].bytes;
    }
    free(entries.items);
}
