/*
 * import_group: rows become series.
 *
 * Rows of one curve share model, device, precision, fabric, node shape, sequence, peak, FLOP
 * convention, and dense or MoE. A column `series` says which rows belong together, and then a field
 * that differs is refused by its name; without it rows that differ start another series. N must
 * increase within a file; equal N are launches of one point when a column `run`, or the file,
 * tells them apart.
 *
 * Strong when the global batch is the same, weak when it follows N; when neither, rows of equal
 * batch form strong curves. When parameters or layers change with N the series is work-normalised,
 * W = parameters x sequences a step, and refused as strong; without parameters and batch it is
 * refused altogether. tp, pp, cp or ep that change with N make a best-layout curve.
 */
#ifndef ANALYSIS_IMPORT_GROUP_H
#define ANALYSIS_IMPORT_GROUP_H

#include "analysis/import.h"

/* `mode`: "auto", "strong" or "weak", for tables without a column for it. Fills import->set from
 * import->rows, and checks identities. FAIL_USAGE with the field or N named. */
int import_group(struct import *import, const char *mode);

/* For import_group: rows of one series, in order of N, as points. */
int import_make_series(struct import *import, struct import_row *const *rows, int n,
                       enum series_mode mode, const char *name);

bool import_is_moe(const struct import_row *row);
double import_shape(const struct import_row *row); /* devices a node; NaN */
double import_n(const struct import_row *row);     /* devices, or nodes where only they are known */

#endif
