/*
 * point_row: who belongs to a point, and what its row in the study file says before it runs.
 */
#ifndef DRIVER_POINT_ROW_H
#define DRIVER_POINT_ROW_H

#include "analysis/record.h"
#include "driver/job.h"

/* Rank in the point of a rank of the job, -1 outside. Node n of the layout holds the job's ranks
 * [n G, (n + 1) G); a point takes the first ranks of its first nodes. */
int point_rank(const struct job *job, const struct point *point, int rank);

/* Members that may use one core only, which computation and communication then share. */
int point_bound_to_one_core(const struct job *job, const struct point *point);

/* Layout, work, device, emulation, oversubscription; results stay zero. */
void point_describe(const struct job *job, const struct point *point, const struct plan *plan,
                    const struct model *model, int order, struct point_row *row);

/* Fill a text column: cut where it is too long, always terminated. */
void point_text(char *to, size_t size, const char *from);

/* A row of `events`: of the whole point (rank -1), at a time on the study's clock. */
void point_event(struct record_point *rows, const char *kind, int64_t at_ns, const char *words);

#endif
