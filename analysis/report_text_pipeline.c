/* Pipelines: what they leave idle, and how evenly their stages compute. */
#include <math.h>
#include <string.h>

#include "analysis/report_key.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"
#include "analysis/report_text.h"

/* Mean and most of the stages' compute time, the stage that takes most, the most in flight. */
struct stages {
    double mean, most, activations;
    int slowest, in_flight;
};

static struct stages stages_of(const struct record_point *p)
{
    struct stages out = {0};
    for (int64_t i = 0; i < p->stages.n; i++) {
        const struct stage_row *row = &p->stages.rows[i];
        out.mean += row->compute_ms / (double)p->stages.n;
        if (row->compute_ms > out.most) {
            out.most = row->compute_ms;
            out.slowest = row->stage;
        }
        out.in_flight = row->in_flight > out.in_flight ? row->in_flight : out.in_flight;
        out.activations = fmax(out.activations, (double)row->activation_bytes);
    }
    return out;
}

static void pipeline_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                         bool launches)
{
    const struct record_point *p = run->account.record;
    struct stages stages = stages_of(p);
    char launch[32];
    report_key_cells(t, s, &p->point);
    notes_launch(launch, run);
    if (launches)
        table_text(t, launch);
    table_text(t, p->point.schedule);
    table_int(t, p->point.pp);
    table_int(t, p->point.virtual_stages);
    table_int(t, p->point.micro_steps);
    table_real(t, p->point.replay_ms, 3);
    table_real(t, p->point.bubble_ms, 3);
    table_real(t, 100 * p->point.bubble_ms / p->point.replay_ms, 2);
    table_real(t, 100 * p->point.bubble_ideal, 2);
    table_real(t, 100 * p->point.bubble_closed, 2);
    table_real(t, p->point.transfer_ms, 3);
    table_real(t, p->point.replay_moved_ms, 3);
    table_real(t, stages.mean, 3);
    table_real(t, stages.most / stages.mean, 3);
    table_int(t, stages.slowest);
    table_int(t, stages.in_flight);
    table_real(t, stages.activations / 1e6, 1);
}

void report_text_pipeline(FILE *to, const struct scaling *s, bool launches)
{
    struct table t;
    int64_t n = 0;
    for (int i = 0; i < s->n_runs; i++)
        n += s->runs[i].account.record->stages.n;
    if (n == 0)
        return;
    fprintf(to,
            "#\n# pipeline: a replay of the plan with the ops of instrumented steps and free "
            "transfers: its step, what stages idle in it (mean),\n# over the step, over the ideal "
            "(all that is computed, shared out evenly), and the same of equal stages in closed "
            "form;\n# a transfer once both ends are there, and the replay with transfers of that "
            "length: the step to expect; stages: mean compute\n# time, that of the slowest over "
            "it, which one; most chunks in flight, activations of a rank\n");
#define COLUMNS                                                                                    \
    "schedule pp v m replay_ms bubble_ms bubble/step_% bubble/ideal_% closed_% transfer_ms "       \
    "with_transfers_ms stage_ms max/mean slowest in_flight act_MB"
    report_key_open(&t, s, launches ? "launch " COLUMNS : COLUMNS);
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].account.record->stages.n > 0)
            pipeline_row(&t, s, &s->runs[i], launches);
    table_close(&t, to);
}
