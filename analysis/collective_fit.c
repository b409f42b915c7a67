#include "analysis/collective_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/collective_line.h"
#include "base/err.h"

void collective_fit_release(struct collective_fit *fit)
{
    free(fit->bytes);
    free(fit->time_us);
    *fit = (struct collective_fit){0};
}

static int take_rows(struct collective_fit *out, const struct collective_table *table)
{
    size_t room = (size_t)table->n_rows + 1;
    out->bytes = must_alloc(room, sizeof *out->bytes);
    out->time_us = must_alloc(room, sizeof *out->time_us);
    for (int i = 0; i < table->n_rows; i++) {
        const struct collective_row *row = &table->rows[i];
        double time_us = row->time_us;
        if (isnan(time_us) && row->busbw_GBps > 0.0)
            time_us = row->bytes * out->factor / row->busbw_GBps * 1e-3;
        if (!(row->bytes > 0.0) || isnan(time_us)) {
            out->n_left_out++;
            continue;
        }
        if (!(time_us > 0.0) || !isfinite(time_us))
            return fail(FAIL_USAGE,
                        "%s:%d: a collective of %.0f bytes cannot take %g us: times must be "
                        "positive",
                        table->source, row->line, row->bytes, time_us);
        out->bytes[out->n_rows] = row->bytes;
        out->time_us[out->n_rows++] = time_us;
    }
    return 0;
}

/* By size; rows of one size (repeated sweeps) become their mean. */
static void sort_rows(struct collective_fit *f)
{
    int kept = 0;
    for (int i = 1; i < f->n_rows; i++)
        for (int j = i; j > 0 && f->bytes[j] < f->bytes[j - 1]; j--) {
            double b = f->bytes[j], t = f->time_us[j];
            f->bytes[j] = f->bytes[j - 1];
            f->time_us[j] = f->time_us[j - 1];
            f->bytes[j - 1] = b;
            f->time_us[j - 1] = t;
        }
    for (int i = 0, n; i < f->n_rows; i += n) {
        double sum = 0.0;
        for (n = 0; i + n < f->n_rows && f->bytes[i + n] == f->bytes[i]; n++)
            sum += f->time_us[i + n];
        f->bytes[kept] = f->bytes[i];
        f->time_us[kept++] = sum / n;
    }
    f->n_rows = kept;
}

static void line_of(const struct collective_fit *f, int first, int n, struct collective_line *out)
{
    collective_line_fit(f->bytes + first, f->time_us + first, n, f->factor, out);
    out->first = first;
}

struct split {
    int n;
    struct collective_line pieces[COLLECTIVE_PIECES];
    double squares, worst;
};

static void keep_better(const struct collective_fit *f, const int *cuts, int n, struct split *best)
{
    struct split now = {.n = n};
    for (int i = 0; i < n; i++) {
        line_of(f, cuts[i], cuts[i + 1] - cuts[i], &now.pieces[i]);
        now.squares += now.pieces[i].squares;
        now.worst = fmax(now.worst, now.pieces[i].worst);
    }
    if (best->n == 0 || now.squares < best->squares)
        *best = now;
}

static void best_split(const struct collective_fit *f, int n, struct split *best)
{
    const int least = COLLECTIVE_PIECE_ROWS;
    *best = (struct split){0};
    for (int a = least; a <= f->n_rows - least * (n - 1); a++) {
        if (n == 2)
            keep_better(f, (const int[]){0, a, f->n_rows}, 2, best);
        for (int b = a + least; n == 3 && b <= f->n_rows - least; b++)
            keep_better(f, (const int[]){0, a, b, f->n_rows}, 3, best);
    }
}

static void choose_model(struct collective_fit *f)
{
    line_of(f, 0, f->n_rows, &f->line);
    f->model = COLLECTIVE_LINE;
    f->worst = f->line.worst;
    for (int n = 2; n <= COLLECTIVE_PIECES && f->worst > COLLECTIVE_TOLERANCE; n++) {
        struct split split;
        best_split(f, n, &split);
        if (split.n == 0)
            continue;
        f->model = COLLECTIVE_PIECEWISE;
        f->n_pieces = split.n;
        f->worst = split.worst;
        memcpy(f->pieces, split.pieces, sizeof f->pieces);
    }
    if (f->worst > COLLECTIVE_TOLERANCE) {
        f->model = COLLECTIVE_TABLE;
        f->worst = 0.0;
    }
}

int collective_fit_init(struct collective_fit *out, const struct collective_table *table)
{
    double factor = collective_busbw_factor(table->operation, table->ranks);
    int rc;
    *out = (struct collective_fit){.factor = isnan(factor) ? 1.0 : factor, .ranks = table->ranks};
    TRY(take_rows(out, table));
    sort_rows(out);
    if (out->n_rows < COLLECTIVE_PIECE_ROWS) {
        rc = fail(FAIL_USAGE,
                  "%s: %s has %d size%s with a time: alpha and B need at least %d to be judged",
                  table->source, table->operation, out->n_rows, out->n_rows == 1 ? "" : "s",
                  COLLECTIVE_PIECE_ROWS);
        goto out;
    }
    choose_model(out);
    return 0;
out:
    collective_fit_release(out);
    return rc;
}

double collective_line_us(const struct collective_fit *fit, const struct collective_line *line,
                          double bytes)
{
    return line->alpha_us + fit->factor * bytes / line->bus_GBps * 1e-3;
}

static double interpolated(const struct collective_fit *f, double bytes)
{
    int i = 1;
    while (i < f->n_rows - 1 && f->bytes[i] < bytes)
        i++;
    double share = log(bytes / f->bytes[i - 1]) / log(f->bytes[i] / f->bytes[i - 1]);
    return f->time_us[i - 1] * pow(f->time_us[i] / f->time_us[i - 1], share);
}

double collective_time_us(const struct collective_fit *f, double bytes)
{
    const struct collective_line *line = &f->line;
    if (!(bytes >= f->bytes[0]) || bytes > f->bytes[f->n_rows - 1])
        return NAN;
    if (f->model == COLLECTIVE_TABLE)
        return interpolated(f, bytes);
    for (int i = 0; f->model == COLLECTIVE_PIECEWISE && i < f->n_pieces; i++)
        if (i == 0 || bytes >= f->bytes[f->pieces[i].first])
            line = &f->pieces[i];
    return collective_line_us(f, line, bytes);
}
