/*
 * goodput_plan: expected goodput against nodes and interval, under a stated failure law.
 *
 * A row is one node count: the job's MTBF, what saves and failures cost there, the interval that is best
 * by each model, and what g says of it. g is the renewal model of goodput_model.h; the time between
 * saves that it counts as useful is time in steps, so that g times the share of a step that is useful
 * compares with measured goodput. low and high: the worst and the best corner of all intervals,
 * law and costs, at the same interval between saves (g is monotone in each of them).
 *
 * regret: the most that the chosen interval loses against the one that would be best if an end of the law's
 * and of the costs' intervals were the truth. An interval that is not known precisely is rarely wrong by
 * much, and where it may be, this says so.
 */
#ifndef ANALYSIS_GOODPUT_PLAN_H
#define ANALYSIS_GOODPUT_PLAN_H

#include "analysis/goodput_costs.h"
#include "analysis/goodput_law.h"

enum { GOODPUT_ASKED = 16 };

/* An interval between saves, by whom, and what comes of it. */
struct goodput_choice {
    char name[32];           /* young, daly, exact, async, steps, run, local, global, asked */
    double tau_s;            /* useful time between saves; NaN: not known, or outside */
    double steps;            /* the same in steps, NaN: the step is not known */
    struct stats_interval g; /* NaN: saves would overlap */
    double first_order, product, ettr, runtime; /* NaN: outside their validity, or not known */
    unsigned outside;                           /* 1 << OUTSIDE_x: what is NaN for that reason */
    struct stats_interval mtbf_s;               /* of the failures that these saves are for */
    struct goodput_figure cost, complete;       /* of one of them: d_b, d_c */
    double local_s, local_share;                /* of both levels of two; NaN: saves of one level */
};
enum { OUTSIDE_TAU, OUTSIDE_FIRST, OUTSIDE_PRODUCT, OUTSIDE_ETTR, OUTSIDE_RUNTIME, OUTSIDES };

enum { CHOICE_YOUNG, CHOICE_DALY, CHOICE_EXACT, CHOICE_ASYNC, CHOICE_STEPS, CHOICE_RUN };
enum { GOODPUT_CHOICES = CHOICE_RUN + 1 + 2 + GOODPUT_ASKED }; /* 2: local, global */

struct goodput_row {
    struct goodput_at at;
    bool planned; /* else `why` */
    char why[256];
    struct stats_interval mtbf_s;
    int n_choices; /* the optima, then those that the study and the options name */
    struct goodput_choice choices[GOODPUT_CHOICES];
    int best;            /* index into choices: steps where the step is known, else async */
    double regret;       /* NaN: nothing has an interval, or MTBF one end alone */
    double in_steps;     /* useful share of a step's time, as a run measured; NaN */
    double tokens_per_s; /* that are kept at `best`; NaN */
};

/* Intervals that were asked for: seconds, or steps. */
struct goodput_asked {
    int n;
    double value[GOODPUT_ASKED];
    bool is_steps[GOODPUT_ASKED];
};

struct goodput_plan {
    struct goodput_known known;
    const struct goodput_law *law;
    int n_rows;
    struct goodput_row *rows; /* owned */
};

void goodput_plan_make(struct goodput_plan *out, const struct goodput_known *known,
                       const struct goodput_law *law, const double *nodes, int n_nodes,
                       const struct goodput_asked *asked);
void goodput_plan_release(struct goodput_plan *plan);

/* g and the other forms of a row at one interval. */
void goodput_choice_at(struct goodput_choice *out, const struct goodput_row *row, double tau_s);

/* Kept tokens a second; NaN where the step is carried: it counts steps between saves well enough, but as
 * a rate it would be perfect weak scaling, which nobody measured. */
double goodput_plan_tokens(const struct goodput_row *row, const struct goodput_choice *choice);

#endif
