#include "analysis/straggler.h"

#include <math.h>
#include <stdlib.h>

#include "analysis/stats.h"
#include "base/err.h"

/* Late steps rarer than this are events, not a way of running. */
static const double rare = 0.1;

static const char *const names[] = {"unknown", "none", "one rank", "rotating", "few steps"};

const char *straggler_name(enum straggler_kind kind)
{
    return names[kind];
}

static int slowest_of(const double *compute_ns, int ranks)
{
    int worst = 0;
    for (int i = 1; i < ranks; i++)
        worst = compute_ns[i] > compute_ns[worst] ? i : worst;
    return worst;
}

static int most_often(const int64_t *count, int ranks)
{
    int best = 0;
    for (int i = 1; i < ranks; i++)
        best = count[i] > count[best] ? i : best;
    return best;
}

struct tally {
    int64_t *late;  /* [ranks] late steps of each */
    double *excess; /* [ranks] sums over them */
    double wait_ns, others_ns;
};

static void look_at(const double *compute_ns, const double *wait_ns, int ranks, struct tally *tally,
                    struct straggler *out)
{
    int worst = slowest_of(compute_ns, ranks);
    double median = stats_median(compute_ns, ranks), over = compute_ns[worst] - median;
    if (!(median > 0.0))
        return;
    out->steps++;
    out->cost += over / median;
    if (over <= STRAGGLER_SHARE * median ||
        over <= STRAGGLER_MADS * 1.4826 * stats_mad(compute_ns, ranks))
        return;
    out->late++;
    tally->late[worst]++;
    tally->excess[worst] += over / median;
    tally->wait_ns += wait_ns ? wait_ns[worst] : (double)NAN;
    tally->others_ns += wait_ns ? stats_median(wait_ns, ranks) : (double)NAN;
}

static enum straggler_kind pattern_of(const struct straggler *s)
{
    if (s->steps == 0)
        return STRAGGLER_UNKNOWN;
    if (s->late == 0)
        return STRAGGLER_NONE;
    if ((double)s->late < rare * (double)s->steps)
        return STRAGGLER_FEW_STEPS;
    return 2 * s->of_rank > s->late ? STRAGGLER_ONE_RANK : STRAGGLER_ROTATING;
}

void straggler_find(const double *compute_ns, const double *wait_ns, int64_t steps, int ranks,
                    struct straggler *out)
{
    *out = (struct straggler){.rank = -1, .excess = NAN, .wait_ns = NAN, .others_wait_ns = NAN};
    if (ranks < 3) {
        out->cost = NAN;
        return;
    }
    struct tally tally = {must_alloc((size_t)ranks, sizeof *tally.late),
                          must_alloc((size_t)ranks, sizeof *tally.excess), 0.0, 0.0};
    for (int64_t i = 0; i < steps; i++)
        look_at(compute_ns + i * ranks, wait_ns ? wait_ns + i * ranks : NULL, ranks, &tally, out);
    out->cost = out->steps > 0 ? out->cost / (double)out->steps : (double)NAN;
    if (out->late > 0) {
        out->rank = most_often(tally.late, ranks);
        out->of_rank = tally.late[out->rank];
        out->excess = tally.excess[out->rank] / (double)out->of_rank;
        out->wait_ns = tally.wait_ns / (double)out->late;
        out->others_wait_ns = tally.others_ns / (double)out->late;
    }
    out->kind = pattern_of(out);
    free(tally.late);
    free(tally.excess);
}
