#include "analysis/report_pace.h"

#include <math.h>

#include "analysis/claim.h"
#include "analysis/report_columns.h"
#include "analysis/report_key.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"

const char *report_pace_level(const struct scaling_row *row)
{
    if (row->levels.dominant < 0)
        return "";
    return row->levels.dominant == LEVEL_LAUNCHES ? "launches" : "steps";
}

/* The widest A/A interval of the runs of a row and of its base. */
static struct stats_interval widest_aa(const struct scaling *s, const struct scaling_row *row)
{
    struct stats_interval widest = {1.0, NAN, NAN, 0};
    const struct scaling_row *both[] = {row, &s->rows[row->efficiency.base]};
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < both[side]->n_used; i++)
            claim_widen(&widest, &both[side]->runs[i].account.aa_ratio);
    return widest;
}

const char *report_pace_loss(const struct report *report, const struct scaling_row *row)
{
    const struct stats_interval *efficiency = &row->efficiency.ratio;
    if (row->efficiency.base < 0 || isnan(efficiency->value))
        return "";
    if (&report->scaling->rows[row->efficiency.base] == row)
        return "base";
    struct stats_interval aa = widest_aa(report->scaling, row);
    if (claim_differs(efficiency, &aa) != CLAIM_HOLDS)
        return "undecided";
    return efficiency->value < 1.0 ? "lost" : "gained";
}

static void pace_row(struct table *t, const struct scaling *s, const struct scaling_row *row)
{
    report_key_cells(t, s, row->point);
    table_int(t, row->levels.n_launches);
    table_int(t, row->levels.n_steps);
    table_real(t, 100.0 * row->levels.independent, 2);
    table_real(t, 100.0 * row->levels.half[LEVEL_STEPS], 2);
    table_real(t, 100.0 * row->levels.half[LEVEL_LAUNCHES], 2);
    table_text(t, report_pace_level(row));
    table_real(t, report_ms(row->next_ns.value), 3);
    table_real(t, report_ms(row->next_ns.low), 3);
    table_real(t, report_ms(row->next_ns.high), 3);
}

static void loss_row(struct table *t, const struct report *report, const struct scaling_row *row)
{
    const struct scaling *s = report->scaling;
    struct stats_interval aa = {NAN, NAN, NAN, 0};
    if (row->efficiency.base >= 0)
        aa = widest_aa(s, row);
    report_key_cells(t, s, row->point);
    table_real(t, 100.0 * row->efficiency.ratio.value, 2);
    table_real(t, 100.0 * row->efficiency.ratio.low, 2);
    table_real(t, 100.0 * row->efficiency.ratio.high, 2);
    table_real(t, aa.low, 4);
    table_real(t, aa.high, 4);
    table_text(t, report_pace_loss(report, row));
}

void report_pace(FILE *to, const struct report *report)
{
    const struct scaling *s = report->scaling;
    struct table t;
    fprintf(
        to,
        "#\n# what an interval is made of: half widths (95 %%) of the mean step in %% of it, if "
        "steps were independent, by steps within\n# a launch, by launches; next: where the "
        "mean step of one more launch falls (95 %%, from two launches on)\n");
    report_key_open(&t, s,
                    "launches steps independent_% steps_% launches_% dominates next_ms "
                    "next_low next_high");
    for (int i = 0; i < s->n_rows; i++)
        pace_row(&t, s, &s->rows[i]);
    table_close(&t, to);
    fprintf(
        to,
        "#\n# is the loss real: efficiency against the base of the curve beside the widest A/A of "
        "both points; undecided where its\n# interval has 100 %% in it or A/A reaches as far\n");
    report_key_open(&t, s, "eff_% eff_low eff_high A/A_low A/A_high loss");
    for (int i = 0; i < s->n_rows; i++)
        loss_row(&t, report, &s->rows[i]);
    table_close(&t, to);
}

bool report_pace_shift(char *text, size_t size, const struct account *a)
{
    const struct shift *s = &a->shift;
    if (s->kind == SHIFT_DRIFT)
        snprintf(text, size, "the step drifts by %+.1f %% over the launch (p %.1g)",
                 100.0 * s->drift, s->drift_p);
    else if (s->kind == SHIFT_CHANGE)
        snprintf(text, size, "the step changes by %+.1f %% at step %lld of %lld (p %.1g)",
                 100.0 * s->change, (long long)s->change_at, (long long)a->series[ACCOUNT_FULL].n,
                 s->change_p);
    return s->kind != SHIFT_NONE;
}

bool report_pace_straggler(char *text, size_t size, const struct scaling_run *run)
{
    const struct account *a = &run->account;
    const struct straggler *s = &a->straggler;
    const char *host = account_host(&run->file->head, &a->record->point, s->rank);
    double share = 100.0 * (double)s->late / (double)(s->steps > 0 ? s->steps : 1);
    if (s->kind == STRAGGLER_ONE_RANK)
        snprintf(text, size,
                 "one rank is late: rank %d%s%.32s, +%.1f %% compute in %.0f %% of steps, waits "
                 "%.3f ms, "
                 "others %.3f",
                 s->rank, host[0] != '\0' ? " on " : "", host, 100.0 * s->excess, share,
                 report_ms(s->wait_ns), report_ms(s->others_wait_ns));
    else if (s->kind == STRAGGLER_ROTATING)
        snprintf(
            text, size,
            "late ranks rotate: in %.0f %% of steps, rank %d most often (%lld of %lld); it costs "
            "%.1f %% of compute",
            share, s->rank, (long long)s->of_rank, (long long)s->late, 100.0 * s->cost);
    else if (s->kind == STRAGGLER_FEW_STEPS)
        snprintf(
            text, size,
            "few bad steps: %lld of %lld have a late rank, most often rank %d, +%.0f %% compute",
            (long long)s->late, (long long)s->steps, s->rank, 100.0 * s->excess);
    return s->kind == STRAGGLER_ONE_RANK || s->kind == STRAGGLER_ROTATING ||
           s->kind == STRAGGLER_FEW_STEPS;
}
