/*
 * expert_load: how evenly the tokens of a step came to experts, as rows of the study file.
 */
#ifndef DRIVER_EXPERT_LOAD_H
#define DRIVER_EXPERT_LOAD_H

#include "driver/execute.h"
#include "driver/job.h"

/*
 * One step from the state of the generator, which is there again afterwards; what its routing
 * counted, summed over ranks, goes to the rows of rank 0. With kernels without numerics the counts
 * are those of the definition (balanced, skewed), or there are no rows (learned). Nothing for a
 * dense model. Collective over the point.
 */
int expert_load(struct execute *execute, const struct model *model, const struct policy *policy,
                uint64_t seed, const void *parent, struct record_point *out);

#endif
