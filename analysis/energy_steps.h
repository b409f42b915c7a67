/*
 * energy_steps: joules of a step of a GPU, by kind of block, and what they say of its time.
 *
 * A GPU at its power limit lowers its clocks until it draws the limit and no more: then a step takes
 * as long as its energy lasts at the limit, and whatever costs energy beside the computation, as
 * communication does, costs time, free multiprocessors or not. Per kind of block:
 *
 *   joules of a step = gain of the energy counter within a block / all steps of it
 *
 * The counter runs from before the lead-in step of a block to behind its last step, so the lead-in is
 * one of the steps, and so is the time in which the block is given out. The value is of the mean GPU,
 * all blocks together; the interval is one over blocks, which lie apart, a t interval on logarithms
 * (stats_launches_interval), never narrower than what the age of a reading leaves (below), and has no
 * ends below three of them. Warm-up is left out. A block counts
 * where every rank has read its counters; one rank that does not tell its energy leaves the kind
 * unknown.
 *
 *   bound  the joules of a full step over the limit of the GPU, of the rank where that is longest: at
 *          this limit and with this work a step cannot take less. Near the step itself, energy is
 *          what decides its length; far below, something else does
 *   comm   instrumented full steps less compute-only steps, which carry the same stamps: each
 *          compute-only block less the full block nearest to it, so that drift falls out (as
 *          account does with their times). It holds the transfers, the waiting for them, and what the
 *          computation takes more beside them. The interval is a t interval over these
 *          pairs, widened likewise. Nothing of it is known of one rank, which has nobody to talk to
 *
 * It is the energy of the GPU's whole board by its own counter, whose accuracy is the vendor's; no
 * host, no network, no cooling. The counter is advanced every ENERGY_PERIOD_S or so (base/nvml.h), which
 * makes a reading up to that much old. Alternations of equal blocks meet it at equal phases again and
 * again, and then blocks agree better than they are known. So an interval reaches at least
 *
 *   1.96 x power x ENERGY_PERIOD_S / sqrt(6) / steps of a block / sqrt(blocks x ranks)
 *
 * to either side: two ages, evenly distributed, each GPU's its own. A block that is shorter than a
 * second, as those of comm-only steps are, also has some of its neighbour in it: see block_ns. How much
 * of the time the limit held clocks down is the driver's word too: it says so in blocks that draw half
 * of the limit, hence the watts beside it.
 */
#ifndef ANALYSIS_ENERGY_STEPS_H
#define ANALYSIS_ENERGY_STEPS_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/record.h"
#include "analysis/stats.h"

#define ENERGY_PERIOD_S 0.1
#define ENERGY_DECIDES 0.9 /* share of a step from which on energy is what decides its length */

enum energy_kind { /* of blocks, as enum account_kind has them */
                   ENERGY_FULL,
                   ENERGY_INSTRUMENTED,
                   ENERGY_COMPUTE,
                   ENERGY_COMM,
                   ENERGY_GRAPH,
                   ENERGY_KINDS
};

struct energy_step {              /* NAN, -1: not told */
    struct stats_interval joules; /* of a step, mean GPU; n: blocks */
    double most_joules;           /* of the GPU that takes most */
    int32_t most_rank;
    double power_w;    /* of a GPU, mean */
    double step_ns;    /* between the readings of rank 0, over steps */
    double block_ns;   /* mean length of a block */
    double held_share; /* of the time, by the power limit, worst rank */
};

struct energy_steps {
    struct energy_step kind[ENERGY_KINDS];
    enum energy_kind full; /* what stands for a full step: instrumented where nothing else is */
    double limit_w;        /* of a GPU, mean */
    double bound_ns;
    double bound_share; /* of a full step of that rank: above 1 by noise of the counter alone */
    int32_t bound_rank;
    struct stats_interval comm_joules; /* n: compute-only blocks */
    double comm_ns;                    /* what they last at the limit */
};

void energy_steps_of_point(struct energy_steps *out, const struct record_point *point,
                           uint64_t seed);

/* That half width for the mean over blocks and ranks of what one block takes on one GPU, in J; and an
 * interval made to reach as far, where it has ends. */
double energy_unread(double power_w, int64_t blocks, int ranks);
void energy_widen(struct stats_interval *interval, double half);

/* Several launches of one point: means, between the lowest and the highest end, the worst of what can
 * be bad. A figure that one of them does not know is not known. */
void energy_steps_join(struct energy_steps *out, const struct energy_steps *const *launches, int n);

/* "full", "compute-only" and so on. */
const char *energy_kind_name(enum energy_kind kind);

/* "held by the power limit ...": where it was for more than half of the time of full blocks by the driver's
 * word, which also says so of blocks that draw half of the limit, and the energy of a full step lasts
 * ENERGY_DECIDES of it at the limit. False: nothing to say. */
bool energy_steps_sentence(char *text, size_t size, const struct energy_steps *steps);

#endif
