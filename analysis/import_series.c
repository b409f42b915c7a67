#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "analysis/curve.h"
#include "analysis/flops.h"
#include "analysis/import_check.h"
#include "analysis/import_group.h"
#include "analysis/import_names.h"
#include "base/err.h"

enum { SEED = 1 };
static const double level = 0.95;

#define V(name) row->value[IMPORT_##name]

static int64_t count_of(double value)
{
    return isnan(value) ? -1 : (int64_t)value;
}

/* The better printed one of two figures that say the same. */
static double sharper(double a, double share_a, double b, double share_b)
{
    return isnan(a) || (!isnan(b) && share_b < share_a) ? b : a;
}

static double share(const struct import_row *row, int figure)
{
    return row->half[figure] / fabs(row->value[figure]);
}

static double tflops_rate(const struct import_row *row)
{
    const char *source;
    double devices = import_devices(row);
    return sharper(V(TFLOPS_DEVICE) * devices, share(row, IMPORT_TFLOPS_DEVICE),
                   V(MFU) * import_peak(row, &source) * devices, share(row, IMPORT_MFU));
}

static double tokens_rate(const struct import_row *row)
{
    const double from[] = {V(TOKENS_PER_S), V(TOKENS_PER_S_DEVICE) * import_devices(row),
                           V(TOKENS_TOTAL) / (V(DAYS) * 86400.0)};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        if (!isnan(from[i]))
            return from[i];
    return NAN;
}

/* Work of a step in the unit of a rate. */
static double unit_work(const struct import_row *row, enum series_rate rate)
{
    switch (rate) {
    case SERIES_TOKENS:
        return import_tokens_per_step(row);
    case SERIES_SAMPLES:
        return import_batch(row);
    case SERIES_STEPS:
        return 1.0;
    case SERIES_DEVICE_STEPS:
        return import_n(row);
    case SERIES_TFLOPS:
    case SERIES_RATES:
        break;
    }
    return NAN;
}

static double printed_rate(const struct import_row *row, enum series_rate rate)
{
    switch (rate) {
    case SERIES_TOKENS:
        return tokens_rate(row);
    case SERIES_SAMPLES:
        return V(SAMPLES_PER_S);
    case SERIES_TFLOPS:
        return tflops_rate(row);
    case SERIES_STEPS:
    case SERIES_DEVICE_STEPS:
    case SERIES_RATES:
        break;
    }
    return NAN;
}

static bool has_step(const struct import_row *row)
{
    return row->n_launches > 0 || !isnan(V(STEP_S));
}

static bool gives(const struct import_row *row, enum series_rate rate)
{
    return (has_step(row) && !isnan(unit_work(row, rate))) || !isnan(printed_rate(row, rate));
}

/* The first rate that every row gives; SERIES_RATES: none. */
static enum series_rate choose_rate(struct import_row *const *rows, int n, enum series_mode mode)
{
    static const enum series_rate order[] = {SERIES_TOKENS, SERIES_SAMPLES, SERIES_TFLOPS,
                                             SERIES_STEPS, SERIES_DEVICE_STEPS};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int giving = 0;
        if ((order[i] == SERIES_STEPS && mode == SERIES_WEAK) ||
            (order[i] == SERIES_DEVICE_STEPS && mode != SERIES_WEAK))
            continue;
        for (int j = 0; j < n; j++)
            giving += gives(rows[j], order[i]);
        if (giving == n)
            return order[i];
    }
    return SERIES_RATES;
}

static void copy_printed(struct series_point *p, const struct import_row *row)
{
    static const int from[PRINTED_FIGURES] = {[PRINTED_TOKENS_PER_S] = IMPORT_TOKENS_PER_S,
                                              [PRINTED_TOKENS_PER_S_DEVICE] =
                                                  IMPORT_TOKENS_PER_S_DEVICE,
                                              [PRINTED_SAMPLES_PER_S] = IMPORT_SAMPLES_PER_S,
                                              [PRINTED_TFLOPS_DEVICE] = IMPORT_TFLOPS_DEVICE,
                                              [PRINTED_PFLOPS] = IMPORT_PFLOPS,
                                              [PRINTED_MFU] = IMPORT_MFU,
                                              [PRINTED_HFU] = IMPORT_HFU,
                                              [PRINTED_EFFICIENCY] = IMPORT_EFFICIENCY,
                                              [PRINTED_SPEEDUP] = IMPORT_SPEEDUP,
                                              [PRINTED_DAYS] = IMPORT_DAYS,
                                              [PRINTED_TOKENS_PER_STEP] = IMPORT_TOKENS_PER_STEP};
    for (int i = 0; i < PRINTED_FIGURES; i++)
        p->printed[i] = row->value[from[i]];
}

static struct series_point point_of(const struct import_row *row)
{
    struct series_point p = series_point_unknown();
    struct flops_gpt shape = {V(LAYERS), V(HIDDEN), V(VOCABULARY), V(SEQUENCE), import_batch(row)};
    const char *convention;
    p.line = row->line;
    p.n = import_n(row);
    p.devices = count_of(import_devices(row));
    p.nodes = count_of(V(NODES));
    if (p.nodes < 0 && p.devices > 0 && fmod(import_devices(row), V(DEVICES_PER_NODE)) == 0.0)
        p.nodes = count_of(import_devices(row) / V(DEVICES_PER_NODE));
    p.parameters = isnan(V(PARAMETERS)) ? flops_gpt_parameters(&shape) : V(PARAMETERS);
    p.layers = count_of(V(LAYERS));
    p.hidden = count_of(V(HIDDEN));
    p.heads = count_of(V(HEADS));
    p.vocabulary = count_of(V(VOCABULARY));
    p.global_batch = count_of(import_batch(row));
    p.micro_batch = count_of(V(MICRO_BATCH));
    p.sequence = count_of(V(SEQUENCE));
    p.tp = count_of(V(TP));
    p.pp = count_of(V(PP));
    p.cp = count_of(V(CP));
    p.dp = count_of(V(DP));
    p.ep = count_of(V(EP));
    p.tokens_per_step = import_tokens_per_step(row);
    p.flops_per_step = import_flops(row, &convention);
    p.work = p.parameters * import_batch(row);
    p.samples_to_target = V(SAMPLES_TO_TARGET);
    p.tokens_total = V(TOKENS_TOTAL);
    p.time_to_work_s = V(TIME_TO_WORK_S);
    if (isnan(p.time_to_work_s) && isnan(V(TOKENS_TOTAL)))
        p.time_to_work_s = V(DAYS) * 86400.0;
    p.goodput = V(GOODPUT);
    p.loss = V(LOSS);
    copy_printed(&p, row);
    return p;
}

/*
 * The cost of one unit of work, 1 / rate, over the launches of a point: means of costs are what
 * harmonic means of rates are. `rows` are those of one N.
 */
static void measure(struct series_point *p, struct import_row *const *rows, int n,
                    enum series_rate rate)
{
    struct stats_interval cost;
    double work = unit_work(rows[0], rate);
    struct stats_series *launches = NULL;
    double *single = must_alloc((size_t)n, sizeof *single);
    int k = 0;
    bool steps = true;
    for (int i = 0; i < n; i++)
        steps = steps && has_step(rows[i]) && !isnan(unit_work(rows[i], rate));
    for (int i = 0; i < n; i++) {
        const struct import_row *row = rows[i];
        launches = must_grow(launches, (size_t)(k + row->n_launches + 1), sizeof *launches);
        for (int j = 0; j < row->n_launches && steps; j++) {
            launches[k++] = (struct stats_series){row->launches[j].x, row->launches[j].n};
            series_add_launch(p, row->launches[j].x, row->launches[j].n, 1.0);
        }
        single[i] = steps ? V(STEP_S) : 1.0 / printed_rate(row, rate);
        if (row->n_launches > 0 && steps)
            continue;
        launches[k++] = (struct stats_series){&single[i], 1};
        if (n > 1) /* a run of its own: how they differ is known */
            series_add_launch(p, &single[i], 1, 1.0);
    }
    stats_launches_interval(launches, k, level, SEED, &cost);
    stats_positive(&cost);
    if (n == 1 && rows[0]->n_launches == 0 && steps) {
        const struct import_row *row = rows[0];
        cost.low = V(STEP_LOW_S);
        cost.high = V(STEP_HIGH_S);
        cost.n = isnan(V(STEPS_MEASURED)) ? 1 : (int64_t)V(STEPS_MEASURED);
    }
    if (steps)
        p->step_s = cost;
    p->rate = (struct stats_interval){1.0 / cost.value, 1.0 / cost.high, 1.0 / cost.low, cost.n};
    if (steps)
        p->rate =
            (struct stats_interval){work / cost.value, work / cost.high, work / cost.low, cost.n};
    else if (n == 1 && !isnan(rows[0]->value[IMPORT_STEP_S]))
        p->step_s.value = rows[0]->value[IMPORT_STEP_S];
    if (rate == SERIES_TFLOPS && isnan(p->step_s.value))
        p->step_s.value = import_counted_flops(rows[0]) / (p->rate.value * 1e12);
    p->exact = isnan(p->rate.low) && isnan(p->rate.high) && cost.n <= 1;
    free(launches);
    free(single);
}

static void set_utilisation(struct series_point *p, const struct import_row *row, double peak)
{
    double seconds = p->step_s.value * (double)p->devices * peak * 1e12;
    if (p->devices > 0 && seconds > 0.0) {
        p->mfu = p->flops_per_step / seconds;
        p->hfu = import_hardware_flops(row) / seconds;
    }
}

static bool layout_changes(const struct import_row *a, const struct import_row *b)
{
    static const int degrees[] = {IMPORT_TP, IMPORT_PP, IMPORT_CP, IMPORT_EP};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (!isnan(a->value[degrees[i]]) && !isnan(b->value[degrees[i]]) &&
            fabs(a->value[degrees[i]] - b->value[degrees[i]]) > 0.0)
            return true;
    return false;
}

static void copy_word(char *to, size_t size, const struct import_row *row, enum import_word word)
{
    snprintf(to, size, "%.*s", (int)size - 1, row->word[word]);
}

static void describe(struct series *s, struct import_row *const *rows, int n)
{
    const struct import_row *row = rows[0];
    const char *source, *convention, *sparse = row->word[WORD_SPARSE];
    copy_word(s->model, sizeof s->model, row, WORD_MODEL);
    copy_word(s->device, sizeof s->device, row, WORD_DEVICE);
    copy_word(s->precision, sizeof s->precision, row, WORD_PRECISION);
    copy_word(s->fabric, sizeof s->fabric, row, WORD_FABRIC);
    s->counts = isnan(import_devices(row)) ? SERIES_NODES : SERIES_DEVICES;
    s->moe = import_is_moe(row);
    for (int i = 0; i < n; i++) /* parts of one node come first; whole nodes have the shape */
        if (!isnan(import_shape(rows[i])))
            s->devices_per_node = (int64_t)import_shape(rows[i]);
    s->sparse_peak = strcasecmp(sparse, "yes") == 0 || strcasecmp(sparse, "true") == 0 ||
                     strcmp(sparse, "1") == 0;
    s->peak_tflops = import_peak(row, &source);
    if (!isnan(s->peak_tflops))
        snprintf(s->peak_source, sizeof s->peak_source, "%s", source);
    if (!isnan(import_flops(row, &convention)))
        snprintf(s->flop_convention, sizeof s->flop_convention, "%s", convention);
    else if (row->word[WORD_CONVENTION][0] != '\0')
        copy_word(s->flop_convention, sizeof s->flop_convention, row, WORD_CONVENTION);
    for (int i = 1; i < n; i++)
        s->best_layout = s->best_layout || layout_changes(rows[0], rows[i]);
}

/* Launches of one point did the same work; NULL, or what differs. */
static const char *other_work(const struct import_row *a, const struct import_row *b)
{
    static const int same[] = {IMPORT_PARAMETERS,  IMPORT_LAYERS, IMPORT_GLOBAL_BATCH,
                               IMPORT_MICRO_BATCH, IMPORT_DP,     IMPORT_TOKENS_PER_STEP,
                               IMPORT_NODES};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (fabs(a->value[same[i]] - b->value[same[i]]) > 0.0)
            return import_name_of(IMPORT_A_FIGURE, same[i]);
    return layout_changes(a, b) ? "tp, pp, cp or ep" : NULL;
}

static int refuse_launch(const struct import *import, const struct import_row *a,
                         const struct import_row *b, const char *field)
{
    return fail(FAIL_USAGE,
                "%s:%d: N = %.0f is there twice (%s:%d) and is not the same work: %s differs; give "
                "each its own series",
                import->paths[b->file], b->line, import_n(b), import->paths[a->file], a->line,
                field);
}

/* What must not be read as something else. */
static void say_what_changes(struct import *import, const struct series *s,
                             struct import_row *const *rows)
{
    int line = rows[0]->line;
    if (s->mode == SERIES_WORK)
        series_set_note(&import->set, s->source, line,
                        "series \"%s\": the model grows with N (%.4g to %.4g parameters): only "
                        "W = parameters x sequences a step is compared, and more than 100 %% would "
                        "be no superlinear machine",
                        s->name, s->points[0].parameters, s->points[s->n_points - 1].parameters);
    if (s->best_layout)
        series_set_note(
            &import->set, s->source, line,
            "series \"%s\": tp, pp, cp or ep change with N: a best-layout curve, which no "
            "law is fitted to",
            s->name);
}

/* Printed efficiencies, in whole or tenths of percent, against what follows from the points. */
static void check_printed(struct import *import, const struct series *s)
{
    struct curve_point *curve = curve_of(s, SEED);
    for (int i = 0; i < s->n_points; i++) {
        double printed = s->points[i].printed[PRINTED_EFFICIENCY], ours = curve[i].efficiency.value;
        if (fabs(printed - ours) > 0.005)
            series_set_note(&import->set, s->source, s->points[i].line,
                            "efficiency is not what the points give: %.4g %% from them, %.4g %% "
                            "printed",
                            100.0 * ours, 100.0 * printed);
    }
    free(curve);
}

int import_make_series(struct import *import, struct import_row *const *rows, int n,
                       enum series_mode mode, const char *name)
{
    enum series_rate rate = choose_rate(rows, n, mode);
    if (rate == SERIES_RATES)
        return fail(FAIL_USAGE,
                    "%s:%d: series \"%s\": no rate that all its points have: step_s with "
                    "global_batch and sequence, tokens_per_s, samples_per_s, or "
                    "tflops_per_s_gpu",
                    import->paths[rows[0]->file], rows[0]->line, name);
    struct series *s = series_set_add(&import->set, name, import->paths[rows[0]->file]);
    s->mode = mode;
    s->rate = rate;
    describe(s, rows, n);
    for (int i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && import_n(rows[i + same]) <= import_n(rows[i]); same++)
            if (other_work(rows[i], rows[i + same]) != NULL)
                return refuse_launch(import, rows[i], rows[i + same],
                                     other_work(rows[i], rows[i + same]));
        struct series_point point = point_of(rows[i]);
        measure(&point, rows + i, same, rate);
        set_utilisation(&point, rows[i], s->peak_tflops);
        series_add(s, &point);
    }
    series_find_base(s);
    say_what_changes(import, s, rows);
    check_printed(import, s);
    return 0;
}
