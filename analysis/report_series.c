#include "analysis/report_series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { SEED = 1 };

static struct report_value whole(int64_t value)
{
    return (struct report_value){.kind = REPORT_INTEGER,
                                 .integer = value < 0 ? REPORT_UNKNOWN : value};
}

static struct report_value real(double value)
{
    return (struct report_value){.kind = REPORT_REAL, .real = value};
}

static struct report_value truth(bool value)
{
    return (struct report_value){.kind = REPORT_TRUTH, .integer = value};
}

static struct report_value text(const char *value)
{
    return (struct report_value){.kind = REPORT_TEXT, .text = value};
}

/* Throughput in tokens/s; a series of another unit has it in `rate`. */
static double tokens(const struct series *s, double rate)
{
    return s->rate == SERIES_TOKENS ? rate : (double)NAN;
}

static double samples_per_s(const struct series *s, const struct series_point *p)
{
    return s->rate == SERIES_SAMPLES ? p->rate.value : (double)p->global_batch / p->step_s.value;
}

static double tflops(const struct series *s, const struct series_point *p)
{
    double derived = p->flops_per_step / p->step_s.value / (double)p->devices / 1e12;
    return isnan(derived) && s->rate == SERIES_TFLOPS ? p->rate.value / (double)p->devices
                                                      : derived;
}

static double base_n(const struct series *s, int base)
{
    return base >= 0 ? s->points[base].n : (double)NAN;
}

static int64_t base_devices(const struct series *s, int base)
{
    return base >= 0 ? (int64_t)base_n(s, base) : -1;
}

/* X(name, value): s the series, p its point, c its curve point. Names of report_columns.h first. */
#define SERIES_COLUMNS(X)                                                                          \
    X(mode, text(series_mode_name(s->mode)))                                                       \
    X(nodes, whole(p->nodes))                                                                      \
    X(ranks, whole(p->devices))                                                                    \
    X(tp, whole(p->tp))                                                                            \
    X(pp, whole(p->pp))                                                                            \
    X(cp, whole(p->cp))                                                                            \
    X(ep, whole(p->ep))                                                                            \
    X(dp, whole(p->dp))                                                                            \
    X(mbs, whole(p->micro_batch))                                                                  \
    X(gbs, whole(p->global_batch))                                                                 \
    X(seq, whole(p->sequence))                                                                     \
    X(ci_lo_ms, real(1e3 * p->step_s.low))                                                         \
    X(ci_hi_ms, real(1e3 * p->step_s.high))                                                        \
    X(n_iter, whole(p->rate.n))                                                                    \
    X(tokens_per_s, real(tokens(s, p->rate.value)))                                                \
    X(tokens_per_s_gpu, real(tokens(s, p->rate.value) / (double)p->devices))                       \
    X(mfu_pct, real(100.0 * p->mfu))                                                               \
    X(hfu_pct, real(100.0 * p->hfu))                                                               \
    X(speedup, real(c->speedup.value))                                                             \
    X(efficiency_pct, real(100.0 * c->efficiency.value))                                           \
    X(inc_eff_pct, real(100.0 * c->ratio.value))                                                   \
    X(goodput_pct, real(100.0 * p->goodput))                                                       \
    X(status, text(p->valid ? "ok" : "invalid"))                                                   \
    X(point, whole((int64_t)(p - s->points)))                                                      \
    X(launches, whole(p->n_launches > 0 ? p->n_launches : 1))                                      \
    X(ranks_per_node, whole(p->nodes > 0 && p->devices > 0 ? p->devices / p->nodes : -1))          \
    X(model, text(s->model))                                                                       \
    X(parameters, real(p->parameters))                                                             \
    X(dtype, text(s->precision))                                                                   \
    X(device, text(s->device))                                                                     \
    X(valid, truth(p->valid))                                                                      \
    X(why, text(p->why))                                                                           \
    X(step_ms_mean, real(1e3 * p->step_s.value))                                                   \
    X(tokens_per_s_lo, real(tokens(s, p->rate.low)))                                               \
    X(tokens_per_s_hi, real(tokens(s, p->rate.high)))                                              \
    X(tokens_per_step, real(p->tokens_per_step))                                                   \
    X(samples_per_step, whole(p->global_batch))                                                    \
    X(samples_per_s, real(samples_per_s(s, p)))                                                    \
    X(speedup_lo, real(c->speedup.low))                                                            \
    X(speedup_hi, real(c->speedup.high))                                                           \
    X(efficiency_lo_pct, real(100.0 * c->efficiency.low))                                          \
    X(efficiency_hi_pct, real(100.0 * c->efficiency.high))                                         \
    X(base_ranks, whole(base_devices(s, c->base)))                                                 \
    X(base_tokens_per_s, real(c->base >= 0 ? tokens(s, s->points[c->base].rate.value) : NAN))      \
    X(inc_eff_lo_pct, real(100.0 * c->ratio.low))                                                  \
    X(inc_eff_hi_pct, real(100.0 * c->ratio.high))                                                 \
    X(inc_base_ranks, whole(base_devices(s, c->previous)))                                         \
    X(marginal_eff_pct, real(100.0 * c->marginal.value))                                           \
    X(marginal_eff_lo_pct, real(100.0 * c->marginal.low))                                          \
    X(marginal_eff_hi_pct, real(100.0 * c->marginal.high))                                         \
    X(tflops_per_s_gpu, real(tflops(s, p)))                                                        \
    X(model_flops_per_step, real(p->flops_per_step))                                               \
    X(peak_tflops_per_s_gpu, real(s->peak_tflops))                                                 \
    X(peak_source, text(s->peak_source))                                                           \
    X(final_loss, real(p->loss))                                                                   \
    X(series, text(s->name))                                                                       \
    X(source, text(s->source))                                                                     \
    X(line, whole(p->line > 0 ? p->line : -1))                                                     \
    X(counts, text(series_counts_name(s->counts)))                                                 \
    X(best_layout, truth(s->best_layout))                                                          \
    X(exact, truth(p->exact))                                                                      \
    X(rate, real(p->rate.value))                                                                   \
    X(rate_unit, text(series_rate_unit(s->rate)))                                                  \
    X(layers, whole(p->layers))                                                                    \
    X(work, real(p->work))                                                                         \
    X(fabric, text(s->fabric))                                                                     \
    X(moe, truth(s->moe))                                                                          \
    X(flop_convention, text(s->flop_convention))                                                   \
    X(sparse_peak, truth(s->sparse_peak))                                                          \
    X(mfu_printed_pct, real(100.0 * p->printed[PRINTED_MFU]))                                      \
    X(hfu_printed_pct, real(100.0 * p->printed[PRINTED_HFU]))                                      \
    X(efficiency_printed_pct, real(100.0 * p->printed[PRINTED_EFFICIENCY]))                        \
    X(tokens_per_s_printed, real(p->printed[PRINTED_TOKENS_PER_S]))                                \
    X(hours_to_work, real(c->hours_to_work))                                                       \
    X(ttw_eff_pct, real(100.0 * c->time_to_work))                                                  \
    X(throughput_factor, real(c->throughput_factor))                                               \
    X(samples_factor, real(c->samples_factor))                                                     \
    X(goodput_factor, real(c->goodput_factor))

#define COLUMN_FUNCTION(name_, value_)                                                             \
    static struct report_value column_##name_(                                                     \
        const struct series *s, const struct series_point *p, const struct curve_point *c)         \
    {                                                                                              \
        (void)s;                                                                                   \
        (void)p;                                                                                   \
        (void)c;                                                                                   \
        return value_;                                                                             \
    }
SERIES_COLUMNS(COLUMN_FUNCTION)

static const struct {
    const char *name;
    struct report_value (*value)(const struct series *s, const struct series_point *p,
                                 const struct curve_point *c);
} columns[] = {
#define COLUMN_ENTRY(name_, value_) {#name_, column_##name_},
    SERIES_COLUMNS(COLUMN_ENTRY)};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static int find_column(const char *name)
{
    for (int i = 0; i < N_COLUMNS; i++)
        if (strcmp(columns[i].name, name) == 0)
            return i;
    return -1;
}

static void find_columns(struct report_series *report)
{
    bool shared[N_COLUMNS] = {false};
    report->columns = must_alloc((size_t)report_n_columns() + N_COLUMNS, sizeof *report->columns);
    for (int i = 0; i < report_n_columns(); i++) {
        int own = find_column(report_column_name(i));
        report->columns[report->n_columns++] = own;
        if (own >= 0)
            shared[own] = true;
    }
    for (int i = 0; i < N_COLUMNS; i++)
        if (!shared[i])
            report->columns[report->n_columns++] = i;
}

void report_series_open(struct report_series *report, const struct series_set *set,
                        const struct collective_tables *collectives)
{
    *report = (struct report_series){.set = set, .collectives = collectives};
    report->curves = must_alloc((size_t)set->n_series + 1, sizeof(struct curve_point *));
    find_columns(report);
    for (int i = 0; i < set->n_series; i++)
        report->curves[i] = curve_of(&set->series[i], SEED);
}

void report_series_close(struct report_series *report)
{
    for (int i = 0; report->curves != NULL && i < report->set->n_series; i++)
        free(report->curves[i]);
    free((void *)report->curves);
    free(report->columns);
    *report = (struct report_series){0};
}

const char *report_series_column_name(const struct report_series *report, int column)
{
    return column < report_n_columns() ? report_column_name(column)
                                       : columns[report->columns[column]].name;
}

struct report_value report_series_value(int column, const struct report_series *report, int series,
                                        int point)
{
    const struct series *s = &report->set->series[series];
    int own = report->columns[column];
    return own < 0 ? text("")
                   : columns[own].value(s, &s->points[point], &report->curves[series][point]);
}

void report_series_csv(FILE *to, const struct report_series *report)
{
    int n = report->n_columns;
    for (int c = 0; c < n; c++)
        fprintf(to, "%s%s", c > 0 ? "," : "", report_series_column_name(report, c));
    fputc('\n', to);
    for (int i = 0; i < report->set->n_series; i++)
        for (int j = 0; j < report->set->series[i].n_points; j++) {
            for (int c = 0; c < n; c++) {
                if (c > 0)
                    fputc(',', to);
                report_csv_value(to, report_series_value(c, report, i, j));
            }
            fputc('\n', to);
        }
}
