/*
 * report_proof: in one sentence, what was proved of the points before they were measured: the
 * correctness gate and the fixed-work proof, or who failed them.
 */
#ifndef ANALYSIS_REPORT_PROOF_H
#define ANALYSIS_REPORT_PROOF_H

#include <stddef.h>

#include "analysis/scaling.h"

/* `between` parts what is said of the gate from what is said of the work: "; ". */
void proof_sentence(char *text, size_t size, const struct scaling *scaling, const char *between);

/* Of the fixed work: "passed" in all runs, "failed" in one of them, "" where none was counted. */
const char *proof_of_work(const struct scaling_row *row);

#endif
