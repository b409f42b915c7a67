#include <math.h>
#include <stdlib.h>

#include "analysis/account_ledger.h"
#include "base/err.h"

static bool is_instrumented(const struct ledger *l, int variant, int32_t step)
{
    const struct cell *c = variant == VARIANT_FULL ? ledger_measured(l, variant, step) : NULL;
    return c != NULL && ledger_kind(variant, c->flags) == ACCOUNT_INSTRUMENTED;
}

/* Per rank, sums over the instrumented steps. */
struct rank_time {
    double useful_ns, outside_ns, step_ns;
};

static struct rank_time *sum_ranks(const struct ledger *l)
{
    struct rank_time *ranks = must_alloc((size_t)l->ranks + 1, sizeof *ranks);
    const struct record_point *p = l->point;
    for (int64_t i = 0; i < p->steps.n; i++) {
        const struct step_row *r = &p->steps.rows[i];
        if (!is_instrumented(l, r->variant, r->step))
            continue;
        ranks[r->rank].useful_ns += (double)r->compute_ns;
        ranks[r->rank].step_ns += (double)r->end_ns - (double)r->start_ns;
    }
    for (int64_t i = 0; i < p->stalls.n; i++) {
        const struct stall_row *r = &p->stalls.rows[i];
        if (is_instrumented(l, r->variant, r->step) && r->exposed_ns > 0)
            ranks[r->rank].outside_ns += (double)r->exposed_ns;
    }
    return ranks;
}

void ledger_pop(const struct ledger *ledger, struct account *account)
{
    const struct account_series *series = &account->series[ACCOUNT_INSTRUMENTED];
    struct account_pop *pop = &account->pop;
    *pop = (struct account_pop){NAN, NAN, NAN, NAN};
    if (series->n == 0 || ledger->ranks < 1)
        return;
    struct rank_time *ranks = sum_ranks(ledger);
    double sum = 0.0, most = 0.0, active = 0.0, n = (double)series->n;
    for (int i = 0; i < ledger->ranks; i++) {
        const struct rank_time *r = &ranks[i];
        sum += r->useful_ns;
        most = fmax(most, r->useful_ns);
        active = fmax(active, fmax(r->useful_ns, fmin(r->step_ns, r->useful_ns + r->outside_ns)));
    }
    free(ranks);
    if (!(sum > 0.0))
        return;
    *pop = (struct account_pop){.useful_mean_ns = sum / ledger->ranks / n,
                                .useful_most_ns = most / n,
                                .active_most_ns = active / n,
                                .elapsed_ns = stats_mean(series->period_ns, series->n)};
}
