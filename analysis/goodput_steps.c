#include "analysis/goodput_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/launches.h"
#include "base/err.h"

/* Tokens of a step: those that a run trained on, else all positions. */
static double tokens_of(const struct goodput_point *p)
{
    return p->step_of_run && p->run.tokens_per_step > 0.0 ? p->run.tokens_per_step
                                                          : (double)p->row->positions_per_step;
}

static bool is_taken(const struct goodput_point *p, int kind, double nodes, bool crowded)
{
    return p->kind == kind && p->row->nodes == nodes && p->step_s.value > 0.0 &&
           (crowded || !p->row->oversubscribed);
}

/* One launch has its own interval or none. */
static struct forecast_spread spread_of(const double *x, int n, const struct stats_interval *own)
{
    struct forecast_spread out = {0.0, 0.0, 1.0};
    double mean;
    if (n > 1) {
        launches_log_moments(x, n, &mean, &out.launch);
        out.error = out.launch / sqrt(n);
        out.freedom = n - 1.0;
    } else if (own->high > own->low && own->low > 0.0) {
        out.error = log(own->high / own->low) / (2.0 * 1.96);
        out.freedom = 1000.0;
    }
    return out;
}

static void pool(struct goodput_steps *out, const struct stats_interval *launches)
{
    int n = out->launches;
    double *x = must_alloc((size_t)n, sizeof *x);
    for (int i = 0; i < n; i++)
        x[i] = launches[i].value;
    struct stats_interval t;
    launches_join(launches, n, 0.95, &out->step_s);
    stats_t_interval(x, n, 0.95, &t);
    out->step_s.low = fmin(out->step_s.low, t.low); /* the number where the other is none */
    out->step_s.high = fmax(out->step_s.high, t.high);
    stats_positive(&out->step_s);
    out->spread = spread_of(x, n, &out->step_s);
    free(x);
}

bool goodput_steps_at(struct goodput_steps *out, const struct goodput_study *study, int kind,
                      double nodes, bool crowded)
{
    struct stats_interval *launches = NULL;
    bool runs = false;
    int points = 0;
    *out = (struct goodput_steps){.nodes = nodes};
    for (int i = 0; i < study->n_points; i++)
        runs |= is_taken(&study->points[i], kind, nodes, crowded) && study->points[i].step_of_run;
    for (int i = 0; i < study->n_points; i++) {
        const struct goodput_point *p = &study->points[i];
        if (!is_taken(p, kind, nodes, crowded) || p->step_of_run != runs)
            continue;
        int n = p->n_launches > 0 ? p->n_launches : 1;
        launches = must_grow(launches, (size_t)(out->launches + n), sizeof *launches);
        memcpy(launches + out->launches, p->n_launches > 0 ? p->launch_s : &p->step_s,
               (size_t)n * sizeof *launches);
        out->launches += n;
        out->tokens += tokens_of(p);
        out->weak = strcmp(p->row->scaling, "weak") == 0;
        points++;
    }
    if (points > 0) {
        out->tokens /= points;
        pool(out, launches);
    }
    free(launches);
    return points > 0;
}
