/* Loads relocatable ELF objects. Everything in an object is checked before it is used, as in gpucomp/artifact/elf.py. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "elf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "system.h"

#define HEADER_BYTES 64
#define SECTION_BYTES 64
#define SYMBOL_BYTES 24
#define RELATION_BYTES 24
#define LARGEST ((uint64_t)1 << 30)
#define LARGEST_ALIGNMENT 4096

enum { RELOCATABLE = 1, SYMBOL_TABLE = 2, STRING_TABLE = 3, RELATIONS = 4, NO_BITS = 8, SHORT_RELATIONS = 9 };
enum { WRITE = 1, ALLOCATED = 2, EXECUTE = 4, THREAD_LOCAL = 0x400 };
enum { SPECIAL = 0xff00, ABSOLUTE_SECTION = 0xfff1, COMMON_SECTION = 0xfff2, GLOBAL = 1 };

struct section {
    const char *name;
    uint32_t kind, link, info;
    uint64_t flags, offset, bytes, align;
    uint64_t place; /* in the image */
    bool kept;
};

struct object {
    const uint8_t *data;
    uint64_t bytes;
    unsigned machine;
    struct section *sections;
    size_t section_count;
    const uint8_t *symbols;
    size_t symbol_count;
    uint32_t names; /* the section with the names of symbols */
};

struct objects {
    struct object *items;
    size_t count;
    uint64_t text_bytes, data_bytes, got_at, got_next;
    uint64_t *entries; /* places of those of the table of addresses, by a hash of what they hold; 0 where there is none */
    size_t slots;
    gpucomp_error *error;
};

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int k = bytes; k--;)
        value = value << 8 | at[k];
    return value;
}

static void set(uint8_t *at, int bytes, uint64_t value)
{
    for (int k = 0; k < bytes; k++)
        at[k] = (uint8_t)(value >> 8 * k);
}

static int damaged(gpucomp_error *error, const char *what) { return gcrt_fail(error, GCRT_DAMAGED_CODE, "machine code: %s",
                                                                              what); }

const char *gcrt_machine(unsigned number) { return number == 62 ? "x86_64" : number == 183 ? "aarch64" : ""; }

/* A name in a table of strings, or NULL. */
static const char *string_at(const struct object *object, uint32_t table, uint64_t at)
{
    if (table >= object->section_count)
        return NULL;
    const struct section *section = object->sections + table;
    if (section->kind != STRING_TABLE || at >= section->bytes)
        return NULL;
    const uint8_t *text = object->data + section->offset + at;
    return memchr(text, 0, (size_t)(section->bytes - at)) ? (const char *)text : NULL;
}

static int read_sections(struct store *store, struct object *object, uint64_t at, gpucomp_error *error)
{
    object->sections = gcrt_new(store, object->section_count, sizeof *object->sections);
    if (!object->sections)
        return gcrt_no_memory(error);
    for (size_t k = 0; k < object->section_count; k++) {
        const uint8_t *raw = object->data + at + k * SECTION_BYTES;
        struct section *section = object->sections + k;
        section->kind = (uint32_t)get(raw + 4, 4);
        section->flags = get(raw + 8, 8);
        section->offset = get(raw + 24, 8);
        section->bytes = get(raw + 32, 8);
        section->link = (uint32_t)get(raw + 40, 4);
        section->info = (uint32_t)get(raw + 44, 4);
        section->align = get(raw + 48, 8);
        if (section->kind != NO_BITS && (section->offset > object->bytes || section->bytes > object->bytes - section->offset))
            return damaged(error, "a section lies outside the file");
        if (section->bytes > LARGEST || section->align > LARGEST_ALIGNMENT || (section->align & (section->align - 1)))
            return damaged(error, "section of impossible size or alignment");
    }
    return 0;
}

static int read_symbols(struct object *object, gpucomp_error *error)
{
    for (size_t k = 0; k < object->section_count; k++) {
        const struct section *section = object->sections + k;
        if (section->kind != SYMBOL_TABLE)
            continue;
        if (object->symbols)
            return damaged(error, "it has more than one symbol table");
        if (section->bytes % SYMBOL_BYTES)
            return damaged(error, "the size of the symbol table is not a multiple of its entries");
        object->symbols = object->data + section->offset;
        object->symbol_count = (size_t)(section->bytes / SYMBOL_BYTES);
        object->names = section->link;
    }
    for (size_t k = 0; k < object->symbol_count; k++) {
        uint64_t section = get(object->symbols + k * SYMBOL_BYTES + 6, 2);
        if (section >= SPECIAL && section != ABSOLUTE_SECTION && section != COMMON_SECTION)
            return damaged(error, "symbol in a special section");
        if (!string_at(object, object->names, get(object->symbols + k * SYMBOL_BYTES, 4)))
            return damaged(error, "a name lies outside its table, or has no end");
    }
    return 0;
}

static int read_object(struct store *store, struct object *object, gpucomp_error *error)
{
    const uint8_t *data = object->data;
    if (object->bytes < HEADER_BYTES || object->bytes > LARGEST)
        return damaged(error, "not an object file");
    if (memcmp(data, "\177ELF\2\1", 6) != 0)
        return damaged(error, "not a 64-bit little-endian ELF file");
    object->machine = (unsigned)get(data + 18, 2);
    if (get(data + 16, 2) != RELOCATABLE || !*gcrt_machine(object->machine))
        return damaged(error, "a relocatable object for x86_64 or aarch64 expected");
    uint64_t at = get(data + 40, 8), names = get(data + 62, 2);
    object->section_count = (size_t)get(data + 60, 2);
    if (get(data + 58, 2) != SECTION_BYTES || !object->section_count || object->section_count >= SPECIAL ||
        at > object->bytes || object->section_count * SECTION_BYTES > object->bytes - at)
        return damaged(error, "the section table lies outside the file");
    int code = read_sections(store, object, at, error);
    if (code)
        return code;
    if (names >= object->section_count)
        return damaged(error, "the section names lie outside the file");
    for (size_t k = 0; k < object->section_count; k++) {
        struct section *section = object->sections + k;
        section->name = string_at(object, (uint32_t)names, get(data + at + k * SECTION_BYTES, 4));
        if (!section->name)
            return damaged(error, "a name lies outside its table, or has no end");
    }
    return read_symbols(object, error);
}

/* Decide which sections stay in memory. */
static int keep_sections(struct object *object, gpucomp_error *error)
{
    for (size_t k = 0; k < object->section_count; k++) {
        struct section *section = object->sections + k;
        if (!(section->flags & ALLOCATED) || strcmp(section->name, ".eh_frame") == 0)
            continue;
        if (section->flags & THREAD_LOCAL)
            return damaged(error, "thread-local storage is not supported");
        if ((section->flags & WRITE) && strcmp(section->name, ".data.rel.ro") != 0 && section->bytes)
            return damaged(error, "a section is writable, which is not allowed");
        section->kept = true;
    }
    return 0;
}

/* Places of the sections: code first, then everything else, on other pages. */
static int place_sections(struct objects *objects)
{
    const uint64_t page = gcrt_page();
    uint64_t at = 0;
    for (int part = 0; part < 2; part++) {
        const bool executable = part == 0;
        for (size_t n = 0; n < objects->count; n++)
            for (size_t k = 0; k < objects->items[n].section_count; k++) {
                struct section *section = objects->items[n].sections + k;
                if (!section->kept || ((section->flags & EXECUTE) != 0) != executable)
                    continue;
                section->place = gcrt_up(at, section->align ? section->align : 1);
                at = section->place + section->bytes;
                if (at > LARGEST)
                    return damaged(objects->error, "sections too large");
            }
        if (executable)
            objects->text_bytes = at = gcrt_up(at, page);
    }
    objects->got_at = objects->got_next = gcrt_up(at, 8);
    return 0;
}

/* Check the tables of relocations; `*entries` is how many of them need an address in a table. */
static int count_entries(const struct object *object, uint64_t *entries, gpucomp_error *error)
{
    for (size_t k = 0; k < object->section_count; k++) {
        const struct section *section = object->sections + k;
        if (section->kind == SHORT_RELATIONS)
            return damaged(error, "relocations without addends are not supported");
        if (section->kind != RELATIONS)
            continue;
        if (section->bytes % RELATION_BYTES)
            return damaged(error, "the size of a relocation table is not a multiple of its entries");
        if (section->info >= object->section_count)
            return damaged(error, "a section of relocations does not exist");
        for (uint64_t at = 0; at < section->bytes; at += RELATION_BYTES) {
            bool got;
            gcrt_relocation_bytes(object->machine, (uint32_t)get(object->data + section->offset + at + 8, 8), &got);
            *entries += got;
        }
    }
    return 0;
}

/* The offset of symbol `number` in the image. */
static int symbol_place(const struct object *object, size_t number, uint64_t *place, gpucomp_error *error)
{
    const uint8_t *symbol = object->symbols + number * SYMBOL_BYTES;
    uint64_t section = get(symbol + 6, 2), value = get(symbol + 8, 8);
    if (section >= object->section_count || !object->sections[section].kept)
        return gcrt_fail(error, GCRT_DAMAGED_CODE, "machine code: symbol '%.100s' is not defined in it",
                         string_at(object, object->names, get(symbol, 4)));
    if (value > object->sections[section].bytes)
        return damaged(error, "a symbol outside its section");
    *place = object->sections[section].place + value;
    return 0;
}

/* The place of the entry that holds `target`. There is one per target: two instructions can share it. */
static uint64_t entry_of(struct objects *objects, struct image *image, uint64_t target)
{
    size_t slot = (size_t)(target * 0x9e3779b97f4a7c15u >> 32) & (objects->slots - 1); /* at least half of them are free */
    while (objects->entries[slot] && get(image->base + objects->entries[slot], 8) != target)
        slot = (slot + 1) & (objects->slots - 1);
    if (!objects->entries[slot]) {
        objects->entries[slot] = objects->got_next;
        set(image->base + objects->got_next, 8, target);
        objects->got_next += 8;
    }
    return objects->entries[slot];
}

static int relocate(struct objects *objects, struct image *image, const struct object *object, const struct section *changed,
                    const uint8_t *entry)
{
    uint64_t offset = get(entry, 8), info = get(entry + 8, 8), addend = get(entry + 16, 8), target, value;
    bool got;
    int bytes = gcrt_relocation_bytes(object->machine, (uint32_t)info, &got);
    if (!bytes)
        return gcrt_fail(objects->error, GCRT_DAMAGED_CODE, "machine code: relocations of type %u are not supported",
                         (unsigned)info);
    if (offset > changed->bytes || (uint64_t)bytes > changed->bytes - offset || changed->kind == NO_BITS)
        return damaged(objects->error, "a relocation lies outside its section");
    if (info >> 32 >= object->symbol_count)
        return damaged(objects->error, "a relocation names no symbol");
    int code = symbol_place(object, (size_t)(info >> 32), &target, objects->error);
    if (code)
        return code;
    uint64_t base = (uint64_t)(uintptr_t)image->base;
    target += base;
    if (got)
        target = entry_of(objects, image, target) + base;
    uint8_t *place = image->base + changed->place + offset;
    if (!gcrt_relocated(object->machine, (uint32_t)info, get(place, bytes), target + addend, (uint64_t)(uintptr_t)place, &value))
        return damaged(objects->error, "the target of a relocation is out of range");
    set(place, bytes, value);
    return 0;
}

static int fill(struct objects *objects, struct image *image, const struct object *object)
{
    for (size_t k = 0; k < object->section_count; k++) {
        const struct section *section = object->sections + k;
        if (section->kept && section->kind != NO_BITS && section->bytes)
            memcpy(image->base + section->place, object->data + section->offset, (size_t)section->bytes);
    }
    for (size_t k = 0; k < object->section_count; k++) {
        const struct section *section = object->sections + k;
        if (section->kind != RELATIONS || !object->sections[section->info].kept)
            continue;
        for (uint64_t at = 0; at < section->bytes; at += RELATION_BYTES) {
            int code = relocate(objects, image, object, object->sections + section->info, object->data + section->offset + at);
            if (code)
                return code;
        }
    }
    return 0;
}

static int by_name(const void *one, const void *other)
{
    return gcrt_order(((const struct symbol *)one)->name, ((const struct symbol *)other)->name);
}

/* Note the global symbols of all objects, sorted by name. */
static int export_symbols(struct store *store, struct objects *objects, struct image *image)
{
    size_t count = 0;
    for (size_t n = 0; n < objects->count; n++)
        count += objects->items[n].symbol_count;
    if (!(image->symbols = gcrt_new(store, count, sizeof *image->symbols)))
        return gcrt_no_memory(objects->error);
    for (size_t n = 0; n < objects->count; n++) {
        const struct object *object = objects->items + n;
        for (size_t k = 0; k < object->symbol_count; k++) {
            const uint8_t *raw = object->symbols + k * SYMBOL_BYTES;
            uint64_t section = get(raw + 6, 2), bytes = get(raw + 16, 8), value = get(raw + 8, 8), place;
            struct text name = gcrt_text(string_at(object, object->names, get(raw, 4)));
            if (raw[4] >> 4 != GLOBAL || !name.count || section >= object->section_count || !object->sections[section].kept)
                continue;
            int code = symbol_place(object, k, &place, objects->error);
            if (code || !gcrt_copy_text(store, &name))
                return code ? code : gcrt_no_memory(objects->error);
            bool whole = value <= object->sections[section].bytes && bytes <= object->sections[section].bytes - value;
            if (place < objects->text_bytes || whole)
                image->symbols[image->symbol_count++] = (struct symbol){name, place, whole ? bytes : 0};
        }
    }
    qsort(image->symbols, image->symbol_count, sizeof *image->symbols, by_name);
    for (size_t k = 1; k < image->symbol_count; k++)
        if (by_name(image->symbols + k - 1, image->symbols + k) == 0)
            return gcrt_fail(objects->error, GCRT_DAMAGED_CODE, "machine code: '%.100s' is defined twice",
                             image->symbols[k].name.at);
    return 0;
}

static int protect(const struct objects *objects, struct image *image)
{
    size_t text = (size_t)objects->text_bytes;
#if defined(__aarch64__)
    __builtin___clear_cache((char *)image->base, (char *)image->base + text);
#endif
    bool failed = text && mprotect(image->base, text, PROT_READ | PROT_EXEC);
    failed = failed || (image->bytes > text && mprotect(image->base + text, image->bytes - text, PROT_READ));
    return failed ? gcrt_fail(objects->error, GCRT_NOT_EXECUTABLE, "cpu: memory cannot be made executable (errno %d)", errno) : 0;
}

static int split(struct store *store, const uint8_t *blob, size_t bytes, struct objects *objects)
{
    size_t at = 0, count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (at = count = 0; at < bytes; count++) {
            uint64_t size = bytes - at >= 8 ? get(blob + at, 8) : UINT64_MAX;
            if (size > bytes - at - 8 || bytes - at < 8)
                return damaged(objects->error, "object longer than the file");
            if (pass)
                objects->items[count] = (struct object){.data = blob + at + 8, .bytes = size};
            at += 8 + (size_t)size;
        }
        if (!count)
            return damaged(objects->error, "empty");
        if (!pass && !(objects->items = gcrt_new(store, count, sizeof *objects->items)))
            return gcrt_no_memory(objects->error);
    }
    objects->count = count;
    return 0;
}

static int read_objects(struct store *store, struct objects *objects, struct image *image, uint64_t *entries)
{
    int code = 0;
    for (size_t n = 0; n < objects->count && code == 0; n++)
        code = read_object(store, objects->items + n, objects->error);
    for (size_t n = 1; n < objects->count && code == 0; n++)
        if (objects->items[n].machine != objects->items[0].machine)
            code = damaged(objects->error, "objects for different machines");
    for (size_t n = 0; n < objects->count && code == 0; n++)
        code = keep_sections(objects->items + n, objects->error);
    if (code == 0)
        code = place_sections(objects);
    for (size_t n = 0; n < objects->count && code == 0; n++)
        code = count_entries(objects->items + n, entries, objects->error);
    if (code)
        return code;
    image->machine = objects->items[0].machine;
    image->bytes = (size_t)gcrt_up(objects->got_at + 8 * *entries, gcrt_page());
    if (image->bytes == 0)
        image->bytes = (size_t)gcrt_page();
    image->code_bytes = (size_t)objects->text_bytes;
    return image->bytes > LARGEST ? damaged(objects->error, "more code than is supported") : 0;
}

int gcrt_load(struct store *store, const uint8_t *blob, size_t bytes, struct image *image, gpucomp_error *error)
{
    struct store scratch = {0};
    struct objects objects = {.error = error};
    uint64_t entries = 0;
    int code = split(&scratch, blob, bytes, &objects);
    if (code == 0)
        code = read_objects(&scratch, &objects, image, &entries);
    for (objects.slots = 1; objects.slots < 2 * entries + 1;)
        objects.slots *= 2;
    if (code == 0 && !(objects.entries = gcrt_new(&scratch, objects.slots, sizeof *objects.entries)))
        code = gcrt_no_memory(error);
    if (code == 0) {
        void *memory = mmap(NULL, image->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        image->base = memory == MAP_FAILED ? NULL : memory;
        code = image->base ? 0 : gcrt_no_memory(error);
    }
    for (size_t n = 0; n < objects.count && code == 0; n++)
        code = fill(&objects, image, objects.items + n);
    if (code == 0)
        code = export_symbols(store, &objects, image);
    if (code == 0)
        code = protect(&objects, image);
    gcrt_free(&scratch);
    return code;
}

void gcrt_unload(struct image *image)
{
    if (image->base)
        munmap(image->base, image->bytes);
    image->base = NULL;
}

const uint8_t *gcrt_address(const struct image *image, struct text name, uint64_t *bytes)
{
    struct symbol wanted = {name, 0, 0};
    const struct symbol *found = bsearch(&wanted, image->symbols, image->symbol_count, sizeof wanted, by_name);
    if (found && bytes)
        *bytes = found->bytes;
    return found ? image->base + found->offset : NULL;
}
