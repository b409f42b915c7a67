/* Layers of experts: how evenly tokens came, and what an uneven load costs, each reason by itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/report_key.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"
#include "analysis/report_text.h"
#include "base/err.h"

/* Of the rows of whole layers. */
struct load {
    double hottest, mean, dropped_share, balance; /* over layers: the most, the mean, ... */
    int64_t tied;
};

static struct load load_of(const struct record_point *p)
{
    struct load out = {0};
    double choices = 0, dropped = 0, layers = 0;
    for (int64_t i = 0; i < p->experts.n; i++) {
        const struct load_row *row = &p->experts.rows[i];
        if (row->expert >= 0)
            continue;
        out.hottest = fmax(out.hottest, row->load);
        out.mean += row->load;
        out.balance += row->balance;
        out.tied += row->tied;
        choices += (double)row->tokens;
        dropped += (double)row->dropped;
        layers++;
    }
    out.mean /= layers;
    out.balance /= layers;
    out.dropped_share = choices > 0 ? dropped / choices : (double)NAN;
    return out;
}

/* Of the compute-only steps: the mean over ranks, and the rank that takes longest; NaN: none. */
static void compute_of(const struct record_point *p, double *mean, double *most)
{
    int ranks = p->point.ranks;
    double *sum = must_alloc((size_t)ranks * 2, sizeof *sum), *n = sum + ranks, all = 0;
    int left_out = STEP_WARM_UP | STEP_LEAD_IN;
    for (int64_t i = 0; i < p->steps.n; i++) {
        const struct step_row *row = &p->steps.rows[i];
        if (row->variant != VARIANT_COMPUTE || (row->flags & left_out) != 0 || row->rank < 0 ||
            row->rank >= ranks)
            continue;
        sum[row->rank] += (double)(row->end_ns - row->start_ns);
        n[row->rank]++;
    }
    *most = 0;
    for (int r = 0; r < ranks; r++) {
        all += sum[r] / n[r] / ranks;
        *most = fmax(*most, sum[r] / n[r]);
    }
    *mean = all;
    *most = isnan(all) ? all : *most;
    free(sum);
}

/* All-to-alls, and the sum beside them: the mean of the ranks, and the one that sends most. */
static void bytes_of(const struct record_point *p, double *mean, double *most)
{
    *mean = *most = 0;
    for (int64_t i = 0; i < p->traffic.n; i++) {
        const struct traffic_row *row = &p->traffic.rows[i];
        if (strncmp(row->axis, "ep", sizeof row->axis) != 0)
            continue;
        *mean += row->executed / p->point.ranks;
        *most += row->most;
    }
}

static const struct account_axis *axis_of(const struct account *a)
{
    for (int i = 0; i < a->n_axes; i++)
        if (strncmp(a->axes[i].name, "ep", sizeof a->axes[i].name) == 0)
            return &a->axes[i];
    return NULL;
}

static void experts_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                        bool launches)
{
    const struct record_point *p = run->account.record;
    const struct account_axis *axis = axis_of(&run->account);
    struct load load = load_of(p);
    double compute, compute_most, bytes, bytes_most;
    char launch[32], routing[sizeof p->point.routing + 1];
    compute_of(p, &compute, &compute_most);
    bytes_of(p, &bytes, &bytes_most);
    snprintf(routing, sizeof routing, "%.*s", (int)strcspn(p->point.routing, ","),
             p->point.routing);
    report_key_cells(t, s, &p->point);
    notes_launch(launch, run);
    if (launches)
        table_text(t, launch);
    table_text(t, routing);
    table_real(t, load.mean, 2);
    table_real(t, load.hottest, 2);
    table_real(t, 100 * load.dropped_share, 2);
    table_real(t, (double)load.tied, 0);
    table_real(t, load.balance, 3);
    table_real(t, compute / 1e6, 3);
    table_real(t, compute_most / 1e6, 3);
    table_real(t, bytes / 1e6, 3);
    table_real(t, bytes_most / 1e6, 3);
    table_real(t, axis != NULL ? axis->stall_ns / 1e6 : (double)NAN, 3);
    table_real(t, axis != NULL ? axis->transfer_ns / 1e6 : (double)NAN, 3);
    table_real(t, axis != NULL ? axis->skew_ns / 1e6 : (double)NAN, 3);
}

void report_text_experts(FILE *to, const struct scaling *s, bool launches)
{
    struct table t;
    int64_t n = 0;
    for (int i = 0; i < s->n_runs; i++)
        n += s->runs[i].account.record->experts.n;
    if (n == 0)
        return;
    fprintf(to,
            "#\n# experts, first step: the hottest expert of a layer over the mean (mean and most "
            "over layers), choices that found no room,\n# tokens between two experts; compute-only "
            "steps and bytes on ep: the mean of the ranks, and the rank with most;\n# on ep: "
            "exposed, of its calls what the fastest rank took, and waiting for late ones\n");
    report_key_open(&t, s,
                    launches ? "launch routing hot hottest dropped_pct tied balance compute_ms "
                               "most_ms a2a_MB most_MB exposed_ms transfer_ms waiting_ms"
                             : "routing hot hottest dropped_pct tied balance compute_ms most_ms "
                               "a2a_MB most_MB exposed_ms transfer_ms waiting_ms");
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].account.record->experts.n > 0)
            experts_row(&t, s, &s->runs[i], launches);
    table_close(&t, to);
}
