/*
 * floors: what the work of a step would take at the least on its machine, by the ceilings that
 * "scalestudy calibrate" measured, beside what it took.
 *
 * Work is one kind of op, or the calls of one axis and kind. Its time is the sum over a step on rank 0,
 * the median over the instrumented steps whose ops were kept; a call counts with its shortest time over
 * the ranks of rank 0's group (the transfer, without waiting for late peers; in files that do not name groups, of
 * all that made one). Two figures stand beside it:
 *
 *   alone   the same ops one after the other with nothing beside them, as calibrated: the sum of calls x
 *           fastest sample over the shapes of the kind. Only where the calibration saw as many ops of
 *           that kind in a step, and as many FLOPs of products: else it was other work.
 *   floor   products: their FLOPs at the fastest product of their type that was calibrated, or at the study's own
 *           peak where that is faster; attention: alone (the library's rate at that shape is its ceiling); other ops:
 *           their bytes at the rate of a copy within the device, without those that another op read or
 *           wrote for them (a product that does a GELU, or writes over what was to be zeroed; `alone` in
 *           proportion); a call: the calibrated time of its kind,
 *           ranks and size, linear in log size between two sizes, by the largest one's rate beyond it.
 *
 * `source` says what the floor was made from. NaN: not known, and why.
 */
#ifndef ANALYSIS_FLOORS_H
#define ANALYSIS_FLOORS_H

#include "analysis/record.h"

enum { FLOORS_MOST = 64 };

struct floor_row {
    char axis[16]; /* of calls; "" */
    char kind[32];
    int64_t n; /* ops or calls of a step */
    double ms, alone_ms, floor_ms;
    char source[64];
};

/* Rows of a point, ops first; how many. peak_flops: the study's, NaN. */
int floors_of_point(struct floor_row out[FLOORS_MOST], const struct record_point *point,
                    const struct ceiling_row *ceilings, int64_t n_ceilings, double peak_flops);

#endif
