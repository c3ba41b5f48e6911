/* States of a model in a context. */
#ifndef GCRT_STATES_H
#define GCRT_STATES_H

#include "context.h"

/* The sizes of dimensions that states decide, and of those that nothing does. GPC2111, GPC2112. */
int gcrt_sizes_of_states(gpucomp_context *context, int64_t *sizes, gpucomp_error *error);

/* Before a run: states of another shape begin anew. GPC2118 for a state without room, GPC5020 for one of more memory. */
int gcrt_begin_states(gpucomp_context *context, const struct form *form, gpucomp_error *error);
void gcrt_end_states(gpucomp_context *context, const struct form *form);

/* The bytes of a buffer's shape at a form's sizes. */
uint64_t gcrt_shape_bytes(const struct form *form, const struct buffer *buffer);
#endif
