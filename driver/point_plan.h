/*
 * point_plan: what a point will execute, before anything runs.
 */
#ifndef DRIVER_POINT_PLAN_H
#define DRIVER_POINT_PLAN_H

#include "driver/job.h"

/* The study's model with the point's sequence, and how it is split and computed. */
void point_policy(const struct job *job, const struct point *point, struct model *model,
                  struct policy *policy);

/* How its tokens come to experts. */
void point_routing(const struct study *study, struct routing *routing);

/* The plan of one rank of a point. */
int point_plan(const struct job *job, const struct point *point, int rank, struct plan *plan);

#endif
