#include "analysis/report_notes.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/inputs.h"
#include "analysis/report_columns.h"
#include "analysis/report_key.h"
#include "analysis/report_memory.h"
#include "analysis/report_pace.h"
#include "base/err.h"
#include "base/units.h"

static void note(struct notes *notes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(struct notes *notes, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (int i = 0; i < notes->n; i++)
        if (strcmp(notes->text[i], text) == 0)
            return;
    if (notes->n == notes->room) {
        notes->room = notes->room * 2 + 16;
        notes->text = must_grow(notes->text, (size_t)notes->room, sizeof *notes->text);
    }
    char *copy = must_alloc(strlen(text) + 1, 1);
    memcpy(copy, text, strlen(text) + 1);
    notes->text[notes->n++] = copy;
}

void notes_release(struct notes *notes)
{
    for (int i = 0; i < notes->n; i++)
        free(notes->text[i]);
    free(notes->text);
    *notes = (struct notes){0};
}

void notes_shape(char text[32], const struct point_row *point)
{
    snprintf(text, 32, "%dx%d", point->nodes, point->ranks_per_node);
}

void notes_launch(char text[32], const struct scaling_run *run)
{
    snprintf(text, 32, "%d.%d", run->file_index, run->account.record->point.launch);
}

/* The factor that equal blocks of a run may differ by; infinite where nothing bounds it. */
static double noise_of(const struct account *a)
{
    const struct stats_interval *x = &a->aa_ratio;
    if (isnan(x->value) || x->n < 2)
        return 1.0;
    return isnan(x->low) || isnan(x->high) ? (double)INFINITY : fmax(x->high, 1.0 / x->low);
}

static bool is_noisy(const struct scaling_run *run)
{
    const struct stats_interval *x = &run->account.aa_ratio;
    return isinf(noise_of(&run->account)) || x->low < 0.9 || x->high > 1.1;
}

bool notes_noisy(char *text, size_t size, const struct scaling *scaling)
{
    const struct scaling_run *worst = NULL;
    char shape[REPORT_KEY], factor[32] = "more than can be bounded";
    text[0] = '\0';
    for (int i = 0; i < scaling->n_runs; i++)
        if (is_noisy(&scaling->runs[i]) &&
            (worst == NULL || noise_of(&scaling->runs[i].account) > noise_of(&worst->account)))
            worst = &scaling->runs[i];
    if (worst == NULL)
        return false;
    report_key_text(shape, scaling, &worst->account.record->point);
    if (isfinite(noise_of(&worst->account)))
        snprintf(factor, sizeof factor, "up to x%.2g", noise_of(&worst->account));
    snprintf(text, size,
             "NOISY: odd and even blocks differ by %s at %s; no ratio here is known better than "
             "that",
             factor, shape);
    return true;
}

const char *notes_coverage(const struct scaling *scaling)
{
    return scaling->n_launches < SCALING_LAUNCHES_ENOUGH
               ? "fewer than three launches: covers variation within a launch only"
               : "covers variation within and between launches where a point has three or more";
}

/* The points that `has`, as "1x1, 2x1"; "" when there are none. */
static void list_points(char *text, size_t size, const struct scaling *s,
                        bool (*has)(const struct scaling_row *))
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < s->n_rows && used < size; i++) {
        char shape[REPORT_KEY];
        if (!has(&s->rows[i]))
            continue;
        report_key_text(shape, s, s->rows[i].point);
        used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", shape);
    }
}

static bool is_emulated(const struct scaling_row *row)
{
    return row->point->emulated != 0;
}

static bool is_oversubscribed(const struct scaling_row *row)
{
    return row->point->oversubscribed != 0;
}

static bool is_unsettled(const struct scaling_row *row)
{
    return strcmp(report_status(row), "unsettled") == 0;
}

static bool is_one_block(const struct scaling_row *row)
{
    return row->step_ns.n > 0 && isnan(row->runs[0].account.aa_ratio.value);
}

static void about_points(struct notes *notes, const struct scaling *s)
{
    char list[512];
    list_points(list, sizeof list, s, is_emulated);
    if (list[0] != '\0')
        note(notes,
             "EMULATED NODES (%s): several declared nodes are one host; nothing here is the time "
             "of a network",
             list);
    list_points(list, sizeof list, s, is_oversubscribed);
    if (list[0] != '\0')
        note(notes,
             "OVERSUBSCRIBED (%s): more ranks than cores; these points say nothing about scaling",
             list);
    list_points(list, sizeof list, s, is_unsettled);
    if (list[0] != '\0')
        note(notes, "unsettled (%s): the interval is wider than the study asked for", list);
    list_points(list, sizeof list, s, is_one_block);
    if (list[0] != '\0')
        note(notes, "one block of full steps (%s): nothing says how noisy these points are", list);
    list_points(list, sizeof list, s, scaling_unpaired);
    if (list[0] != '\0')
        note(notes, "unpaired ratios (%s): marked u; their two sides share no launch", list);
}

/* The launches that a ratio of `row` was taken in and what its base gave there. */
static bool describe_base(char *text, size_t size, const struct scaling *s,
                          const struct scaling_row *row, const struct scaling_ratio *ratio,
                          const char *name)
{
    char shape[REPORT_KEY], launch[32];
    size_t used;
    int n = 0;
    text[0] = '\0';
    if (ratio->base < 0 || !ratio->partial || ratio->unpaired)
        return false;
    const struct scaling_row *base = &s->rows[ratio->base];
    report_key_text(shape, s, base->point);
    used = (size_t)snprintf(text, size, "%s within launch", name);
    for (int i = 0; i < base->n_used && used < size; i++)
        if (scaling_shares(row, &base->runs[i])) {
            notes_launch(launch, &base->runs[i]);
            used += (size_t)snprintf(text + used, size - used, "%s %s", n++ > 0 ? "," : "", launch);
        }
    if (used < size)
        snprintf(text + used, size - used, ", where %s gave %.1f tokens/s", shape,
                 ratio->base_tokens_per_s);
    return true;
}

/* Points of one base and its launches, in one sentence. */
static void about_base(struct notes *notes, const struct scaling *s, bool node, const char *name)
{
    char text[256], other[256], list[256], shape[REPORT_KEY];
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        size_t used = 0;
        bool first = true;
        if (!describe_base(text, sizeof text, s, row, node ? &row->eff_node : &row->speedup, name))
            continue;
        for (int j = 0; j < s->n_rows && used < sizeof list; j++) {
            const struct scaling_row *too = &s->rows[j];
            describe_base(other, sizeof other, s, too, node ? &too->eff_node : &too->speedup, name);
            if (strcmp(text, other) != 0)
                continue;
            first = first && j >= i;
            report_key_text(shape, s, too->point);
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "",
                                     shape);
        }
        if (first)
            note(notes, "%s: %s", list, text);
    }
}

static bool is_above_peak(const struct scaling_row *row)
{
    return report_mfu(row) > 1.0;
}

static void about_peaks(struct notes *notes, const struct scaling *s)
{
    char list[512];
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        if (row->peak_flops > 1.05 * row->peak_lowest_flops)
            note(notes,
                 "the peaks of the launches differ, %.4g to %.4g TFLOP/s; MFU is over the largest",
                 row->peak_lowest_flops / 1e12, row->peak_flops / 1e12);
    }
    list_points(list, sizeof list, s, is_above_peak);
    if (list[0] != '\0')
        note(notes,
             "MFU above 100 %% (%s): the peak was measured too low, and MFU is too high everywhere",
             list);
}

static void about_validity(struct notes *notes, const struct scaling_row *row, bool launches)
{
    for (int i = 0; i < row->n_runs; i++) {
        const struct point_row *p = &row->runs[i].account.record->point;
        char shape[REPORT_KEY], launch[32];
        if (p->valid)
            continue;
        report_key_text(shape, notes->scaling, p);
        notes_launch(launch, &row->runs[i]);
        note(notes, "INVALID: point %d (%s)%s%s: %s; it enters no curve and is no base", p->point,
             shape, launches ? ", launch " : "", launches ? launch : "",
             p->why[0] != '\0' ? p->why : "no reason recorded");
    }
}

/* Beyond its interval, and more than a hundredth of the step: less is nobody's concern. */
static bool disagrees(const struct account *a)
{
    const struct stats_interval *x = &a->disagreement_ns;
    double step_ns = a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_STEP];
    return a->record->point.ranks > 1 && fabs(x->value) > 0.01 * step_ns &&
           (x->low > 0.0 || x->high < 0.0);
}

static void about_account(struct notes *notes, const struct account *a)
{
    const struct point_row *p = &a->record->point;
    char shape[REPORT_KEY];
    report_key_text(shape, notes->scaling, p);
    if (a->only_instrumented)
        note(notes, "%s: every full step was instrumented; capacity includes the stamps", shape);
    if (a->n_incomplete > 0)
        note(notes, "%s: %lld step%s left out: not a row of every rank", shape,
             (long long)a->n_incomplete, units_s((double)a->n_incomplete));
    if (a->n_contradicting > 0)
        note(notes, "%s: in %lld instrumented rows the recorded residual is not that of the terms",
             shape, (long long)a->n_contradicting);
    if (a->worst_residual_share > 0.01)
        note(notes, "%s: rank %d cannot explain %.1f %% of its step (residual above 1 %%)", shape,
             a->worst_residual_rank, 100.0 * a->worst_residual_share);
    if (disagrees(a))
        note(notes,
             "%s: stall and counterfactual disagree by %.3f ms, interval %.3f to %.3f without 0",
             shape, report_ms(a->disagreement_ns.value), report_ms(a->disagreement_ns.low),
             report_ms(a->disagreement_ns.high));
    if (a->slowest_mads > 5.0 && a->slowest_share > 0.02 && a->straggler.kind != STRAGGLER_ONE_RANK)
        note(notes, "%s: rank %d computes %.1f %% longer than the median rank (%.1f MAD)", shape,
             a->slowest, 100.0 * a->slowest_share, a->slowest_mads);
}

static void about_pace(struct notes *notes, const struct scaling_run *run)
{
    char shape[REPORT_KEY], text[512];
    report_key_text(shape, notes->scaling, &run->account.record->point);
    if (report_pace_shift(text, sizeof text, &run->account))
        note(notes, "%s: %s", shape, text);
    if (report_pace_straggler(text, sizeof text, run))
        note(notes, "%s: %s", shape, text);
}

static void about_steps(struct notes *notes, const struct record_point *point)
{
    char shape[REPORT_KEY];
    int32_t skipped = 0;
    report_key_text(shape, notes->scaling, &point->point);
    for (int64_t i = 0; i < point->steps.n; i++)
        skipped = point->steps.rows[i].skipped > skipped ? point->steps.rows[i].skipped : skipped;
    if (skipped > 0)
        note(notes, "%s: %d updates were skipped", shape, skipped);
}

static void about_events(struct notes *notes, const struct record_point *point)
{
    char shape[REPORT_KEY];
    report_key_text(shape, notes->scaling, &point->point);
    for (int64_t i = 0; i < point->events.n; i++) {
        const struct event_row *e = &point->events.rows[i];
        if (strncmp(e->text, "emulated", 8) == 0 || strncmp(e->text, "oversubscribed", 14) == 0)
            continue; /* said of all such points at once */
        if (e->rank >= 0)
            note(notes, "%s: %s, rank %d: %s", shape, e->kind, e->rank, e->text);
        else
            note(notes, "%s: %s: %s", shape, e->kind, e->text);
    }
}

static void about_inputs(struct notes *notes, const struct scaling *s)
{
    char text[512];
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        for (int j = 0; j < row->n_runs; j++)
            if (inputs_starved_sentence(text, sizeof text, row->runs[j].account.record))
                note(notes, "%s", text);
        if (inputs_gap_sentence(text, sizeof text, s, row))
            note(notes, "%s", text);
        for (int j = 0; j < row->n_runs; j++)
            if (report_memory_sentence(text, sizeof text, row->runs[j].account.record))
                note(notes, "%s", text);
    }
}

/* Options of the driver for its own tests; a study made with one is no study of this machine. */
static void about_faults(struct notes *notes, const struct report *report)
{
    const char *delay = report_attribute(report, "study", "test-delay");
    const char *drop = report_attribute(report, "study", "test-drop-op");
    if (delay[0] != '\0' && strcmp(delay, "0s") != 0)
        note(notes, "A DELAY WAS PLANTED: --test-delay %s; this is a test, not a measurement",
             delay);
    if (drop[0] != '\0' && strcmp(drop, "-1") != 0)
        note(notes, "AN OPERATION WAS LEFT OUT: --test-drop-op %s; this is a test", drop);
}

static void about_loaded(struct notes *notes, const struct scaling *s)
{
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        const struct stats_interval *r = &row->eff_node.ratio;
        char shape[REPORT_KEY], ends[64] = "";
        if (row->point->copies <= 1 || isnan(r->value))
            continue;
        report_key_text(shape, s, s->rows[row->eff_node.base].point);
        if (isfinite(r->low) && isfinite(r->high))
            snprintf(ends, sizeof ends, " (%.1f to %.1f)", 100.0 * r->low, 100.0 * r->high);
        bool told = r->low > 1.0 || r->high < 1.0;
        note(notes, "%s while all %d nodes did the same gives %.1f %%%s of what it gives alone%s%s",
             shape, row->point->copies, 100.0 * r->value, ends, told ? "" : ", not told from 100 %",
             fabs(r->value - 1.0) <= 0.02 ? ""
             : told ? ": nodes share something, and efficiency is given against both bases"
                    : ": efficiency is given against both bases");
    }
}

void notes_collect(struct notes *out, const struct report *report)
{
    const struct scaling *s = report->scaling;
    *out = (struct notes){.scaling = s};
    char noise[256];
    if (notes_noisy(noise, sizeof noise, s))
        note(out, "%s", noise);
    about_faults(out, report);
    about_points(out, s);
    about_base(out, s, false, "speedup");
    about_base(out, s, true, "eff_node");
    about_loaded(out, s);
    about_peaks(out, s);
    about_inputs(out, s);
    for (int i = 0; i < report->n_files; i++)
        if (!report->files[i]->whole)
            note(out, "%s is a parts directory: the study has not been finished",
                 report->files[i]->path);
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        about_validity(out, row, s->n_launches > 1);
        for (int j = 0; j < row->n_runs; j++) {
            about_account(out, &row->runs[j].account);
            about_pace(out, &row->runs[j]);
            about_steps(out, row->runs[j].account.record);
            about_events(out, row->runs[j].account.record);
        }
    }
}
