/*
 * report_energy_steps: where the energy of a step of a row goes, as text and JSON.
 */
#ifndef ANALYSIS_REPORT_ENERGY_STEPS_H
#define ANALYSIS_REPORT_ENERGY_STEPS_H

#include <stdio.h>

#include "analysis/account.h"
#include "analysis/report.h"

/* A line per row that has telemetry and kind of block, and below a sentence for each row that its power
 * limit held. The caller knows that some row has telemetry. */
void report_energy_steps_text(FILE *to, const struct scaling *scaling);

/*
 * Tokens of a joule at a row over those at the base of eff_device, that of its set: 1 where more GPUs
 * take no more energy for the same tokens. All launches of either, shared or not. NaN where there is no
 * base or one of the two does not tell.
 */
double report_energy_efficiency(const struct scaling *scaling, const struct scaling_row *row);

/* Into the object of a run; nothing of a run without telemetry. */
struct json_t;
void report_energy_steps_json(struct json_t *run, const struct account *account);

#endif
