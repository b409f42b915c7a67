/*
 * collective_line: alpha and B of t = alpha + f S / B over n sizes, relative residuals, both held
 * at or above 0. Internal to collective_fit.
 */
#ifndef ANALYSIS_COLLECTIVE_LINE_H
#define ANALYSIS_COLLECTIVE_LINE_H

#include "analysis/collective_fit.h"

/* bytes, time_us: [n]. Fills all of `out` but `first`. */
void collective_line_fit(const double *bytes, const double *time_us, int n, double factor,
                         struct collective_line *out);

#endif
