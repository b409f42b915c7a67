/*
 * audit: what the profiler's records say of steps, beside what their stamps say.
 *
 * Four quantities of a step: its length, the union of computation, of communication, and
 * communication beside no computation (exposed). Each is a median over the steps of a rank; the
 * worst rank is the one whose quantities lie farthest apart, as a share of its step. A profiler
 * slows what it watches, so both sides come from the same steps; what watching costs is the ratio of
 * those steps to bare ones of the same minutes. What the stamps say of steps that the profiler did not
 * watch stands beside it (quiet): the stamps of an op hold the launch of its kernel, and a profiled launch takes
 * longer.
 *
 * What the study's own stamps cost is a matter of thousandths, and blocks of a machine differ by more: there
 * each block of steps with them is set against its neighbour without, and the pairs make the interval.
 */
#ifndef ANALYSIS_AUDIT_H
#define ANALYSIS_AUDIT_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/record.h"
#include "analysis/stats.h"

#define AUDIT_ALLOWED 0.02 /* of the step: beyond it stamps and records disagree */

#define AUDIT_QUANTITIES(X)                                                                        \
    X(AUDIT_STEP, step, "step")                                                                    \
    X(AUDIT_COMPUTE, compute, "compute busy")                                                      \
    X(AUDIT_COMM, comm, "communication")                                                           \
    X(AUDIT_EXPOSED, exposed, "exposed communication")

enum audit_quantity {
#define AUDIT_ENUM(name, column, words) name,
    AUDIT_QUANTITIES(AUDIT_ENUM)
#undef AUDIT_ENUM
        AUDIT_COUNT
};
const char *audit_words(int quantity);

struct audit {
    int64_t steps; /* compared, of one rank; 0: there was no audit, or no record fitted a step */
    int64_t lost;  /* records that the profiler dropped */
    int rank;      /* the worst */
    double stamps_ns[AUDIT_COUNT], records_ns[AUDIT_COUNT]; /* of the worst rank */
    double quiet_ns[AUDIT_COUNT]; /* by stamps, without the profiler; NaN: not known */
    enum audit_quantity worst;
    double off;                               /* of the worst quantity: |records - stamps| / step */
    struct stats_interval audit_ratio;        /* audited / bare steps */
    struct stats_interval instrumented_ratio; /* every op stamped / bare */
    struct stats_interval bare_ratio;         /* bare, with the stamps of the study / unstamped */
};

void audit_of_point(struct audit *out, const struct record_point *point, uint64_t seed);

/* One line; false: the point was not audited. */
bool audit_sentence(char *text, size_t size, const struct record_point *point);

#endif
