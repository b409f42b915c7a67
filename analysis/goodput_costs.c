#include "analysis/goodput_costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/forecast.h"
#include "analysis/goodput_steps.h"
#include "base/err.h"
#include "base/units.h"

static const double bytes_per_parameter = 12.0;
static const struct stats_interval unknown = {NAN, NAN, NAN, 0};

const char *goodput_source_name(enum goodput_source source)
{
    static const char *const names[] = {"-", "measured", "fitted", "carried", "formula", "assumed"};
    return names[source];
}

static struct goodput_figure figure(struct stats_interval x, enum goodput_source source)
{
    return (struct goodput_figure){x, source};
}

struct goodput_figure goodput_figure_given(double x)
{
    return figure((struct stats_interval){x, NAN, NAN, 0}, FROM_ASSUMED);
}

/* ---- what the measured node counts say ---- */

static double known_or(double x, double otherwise)
{
    return isnan(x) ? otherwise : x;
}

/* Sums over node counts, so that a count that says little weighs little. */
static void find_rates(struct goodput_known *k)
{
    double copied = 0.0, held = 0.0, drained = 0.0, lost[3] = {0};
    for (int i = 0; i < k->n_costs; i++) {
        const struct goodput_save_cost *c = &k->costs[i];
        double extra = c->cost_s.value - c->blocked_s.value;
        double low = c->inflation_s.low, high = c->inflation_s.high;
        copied += c->bytes / c->ranks;
        held += c->blocked_s.value;
        drained += fmax(c->complete_s.value - c->blocked_s.value, 0.0);
        lost[0] += extra;
        lost[1] += fmax(known_or(low, extra), 0.0);
        lost[2] += fmax(known_or(high, extra), 0.0);
    }
    k->copy_per_s = held > 0.0 ? copied / held : (double)NAN;
    for (int i = 0; i < 3; i++)
        k->phi[i] = drained > 0.0 ? lost[i] / drained : 0.0;
}

static void find_storage(struct goodput_known *k)
{
    int n;
    if (isfinite(k->given.node_per_s)) {
        goodput_storage_assume(&k->storage, k->given.node_per_s,
                               known_or(k->given.shared_per_s, 0.0));
        k->has_storage = true;
        return;
    }
    if (k->n_costs < 2)
        return;
    struct goodput_save *saves = goodput_saves(k->study, k->kind, k->mode, &n);
    k->has_storage = goodput_storage_fit(&k->storage, saves, n);
    free(saves);
}

static void find_bytes(struct goodput_known *k)
{
    k->bytes = k->given.bytes;
    k->bytes_source = isfinite(k->bytes) ? FROM_ASSUMED : FROM_NONE;
    if (k->bytes_source == FROM_NONE && k->n_costs > 0) {
        k->bytes = k->costs[k->n_costs - 1].bytes;
        k->bytes_source = FROM_MEASURED;
    } else if (k->bytes_source == FROM_NONE && k->kind >= 0) {
        k->bytes =
            bytes_per_parameter * (double)goodput_kind_first(k->study, k->kind)->row->parameters;
        k->bytes_source = FROM_FORMULA;
    }
}

void goodput_known_init(struct goodput_known *out, const struct goodput_study *study, int kind,
                        const char *mode, const struct goodput_given *given, uint64_t seed)
{
    double nodes[GOODPUT_COUNTS];
    *out = (struct goodput_known){.study = study, .kind = kind, .seed = seed, .given = *given};
    out->ranks_per_node = 1;
    snprintf(out->mode, sizeof out->mode, "%s", mode);
    if (kind >= 0) {
        int n = goodput_node_counts(study, kind, nodes, GOODPUT_COUNTS);
        out->ranks_per_node = goodput_kind_first(study, kind)->row->ranks_per_node;
        for (int i = 0; i < n && mode[0] != '\0'; i++)
            if (goodput_save_cost(&out->costs[out->n_costs], study, kind, mode, nodes[i], seed))
                out->n_costs++;
    }
    find_rates(out);
    find_storage(out);
    find_bytes(out);
}

/* ---- one node count ---- */

static const struct goodput_save_cost *measured_at(const struct goodput_known *k, double nodes)
{
    for (int i = 0; i < k->n_costs; i++)
        if (k->costs[i].nodes == nodes)
            return &k->costs[i];
    return NULL;
}

/* x, with the relative ends that `like` has. */
static struct stats_interval like(double x, const struct stats_interval *like)
{
    double scale = like->value > 0.0 ? x / like->value : (double)NAN;
    return (struct stats_interval){x, like->low * scale, like->high * scale, like->n};
}

/* What an option says the state has is not what was saved there: seconds are those of other bytes. */
static bool other_bytes(const struct goodput_known *k, const struct goodput_save_cost *c)
{
    return c && k->bytes_source == FROM_ASSUMED && k->bytes != c->bytes;
}

/* What c took of its bytes, at the same rate of those that are asked for. */
static struct goodput_figure by_rate(const struct goodput_known *k,
                                     const struct goodput_save_cost *c,
                                     const struct stats_interval *took)
{
    return figure(like(took->value * (k->bytes / c->bytes), took), FROM_CARRIED);
}

static struct goodput_figure complete_at(const struct goodput_known *k, double nodes)
{
    const struct goodput_save_cost *c = measured_at(k, nodes);
    if (isfinite(k->given.complete_s))
        return goodput_figure_given(k->given.complete_s);
    if (k->has_storage && k->storage.assumed)
        return figure(goodput_storage_seconds(&k->storage, nodes, k->bytes), FROM_ASSUMED);
    if (c && !other_bytes(k, c))
        return figure(c->complete_s, FROM_MEASURED);
    if (k->has_storage)
        return figure(goodput_storage_seconds(&k->storage, nodes, k->bytes), FROM_FITTED);
    if (c)
        return by_rate(k, c, &c->complete_s);
    if (isfinite(k->given.blocked_s)) /* taken as synchronous */
        return goodput_figure_given(k->given.blocked_s);
    return figure(unknown, FROM_NONE);
}

static struct goodput_figure blocked_at(const struct goodput_known *k, const struct goodput_at *at)
{
    const struct goodput_save_cost *c = measured_at(k, at->nodes);
    bool sync = strcmp(k->mode, "sync") == 0; /* blocks until it is published, whenever that is */
    if (isfinite(k->given.blocked_s))
        return goodput_figure_given(k->given.blocked_s);
    bool scaled = other_bytes(k, c);
    if (c && !scaled && !(sync && at->complete.source == FROM_ASSUMED))
        return figure(c->blocked_s, FROM_MEASURED);
    if (k->n_costs == 0) /* nothing says that training goes on meanwhile */
        return at->complete;
    if (scaled && !sync)
        return by_rate(k, c, &c->blocked_s);
    const struct goodput_save_cost *most = scaled ? c : &k->costs[k->n_costs - 1];
    if (sync)
        return figure(like(at->complete.x.value * most->blocked_s.value / most->complete_s.value,
                           &at->complete.x),
                      at->complete.source);
    return figure(like(k->bytes / at->devices / k->copy_per_s, &most->blocked_s), FROM_FITTED);
}

/* blocked and what draining costs besides. */
static struct goodput_figure cost_at(const struct goodput_known *k, const struct goodput_at *at)
{
    const struct goodput_save_cost *c = measured_at(k, at->nodes);
    struct goodput_figure cost = at->blocked;
    double drains = fmax(at->complete.x.value - at->blocked.x.value, 0.0);
    if (cost.source == FROM_MEASURED && c)
        return figure(c->cost_s, FROM_MEASURED);
    if (k->n_costs == 0 || cost.source == FROM_ASSUMED)
        return cost; /* what is given is the whole cost */
    cost.x.value += k->phi[0] * drains;
    cost.x.low += k->phi[1] * drains;
    cost.x.high += k->phi[2] * drains;
    return cost;
}

/* ---- failures and steps ---- */

static void recovery_at(struct goodput_at *at, const struct goodput_known *k)
{
    struct stats_interval d = unknown, r = unknown, all_d = unknown, all_r = unknown;
    if (k->kind >= 0) {
        goodput_recovery_cost(k->study, k->kind, at->nodes, &d, &r);
        goodput_recovery_cost(k->study, k->kind, 0.0, &all_d, &all_r);
    }
    at->detect = figure(d.n > 0 ? d : all_d, d.n > 0       ? FROM_MEASURED
                                             : all_d.n > 0 ? FROM_CARRIED
                                                           : FROM_NONE);
    at->restart = figure(r.n > 0 ? r : all_r, r.n > 0       ? FROM_MEASURED
                                              : all_r.n > 0 ? FROM_CARRIED
                                                            : FROM_NONE);
    if (isfinite(k->given.detect_s))
        at->detect = goodput_figure_given(k->given.detect_s);
    if (isfinite(k->given.restart_s))
        at->restart = goodput_figure_given(k->given.restart_s);
    at->bottom = at->restart.source == FROM_NONE || at->detect.source == FROM_NONE;
}

/* The node counts of the kind whose step is known, without points of more ranks than cores. */
static int step_counts(const struct goodput_known *k, struct goodput_steps out[GOODPUT_COUNTS])
{
    double nodes[GOODPUT_COUNTS];
    int n = 0,
        all = k->kind >= 0 ? goodput_node_counts(k->study, k->kind, nodes, GOODPUT_COUNTS) : 0;
    for (int i = 0; i < all; i++)
        n += goodput_steps_at(&out[n], k->study, k->kind, nodes[i], false);
    return n;
}

/*
 * By the laws of the curve, as `scalereport fit` forecasts it; false: too few points, or too far. One
 * node has no network: it is left out where the others are enough (regime.h).
 */
static bool forecast_step(struct goodput_at *at, const struct goodput_known *k,
                          const struct goodput_steps *counts, int n)
{
    if (n > FORECAST_POINTS && counts[0].nodes == 1.0) {
        counts++;
        n--;
    }
    double nodes[GOODPUT_COUNTS], rate[GOODPUT_COUNTS];
    struct forecast_spread spread[GOODPUT_COUNTS];
    struct forecaster forecaster;
    struct forecast f = {.value = NAN};
    for (int i = 0; i < n; i++) {
        nodes[i] = counts[i].nodes;
        rate[i] = counts[i].tokens / counts[i].step_s.value;
        spread[i] = counts[i].spread;
    }
    struct forecast_data about = {
        .fit = {.n_points = n, .n = nodes, .rate = rate, .weak = counts[n - 1].weak},
        .spread = spread,
        .floors = forecast_floors,
        .level = 0.95,
        .replicates = FORECAST_REPLICATES,
        .seed = k->seed};
    if (forecaster_init(&forecaster, &about) != 0) {
        fail_clear();
        return false;
    }
    forecast_at(&forecaster, at->nodes, &f);
    forecaster_release(&forecaster);
    at->step =
        figure((struct stats_interval){at->tokens_per_step / f.value, at->tokens_per_step / f.high,
                                       at->tokens_per_step / f.low, n},
               FROM_FITTED);
    return isfinite(f.value);
}

/* By the laws of three node counts and more; in weak scaling carried. */
static void find_step(struct goodput_at *at, const struct goodput_known *k)
{
    struct goodput_steps counts[GOODPUT_COUNTS];
    int n = step_counts(k, counts);
    if (n == 0)
        return;
    const struct goodput_steps *most = &counts[n - 1];
    at->tokens_per_step = most->tokens * (most->weak ? at->nodes / most->nodes : 1.0);
    if (n >= FORECAST_POINTS && forecast_step(at, k, counts, n))
        return;
    at->step = figure(unknown, FROM_NONE);
    if (most->weak && at->nodes > most->nodes)
        at->step = figure(most->step_s, FROM_CARRIED);
}

static void step_at(struct goodput_at *at, const struct goodput_known *k)
{
    struct goodput_steps here;
    at->step = figure(unknown, FROM_NONE);
    at->tokens_per_step = NAN;
    if (k->kind >= 0 && goodput_steps_at(&here, k->study, k->kind, at->nodes, true)) {
        at->step = figure(here.step_s, FROM_MEASURED);
        at->tokens_per_step = here.tokens;
    } else {
        find_step(at, k);
    }
    if (isfinite(k->given.step_s))
        at->step = goodput_figure_given(k->given.step_s);
}

bool goodput_costs_agree(const struct goodput_at *at, char *why, size_t size)
{
    const struct goodput_figure *cost = &at->cost, *complete = &at->complete;
    if ((cost->source != FROM_ASSUMED && complete->source != FROM_ASSUMED) ||
        !(cost->x.value > complete->x.value * (1.0 + 1e-9)))
        return true;
    snprintf(
        why, size,
        "on %g node%s a save costs %.4g s (%s) and is published %.4g s after its call (%s): it "
        "cannot cost more than it takes: change --blocked, --complete or --node-bandwidth",
        at->nodes, units_s(at->nodes), cost->x.value, goodput_source_name(cost->source),
        complete->x.value, goodput_source_name(complete->source));
    return false;
}

bool goodput_costs_at(struct goodput_at *out, const struct goodput_known *k, double nodes,
                      char *why, size_t size)
{
    *out = (struct goodput_at){.nodes = nodes, .devices = nodes * k->ranks_per_node};
    out->complete = complete_at(k, nodes);
    out->blocked = blocked_at(k, out);
    out->cost = cost_at(k, out);
    recovery_at(out, k);
    step_at(out, k);
    why[0] = '\0';
    if (isfinite(out->cost.x.value) && isfinite(out->complete.x.value))
        return true;
    if (k->n_costs == 0)
        snprintf(why, size,
                 "nothing was saved: give what a save costs, --blocked 6s --complete 150s, or "
                 "measure it (--checkpoint-dir)");
    else
        snprintf(why, size,
                 "saves were measured on %g node%s alone, so how fast others save is not known: "
                 "give --node-bandwidth (and --shared-bandwidth), or measure two node counts",
                 k->costs[0].nodes, units_s(k->costs[0].nodes));
    return false;
}
