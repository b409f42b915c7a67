#include "analysis/account_ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { AXES_MAX = 32 };

/* Sums behind one axis; rows counted by the kind of their step. */
struct axis_sum {
    text16 name;
    double stall[ACCOUNT_KINDS], waits[ACCOUNT_KINDS];
    double comm, exposed, wire;
    bool has_exposed;
    int64_t calls; /* cells, each one call of one step */
    double transfer, skew;
};

struct axes {
    int n;
    struct axis_sum axis[AXES_MAX];
};

static struct axis_sum *find_axis(struct axes *axes, const char *name)
{
    for (int i = 0; i < axes->n; i++)
        if (strncmp(axes->axis[i].name, name, sizeof(text16)) == 0)
            return &axes->axis[i];
    if (axes->n == AXES_MAX)
        return NULL;
    struct axis_sum *axis = &axes->axis[axes->n++];
    memcpy(axis->name, name, sizeof(text16));
    axis->name[sizeof(text16) - 1] = '\0';
    return axis;
}

static int too_many(const struct ledger *l)
{
    return fail(FAIL_FILE, "account: point %d names more than %d axes: the file is damaged",
                l->point->point.point, AXES_MAX);
}

static int sum_stalls(const struct ledger *l, struct axes *axes)
{
    for (int64_t i = 0; i < l->point->stalls.n; i++) {
        const struct stall_row *r = &l->point->stalls.rows[i];
        const struct cell *c = ledger_measured(l, r->variant, r->step);
        if (c == NULL || r->variant != VARIANT_FULL || c->flags & STEP_GRAPH)
            continue;
        enum account_kind kind = ledger_kind(r->variant, c->flags);
        struct axis_sum *axis = find_axis(axes, r->axis);
        if (axis == NULL)
            return too_many(l);
        axis->wire += (double)r->wire_bytes;
        if (c->flags & STEP_BARE)
            continue; /* waits were not stamped: their stall is unknown, not 0 */
        axis->stall[kind] += (double)r->stall_ns;
        axis->waits[kind] += r->waits;
        if (kind != ACCOUNT_INSTRUMENTED)
            continue;
        axis->comm += (double)r->comm_ns;
        if (r->exposed_ns >= 0) {
            axis->has_exposed = true;
            axis->exposed += (double)r->exposed_ns;
        }
    }
    return 0;
}

/* One call of one step: what its ranks say. */
struct call_cell {
    int32_t seen;
    double shortest_ns, sum_ns;
    struct axis_sum *axis;
};

/*
 * Steps with recorded calls, numbered from 0: calls are kept for some steps only, and a table of
 * steps x calls must not be larger than the rows that fill it.
 */
struct call_table {
    int32_t *slot; /* [steps], -1: none */
    int64_t n_slots, n_calls;
    struct call_cell *cells; /* [n_slots][n_calls] */
};

/*
 * The shortest duration of a call over its group is the transfer. Rows do not say which group they
 * belong to, so only calls over all ranks of the point can be split, of steps that were given out op by
 * op; and none between stages, each of which makes others.
 */
static bool splittable(const struct ledger *l, const struct call_row *r)
{
    const struct cell *c = ledger_measured(l, r->variant, r->step);
    if (strncmp(r->axis, "pp", sizeof r->axis) == 0)
        return false;
    return r->variant == VARIANT_FULL && r->group == l->ranks && r->call >= 0 && c != NULL &&
           !(c->flags & STEP_GRAPH);
}

static int table_open(struct call_table *t, const struct ledger *l)
{
    const struct record_point *p = l->point;
    int64_t n = l->n[VARIANT_FULL];
    t->slot = must_alloc((size_t)n + 1, sizeof *t->slot);
    for (int64_t i = 0; i < n; i++)
        t->slot[i] = -1;
    for (int64_t i = 0; i < p->collectives.n; i++) {
        const struct call_row *r = &p->collectives.rows[i];
        if (!splittable(l, r))
            continue;
        if (t->slot[r->step] < 0)
            t->slot[r->step] = (int32_t)t->n_slots++;
        if (r->call >= t->n_calls)
            t->n_calls = (int64_t)r->call + 1;
    }
    if (t->n_slots * t->n_calls > 4 * p->collectives.n + 1024)
        return fail(FAIL_FILE,
                    "account: point %d names call %lld of a step but has only %lld call rows: the "
                    "file is damaged",
                    p->point.point, (long long)t->n_calls - 1, (long long)p->collectives.n);
    t->cells = must_alloc((size_t)(t->n_slots * t->n_calls) + 1, sizeof *t->cells);
    return 0;
}

static int table_fill(struct call_table *t, const struct ledger *l, struct axes *axes)
{
    for (int64_t i = 0; i < l->point->collectives.n; i++) {
        const struct call_row *r = &l->point->collectives.rows[i];
        if (!splittable(l, r))
            continue;
        struct call_cell *c = &t->cells[t->slot[r->step] * t->n_calls + r->call];
        double duration = (double)r->duration_ns;
        c->axis = c->seen == 0 ? find_axis(axes, r->axis) : c->axis;
        if (c->axis == NULL)
            return too_many(l);
        c->shortest_ns = c->seen == 0 ? duration : fmin(c->shortest_ns, duration);
        c->sum_ns += duration;
        c->seen++;
    }
    return 0;
}

static int sum_calls(const struct ledger *l, struct axes *axes, int64_t *steps)
{
    struct call_table t = {0};
    int rc;
    TRY(table_open(&t, l));
    TRY(table_fill(&t, l, axes));
    *steps = t.n_slots;
    for (int64_t i = 0; i < t.n_slots * t.n_calls; i++) {
        const struct call_cell *c = &t.cells[i];
        if (c->seen == 0)
            continue;
        c->axis->calls++;
        c->axis->transfer += c->shortest_ns;
        c->axis->skew += c->sum_ns / c->seen - c->shortest_ns;
    }
out:
    free(t.slot);
    free(t.cells);
    return rc;
}

/* 0 / 0 is NaN: nothing measured, nothing known. */
static void axis_means(struct account_axis *out, const struct axis_sum *sum,
                       const struct account *account, double ranks, int64_t call_steps)
{
    double full = account->only_instrumented ? 0.0 : (double)account->series[ACCOUNT_FULL].n;
    double instrumented = (double)account->series[ACCOUNT_INSTRUMENTED].n;
    double n_full = full * ranks, n_instrumented = instrumented * ranks;
    memcpy(out->name, sum->name, sizeof out->name);
    out->stall_ns =
        sum->waits[ACCOUNT_FULL] > 0.0 ? sum->stall[ACCOUNT_FULL] / n_full : (double)NAN;
    out->stall_closed_ns = sum->stall[ACCOUNT_INSTRUMENTED] / n_instrumented;
    out->comm_ns = sum->comm / n_instrumented;
    out->exposed_ns = sum->has_exposed ? sum->exposed / n_instrumented : (double)NAN;
    out->waits = n_instrumented > 0.0 ? sum->waits[ACCOUNT_INSTRUMENTED] / n_instrumented
                                      : sum->waits[ACCOUNT_FULL] / n_full;
    out->wire_bytes = sum->wire / (n_full + n_instrumented);
    out->calls = out->transfer_ns = out->skew_ns = NAN;
    if (sum->calls > 0) {
        out->calls = (double)sum->calls / (double)call_steps;
        out->transfer_ns = sum->transfer / (double)call_steps;
        out->skew_ns = sum->skew / (double)call_steps;
    }
}

int ledger_axes(struct ledger *ledger, struct account *account)
{
    struct axes *axes = must_alloc(1, sizeof *axes);
    int64_t call_steps = 0;
    int rc;
    TRY(sum_stalls(ledger, axes));
    TRY(sum_calls(ledger, axes, &call_steps));
    account->axes = must_alloc((size_t)axes->n + 1, sizeof *account->axes);
    account->n_axes = axes->n;
    for (int i = 0; i < axes->n; i++)
        axis_means(&account->axes[i], &axes->axis[i], account, ledger->ranks, call_steps);
out:
    free(axes);
    return rc;
}
