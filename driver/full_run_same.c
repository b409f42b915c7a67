/* What the sums of a step gave each rank: its loss, and the norm of its gradient, by which all of them clip. Both are
 * summed over ranks, and all must have the same to the bit; where a sum did not reach some rank they have not.
 * Replicas whose parameters have come apart are not seen by it: what each adds differs, and all get the one sum. */
#include "driver/full_run_part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/point_row.h"

struct trained {
    double loss, norm;
};

/* NaNs are one: their bits depend on the order of operands. */
static struct trained trained_of(const struct step_row *step)
{
    return (struct trained){isnan(step->loss) ? (double)NAN : step->loss,
                            isnan(step->grad_norm) ? (double)NAN : step->grad_norm};
}

/* Of a block, n steps; freed by who asks. */
static struct trained *list(const struct execute_samples *s)
{
    struct trained *steps = must_alloc((size_t)s->n, sizeof *steps);
    for (int i = 0; i < s->n; i++)
        steps[i] = trained_of(&s->step[i]);
    return steps;
}

int64_t full_run_trained(const struct full_run *x, const struct execute_samples *s)
{
    if (x->m->execute->kernels->no_numerics)
        return 0;
    struct trained *steps = list(s);
    uint64_t hash = XXH3_64bits(steps, (size_t)s->n * sizeof *steps);
    free(steps);
    return (int64_t)(hash >> 1);
}

static void say(const struct full_run *x, int64_t step, int rank, const struct trained *mine,
                const struct trained *its)
{
    char words[400];
    snprintf(words, sizeof words,
             "step %lld: rank %d has the loss %.17g and the gradient norm %.17g, and rank 0 %.17g "
             "and %.17g: they must be the same to the bit: a sum over ranks has not reached all",
             (long long)step, rank, its->loss, its->norm, mine->loss, mine->norm);
    point_event(x->at->rows, "warning", units_now_ns() - x->at->job->t0_ns, words);
    fprintf(stderr, "scalestudy: %s\n", words);
}

/* The first step at which some rank has another, and the lowest such rank. */
static void find(const struct full_run *x, const struct trained *all, int n)
{
    int64_t first = full_run_done(x) - n;
    for (int i = 0; i < n; i++)
        for (int rank = 1; rank < x->m->layout->world; rank++) {
            const struct trained *its = &all[(ptrdiff_t)rank * n + i];
            if (memcmp(its, &all[i], sizeof *its) != 0) {
                say(x, first + i + 1, rank, &all[i], its);
                return;
            }
        }
}

int full_run_say_unlike(struct full_run *x, const struct execute_samples *s)
{
    void *all = NULL;
    int64_t total, *counts = NULL;
    struct trained *steps = list(s);
    if (full_run_is_first(x))
        counts = must_alloc((size_t)x->m->layout->world, sizeof *counts);
    int rc = agree_gather(steps, s->n * (int64_t)sizeof *steps, &all, &total, counts, x->m->parent);
    if (rc == 0 && full_run_is_first(x))
        find(x, all, s->n);
    x->unlike = true;
    free(steps);
    free(counts);
    free(all);
    return rc;
}
