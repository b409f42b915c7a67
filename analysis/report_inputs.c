#include "analysis/report_inputs.h"

#include <math.h>
#include <string.h>

#include "analysis/inputs.h"
#include "analysis/report_columns.h"
#include "analysis/report_key.h"
#include "analysis/report_table.h"

static bool is_worth_a_table(const struct report *report)
{
    const char *workers = report_attribute(report, "study", "input-workers");
    const struct scaling *s = report->scaling;
    if (workers[0] != '\0' && strcmp(workers, "0") != 0)
        return true;
    for (int i = 0; i < s->n_rows; i++)
        if (strncmp(s->rows[i].point->input, "synthetic", sizeof s->rows[i].point->input) != 0 &&
            inputs_of_row(&s->rows[i]).n_steps > 0)
            return true;
    return false;
}

static void gap_cells(struct table *t, const struct scaling *s, const struct scaling_row *row)
{
    const struct scaling_row *synthetic = inputs_synthetic(s, row), *base = inputs_base(s, row);
    struct stats_interval gap = {NAN, NAN, NAN, 0};
    if (base != NULL)
        gap = inputs_gap_ns(row, base);
    table_real(t, synthetic != NULL ? synthetic->step_ns.value / row->step_ns.value : (double)NAN,
               4);
    table_text(t, base != NULL ? base->point->input : "");
    table_real(t, report_ms(gap.value), 3);
    table_real(t, report_ms(gap.high - gap.low) / 2.0, 3);
}

static void input_row(struct table *t, const struct scaling *s, const struct scaling_row *row)
{
    struct inputs in = inputs_of_row(row);
    report_key_cells(t, s, row->point);
    table_text(t, row->point->input);
    table_real(t, report_ms(row->step_ns.value), 3);
    gap_cells(t, s, row);
    table_real(t, report_ms(in.input_ns), 4);
    table_real(t, report_ms(in.wait_ns), 4);
    table_real(t, 100.0 * in.starved_share, 1);
    table_real(t, in.depth, 1);
    table_real(t, in.read_bytes / 1024.0, 2);
    table_real(t, report_ms(in.cpu_ns), 3);
    table_real(t, report_ms(in.worker_cpu_ns), 4);
    table_real(t, in.resident_bytes / 1048576.0, 1);
}

void report_inputs_text(FILE *to, const struct report *report)
{
    const struct scaling *s = report->scaling;
    struct table t;
    if (!is_worth_a_table(report))
        return;
    fprintf(to,
            "#\n# input, a step and rank of full steps: of_synth is the speed against synthetic, "
            "gap the step against `base`; starved: steps\n# in which a rank waits for more than 1 "
            "%%; behind gap: of several launches the one that waits most; workers %s, prefetch %s "
            "batches\n",
            report_attribute(report, "study", "input-workers"),
            report_attribute(report, "study", "prefetch"));
    report_key_open(&t, s,
                    "input step_ms of_synth base gap_ms +-_ms input_ms wait_ms "
                    "starved_% depth read_KiB cpu_ms worker_cpu_ms resident_MiB");
    for (int i = 0; i < s->n_rows; i++)
        input_row(&t, s, &s->rows[i]);
    table_close(&t, to);
}
