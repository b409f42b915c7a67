#include "analysis/series.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/report_columns.h"

static int64_t known(int64_t value)
{
    return value > 0 ? value : -1;
}

static struct series_point point_of(const struct scaling_row *row)
{
    const struct point_row *p = row->point;
    struct series_point out = series_point_unknown();
    out.n = p->ranks;
    out.devices = p->ranks;
    out.nodes = p->nodes;
    out.oversubscribed = p->oversubscribed != 0;
    out.emulated = p->emulated != 0;
    out.unsettled = strcmp(report_status(row), "unsettled") == 0;
    out.valid = row->valid && row->step_ns.n > 0;
    snprintf(out.why, sizeof out.why, "%.*s", (int)sizeof out.why - 1, p->why);
    out.step_s = (struct stats_interval){row->step_ns.value * 1e-9, row->step_ns.low * 1e-9,
                                         row->step_ns.high * 1e-9, row->step_ns.n};
    out.rate = row->tokens_per_s;
    out.parameters = (double)p->parameters;
    out.global_batch = known(p->global_batch);
    out.micro_batch = known(p->micro_batch);
    out.sequence = known(p->sequence);
    out.tp = known(p->tp);
    out.pp = known(p->pp);
    out.cp = known(p->cp);
    out.dp = known(p->dp);
    out.ep = known(p->ep);
    out.tokens_per_step = row->tokens_per_step;
    out.flops_per_step = p->model_flops_per_step > 0.0 ? p->model_flops_per_step : (double)NAN;
    out.work = out.parameters * (double)p->global_batch;
    out.mfu = out.flops_per_step / (out.step_s.value * p->ranks * row->peak_flops);
    out.hfu = report_hfu(row);
    out.loss = p->final_loss;
    for (int i = 0; i < row->n_used; i++) {
        const struct account_series *full = &row->runs[i].account.series[ACCOUNT_FULL];
        if (full->n > 0)
            series_add_launch(&out, full->period_ns, full->n, 1e-9);
    }
    return out;
}

static void fill_series(struct series *series, const struct scaling *scaling, int first)
{
    const struct scaling_row *head = &scaling->rows[first];
    const struct point_row *p = head->point;
    series->mode =
        strncmp(p->scaling, "weak", sizeof p->scaling) == 0 ? SERIES_WEAK : SERIES_STRONG;
    series->from_study = true;
    series->set = head->set;
    series->devices_per_node = p->ranks_per_node;
    series->moe = p->experts > 0;
    snprintf(series->model, sizeof series->model, "%.*s", (int)sizeof p->model - 1, p->model);
    snprintf(series->device, sizeof series->device, "%.*s", (int)sizeof p->device - 1, p->device);
    snprintf(series->precision, sizeof series->precision, "%.*s", (int)sizeof p->dtype - 1,
             p->dtype);
    snprintf(series->flop_convention, sizeof series->flop_convention, "causal half, no recompute");
    snprintf(series->peak_source, sizeof series->peak_source, "%.*s",
             (int)sizeof p->peak_source - 1, head->peak_source);
    series->peak_tflops = head->peak_flops / 1e12;
    for (int i = 0; i < scaling->n_rows; i++)
        if (scaling_has_shape(&scaling->rows[i], head->set, p->ranks_per_node)) {
            struct series_point point = point_of(&scaling->rows[i]);
            series_add(series, &point);
        }
    series_find_base(series);
}

void series_from_scaling(struct series_set *set, const struct scaling *scaling, const char *name,
                         const char *source)
{
    for (int i = 0; i < scaling->n_rows; i++) {
        char full[96];
        if (!scaling_opens_shape(scaling, i))
            continue;
        const struct scaling_row *row = &scaling->rows[i];
        snprintf(full, sizeof full, "%s set %d, %d a node", name, row->set,
                 row->point->ranks_per_node);
        fill_series(series_set_add(set, full, source), scaling, i);
    }
}
