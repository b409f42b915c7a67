#include <stdlib.h>

#include "analysis/account_ledger.h"
#include "base/err.h"

static bool is_instrumented(const struct ledger *l, int64_t step)
{
    const struct cell *c = ledger_measured(l, VARIANT_FULL, (int)step);
    return c != NULL && ledger_kind(VARIANT_FULL, c->flags) == ACCOUNT_INSTRUMENTED;
}

/* Place of every step among the instrumented ones, -1: none. */
static int64_t *place_steps(const struct ledger *l, int64_t *n)
{
    int64_t *place = must_alloc((size_t)l->n[VARIANT_FULL] + 1, sizeof *place);
    *n = 0;
    for (int64_t i = 0; i < l->n[VARIANT_FULL]; i++)
        place[i] = is_instrumented(l, i) ? (*n)++ : -1;
    return place;
}

static void find_stragglers(const struct ledger *l, struct straggler *out)
{
    int64_t n, *place = place_steps(l, &n);
    size_t size = (size_t)n * (size_t)l->ranks;
    double *compute = must_alloc(2 * size + 1, sizeof *compute), *wait = compute + size;
    for (int64_t i = 0; i < l->point->steps.n; i++) {
        const struct step_row *r = &l->point->steps.rows[i];
        if (r->variant != VARIANT_FULL || place[r->step] < 0)
            continue;
        compute[place[r->step] * l->ranks + r->rank] = (double)r->compute_ns;
        wait[place[r->step] * l->ranks + r->rank] = (double)r->stall_ns;
    }
    straggler_find(compute, wait, n, l->ranks, out);
    free(compute);
    free(place);
}

void ledger_pace(const struct ledger *ledger, struct account *account)
{
    const struct account_series *full = &account->series[ACCOUNT_FULL];
    shift_find(full->period_ns, full->n, &account->shift);
    find_stragglers(ledger, &account->straggler);
}
