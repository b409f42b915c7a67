/*
 * point_memory: what a rank of a point will take, whether its device has that, and what it took.
 *
 * The prediction is workloads/memory's: the arenas of the plan and what the executor and the proof of
 * collectives add. Rows of table `memory` put it beside what the device counted.
 */
#ifndef DRIVER_POINT_MEMORY_H
#define DRIVER_POINT_MEMORY_H

#include "driver/execute.h"
#include "driver/job.h"
#include "workloads/memory.h"

enum { POINT_PROVE_ELEMENTS = 1 << 18 }; /* of the largest call that is proved */

/* Bytes of a GPU that nobody uses: a driver keeps some hundreds of MiB. */
#define POINT_MEMORY_OF_DRIVER (INT64_C(1) << 30)

/* What this rank will hold at its peak; `scratch`: the copies for the variants are taken. */
void point_memory(const struct job *job, const struct plan *plan, bool scratch, struct memory *out);

/*
 * Before anything is allocated. FAIL_USAGE when what the ranks of the point on a host take exceeds
 * its memory, or what a rank and the libraries of a GPU take exceeds that GPU's, or what of it was free
 * when the job began, or the memory of the
 * machine whose time a timed device keeps; both sizes are said, and what takes most. Scratch copies
 * count on a host; on a GPU variants do without them where there is no room.
 */
int point_fits(const struct job *job, const struct point *point, const struct plan *plan);

/* Bytes of the GPU of a rank of the point that were held when the job began, more than a driver keeps for
 * itself: the most, and the rank; 0: none, or not known. */
int64_t point_memory_foreign(const struct job *job, const struct point *point, int *rank);

/* Rows of this rank: each class, what kernels took, all, the process. */
void point_memory_rows(const struct job *job, const struct plan *plan, struct execute *execute,
                       struct record_point *to);

#endif
