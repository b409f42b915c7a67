/*
 * goodput_steps: what a step takes on one node count, over all launches that were named.
 *
 * Several files, or launches of one file, measured the same point. A run (--run-steps) is one launch
 * here, and where there are runs of a node count they count alone: their steps have the waits of training
 * in them, which timed ones do not. Each launch weighs the same. The interval is that of the mean: of one
 * launch its own (a run has none), of two and more at least t over launches, as for runs throughout. What
 * is forecast from several node counts moves each of them by what its launches differ by (`spread`).
 */
#ifndef ANALYSIS_GOODPUT_STEPS_H
#define ANALYSIS_GOODPUT_STEPS_H

#include "analysis/forecast.h"
#include "analysis/goodput_study.h"

struct goodput_steps {
    double nodes, tokens; /* of a step: mean over points */
    bool weak;
    int launches;
    struct stats_interval step_s; /* n: steps, all launches */
    struct forecast_spread spread;
};

/* False: no step is known there. `crowded`: take points with more ranks than cores too. */
bool goodput_steps_at(struct goodput_steps *out, const struct goodput_study *study, int kind,
                      double nodes, bool crowded);

#endif
