/* Checks the members of a file: those that the manifest lists, with their digests, and sources that are text. */
#include <string.h>

#include "digest.h"
#include "model.h"

#define STRINGS "strings.json"

static bool begins_with(struct text text, const char *prefix)
{
    size_t count = strlen(prefix);
    return text.count >= count && memcmp(text.at, prefix, count) == 0;
}

static bool is_manifest(const struct member *member) { return gcrt_same(member->name, gcrt_text(GCRT_MANIFEST)); }

/* The members, without the manifest, are those that it lists. */
static int check_names(const gpucomp_model *model, const struct container *container, const struct json *expected,
                       gpucomp_error *error)
{
    size_t at = 0;
    const struct text *unlike = NULL;
    struct text listed;
    for (size_t k = 0; k < container->count && !unlike; k++) { /* both are in the order of their names */
        const struct member *member = container->members + k;
        if (is_manifest(member))
            continue;
        int order = 1;
        if (at < expected->count) {
            listed = gcrt_json_text(expected->as.items + 2 * at);
            order = gcrt_order(listed, member->name);
        }
        if (order)
            unlike = order < 0 ? &listed : &member->name;
        at++;
    }
    if (!unlike && at < expected->count) {
        listed = gcrt_json_text(expected->as.items + 2 * at);
        unlike = &listed;
    }
    if (unlike)
        return gcrt_fail(error, GCRT_WRONG_DIGEST, "%s: member %s is missing or not listed", QUOTE(model->path), QUOTE(*unlike));
    return 0;
}

static int check_member(const gpucomp_model *model, const struct member *member, const struct json *expected, const char *digits,
                        gpucomp_error *error)
{
    const struct json *bytes = expected->kind == JSON_TABLE ? gcrt_json_find(expected, "bytes") : NULL;
    const struct json *digest = bytes && expected->count == 2 ? gcrt_json_find(expected, "sha256") : NULL;
    static const char *const known[] = {GCRT_WEIGHTS, STRINGS, GCRT_DYNAMIC_MODEL};
    bool named = begins_with(member->name, GCRT_SOURCES) || begins_with(member->name, GCRT_BINARIES);
    for (int k = 0; k < 3; k++)
        named = named || gcrt_same(member->name, gcrt_text(known[k]));
    if (!named)
        return gcrt_fail(error, GCRT_WRONG_MANIFEST, "%s: member %s is unknown", QUOTE(model->path), QUOTE(member->name));
    bool same = digest && digest->kind == JSON_TEXT && bytes->kind == JSON_INTEGER &&
        (uint64_t)bytes->as.integer == member->bytes && gcrt_same(gcrt_json_text(digest), gcrt_text(digits));
    return same ? 0
                : gcrt_fail(error, GCRT_WRONG_DIGEST, "%s: member %s is damaged: its digest differs", QUOTE(model->path),
                            QUOTE(member->name));
}

/* The digest of each member: those of the others beside that of the weights, which are by far the most of a file. */
static void digest_all(const struct container *container, const struct member *weights, char (*digits)[65])
{
    bool fast = gcrt_has_sha();
    struct digest longest = gcrt_digest(weights->data, (size_t)weights->bytes, fast);
    for (size_t k = 0; k < container->count; k++) {
        const struct member *member = container->members + k;
        if (member == weights || is_manifest(member))
            continue;
        struct digest digest = gcrt_digest(member->data, (size_t)member->bytes, fast);
        gcrt_digest_both(&longest, &digest);
        gcrt_digest_end(&digest, digits[k]);
    }
    gcrt_digest_end(&longest, digits[weights - container->members]);
}

int gcrt_check_members(const gpucomp_model *model, struct store *scratch, const struct container *container,
                       const struct json *expected, gpucomp_error *error)
{
    int code = check_names(model, container, expected, error);
    if (code)
        return code;
    const struct member *weights = gcrt_member(container, "", gcrt_text(GCRT_WEIGHTS));
    if (!weights)
        return gcrt_fail(error, GCRT_WRONG_MANIFEST, "%s: it has no " GCRT_WEIGHTS, QUOTE(model->path));
    char(*digits)[65] = gcrt_new(scratch, container->count, sizeof *digits);
    if (!digits)
        return gcrt_no_memory(error);
    digest_all(container, weights, digits);
    size_t at = 0;
    for (size_t k = 0; k < container->count && code == 0; k++)
        if (!is_manifest(container->members + k))
            code = check_member(model, container->members + k, expected->as.items + 2 * at++ + 1, digits[k], error);
    return code;
}

/* Whether bytes are UTF-8 (RFC 3629): no overlong forms, no surrogates. */
static bool is_utf8(const uint8_t *at, uint64_t count)
{
    const uint8_t *end = at + count;
    while (at < end) {
        uint64_t eight;
        for (; end - at >= 8; at += 8) {
            memcpy(&eight, at, sizeof eight);
            if (eight & 0x8080808080808080)
                break;
        }
        if (at == end)
            break;
        unsigned first = *at++, least = 0x80, most = 0xbf;
        int more = first < 0x80 ? 0 : first < 0xc2 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : -1;
        if (more < 0 || end - at < more)
            return false;
        least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : least;
        most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : most;
        for (; more; more--, at++, least = 0x80, most = 0xbf)
            if (*at < least || *at > most)
                return false;
    }
    return true;
}

int gcrt_check_kernels(const gpucomp_model *model, const struct container *container, gpucomp_error *error)
{
    for (size_t k = 0; k < container->count; k++) {
        const struct member *member = container->members + k;
        const size_t before = strlen(GCRT_SOURCES);
        if (begins_with(member->name, GCRT_SOURCES) && !is_utf8(member->data, member->bytes))
            return gcrt_fail(error, GCRT_WRONG_MANIFEST, "%s: source %s is not text", QUOTE(model->path),
                             QUOTE(((struct text){member->name.at + before, member->name.count - before})));
    }
    for (size_t p = 0; p < model->program_count; p++) {
        struct list kernels = model->programs[p].plan.kernels;
        for (size_t k = 0; k < kernels.count; k++) {
            const struct kernel *kernel = ITEMS(kernels, struct kernel) + k;
            if (!gcrt_member(container, GCRT_SOURCES, kernel->source))
                return gcrt_fail(error, GCRT_WRONG_MANIFEST, "%s: kernel '%s': no source '%s'", QUOTE(model->path),
                                 kernel->name.at, kernel->source.at);
            if (!gcrt_member(container, GCRT_BINARIES, kernel->binary))
                return gcrt_fail(error, GCRT_WRONG_MANIFEST, "%s: kernel '%s': no binary '%s'", QUOTE(model->path),
                                 kernel->name.at, kernel->binary.at);
        }
    }
    return 0;
}

void gcrt_give_back_members(const gpucomp_model *model, const struct container *container)
{
    const struct member *weights = gcrt_member(container, "", gcrt_text(GCRT_WEIGHTS));
    const uint8_t *begin = model->mapped.data;
    if (!begin)
        return;
    if (model->large) {
        gcrt_give_back(begin, model->mapped.bytes);
        return;
    }
    size_t before = (size_t)(weights->data - begin), behind = before + (size_t)weights->bytes;
    gcrt_give_back(begin, before);
    gcrt_give_back(begin + behind, model->mapped.bytes - behind);
}
