#include <math.h>
#include <string.h>

#include "analysis/report_series.h"
#include "analysis/report_table.h"

/* A column of the text: left out where no point of the series has it. */
struct text_column {
    const char *name;
    double (*value)(const struct series *s, const struct series_point *p,
                    const struct curve_point *c);
    int decimals; /* < 0: that many significant digits */
    bool always;
};

static double count_of(int64_t value)
{
    return value < 0 ? (double)NAN : (double)value;
}

static double larger_side(const struct stats_interval *x)
{
    double up = x->high - x->value, down = x->value - x->low;
    return isnan(up) || isnan(down) ? (double)NAN : fmax(up, down);
}

#define FIGURE(name, expression)                                                                   \
    static double name(const struct series *s, const struct series_point *p,                       \
                       const struct curve_point *c)                                                \
    {                                                                                              \
        (void)s;                                                                                   \
        (void)p;                                                                                   \
        (void)c;                                                                                   \
        return expression;                                                                         \
    }
FIGURE(nodes, count_of(p->nodes))
FIGURE(ranks, count_of(p->devices))
FIGURE(rate_of_device, p->rate.value / p->n)
FIGURE(speedup, c->speedup.value)
FIGURE(speedup_reach, larger_side(&c->speedup))
FIGURE(efficiency, 100.0 * c->efficiency.value)
FIGURE(efficiency_reach, 100.0 * larger_side(&c->efficiency))
FIGURE(increment, 100.0 * c->ratio.value)
FIGURE(marginal, 100.0 * c->marginal.value)
FIGURE(step_ms, 1e3 * p->step_s.value)
FIGURE(tflops_device, s->rate == SERIES_TFLOPS
                          ? p->rate.value / (double)p->devices
                          : p->flops_per_step / p->step_s.value / (double)p->devices / 1e12)
FIGURE(mfu, 100.0 * p->mfu)
FIGURE(mfu_printed, 100.0 * p->printed[PRINTED_MFU])
FIGURE(hfu, 100.0 * p->hfu)
FIGURE(hfu_printed, 100.0 * p->printed[PRINTED_HFU])
FIGURE(printed_efficiency, 100.0 * p->printed[PRINTED_EFFICIENCY])
FIGURE(parameters_billion, p->parameters / 1e9)
FIGURE(layers, count_of(p->layers))
FIGURE(gbs, count_of(p->global_batch))
FIGURE(mbs, count_of(p->micro_batch))
FIGURE(tp, count_of(p->tp))
FIGURE(pp, count_of(p->pp))
FIGURE(cp, count_of(p->cp))
FIGURE(dp, count_of(p->dp))
FIGURE(ep, count_of(p->ep))
FIGURE(launches, (double)(p->n_launches > 0 ? p->n_launches : 1))
FIGURE(samples, (double)p->rate.n)

static const struct text_column curve_columns[] = {
    {"rate/N", rate_of_device, -6, true},
    {"speedup", speedup, 3, false},
    {"+-", speedup_reach, 3, false},
    {"eff_%", efficiency, 1, true},
    {"+-_eff", efficiency_reach, 1, false},
    {"eff_printed_%", printed_efficiency, 1, false},
    {"inc_%", increment, 1, true},
    {"marginal_%", marginal, 1, true},
    {"step_ms", step_ms, 3, false},
    {"TFLOP/s/dev", tflops_device, -4, false},
    {"MFU_%", mfu, 2, false},
    {"MFU_printed_%", mfu_printed, 2, false},
    {"HFU_%", hfu, 2, false},
    {"HFU_printed_%", hfu_printed, 2, false},
    {"params_B", parameters_billion, -4, false},
    {"layers", layers, 0, false},
    {"gbs", gbs, 0, false},
    {"mbs", mbs, 0, false},
    {"tp", tp, 0, false},
    {"pp", pp, 0, false},
    {"cp", cp, 0, false},
    {"dp", dp, 0, false},
    {"ep", ep, 0, false},
    {"launches", launches, 0, true},
    {"n", samples, 0, true},
};
enum { N_CURVE_COLUMNS = sizeof curve_columns / sizeof *curve_columns };

FIGURE(hours, c->hours_to_work)
FIGURE(time_to_work, 100.0 * c->time_to_work)
FIGURE(of_throughput, 100.0 * c->throughput_factor)
FIGURE(of_samples, 100.0 * c->samples_factor)
FIGURE(of_goodput, 100.0 * c->goodput_factor)
FIGURE(samples_to_target, p->samples_to_target)
FIGURE(device_hours, c->hours_to_work * p->n)

static const struct text_column work_columns[] = {
    {"hours", hours, -4, true},
    {"N_hours", device_hours, -4, true},
    {"E_ttw_%", time_to_work, 1, true},
    {"E_throughput_%", of_throughput, 1, true},
    {"E_samples_%", of_samples, 1, true},
    {"E_goodput_%", of_goodput, 1, true},
    {"samples", samples_to_target, 0, false},
};
enum { N_WORK_COLUMNS = sizeof work_columns / sizeof *work_columns };

static bool is_there(const struct text_column *column, const struct series *s,
                     const struct curve_point *curve)
{
    for (int i = 0; i < s->n_points && !column->always; i++)
        if (!isnan(column->value(s, &s->points[i], &curve[i])))
            return true;
    return column->always;
}

static void print_cell(struct table *t, double value, int decimals)
{
    if (decimals < 0)
        table_digits(t, value, -decimals);
    else
        table_real(t, value, decimals);
}

static void rate_reach(struct table *t, const struct series_point *p)
{
    if (p->exact)
        table_text(t, "exact");
    else
        table_real(t, 100.0 * larger_side(&p->rate) / p->rate.value, 2);
}

/* `with_rate`: the columns of the curve, which begin with the rate and its interval. */
static void print_columns(FILE *to, const struct series *s, const struct curve_point *curve,
                          const struct text_column *columns, int n, bool with_rate)
{
    struct table t;
    char names[512];
    bool has_nodes = is_there(&(struct text_column){"nodes", nodes, 0, false}, s, curve);
    size_t at = (size_t)snprintf(names, sizeof names, "%s%s", has_nodes ? "nodes " : "",
                                 s->counts == SERIES_DEVICES ? "ranks" : "");
    if (with_rate)
        at +=
            (size_t)snprintf(names + at, sizeof names - at, " %s +-_%%", series_rate_unit(s->rate));
    for (int c = 0; c < n; c++)
        if (is_there(&columns[c], s, curve))
            at += (size_t)snprintf(names + at, sizeof names - at, " %s", columns[c].name);
    table_open(&t, names);
    for (int i = 0; i < s->n_points; i++) {
        const struct series_point *p = &s->points[i];
        if (has_nodes)
            print_cell(&t, nodes(s, p, &curve[i]), 0);
        if (s->counts == SERIES_DEVICES)
            print_cell(&t, ranks(s, p, &curve[i]), 0);
        if (with_rate) {
            table_digits(&t, p->rate.value, 6);
            rate_reach(&t, p);
        }
        for (int c = 0; c < n; c++)
            if (is_there(&columns[c], s, curve))
                print_cell(&t, columns[c].value(s, p, &curve[i]), columns[c].decimals);
    }
    table_close(&t, to);
}

static void print_word(FILE *to, int *n, const char *words, const char *value)
{
    if (value[0] != '\0')
        fprintf(to, "%s%s%s%s", (*n)++ > 0 ? ", " : "", words, words[0] != '\0' ? " " : "", value);
}

static void print_work(FILE *to, const struct series *s)
{
    int n = 0;
    char seq[32] = "", shape[32] = "";
    if (s->n_points > 0 && s->points[0].sequence > 0)
        snprintf(seq, sizeof seq, "%lld", (long long)s->points[0].sequence);
    if (s->devices_per_node > 0)
        snprintf(shape, sizeof shape, "%lld", (long long)s->devices_per_node);
    fprintf(to, "# work    ");
    print_word(to, &n, "model", s->model);
    print_word(to, &n, "precision", s->precision);
    print_word(to, &n, "device", s->device);
    print_word(to, &n, "fabric", s->fabric);
    print_word(to, &n, "devices a node", shape);
    print_word(to, &n, "sequence", seq);
    print_word(to, &n, "", s->moe ? "mixture of experts" : "");
    fprintf(to, "%s\n", n == 0 ? "not described by the source" : "");
}

static void print_mode(FILE *to, const struct series *s)
{
    static const char *const words[SERIES_MODES] = {
        "strong scaling: every point does the same work a step; efficiency = (X / N) / (X0 / N0)",
        "weak scaling: work grows with N; efficiency is the rate per N kept",
        "work-normalised: the model grows with N, so this is no efficiency of a machine;\n"
        "#         efficiency = (W / W0) / (N / N0) T0 / T, W = parameters x sequences a step; no "
        "speedup"};
    if (s->n_points < 2)
        fprintf(to, "# one point: no speedup, no efficiency\n");
    else
        fprintf(to, "# %s\n", words[s->mode]);
    if (s->best_layout)
        fprintf(to, "# best-layout curve: tp, pp, cp or ep change with N, so each point is another "
                    "program; no law is fitted\n");
}

static void print_base(FILE *to, const struct series *s)
{
    if (s->base < 0 || s->n_points < 2)
        return;
    const struct series_point *p = &s->points[s->base];
    fprintf(to, "# base    %.0f %s, %.6g %s", p->n, series_counts_name(s->counts), p->rate.value,
            series_rate_unit(s->rate));
    if (!isnan(p->step_s.value))
        fprintf(to, ", %.3f ms a step", 1e3 * p->step_s.value);
    if (p->line > 0)
        fprintf(to, " (line %d)", p->line);
    fprintf(to, "\n");
}

static void print_mfu(FILE *to, const struct series *s)
{
    bool any = false, printed = false, again = false;
    for (int i = 0; i < s->n_points; i++) {
        any |= !isnan(s->points[i].mfu) || !isnan(s->points[i].hfu);
        again |= s->points[i].hfu > s->points[i].mfu * (1.0 + 1e-9);
        printed |=
            !isnan(s->points[i].printed[PRINTED_MFU]) || !isnan(s->points[i].printed[PRINTED_HFU]);
    }
    if (!any && !printed)
        return;
    fprintf(to, "# MFU     %s",
            s->flop_convention[0] != '\0' ? s->flop_convention : "as printed, convention not said");
    if (!isnan(s->peak_tflops))
        fprintf(to, "; peak %.6g TFLOP/s a device, %s%s%s (%s)", s->peak_tflops,
                s->precision[0] != '\0' ? s->precision : "precision not said", ", ",
                s->sparse_peak ? "2:4-sparse: twice the dense one" : "dense", s->peak_source);
    else
        fprintf(to, "; no peak known");
    fprintf(to, "\n");
    if (again)
        fprintf(to, "# HFU     the same peak, with the FLOPs that the source computes again%s\n",
                s->rate == SERIES_TFLOPS ? "; its TFLOP/s contain them" : "");
}

static const char *coverage(const struct series *s)
{
    bool exact = true, raw = false, few = false;
    for (int i = 0; i < s->n_points; i++) {
        exact = exact && s->points[i].exact;
        raw = raw || (s->points[i].n_launches > 0 && s->points[i].rate.n > s->points[i].n_launches);
        few = few || s->points[i].n_launches < SCALING_LAUNCHES_ENOUGH;
    }
    if (exact)
        return "exact: single printed values, their spread is unknown";
    if (raw)
        return few ? "95 % interval of n samples; fewer than three launches: it covers variation "
                     "within a launch only"
                   : "95 % interval of n samples; covers variation between launches";
    return "95 % interval as printed, or of the launches; exact: a single printed value";
}

static bool has_time_to_work(const struct series *s, const struct curve_point *curve)
{
    for (int i = 0; i < s->n_points; i++)
        if (!isnan(curve[i].time_to_work))
            return true;
    return false;
}

static void print_series(FILE *to, const struct series *s, const struct curve_point *curve)
{
    fprintf(to, "#\n# series  \"%s\" of %s: %s over %s, %d point%s\n", s->name, s->source,
            s->n_points < 2 ? "a value" : series_mode_name(s->mode), series_counts_name(s->counts),
            s->n_points, s->n_points == 1 ? "" : "s");
    print_mode(to, s);
    print_work(to, s);
    if (strncmp(s->precision, "fp8", 3) == 0)
        fprintf(to, "# FP8     imported figures; this program does not run FP8 itself\n");
    print_base(to, s);
    print_mfu(to, s);
    fprintf(to, "# +-      %s\n#\n", coverage(s));
    print_columns(to, s, curve, curve_columns, N_CURVE_COLUMNS, true);
    if (!has_time_to_work(s, curve))
        return;
    fprintf(to, "#\n# time to the same work: E_ttw = E_throughput x E_samples x E_goodput; - is a "
                "factor that the source does not know\n");
    print_columns(to, s, curve, work_columns, N_WORK_COLUMNS, false);
}

static void print_collectives(FILE *to, const struct collective_table *c)
{
    struct table t;
    fprintf(to, "#\n# collective %s of %s: %lld ranks, %lld host%s%s%s%s%s\n", c->operation,
            c->source, (long long)c->ranks, (long long)c->nodes, c->nodes == 1 ? "" : "s",
            c->type[0] != '\0' ? ", " : "", c->type, c->reduction[0] != '\0' ? " " : "",
            c->reduction);
    table_open(&t, "bytes time_us algbw_GBps busbw_GBps in_place_us in_place_busbw_GBps");
    for (int i = 0; i < c->n_rows; i++) {
        table_real(&t, c->rows[i].bytes, 0);
        table_digits(&t, c->rows[i].time_us, 6);
        table_digits(&t, c->rows[i].algbw_GBps, 5);
        table_digits(&t, c->rows[i].busbw_GBps, 5);
        table_digits(&t, c->rows[i].in_place_us, 6);
        table_digits(&t, c->rows[i].in_place_busbw_GBps, 5);
    }
    table_close(&t, to);
}

void report_series_text(FILE *to, const struct report_series *report)
{
    const struct series_set *set = report->set;
    fprintf(to, "# import  %d series, %d table%s of collectives\n", set->n_series,
            report->collectives->n, report->collectives->n == 1 ? "" : "s");
    for (int i = 0; i < set->n_notes; i++)
        fprintf(to, "%s# - %s:%d: %s\n", i == 0 ? "#\n# notes: nothing was changed\n" : "",
                set->notes[i].source, set->notes[i].line, set->notes[i].text);
    for (int i = 0; i < set->n_series; i++)
        print_series(to, &set->series[i], report->curves[i]);
    for (int i = 0; i < report->collectives->n; i++)
        print_collectives(to, &report->collectives->tables[i]);
    fprintf(to, "#\n# columns are defined in analysis/README.md\n");
}
