/*
 * import_check: figures of one row that must agree, and do not.
 *
 * Every identity is one row of a table in import_check.c. Two sides agree when they differ by no
 * more than the printed digits of all figures allow (half a unit of the last digit each) and
 * 0.01 %. What does not agree is a note with both numbers; nothing is changed.
 */
#ifndef ANALYSIS_IMPORT_CHECK_H
#define ANALYSIS_IMPORT_CHECK_H

#include "analysis/import.h"

/* Returns how many identities of the row were violated. */
int import_check_row(struct import *import, const struct import_row *row);

/* Dense peak of the row in TFLOP/s: its own, or a data sheet's; NaN. */
double import_peak(const struct import_row *row, const char **source);

/* What the model's FLOPs of a step are by this row, and with recompute; NaN unknown. */
double import_flops(const struct import_row *row, const char **convention);
double import_hardware_flops(const struct import_row *row);
/* What a printed TFLOP/s counts: with recompute where the row says that there was any. */
double import_counted_flops(const struct import_row *row);

/* Derived figures: NaN where a part is missing. */
double import_devices(const struct import_row *row);
double import_batch(const struct import_row *row); /* sequences a step */
double import_tokens_per_step(const struct import_row *row);

#endif
