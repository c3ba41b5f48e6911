/* Runs of a model that another program wrote (script.py): their sizes, their inputs, and how large their outputs are. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64
#define LINE 64

struct tensor {
    size_t rank, bytes;
    const int64_t *extents;
    void *data;
};

struct step {
    int anew; /* whether the states begin anew */
    size_t size_count, input_count, output_count;
    const int64_t *sizes;
    struct tensor tensors[MOST]; /* inputs, then outputs */
};

struct script {
    size_t count;
    struct step *steps;
};

static inline void *memory_of(size_t bytes)
{
    void *memory = aligned_alloc(LINE, (bytes + LINE) / LINE * LINE);
    if (!memory) {
        fputs("no memory\n", stderr);
        exit(1);
    }
    memset(memory, 0xA5, (bytes + LINE) / LINE * LINE);
    return memory;
}

static inline char *whole_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *content = memory_of(*bytes);
    if (fread(content, 1, *bytes, file) != *bytes)
        exit(1);
    fclose(file);
    return content;
}

/* Numbers are int64, and the content of each input begins at a multiple of LINE. */
static inline struct script read_script(const char *path)
{
    size_t bytes, at = 0;
    char *content = whole_file(path, &bytes);
    const int64_t *words = (const int64_t *)(const void *)content;
    struct script script = {(size_t)words[at++], NULL};
    script.steps = memory_of(script.count * sizeof *script.steps);
    for (struct step *step = script.steps; step < script.steps + script.count; step++) {
        step->anew = (int)words[at++];
        step->size_count = (size_t)words[at++];
        step->sizes = words + at;
        at += step->size_count;
        step->input_count = (size_t)words[at++];
        step->output_count = (size_t)words[at++];
        for (size_t k = 0; k < step->input_count + step->output_count; k++) {
            struct tensor *tensor = step->tensors + k;
            tensor->rank = (size_t)words[at++];
            tensor->extents = words + at;
            at += tensor->rank;
            tensor->bytes = (size_t)words[at++];
            if (k < step->input_count) {
                at = (at * sizeof *words + LINE - 1) / LINE * LINE / sizeof *words;
                tensor->data = content + at * sizeof *words;
                at += (tensor->bytes + sizeof *words - 1) / sizeof *words;
            } else {
                tensor->data = memory_of(tensor->bytes);
            }
        }
    }
    return script;
}

/* The outputs of all runs, one after the other. */
static inline int write_results(const struct script *script, const char *path)
{
    FILE *file = fopen(path, "wb");
    int wrong = !file;
    for (const struct step *step = script->steps; step < script->steps + script->count && !wrong; step++)
        for (size_t k = 0; k < step->output_count; k++) {
            const struct tensor *tensor = step->tensors + step->input_count + k;
            wrong |= fwrite(tensor->data, 1, tensor->bytes, file) != tensor->bytes;
        }
    wrong |= !file || fclose(file) != 0;
    if (wrong)
        fprintf(stderr, "%s cannot be written\n", path);
    return wrong;
}

#endif
