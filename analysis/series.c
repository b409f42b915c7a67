#include "analysis/series.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

const char *series_mode_name(enum series_mode mode)
{
    static const char *const names[SERIES_MODES] = {"strong", "weak", "work-normalised"};
    return names[mode];
}

const char *series_rate_unit(enum series_rate rate)
{
    static const char *const units[SERIES_RATES] = {"tokens/s", "samples/s", "steps/s", "TFLOP/s",
                                                    "device-steps/s"};
    return units[rate];
}

const char *series_counts_name(enum series_counts counts)
{
    return counts == SERIES_NODES ? "nodes" : "devices";
}

static const struct stats_interval unknown_interval = {NAN, NAN, NAN, 0};

struct series_point series_point_unknown(void)
{
    struct series_point p = {.n = NAN,
                             .devices = -1,
                             .nodes = -1,
                             .valid = true,
                             .step_s = unknown_interval,
                             .rate = unknown_interval,
                             .parameters = NAN,
                             .layers = -1,
                             .hidden = -1,
                             .heads = -1,
                             .vocabulary = -1,
                             .kv_heads = -1,
                             .ffn = -1,
                             .global_batch = -1,
                             .micro_batch = -1,
                             .sequence = -1,
                             .tp = -1,
                             .pp = -1,
                             .cp = -1,
                             .dp = -1,
                             .ep = -1,
                             .tokens_per_step = NAN,
                             .flops_per_step = NAN,
                             .work = NAN,
                             .mfu = NAN,
                             .hfu = NAN,
                             .samples_to_target = NAN,
                             .tokens_total = NAN,
                             .time_to_work_s = NAN,
                             .goodput = NAN,
                             .loss = NAN};
    for (int i = 0; i < PRINTED_FIGURES; i++)
        p.printed[i] = NAN;
    return p;
}

struct series *series_set_add(struct series_set *set, const char *name, const char *source)
{
    set->series = must_grow(set->series, (size_t)set->n_series + 1, sizeof *set->series);
    struct series *series = &set->series[set->n_series++];
    *series = (struct series){.peak_tflops = NAN, .devices_per_node = -1, .base = -1};
    snprintf(series->name, sizeof series->name, "%s", name);
    snprintf(series->source, sizeof series->source, "%s", source);
    return series;
}

struct series_point *series_add(struct series *series, const struct series_point *point)
{
    series->points =
        must_grow(series->points, (size_t)series->n_points + 1, sizeof *series->points);
    series->points[series->n_points] = *point;
    return &series->points[series->n_points++];
}

void series_set_note(struct series_set *set, const char *source, int line, const char *format, ...)
{
    va_list list;
    set->notes = must_grow(set->notes, (size_t)set->n_notes + 1, sizeof *set->notes);
    struct series_note *note = &set->notes[set->n_notes++];
    *note = (struct series_note){.line = line};
    snprintf(note->source, sizeof note->source, "%s", source);
    va_start(list, format);
    vsnprintf(note->text, sizeof note->text, format, list);
    va_end(list);
}

void series_point_release(struct series_point *point)
{
    for (int i = 0; i < point->n_launches; i++)
        free((void *)(uintptr_t)point->launches[i].x);
    free(point->launches);
    point->launches = NULL;
    point->n_launches = 0;
}

void series_release(struct series *series)
{
    for (int i = 0; i < series->n_points; i++)
        series_point_release(&series->points[i]);
    free(series->points);
    *series = (struct series){0};
}

void series_set_release(struct series_set *set)
{
    for (int i = 0; i < set->n_series; i++)
        series_release(&set->series[i]);
    free(set->series);
    free(set->notes);
    *set = (struct series_set){0};
}

void series_add_launch(struct series_point *point, const double *x, int64_t n, double scale)
{
    double *copy = must_alloc((size_t)n + 1, sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        copy[i] = x[i] * scale;
    point->launches =
        must_grow(point->launches, (size_t)point->n_launches + 1, sizeof *point->launches);
    point->launches[point->n_launches++] = (struct stats_series){copy, n};
}

void series_find_base(struct series *series)
{
    series->base = -1;
    for (int i = series->n_points - 1; i >= 0; i--)
        if (series->points[i].valid && series->points[i].rate.value > 0.0)
            series->base = i;
}

bool series_fittable(const struct series *series, const char **why)
{
    *why = "";
    if (series->mode == SERIES_WORK)
        *why = "the model grows with N: its points are no curve of one machine and one program";
    else if (series->best_layout)
        *why = "a best-layout curve: tp, pp, cp or ep change with N, so each point is another "
               "program";
    return **why == '\0';
}
