/*
 * goodput_storage: how fast N nodes save at once.
 *
 * Nodes that save together are limited by their own paths until the storage they share is full:
 *
 *     rate(N) = min(N B_node, B_shared)
 *
 * in bytes/s from the call until publication. What fails later costs time in proportion to seconds, so
 * the mean that counts is the arithmetic one of d_c / bytes: the rate of a node count is its bytes over its
 * mean seconds, as d_c is where it was measured, and never a geometric mean of rates. The fit is least squares
 * of relative residuals, (d_c / bytes) rate - 1 within a node count and log rate between them, of the single
 * saves of two or more node counts. The best parameters belong to one split of the sorted points, the
 * first on the slope and the rest on the plateau, so that all splits are tried and the minimum is the
 * global one. A limit is only believed when the plateau explains the rates better than the slope
 * alone beyond chance (F test, 5 %, saves taken as independent); else the storage showed none, and
 * B_shared is known to be at least the largest rate that was measured. Likewise B_node when the rate
 * did not grow. Intervals: 95 % t of these residuals, n saves; NaN without a degree of freedom.
 */
#ifndef ANALYSIS_GOODPUT_STORAGE_H
#define ANALYSIS_GOODPUT_STORAGE_H

#include <stdbool.h>

#include "analysis/stats.h"

enum { STORAGE_SIZES = 16 };

struct goodput_save { /* one save of all ranks */
    double nodes, bytes, seconds;
};

struct goodput_storage {
    int n_sizes, n_saves;
    double fewest, most;              /* node counts that saved */
    struct stats_interval node_per_s; /* B_node; unseen: value NaN, low = what is known */
    struct stats_interval shared_per_s;
    bool node_seen, shared_seen; /* false: a bound only */
    double worst;                /* largest |rate of a size / model - 1| */
    bool assumed;                /* from options, nothing was fitted */
};

/* False when the saves have fewer than two node counts (or more than STORAGE_SIZES). */
bool goodput_storage_fit(struct goodput_storage *out, const struct goodput_save *saves, int n);

/* From options, bytes/s; shared 0: no limit. */
void goodput_storage_assume(struct goodput_storage *out, double node_per_s, double shared_per_s);

/*
 * Seconds for `bytes` of all nodes. Low and high: from the intervals of the rates; where no limit was
 * seen and N is beyond the largest that saved, high is as if the limit began right there.
 */
struct stats_interval goodput_storage_seconds(const struct goodput_storage *storage, double nodes,
                                              double bytes);

#endif
