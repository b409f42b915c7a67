/*
 * report_energy: what the GPUs of a row drew, and how an audit judged its stamps.
 */
#ifndef ANALYSIS_REPORT_ENERGY_H
#define ANALYSIS_REPORT_ENERGY_H

#include <stdio.h>

#include "analysis/audit.h"
#include "analysis/energy.h"
#include "analysis/report.h"

/*
 * Of all launches of a row: the mean of their energies of a token with the interval of that mean (launches_join);
 * the worst of what can be bad. Everything not told: no launch has telemetry.
 */
struct energy report_energy(const struct scaling_row *row);

/* Its cells: blocks behind the interval, "95 %" or "counter difference"; "no" or the reasons in words,
 * "" where nobody told (overwritten by the next call). */
int64_t report_joules_n(const struct scaling_row *row);
const char *report_joules_interval(const struct scaling_row *row);
const char *report_throttled(const struct scaling_row *row);

/* Of the launch whose audit is worst, with the ratios of all that were audited; steps 0: none was. */
struct audit report_audit(const struct scaling_row *row);
double report_audit_off(const struct scaling_row *row); /* % of the step */

/* A table, a line per row that has telemetry; nothing where none has. The same for audits. */
void report_energy_text(FILE *to, const struct scaling *scaling);
void report_audit_text(FILE *to, const struct scaling *scaling);
void report_audit_calls_text(FILE *to, const struct scaling *scaling); /* of its single calls */

#endif
