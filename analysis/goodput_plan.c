#include "analysis/goodput_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- corners ---- */

enum corner { BEST, VALUE, WORST };

static double pick(const struct stats_interval *x, enum corner corner, bool more_is_worse)
{
    double end = corner == VALUE ? x->value : (corner == WORST) == more_is_worse ? x->high : x->low;
    return isnan(end) ? x->value : end;
}

static double known_or_zero(double x)
{
    return isnan(x) ? 0.0 : x;
}

static struct goodput_costs costs_of(const struct goodput_at *at, enum corner corner)
{
    return (struct goodput_costs){.cost_s = pick(&at->cost.x, corner, true),
                                  .complete_s = pick(&at->complete.x, corner, true),
                                  .detect_s = known_or_zero(pick(&at->detect.x, corner, true)),
                                  .restart_s =
                                      fmax(known_or_zero(pick(&at->restart.x, corner, true)), 0.0)};
}

/* Where saves are slower than planned, the next one waits for the last. */
static double corner_goodput(const struct goodput_row *row, double tau_s, enum corner corner)
{
    struct goodput_costs c = costs_of(&row->at, corner);
    return goodput_renewal(pick(&row->mtbf_s, corner, false), fmax(tau_s, c.complete_s - c.cost_s),
                           &c);
}

static bool has_range(const struct goodput_row *row)
{
    const struct goodput_at *at = &row->at;
    const struct stats_interval *all[] = {&row->mtbf_s, &at->cost.x, &at->complete.x, &at->detect.x,
                                          &at->restart.x};
    for (int i = 0; i < 5; i++)
        if (isfinite(all[i]->low) || isfinite(all[i]->high))
            return true;
    return false;
}

/* A share of wall time is one from 0 to 1. */
static double form(struct goodput_choice *c, int which, double x)
{
    if (isnan(x) || (x >= 0.0 && x <= 1.0))
        return x;
    c->outside |= 1u << which;
    return NAN;
}

void goodput_choice_at(struct goodput_choice *out, const struct goodput_row *row, double tau_s)
{
    struct goodput_costs c = costs_of(&row->at, VALUE);
    double m = row->mtbf_s.value, g = goodput_renewal(m, tau_s, &c);
    out->mtbf_s = row->mtbf_s;
    out->cost = row->at.cost;
    out->complete = row->at.complete;
    out->local_s = out->local_share = NAN;
    out->tau_s = tau_s;
    out->steps = tau_s / row->at.step.x.value;
    out->g = (struct stats_interval){g, NAN, NAN, 0};
    if (isfinite(g) && has_range(row)) {
        out->g.low = corner_goodput(row, tau_s, WORST);
        out->g.high = corner_goodput(row, tau_s, BEST);
    }
    /* A count of no failures bounds MTBF from below alone: so it does g. */
    if (isfinite(row->mtbf_s.low) && isnan(row->mtbf_s.high))
        out->g.high = NAN;
    out->outside = 0;
    out->first_order = form(out, OUTSIDE_FIRST, goodput_first_order(m, tau_s, &c));
    out->product = form(out, OUTSIDE_PRODUCT, goodput_product(m, tau_s, &c));
    out->ettr = form(out, OUTSIDE_ETTR, goodput_ettr(m, tau_s, &c));
    out->runtime = form(out, OUTSIDE_RUNTIME, goodput_runtime(m, tau_s, &c));
}

/* ---- a row ---- */

static struct goodput_choice *add(struct goodput_row *row, const char *name, double tau_s)
{
    struct goodput_choice *c = &row->choices[row->n_choices++];
    *c = (struct goodput_choice){.tau_s = tau_s};
    snprintf(c->name, sizeof c->name, "%s", name);
    goodput_choice_at(c, row, tau_s);
    return c;
}

static void add_optima(struct goodput_row *row)
{
    struct goodput_costs c = costs_of(&row->at, VALUE);
    double m = row->mtbf_s.value, step = row->at.step.x.value;
    bool young = goodput_young_holds(m, c.cost_s);
    add(row, "young", young ? goodput_tau_young(m, c.cost_s) : (double)NAN);
    if (!young)
        row->choices[CHOICE_YOUNG].outside = 1u << OUTSIDE_TAU;
    add(row, "daly", goodput_tau_daly(m, c.cost_s));
    add(row, "exact", goodput_tau_exact(m, c.cost_s));
    add(row, "async", goodput_tau_async(m, &c));
    row->best = CHOICE_ASYNC;
    if (step > 0.0) {
        int64_t k = goodput_steps(m, step, &c, NULL);
        add(row, "steps", (double)k * step);
        row->best = CHOICE_STEPS;
    }
}

/* Failures of one level: a share of all. */
static struct stats_interval rarer(struct stats_interval mtbf_s, double share)
{
    mtbf_s.value /= share;
    mtbf_s.low /= share;
    mtbf_s.high /= share;
    return mtbf_s;
}

/* Two levels together have a first order, and nothing exact here. A local save counts from its call on. */
static void add_levels(struct goodput_row *row, const struct goodput_given *given)
{
    static const char *const names[] = {"local", "global"};
    struct goodput_costs c = costs_of(&row->at, VALUE);
    struct goodput_levels levels;
    if (!(given->local_s > 0.0))
        return;
    goodput_two_levels(&levels, row->mtbf_s.value, row->at.step.x.value, &c, given->local_s,
                       given->local_share);
    for (int i = 0; i < 2; i++) {
        struct goodput_choice *choice =
            add(row, names[i], i == 0 ? levels.local_s : levels.global_s);
        choice->g = (struct stats_interval){NAN, NAN, NAN, 0};
        choice->product = choice->ettr = choice->runtime = NAN;
        choice->outside = 0;
        choice->first_order = form(choice, OUTSIDE_FIRST, levels.first_order);
        choice->local_s = given->local_s;
        choice->local_share = given->local_share;
        choice->mtbf_s = rarer(row->mtbf_s, i == 0 ? given->local_share : 1.0 - given->local_share);
        if (i == 0)
            choice->cost = choice->complete = goodput_figure_given(given->local_s);
    }
}

/* What the runs of this node count did, and what was asked for. */
static void add_others(struct goodput_row *row, const struct goodput_known *k,
                       const struct goodput_asked *asked)
{
    char name[32];
    double between = 0.0, in_steps = 0.0; /* means over runs, as the step is */
    int runs = 0, saved = 0;
    for (int i = 0; k->kind >= 0 && i < k->study->n_points; i++) {
        const struct goodput_point *p = &k->study->points[i];
        if (p->kind != k->kind || p->row->nodes != row->at.nodes || !p->run.there)
            continue;
        bool known = isfinite(p->run.between_steps), steps = isfinite(p->run.in_steps);
        between += known ? p->run.between_steps : 0.0;
        in_steps += steps ? p->run.in_steps : 0.0;
        saved += known;
        runs += steps;
    }
    between = saved > 0 ? between / saved : (double)NAN;
    row->in_steps = runs > 0 ? in_steps / runs : (double)NAN;
    if (isfinite(between * row->at.step.x.value))
        add(row, "as run", between * row->at.step.x.value);
    for (int i = 0; i < asked->n; i++) {
        double value = asked->value[i];
        if (asked->is_steps[i] && !(row->at.step.x.value > 0.0))
            continue; /* nobody knows how long */
        snprintf(name, sizeof name, "%.6g %s", value, asked->is_steps[i] ? "steps" : "s");
        add(row, name, asked->is_steps[i] ? value * row->at.step.x.value : value);
    }
}

/* What the chosen interval loses against the best one when these ends are the truth. Where saves are slower
 * than planned, the next one waits for the last. */
static double loss_at(const struct goodput_row *row, enum corner law, enum corner costs)
{
    struct goodput_costs c = costs_of(&row->at, costs);
    double m = pick(&row->mtbf_s, law, false), lag = fmax(c.complete_s - c.cost_s, 0.0);
    return goodput_renewal(m, goodput_tau_async(m, &c), &c) -
           goodput_renewal(m, fmax(row->choices[row->best].tau_s, lag), &c);
}

static double most_regret(const struct goodput_row *row)
{
    static const enum corner ends[] = {BEST, WORST};
    double most = 0.0;
    if (isnan(row->mtbf_s.low) != isnan(row->mtbf_s.high))
        return (double)NAN; /* the truth may lie as far off as it likes */
    for (int law = 0; law < 2; law++)
        for (int costs = 0; costs < 2; costs++)
            most = fmax(most, loss_at(row, ends[law], ends[costs]));
    return has_range(row) ? most : (double)NAN;
}

double goodput_plan_tokens(const struct goodput_row *row, const struct goodput_choice *choice)
{
    if (row->at.step.source == FROM_CARRIED)
        return NAN;
    return choice->g.value * row->at.tokens_per_step / row->at.step.x.value;
}

static void make_row(struct goodput_row *row, const struct goodput_known *k,
                     const struct goodput_law *law, double nodes, const struct goodput_asked *asked)
{
    *row = (struct goodput_row){.regret = NAN, .in_steps = NAN, .tokens_per_s = NAN};
    row->planned = goodput_costs_at(&row->at, k, nodes, row->why, sizeof row->why);
    row->mtbf_s = (struct stats_interval){NAN, NAN, NAN, 0};
    if (law->kind != LAW_NONE)
        row->mtbf_s = goodput_law_job(law, nodes, row->at.devices);
    row->planned = row->planned && law->kind != LAW_NONE;
    if (!row->planned)
        return;
    add_optima(row);
    add_others(row, k, asked);
    add_levels(row, &k->given);
    row->regret = most_regret(row);
    row->tokens_per_s = goodput_plan_tokens(row, &row->choices[row->best]);
}

void goodput_plan_make(struct goodput_plan *out, const struct goodput_known *known,
                       const struct goodput_law *law, const double *nodes, int n_nodes,
                       const struct goodput_asked *asked)
{
    *out = (struct goodput_plan){.known = *known, .law = law, .n_rows = n_nodes};
    out->rows = must_alloc((size_t)n_nodes + 1, sizeof *out->rows);
    for (int i = 0; i < n_nodes; i++)
        make_row(&out->rows[i], known, law, nodes[i], asked);
}

void goodput_plan_release(struct goodput_plan *plan)
{
    free(plan->rows);
    *plan = (struct goodput_plan){0};
}
