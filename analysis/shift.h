/*
 * shift: whether a launch kept its pace.
 *
 * Two alternatives to a series that stays where it is, both against what autocorrelated noise does
 * by chance: a drift (straight line over the whole series; t with the long-run variance) and one
 * change of level (CUSUM, whose largest excursion follows Kolmogorov's distribution). When both
 * are beyond chance the one that leaves less unexplained is flagged. Nothing below `SHIFT_SHARE`
 * of the mean is: significance alone is nobody's concern.
 */
#ifndef ANALYSIS_SHIFT_H
#define ANALYSIS_SHIFT_H

#include <stdint.h>

enum { SHIFT_SAMPLES = 20 /* fewer say nothing */ };

#define SHIFT_SHARE 0.005

enum shift_kind { SHIFT_NONE, SHIFT_DRIFT, SHIFT_CHANGE };

struct shift {
    enum shift_kind kind;
    double drift;   /* end - begin of the line, as a share of the mean */
    double drift_p; /* chance of such a slope without drift */
    double change;  /* mean after over mean before, - 1 */
    double change_p;
    int64_t change_at; /* first sample after the change; -1: none sought */
};

/* NaN and SHIFT_NONE for fewer than SHIFT_SAMPLES. */
void shift_find(const double *x, int64_t n, struct shift *out);

#endif
