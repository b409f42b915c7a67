/*
 * energy: what the GPUs of a point drew and how they were held back, from its telemetry rows.
 *
 * Energy of a token: per block of full steps, the gain of the energy counters of all ranks over the
 * valid tokens of the block, lead-in included; the value is the sum of the one over the sum of the
 * other, its interval a t interval over blocks on logarithms, each block a replicate of its own (other
 * blocks lie between), and never narrower than the age of readings leaves it (energy_steps.h). With fewer than three blocks there is no interval, and it is a counter difference. Warm-up blocks are left out; instrumented ones are taken
 * only where there are no others. Host, network and cooling are not in it: it is what the counter of
 * the GPU (its whole board) says.
 *
 * A point is throttled when moments within its blocks had a reason that throttles (base/nvml.h), or
 * when power limit or heat held clocks down for more than a hundredth of the time of its full blocks.
 */
#ifndef ANALYSIS_ENERGY_H
#define ANALYSIS_ENERGY_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/energy_steps.h"
#include "analysis/record.h"
#include "analysis/stats.h"

#define ENERGY_HELD 0.01 /* share of time held down from which a point counts as throttled */

struct energy {                             /* NAN, -1: not told */
    struct stats_interval joules_per_token; /* n: blocks; NAN ends below three of them */
    double tokens_per_joule;
    double power_w;              /* energy over time of those blocks, sum over ranks */
    int64_t moments;             /* of all ranks, in which clocks were read */
    double sm_mhz, sm_least_mhz; /* median; the lowest */
    double sm_most_mhz;          /* that the GPU can take */
    double memory_mhz;           /* median */
    double limit_w;              /* power limit of one GPU */
    double temperature_c;        /* the highest */
    int64_t reasons;             /* that throttled, all moments */
    double throttled_share;      /* of the moments */
    double power_limited_share, thermal_limited_share; /* of the time of full blocks, worst rank */
    int64_t ecc_corrected, ecc_uncorrected, nvlink_errors; /* sums over ranks */
    struct energy_steps steps;                             /* joules of a step, by kind of block */
};

void energy_of_point(struct energy *out, const struct record_point *point, uint64_t seed);

/* Is there any telemetry in the point? */
bool energy_known(const struct record_point *point);
bool energy_throttled(const struct energy *energy);

/* "throttled: ...", or memory and link errors; false: nothing to warn of. */
bool energy_sentence(char *text, size_t size, const struct energy *energy);

#endif
