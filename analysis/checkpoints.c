#include "analysis/checkpoints.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static bool is_text(const char *column, size_t size, const char *text)
{
    return strncmp(column, text, size) == 0;
}

/* ---- saves: over ranks, then over saves ---- */

struct save { /* one, all ranks */
    int index, ranks;
    bool lost, direct;
    double bytes, call, blocked, staged, complete, first_quarter, last_quarter;
};

static void add_rank(struct save *s, const struct checkpoint_row *row)
{
    s->ranks++;
    s->lost |= (row->flags & CHECKPOINT_FAILED) != 0;
    s->direct &= (row->flags & CHECKPOINT_DIRECT) != 0;
    s->bytes += (double)row->bytes;
    s->call = fmax(s->call, (double)row->call_ns);
    s->blocked = fmax(s->blocked, (double)row->blocked_ns);
    s->staged = fmax(s->staged, (double)row->staged_ns);
    s->complete = fmax(s->complete, (double)row->complete_ns);
    s->first_quarter = fmax(s->first_quarter, (double)row->first_quarter_ns);
    s->last_quarter = fmax(s->last_quarter, (double)row->last_quarter_ns);
}

/* Saves of a mode, by index; malloc'd. */
static int collect(const struct record_point *p, struct checkpoints_mode *m, struct save **out)
{
    int n = 0;
    struct save *list = must_alloc((size_t)p->checkpoints.n + 1, sizeof *list);
    for (int64_t i = 0; i < p->checkpoints.n; i++) {
        const struct checkpoint_row *row = &p->checkpoints.rows[i];
        int at = 0;
        if (!is_text(row->kind, sizeof row->kind, "save") ||
            !is_text(row->mode, sizeof row->mode, m->mode))
            continue;
        while (at < n && list[at].index != row->save)
            at++;
        if (at == n)
            list[n++] = (struct save){.index = row->save, .direct = true};
        add_rank(&list[at], row);
        m->host_bytes = fmax(m->host_bytes, (double)row->host_bytes);
        m->overlaps += row->rank == 0 && (row->flags & CHECKPOINT_OVERLAPS) != 0;
        snprintf(m->file_system, sizeof m->file_system, "%.15s", row->file_system);
    }
    *out = list;
    return n;
}

/* The median of a field over saves [first..] that were published. */
static double median(const struct save *list, int n, size_t offset, bool with_first)
{
    int count = 0;
    double *values = must_alloc((size_t)n + 1, sizeof *values);
    for (int i = 0; i < n; i++)
        if (!list[i].lost && (with_first || list[i].index > 0))
            memcpy(&values[count++], (const char *)&list[i] + offset, sizeof *values);
    double value = count > 0 ? stats_median(values, count) : (double)NAN;
    free(values);
    return value;
}

#define MEDIAN(field) median(list, n, offsetof(struct save, field), alone)

static void saves_of_mode(const struct record_point *p, struct checkpoints_mode *m)
{
    struct save *list;
    int n = collect(p, m, &list), good = 0, later = 0;
    m->direct = n > 0;
    m->first_blocked_ns = m->first_complete_ns = NAN;
    for (int i = 0; i < n; i++) {
        m->lost += list[i].lost;
        m->direct &= list[i].direct;
        good += !list[i].lost;
        later += !list[i].lost && list[i].index > 0;
        if (list[i].index == 0 && !list[i].lost) {
            m->first_blocked_ns = list[i].blocked;
            m->first_complete_ns = list[i].complete;
        }
    }
    bool alone = later == 0; /* nothing but the first */
    m->saves = alone ? good : later;
    m->bytes = MEDIAN(bytes);
    m->call_ns = MEDIAN(call);
    m->blocked_ns = MEDIAN(blocked);
    m->staged_ns = MEDIAN(staged);
    m->complete_ns = MEDIAN(complete);
    m->bytes_per_s = m->bytes / (m->complete_ns / 1e9);
    m->first_quarter_bytes_per_s = m->bytes / 4 / (MEDIAN(first_quarter) / 1e9);
    m->last_quarter_bytes_per_s = m->bytes / 4 / (MEDIAN(last_quarter) / 1e9);
    free(list);
}

/* ---- steps around saves ---- */

struct turn { /* one step, the longest of any rank */
    int turn, phase, save;
    double ns;
};

static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    return (x->turn > y->turn) - (x->turn < y->turn);
}

/* The steps of a mode in the order of running; malloc'd. */
static int64_t turns_of(const struct record_point *p, const char *mode, struct turn **out)
{
    int64_t n = 0, kept = 0;
    struct turn *list = must_alloc((size_t)p->drains.n + 1, sizeof *list);
    for (int64_t i = 0; i < p->drains.n; i++) {
        const struct drain_row *row = &p->drains.rows[i];
        if (is_text(row->mode, sizeof row->mode, mode))
            list[n++] = (struct turn){row->turn, row->phase, row->save,
                                      (double)(row->end_ns - row->start_ns - row->held_ns)};
    }
    qsort(list, (size_t)n, sizeof *list, by_turn);
    for (int64_t i = 0; i < n; i++)
        if (kept > 0 && list[kept - 1].turn == list[i].turn)
            list[kept - 1].ns = fmax(list[kept - 1].ns, list[i].ns);
        else
            list[kept++] = list[i];
    *out = list;
    return kept;
}

/* Times of the steps of some phases; of a first save only where it is alone. */
static int64_t times(const struct turn *list, int64_t n, unsigned phases, int least_save,
                     double *out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if ((phases >> list[i].phase & 1u) != 0 && list[i].save >= least_save)
            out[count++] = list[i].ns;
    return count;
}

static struct stats_interval quantile_ratio(const double *num, int64_t n_num, const double *den,
                                            int64_t n_den, double p)
{
    struct stats_interval a, b;
    stats_quantile_interval(num, n_num, p, 0.95, &a);
    stats_quantile_interval(den, n_den, p, 0.95, &b);
    return (struct stats_interval){a.value / b.value, a.low / b.high, a.high / b.low, n_num};
}

static void inflate(struct checkpoints_mode *m, const double *affected, int64_t n,
                    const double *quiet, int64_t n_quiet, uint64_t seed)
{
    struct stats_interval a, q;
    stats_mean_interval(affected, n, 0.95, seed, &a);
    stats_mean_interval(quiet, n_quiet, 0.95, seed, &q);
    double half = m->steps * hypot((a.high - a.low) / 2, (q.high - q.low) / 2);
    double value = m->steps * (a.value - q.value);
    m->inflation = (struct stats_interval){value, value - half, value + half, n};
    m->detectable = m->inflation.low > 0 || m->inflation.high < 0; /* false for NaN */
}

static void steps_of_mode(const struct record_point *p, struct checkpoints_mode *m, uint64_t seed)
{
    const unsigned on_its_way = 1u << DRAIN_SAVING | 1u << DRAIN_DRAINING;
    struct turn *list;
    int64_t n = turns_of(p, m->mode, &list);
    double *quiet = must_alloc((size_t)n + 1, sizeof *quiet);
    double *drain = must_alloc((size_t)n + 1, sizeof *drain);
    double *affected = must_alloc((size_t)n + 1, sizeof *affected);
    int least = n > 0 && list[n - 1].save > 0 ? 1 : 0;
    m->quiet = times(list, n, 1u << DRAIN_QUIET, 0, quiet);
    m->draining = times(list, n, on_its_way, least, drain);
    int64_t n_affected = times(list, n, on_its_way | 1u << DRAIN_BEHIND, least, affected);
    m->steps = m->saves > 0 ? (double)n_affected / m->saves : (double)NAN;
    inflate(m, affected, n_affected, quiet, m->quiet, seed);
    m->ratio = quantile_ratio(drain, m->draining, quiet, m->quiet, 0.5);
    m->ratio_p99 = quantile_ratio(drain, m->draining, quiet, m->quiet, 0.99).value;
    free(quiet);
    free(drain);
    free(affected);
    free(list);
}

/* ---- restores ---- */

static bool restore_of(const struct record_point *p, int which, struct checkpoints_restore *r)
{
    *r = (struct checkpoints_restore){.direct = true};
    for (int64_t i = 0; i < p->checkpoints.n; i++) {
        const struct checkpoint_row *row = &p->checkpoints.rows[i];
        if (!is_text(row->kind, sizeof row->kind, "restore") || row->save != which)
            continue;
        r->ranks++;
        r->bytes += (double)row->bytes;
        r->ns = fmax(r->ns, (double)row->complete_ns);
        r->read_ns = fmax(r->read_ns, (double)row->read_ns);
        r->verify_ns = fmax(r->verify_ns, (double)row->verify_ns);
        r->recut_ns = fmax(r->recut_ns, (double)row->recut_ns);
        r->upload_ns = fmax(r->upload_ns, (double)row->upload_ns);
        r->direct &= (row->flags & CHECKPOINT_DIRECT) != 0;
        r->trained = row->trained;
    }
    r->bytes_per_s = r->bytes / (r->ns / 1e9);
    return r->ranks > 0;
}

/* ---- all ---- */

static bool has_mode(const struct checkpoints *c, const char *mode, size_t size)
{
    for (int i = 0; i < c->n_modes; i++)
        if (is_text(mode, size, c->mode[i].mode))
            return true;
    return false;
}

void checkpoints_of_point(struct checkpoints *out, const struct record_point *p, uint64_t seed)
{
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < p->checkpoints.n && out->n_modes < CHECKPOINTS_MODES; i++) {
        const struct checkpoint_row *row = &p->checkpoints.rows[i];
        if (is_text(row->kind, sizeof row->kind, "save") &&
            !has_mode(out, row->mode, sizeof row->mode))
            snprintf(out->mode[out->n_modes++].mode, sizeof row->mode, "%.15s", row->mode);
    }
    for (int i = 0; i < out->n_modes; i++) {
        saves_of_mode(p, &out->mode[i]);
        steps_of_mode(p, &out->mode[i], seed);
    }
    out->resumed = restore_of(p, 0, &out->resume);
    out->restored = restore_of(p, 1, &out->restore);
}
