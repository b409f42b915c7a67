#include "analysis/report_checkpoints.h"

#include <math.h>

#include "analysis/report_columns.h"
#include "analysis/report_key.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"

enum { SEED = 8 };
static const double gib = 1073741824.0;

struct checkpoints report_checkpoints(const struct scaling_run *run)
{
    struct checkpoints c;
    checkpoints_of_point(&c, run->account.record, SEED);
    return c;
}

static bool any(const struct report *report, bool saves)
{
    for (int i = 0; i < report->scaling->n_runs; i++) {
        struct checkpoints c = report_checkpoints(&report->scaling->runs[i]);
        if (saves ? c.n_modes > 0 : c.resumed || c.restored)
            return true;
    }
    return false;
}

static double ms(double ns)
{
    return report_ms(ns);
}

/* A point has a row of each launch. */
static void key_cells(struct table *t, const struct scaling *s, const struct scaling_run *run)
{
    char launch[32];
    notes_launch(launch, run);
    report_key_cells(t, s, &run->account.record->point);
    if (s->n_launches > 1)
        table_text(t, launch);
}

static void open_table(struct table *t, const struct scaling *s, const char *columns)
{
    char names[256];
    snprintf(names, sizeof names, "%s%s", s->n_launches > 1 ? "launch " : "", columns);
    report_key_open(t, s, names);
}

static void save_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                     const struct checkpoints_mode *m)
{
    key_cells(t, s, run);
    table_text(t, m->mode);
    table_int(t, m->saves);
    table_real(t, m->bytes / 1e9, 4);
    table_real(t, ms(m->blocked_ns), 3);
    table_real(t, ms(m->call_ns), 3);
    table_real(t, ms(m->staged_ns), 3);
    table_real(t, ms(m->complete_ns), 2);
    table_real(t, m->bytes_per_s / 1e9, 3);
    table_real(t, ms(m->inflation.value), 3);
    table_real(t, ms(m->inflation.high - m->inflation.low) / 2, 3);
    table_text(t, isnan(m->inflation.low) ? "-" : m->detectable ? "yes" : "no");
    table_real(t, m->ratio.value, 4);
    table_real(t, m->ratio.low, 4);
    table_real(t, m->ratio.high, 4);
    table_real(t, m->ratio_p99, 3);
    table_real(t, ms(m->first_blocked_ns), 3);
    table_real(t, ms(m->first_complete_ns), 2);
    table_real(t, m->host_bytes / gib, 3);
    table_text(t, m->file_system);
    table_text(t, m->direct ? "yes" : "no");
    table_int(t, m->overlaps);
    table_int(t, m->lost);
}

static void print_saves(FILE *to, const struct report *report)
{
    const struct scaling *s = report->scaling;
    struct table t;
    fprintf(to,
            "#\n# checkpoints, medians of saves behind the first, slowest rank: blocked is what "
            "the compute stream loses to the call, inflation what the steps\n# until publication "
            "and five more lose (detected: its interval leaves out 0), drain the median step "
            "meanwhile over the quiet one\n");
    open_table(&t, s,
               "mode saves GB blocked_ms call_ms staged_ms complete_ms GB/s "
               "inflation_ms +-_ms detected drain drain_low drain_high drain_p99 "
               "first_blocked_ms first_complete_ms node_GiB fs direct overlaps lost");
    for (int i = 0; i < s->n_runs; i++) {
        struct checkpoints c = report_checkpoints(&s->runs[i]);
        for (int m = 0; m < c.n_modes; m++)
            save_row(&t, s, &s->runs[i], &c.mode[m]);
    }
    table_close(&t, to);
}

static void restore_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                        const char *when, const struct checkpoints_restore *r)
{
    key_cells(t, s, run);
    table_text(t, when);
    table_int(t, r->trained);
    table_real(t, r->bytes / 1e9, 4);
    table_real(t, ms(r->ns), 2);
    table_real(t, r->bytes_per_s / 1e9, 3);
    table_real(t, ms(r->read_ns), 2);
    table_real(t, ms(r->verify_ns), 2);
    table_real(t, ms(r->recut_ns), 2);
    table_real(t, ms(r->upload_ns), 2);
    table_text(t, r->direct ? "yes" : "no");
}

static void print_restores(FILE *to, const struct report *report)
{
    const struct scaling *s = report->scaling;
    struct table t;
    fprintf(to,
            "#\n# restores, all ranks at once, slowest rank of each part; direct: from storage, "
            "past the page cache\n");
    open_table(&t, s,
               "when step GB restore_ms GB/s read_ms verify_ms recut_ms upload_ms "
               "direct");
    for (int i = 0; i < s->n_runs; i++) {
        struct checkpoints c = report_checkpoints(&s->runs[i]);
        if (c.resumed)
            restore_row(&t, s, &s->runs[i], "resume", &c.resume);
        if (c.restored)
            restore_row(&t, s, &s->runs[i], "end", &c.restore);
    }
    table_close(&t, to);
}

void report_checkpoints_text(FILE *to, const struct report *report)
{
    if (any(report, true))
        print_saves(to, report);
    if (any(report, false))
        print_restores(to, report);
}
