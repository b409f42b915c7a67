#include "analysis/pop.h"

#include <math.h>

static double useful_mean(const struct account *a)
{
    return a->pop.useful_mean_ns;
}

static double useful_most(const struct account *a)
{
    return a->pop.useful_most_ns;
}

static double active_most(const struct account *a)
{
    return a->pop.active_most_ns;
}

static double elapsed(const struct account *a)
{
    return a->pop.elapsed_ns;
}

/* Compute time of all ranks for one token. */
static double cost_of_token(const struct scaling_row *row)
{
    return scaling_mean(row, useful_mean) * row->point->ranks / row->tokens_per_step;
}

struct pop pop_of(const struct scaling *scaling, const struct scaling_row *row)
{
    double mean = scaling_mean(row, useful_mean), most = scaling_mean(row, useful_most);
    double active = scaling_mean(row, active_most), time = scaling_mean(row, elapsed);
    struct pop out = {.parallel = mean / time,
                      .balance = mean / most,
                      .communication = most / active,
                      .orchestration = active / time,
                      .computation = NAN,
                      .global = NAN};
    if (row->speedup.base >= 0) {
        out.computation = cost_of_token(&scaling->rows[row->speedup.base]) / cost_of_token(row);
        out.global = out.parallel * out.computation;
    }
    return out;
}
