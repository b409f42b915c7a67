/*
 * interval: unions and intersections of stretches of time.
 */
#ifndef DRIVER_INTERVAL_H
#define DRIVER_INTERVAL_H

#include <stdint.h>

struct interval {
    int64_t begin, end;
};

/* Merge in place; returns how many remain, disjoint and in order. */
int interval_merge(struct interval *list, int n);

/* Sum of lengths. */
int64_t interval_length(const struct interval *list, int n);

/* Length of the intersection of two disjoint, ordered lists. */
int64_t interval_common(const struct interval *a, int n_a, const struct interval *b, int n_b);

#endif
