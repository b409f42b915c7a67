#include "analysis/report_text.h"

#include <math.h>

#include "analysis/report_key.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"

/* What a router decided is measured, and no plan has to foresee it. */
static const char *agreement(const struct traffic_row *row)
{
    bool foreseen = fabs(row->plan - row->executed) <= 1e-9 * fabs(row->plan) &&
                    fabs(row->formula - row->executed) <= 1e-9 * fabs(row->formula);
    return !row->passed ? "NO" : foreseen ? "yes" : "measured";
}

static void traffic_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                        const struct traffic_row *row, bool launches)
{
    const struct point_row *p = &run->account.record->point;
    char launch[32];
    report_key_cells(t, s, p);
    notes_launch(launch, run);
    if (launches)
        table_text(t, launch);
    table_text(t, row->axis);
    table_text(t, row->level);
    table_real(t, (double)row->calls / p->ranks, 1);
    table_real(t, row->formula / 1e6, 3);
    table_real(t, row->plan / 1e6, 3);
    table_real(t, row->executed / 1e6, 3);
    table_real(t, row->most / 1e6, 3);
    table_text(t, agreement(row));
}

void report_text_traffic(FILE *to, const struct scaling *s, bool launches)
{
    struct table t;
    int64_t n = 0;
    for (int i = 0; i < s->n_runs; i++)
        n += s->runs[i].account.record->traffic.n;
    if (n == 0)
        return;
    fprintf(to, "#\n# traffic of a full step, all ranks: inside nodes and from node to node, where "
                "each rank of a group sends\n# to the next one (a ring); calls a rank; most: the "
                "rank that sends the most\n");
    report_key_open(&t, s,
                    launches ? "launch axis level calls formula_MB plan_MB executed_MB "
                               "most_MB agree"
                             : "axis level calls formula_MB plan_MB executed_MB most_MB "
                               "agree");
    for (int i = 0; i < s->n_runs; i++) {
        const struct record_point *p = s->runs[i].account.record;
        for (int64_t j = 0; j < p->traffic.n; j++)
            traffic_row(&t, s, &s->runs[i], &p->traffic.rows[j], launches);
    }
    table_close(&t, to);
}
