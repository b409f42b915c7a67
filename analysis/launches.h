/*
 * launches: what another launch would give, and which level of variation an interval is made of.
 *
 * Steps of a launch differ, and launches of one point differ by more than their steps explain. Two
 * quantities are easily taken for one another and are kept apart here:
 *
 *   of the mean      where the mean over all launches lies: stats_launches_interval
 *   of a launch      where the mean of ANOTHER launch will fall: wider by far, and what a planner
 *                    who starts one more job meets
 */
#ifndef ANALYSIS_LAUNCHES_H
#define ANALYSIS_LAUNCHES_H

#include "analysis/stats.h"

/* Mean and sample deviation (NaN for one) of the logarithms of k values > 0. */
void launches_log_moments(const double *x, int k, double *mean, double *deviation);

/*
 * mean +- t s sqrt(1 + 1/k) of the logarithms of k launch means, df = k - 1. value is the geometric
 * mean; one launch gives no ends. Means > 0.
 */
void launches_next(const double *means, int k, double level, struct stats_interval *out);

/*
 * One figure of several launches, each with the interval that its launch gives it, as one: the mean
 * over the launches that know it, n their sum. With one or two of them the interval covers variation
 * within a launch only (their distances in quadrature over how many they are; an end that one does not have is
 * unknown); from three on it is the wider of that and a t interval over the launches' values. The
 * rule of stats_launches_interval, for what is not a mean of steps and may be 0 or less, so not on logarithms.
 */
void launches_join(const struct stats_interval *launches, int n, double level,
                   struct stats_interval *out);

enum launches_level {
    LEVEL_STEPS,    /* steps within a launch */
    LEVEL_LAUNCHES, /* between launches */
    LEVELS
};

struct launches_levels {
    double independent;  /* if all steps were independent: what a naive interval would claim */
    double half[LEVELS]; /* half widths of the interval of the mean, as shares of it; NaN unknown */
    double spread;       /* standard deviation of the log of a launch's mean; NaN for one launch */
    int dominant;        /* enum launches_level, -1: one launch, nothing to compare */
    int n_launches;
    int64_t n_steps;
};

void launches_find_levels(const struct stats_series *series, int launches, double level,
                          struct launches_levels *out);

const char *launches_level_name(int level); /* "steps within a launch", "launches" */

#endif
