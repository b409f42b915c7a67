/* Figures that more than one form of the report prints. */
#include "analysis/report_columns.h"

#include <math.h>
#include <string.h>

double report_ms(double ns)
{
    return ns / 1e6;
}

double report_tflops_per_device(const struct scaling_row *row)
{
    const struct point_row *p = row->point;
    if (!(p->model_flops_per_step > 0.0))
        return NAN;
    return p->model_flops_per_step / row->step_ns.value / p->ranks / 1e3;
}

double report_mfu(const struct scaling_row *row)
{
    return report_tflops_per_device(row) * 1e12 / row->peak_flops;
}

/* The driver counts them where something is recomputed; where nothing is they are the model's. */
double report_hfu(const struct scaling_row *row)
{
    const struct record_point *p = row->runs[0].account.record;
    double flops = p->work.n > 0 ? p->point.model_flops_per_step : (double)NAN;
    for (int64_t i = 0; i < p->work.n; i++)
        if (strncmp(p->work.rows[i].quantity, "hardware FLOPs", sizeof(text32)) == 0)
            flops = p->work.rows[i].executed;
    return report_mfu(row) * flops / p->point.model_flops_per_step;
}

const char *report_status(const struct scaling_row *row)
{
    if (!row->valid)
        return "invalid";
    for (int i = 0; i < row->n_used; i++)
        if (!row->runs[i].account.record->point.settled)
            return "unsettled";
    return "ok";
}

int64_t report_wrong(const struct scaling_row *row)
{
    int64_t wrong = 0;
    for (int i = 0; i < row->n_runs; i++) {
        const struct record_point *p = row->runs[i].account.record;
        for (int64_t j = 0; j < p->gate.n; j++)
            wrong += !p->gate.rows[j].passed;
        for (int64_t j = 0; j < p->work.n; j++)
            wrong += !p->work.rows[j].passed;
    }
    return wrong;
}

const struct scaling_run *report_slowest(const struct scaling_row *row)
{
    const struct scaling_run *worst = &row->runs[0];
    for (int i = 1; i < row->n_used; i++)
        if (row->runs[i].account.slowest_share > worst->account.slowest_share ||
            worst->account.slowest < 0)
            worst = &row->runs[i];
    return worst;
}

const char *report_attribute(const struct report *report, const char *group, const char *name)
{
    const char *text = record_head_get(&report->files[0]->head, group, name);
    return text != NULL ? text : "";
}

int64_t report_peak_bytes(const struct scaling_row *row)
{
    int64_t peak = -1;
    for (int i = 0; i < row->n_used; i++) {
        const struct record_point *p = row->runs[i].account.record;
        for (int64_t j = 0; j < p->memory.n; j++)
            if (strncmp(p->memory.rows[j].class, "process", sizeof(text16)) == 0 &&
                p->memory.rows[j].peak_bytes > peak)
                peak = p->memory.rows[j].peak_bytes;
    }
    return peak;
}
