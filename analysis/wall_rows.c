/* The rows of a run in order, and what each launch of it was. */
#include "analysis/wall_part.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"

bool wall_is(const struct interval_row *row, const char *kind)
{
    return strcmp(row->kind, kind) == 0;
}

static int by_begin(const void *left, const void *right)
{
    const struct interval_row *a = left, *b = right;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    if (a->launch != b->launch)
        return a->launch < b->launch ? -1 : 1;
    return strcmp(a->kind, b->kind);
}

bool wall_takes_time(const struct interval_row *row)
{
    static const char *const kinds[] = {"launch", "start-up", "load", "steps", "save-wait", "file"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (wall_is(row, kinds[i]))
            return true;
    return false;
}

static int sort_rows(struct wall_rows *out)
{
    int64_t kept = 0, end = INT64_MIN;
    qsort(out->rows, (size_t)out->n, sizeof *out->rows, by_begin);
    for (int64_t i = 0; i < out->n; i++)
        if (kept == 0 || by_begin(&out->rows[kept - 1], &out->rows[i]) != 0)
            out->rows[kept++] = out->rows[i];
    out->n = kept;
    for (int64_t i = 0; i < kept; i++) {
        const struct interval_row *row = &out->rows[i];
        if (row->end_ns < row->begin_ns || row->ranks < 1 || row->ranks != out->rows[0].ranks ||
            row->end_ns - row->begin_ns > INT64_MAX / 4 / row->ranks)
            return fail(FAIL_FILE, "intervals: a row of kind %s has no sense", row->kind);
        if (!wall_takes_time(row))
            continue;
        if (row->begin_ns < end)
            return fail(
                FAIL_FILE,
                "intervals: a row of kind %s begins %lld ns before the one before has ended",
                row->kind, (long long)(end - row->begin_ns));
        end = row->end_ns;
    }
    return 0;
}

static struct wall_launch *launch_of(struct wall_rows *out, int launch)
{
    struct wall_launch *last = out->n_launches > 0 ? &out->launch[out->n_launches - 1] : NULL;
    if (last != NULL && last->launch == launch)
        return last;
    out->launch = must_grow(out->launch, (size_t)out->n_launches + 1, sizeof *out->launch);
    last = &out->launch[out->n_launches++];
    *last = (struct wall_launch){.launch = launch,
                                 .last_ns = -1,
                                 .first_step_ns = -1,
                                 .failed_ns = -1,
                                 .detected_ns = -1,
                                 .keeps = INT64_MAX};
    return last;
}

static void see_steps(struct wall_launch *l, const struct interval_row *row)
{
    if (!l->has_steps) {
        l->has_steps = true;
        l->first = row;
        l->first_step_ns = row->begin_ns;
        l->start_step = row->first_step;
    }
    l->reached = row->first_step + row->steps;
}

/* Known once; who says it again has tried to start in between. */
static void see_detected(struct wall_launch *l, const struct interval_row *row)
{
    if (l->detected_ns < 0)
        l->detected_ns = row->begin_ns;
    else
        l->silent++;
}

static void see(struct wall_launch *l, const struct interval_row *row)
{
    if (wall_takes_time(row)) {
        if (!l->has_time) /* the program of the first launch began before its t0: below 0 */
            l->begin_ns = row->begin_ns;
        l->has_time = true;
        l->last_ns = row->end_ns;
    }
    if (wall_is(row, "steps"))
        see_steps(l, row);
    else if (wall_is(row, "load"))
        l->load = row;
    else if (wall_is(row, "failure") && l->failure == NULL)
        l->failure = row;
    else if (wall_is(row, "detected"))
        see_detected(l, row);
    else if (wall_is(row, "end")) {
        l->ended = true;
        l->stopped = (row->flags & INTERVAL_STOPS) != 0;
        l->last_ns = row->begin_ns;
    }
}

/* The instants of a launch may come behind the first row of the next: by launch first. */
static void see_all(struct wall_rows *out)
{
    int most = 0;
    for (int64_t i = 0; i < out->n; i++)
        most = out->rows[i].launch > most ? out->rows[i].launch : most;
    for (int launch = 0; launch <= most; launch++)
        for (int64_t i = 0; i < out->n; i++)
            if (out->rows[i].launch == launch)
                see(launch_of(out, launch), &out->rows[i]);
}

/* Where the loss of a launch begins: with its first step that the run did again. */
static int64_t begin_of_loss(const struct wall_rows *out, const struct wall_launch *l)
{
    if (!l->has_steps)
        return l->failed_ns;
    for (int64_t i = 0; i < out->n; i++)
        if (out->rows[i].launch == l->launch && wall_is(&out->rows[i], "steps") &&
            out->rows[i].first_step >= l->keeps)
            return out->rows[i].begin_ns;
    return l->ended ? l->failed_ns : l->last_ns; /* the step in which it was killed */
}

static void see_ends(struct wall_rows *out)
{
    for (int i = 0; i + 1 < out->n_launches; i++) {
        struct wall_launch *l = &out->launch[i];
        const struct wall_launch *next = &out->launch[i + 1];
        int gap = next->launch - l->launch - 1;
        l->silent = l->silent > gap ? l->silent : gap;
        l->failed_ns = l->failure != NULL ? l->failure->begin_ns : l->last_ns;
        if (l->failed_ns > next->begin_ns)
            l->failed_ns = next->begin_ns;
        if (l->detected_ns < l->failed_ns || l->detected_ns > next->begin_ns)
            l->detected_ns = l->failed_ns; /* nobody said */
        for (int j = i + 1; j < out->n_launches; j++)
            if (out->launch[j].has_steps && out->launch[j].start_step < l->keeps)
                l->keeps = out->launch[j].start_step;
    }
    for (int i = 0; i + 1 < out->n_launches; i++)
        out->launch[i].rework_ns = begin_of_loss(out, &out->launch[i]);
}

int wall_rows_make(struct wall_rows *out, const struct interval_row *rows, int64_t n)
{
    int rc = 0;
    memset(out, 0, sizeof *out);
    out->n = n;
    out->rows = must_alloc((size_t)n + 1, sizeof *rows);
    if (n > 0)
        memcpy(out->rows, rows, (size_t)n * sizeof *rows);
    TRY(sort_rows(out));
    see_all(out);
    for (int i = 0; i < out->n_launches; i++)
        if (!out->launch[i].has_time)
            rc = fail(FAIL_FILE, "intervals: launch %d has no time", out->launch[i].launch);
    if (rc == 0 && out->n_launches == 0)
        rc = fail(FAIL_FILE, "intervals: there are none: the study made no run (--run-steps)");
    if (rc == 0)
        see_ends(out);
out:
    return rc;
}

/* ---- saves ---- */

static bool is_published(const struct interval_row *row, int launch)
{
    return row->launch == launch && wall_is(row, "save") && (row->flags & INTERVAL_LOST) == 0;
}

/* One behind a launch's last step was called because it ended, and not because it was due. */
static bool was_due(const struct wall_launch *l, int64_t step)
{
    return step > l->start_step && !(l->ended && step == l->reached);
}

/* Steps between neighbours, in `list`; or, begins, from the begin of the launch to the first. One behind the very
 * first block came as soon as it could: no interval led to it. */
static int64_t distances(const struct wall_rows *rows, const struct wall_launch *l, bool begins,
                         double *out)
{
    int64_t n = 0, before = -1;
    for (int64_t i = 0; i < rows->n; i++) {
        int64_t step = rows->rows[i].first_step;
        if (!is_published(&rows->rows[i], l->launch) || step <= before || !was_due(l, step))
            continue;
        if (before >= 0 && !begins)
            out[n++] = (double)(step - before);
        else if (before < 0 && begins && step > l->start_step + l->first->steps)
            out[n++] = (double)(step - l->start_step);
        before = step;
    }
    return n;
}

double wall_rows_between(const struct wall_rows *rows)
{
    double *list = must_alloc((size_t)rows->n + 1, sizeof *list);
    int64_t n = 0;
    for (int begins = 0; begins < 2 && n == 0; begins++)
        for (int i = 0; i < rows->n_launches; i++)
            if (rows->launch[i].has_steps)
                n += distances(rows, &rows->launch[i], begins, list + n);
    double between = n > 0 ? stats_median(list, n) : (double)NAN;
    free(list);
    return between;
}

void wall_rows_release(struct wall_rows *rows)
{
    free(rows->rows);
    free(rows->launch);
    memset(rows, 0, sizeof *rows);
}
