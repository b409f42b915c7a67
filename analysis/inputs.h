/*
 * inputs: what a point paid for its samples, from the table of that name.
 *
 * Means over the measured full steps (no warm-up, no lead-in) and ranks. A step is starved when
 * some rank waits for samples for more than 1 % of its own step; a point is, when that is so in
 * over 5 % of its steps. Figures are NaN where no row is.
 *
 * Points that differ in their input alone bound each other. memory - synthetic is what copying
 * batches out of host memory costs beyond making them in place (below 0: making costs more than
 * copying); file - memory is what reading adds: storage, page cache, decoding. No faster copy path or
 * storage can win more than that.
 */
#ifndef ANALYSIS_INPUTS_H
#define ANALYSIS_INPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/scaling.h"

struct inputs {
    int64_t n_steps;                                             /* measured, with rows of inputs */
    double input_ns, wait_ns, read_bytes, cpu_ns, worker_cpu_ns; /* a step and rank */
    double depth;                                                /* fewest ready batches, mean */
    double starved_share;                                        /* of the steps */
    double resident_bytes;                                       /* largest of any rank */
    bool starved;
};
void inputs_of_point(struct inputs *out, const struct record_point *point);

/* Of the launch of a row that waits most. */
struct inputs inputs_of_row(const struct scaling_row *row);

/* The row that `row` is held against: for a file "memory", else "synthetic"; for memory
 * "synthetic"; NULL when the study has none that differs in its input alone. */
const struct scaling_row *inputs_base(const struct scaling *scaling, const struct scaling_row *row);
const struct scaling_row *inputs_synthetic(const struct scaling *scaling,
                                           const struct scaling_row *row);

/* Step time of `row` minus that of `base` in ns, interval from both intervals in quadrature. */
struct stats_interval inputs_gap_ns(const struct scaling_row *row, const struct scaling_row *base);

/* One sentence about the gap of a row; or about a starved run. False and "": nothing to say. */
bool inputs_gap_sentence(char *text, size_t size, const struct scaling *scaling,
                         const struct scaling_row *row);
bool inputs_starved_sentence(char *text, size_t size, const struct record_point *point);

#endif
