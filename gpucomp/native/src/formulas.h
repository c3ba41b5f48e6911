#ifndef GCRT_FORMULAS_H
#define GCRT_FORMULAS_H

#include "open_plan.h"

/* Read `steps`, which is a list, after the dimensions. */
int gcrt_read_steps(struct store *store, const struct json *json, struct open_plan *open, gpucomp_error *error);

/* The number of this kind (enum given) for a size. False if it cannot be computed. */
bool gcrt_given(int64_t kind, int64_t size, int64_t *found);
#endif
