#include "analysis/import_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"

static const char *path_of(const struct import_log *log)
{
    return log->lines.path;
}

int import_log_number(const struct import_log *log, const char *at, const char *what, int thousands,
                      double *out, const char **end)
{
    struct import_number number;
    const char *rest, *wrong = import_number_prefix(at, thousands, &number, &rest);
    if (wrong != NULL)
        return fail(FAIL_FILE, "%s:%lld: %s: \"%.20s\" %s", path_of(log),
                    (long long)log->lines.number, what, at + strspn(at, " \t"), wrong);
    *out = number.value;
    if (end != NULL)
        *end = rest;
    return 0;
}

int import_log_find(const struct import_log *log, const char *line, const char *key, double *out)
{
    const char *at = strstr(line, key);
    if (at == NULL)
        return 0;
    int rc = import_log_number(log, at + strlen(key), key, 0, out, NULL);
    return rc != 0 ? -rc : 1;
}

void import_log_set(struct import_log *log, enum import_figure figure, double value)
{
    if (value > 0.0) {
        log->row.value[figure] = value;
        log->row.half[figure] = 0.0;
    }
}

int import_log_step(struct import_log *log, int64_t step, double step_s)
{
    struct import_row *row = &log->row;
    if (!(step_s > 0.0) || !isfinite(step_s))
        return fail(FAIL_FILE, "%s:%lld: a step time of %g s is no time", path_of(log),
                    (long long)log->lines.number, step_s);
    if (row->n_launches == 0 || step <= log->step) {
        if (row->n_launches > 0)
            import_note(log->import, (int)log->lines.number,
                        "step %lld follows step %lld: taken as another launch", (long long)step,
                        (long long)log->step);
        if (row->n_launches == 1000)
            return fail(FAIL_FILE,
                        "%s:%lld: step numbers went back 1,000 times: this is no log "
                        "of one training",
                        path_of(log), (long long)log->lines.number);
        row->launches =
            must_grow(row->launches, (size_t)row->n_launches + 1, sizeof *row->launches);
        row->launches[row->n_launches++] = (struct import_steps){0};
        if (row->line == 0)
            row->line = (int)log->lines.number;
    }
    log->step = step;
    import_steps_add(&row->launches[row->n_launches - 1], step_s);
    return 0;
}

/* At least what was asked, unless nothing would be left. */
static int64_t drop_warm_up(struct import_steps *steps, int64_t asked)
{
    int64_t drop = steps->n > asked ? asked : 0;
    drop += stats_warm_up(steps->x + drop, steps->n - drop);
    memmove(steps->x, steps->x + drop, (size_t)(steps->n - drop) * sizeof *steps->x);
    steps->n -= drop;
    return drop;
}

static int finish_steps(struct import_log *log, const char *words)
{
    struct import_row *row = &log->row;
    int64_t kept = 0, dropped = 0, group = 1;
    for (int i = 0; i < row->n_launches; i++) {
        dropped += drop_warm_up(&row->launches[i], log->options->warm_up);
        kept += row->launches[i].n;
        if (row->launches[i].group > group)
            group = row->launches[i].group;
    }
    if (kept == 0 && isnan(row->value[IMPORT_TIME_TO_WORK_S]))
        return fail(FAIL_FILE,
                    "%s has no step: it ends before the first line with a step time (%s)",
                    path_of(log), words);
    if (kept > 0)
        import_note(log->import, row->line, "%lld sample%s kept, %lld left out as warm-up%s",
                    (long long)kept, kept == 1 ? "" : "s", (long long)dropped,
                    kept <= 2 ? ": too few for an interval" : "");
    if (group > 1)
        import_note(log->import, row->line,
                    "a long log: each sample is the mean of %lld neighbouring steps",
                    (long long)group);
    return 0;
}

int import_log_read(struct import *import, const char *path, const struct import_options *options,
                    const char *words, import_log_line *read, import_log_line *finish)
{
    struct import_log log = {.import = import, .options = options, .step = -1};
    int rc, more = 0;
    log.row = import_row_unknown(import->n_paths - 1);
    TRY(import_lines_open(&log.lines, path));
    while (rc == 0 && (more = import_lines_next(&log.lines)) > 0) {
        if (log.lines.open_end)
            import_note(import, (int)log.lines.number,
                        "the log ends in the middle of this line: it was cut and the line is not "
                        "used");
        else
            rc = read(&log, log.lines.text);
    }
    if (rc == 0 && more < 0)
        rc = -more;
    if (rc == 0)
        rc = finish(&log, NULL);
    if (rc == 0 && options->devices > 0 && isnan(log.row.value[IMPORT_DEVICES]))
        import_log_set(&log, IMPORT_DEVICES, (double)options->devices);
    if (rc == 0)
        rc = finish_steps(&log, words);
    if (rc == 0)
        rc = import_add(import, &log.row);
    if (rc == 0)
        log.row.launches = NULL, log.row.n_launches = 0;
out:
    import_row_release(&log.row);
    import_lines_close(&log.lines);
    return rc;
}
