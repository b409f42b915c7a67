/*
 * import_steps: step times of a log, in bounded memory.
 *
 * Up to IMPORT_STEPS samples are kept as they come. Beyond that neighbours are averaged in pairs,
 * again and again: each sample is then the mean of `group` steps. The mean is exact all the while,
 * and what an interval of block means says stays true; quantiles of single steps are gone, which
 * is why `group` is printed.
 */
#ifndef ANALYSIS_IMPORT_STEPS_H
#define ANALYSIS_IMPORT_STEPS_H

#include <stdint.h>

enum { IMPORT_STEPS = 1 << 16 };

struct import_steps {
    int64_t n, room;
    double *x;      /* [n] s */
    int64_t group;  /* steps behind a sample */
    int64_t filled; /* steps in the sample that is being filled */
    double sum;
};

void import_steps_add(struct import_steps *steps, double step_s);
void import_steps_release(struct import_steps *steps);

#endif
