#include "analysis/goodput_model.h"

#include <math.h>

#include <gsl/gsl_sf_lambert.h>

/* What a save needs beyond its cost until it counts. */
static double lag(const struct goodput_costs *c)
{
    return fmax(c->complete_s - c->cost_s, 0.0);
}

static double down(const struct goodput_costs *c)
{
    return c->detect_s + c->restart_s;
}

double goodput_renewal(double mtbf_s, double tau_s, const struct goodput_costs *c)
{
    /* The optimum may lie on the bound itself, a rounding away from it. */
    if (!(tau_s > 0.0) || tau_s < lag(c) * (1.0 - 1e-12))
        return NAN;
    return tau_s / mtbf_s * exp(-(down(c) + lag(c)) / mtbf_s) / expm1((tau_s + c->cost_s) / mtbf_s);
}

double goodput_first_order(double mtbf_s, double tau_s, const struct goodput_costs *c)
{
    return 1.0 - c->cost_s / tau_s - (tau_s / 2.0 + lag(c) + down(c)) / mtbf_s;
}

double goodput_product(double mtbf_s, double tau_s, const struct goodput_costs *c)
{
    return tau_s / (tau_s + c->cost_s) *
           (1.0 - (tau_s / 2.0 + fmax(c->complete_s, c->cost_s) + down(c)) / mtbf_s);
}

double goodput_ettr(double mtbf_s, double tau_s, const struct goodput_costs *c)
{
    return (1.0 - (down(c) + tau_s / 2.0) / mtbf_s) / (1.0 + c->cost_s / tau_s);
}

double goodput_runtime(double mtbf_s, double tau_s, const struct goodput_costs *c)
{
    return (mtbf_s - tau_s / 2.0 - lag(c)) / (mtbf_s + down(c));
}

bool goodput_young_holds(double mtbf_s, double cost_s)
{
    return cost_s < mtbf_s / 2.0;
}

double goodput_tau_young(double mtbf_s, double cost_s)
{
    return sqrt(2.0 * cost_s * mtbf_s);
}

double goodput_tau_daly(double mtbf_s, double cost_s)
{
    double x = cost_s / (2.0 * mtbf_s);
    if (x >= 1.0)
        return mtbf_s;
    return sqrt(2.0 * cost_s * mtbf_s) * (1.0 + sqrt(x) / 3.0 + x / 9.0) - cost_s;
}

double goodput_tau_exact(double mtbf_s, double cost_s)
{
    double x = cost_s / mtbf_s;
    /* At the branch point -1/e the argument has no digits left of x: the series of W there, in
     * p = sqrt(2 (1 + e z)) (Corless et al. 1996, eq. 4.22). */
    if (x < 1e-5) {
        double p = sqrt(-2.0 * expm1(-x));
        return mtbf_s * p * (1.0 - p / 3.0 + 11.0 / 72.0 * p * p);
    }
    return mtbf_s * (1.0 + gsl_sf_lambert_W0(-exp(-x - 1.0)));
}

double goodput_tau_async(double mtbf_s, const struct goodput_costs *c)
{
    return fmax(goodput_tau_exact(mtbf_s, c->cost_s), lag(c));
}

/* Steps of an interval that no run lives to see are as many as can be counted. */
static int64_t counted(double steps)
{
    const double most = 0x1p62;
    return steps < most ? (int64_t)steps : (int64_t)most;
}

int64_t goodput_fewest_steps(double step_s, const struct goodput_costs *c)
{
    return counted(fmax(ceil(lag(c) / step_s * (1.0 - 1e-12)), 1.0));
}

int64_t goodput_steps(double mtbf_s, double step_s, const struct goodput_costs *c, double *g)
{
    int64_t least = goodput_fewest_steps(step_s, c);
    int64_t below = counted(floor(goodput_tau_async(mtbf_s, c) / step_s));
    int64_t k = below < least ? least : below;
    double here = goodput_renewal(mtbf_s, (double)k * step_s, c);
    double next = goodput_renewal(mtbf_s, (double)(k + 1) * step_s, c);
    if (next > here) {
        here = next;
        k++;
    }
    if (g)
        *g = here;
    return k;
}

/* ---- two levels ---- */

static double level_waste(double tau_s, double cost_s, double mtbf_s)
{
    return cost_s / tau_s + tau_s / (2.0 * mtbf_s);
}

/* The better whole multiple of `unit` for a level whose best interval is tau_s. */
static double whole(double tau_s, double unit, double cost_s, double mtbf_s)
{
    double below = fmax(floor(tau_s / unit), 1.0) * unit, above = below + unit;
    return level_waste(above, cost_s, mtbf_s) < level_waste(below, cost_s, mtbf_s) ? above : below;
}

void goodput_two_levels(struct goodput_levels *out, double mtbf_s, double step_s,
                        const struct goodput_costs *c, double local_s, double local_share)
{
    double m1 = mtbf_s / local_share, m2 = mtbf_s / (1.0 - local_share);
    out->local_s = goodput_tau_young(m1, local_s);
    if (step_s > 0.0)
        out->local_s = whole(out->local_s, step_s, local_s, m1);
    out->global_s =
        whole(fmax(goodput_tau_young(m2, c->cost_s), lag(c)), out->local_s, c->cost_s, m2);
    if (out->global_s < lag(c)) /* published before the next begins */
        out->global_s = ceil(lag(c) / out->local_s) * out->local_s;
    out->first_order = 1.0 - level_waste(out->local_s, local_s, m1) -
                       level_waste(out->global_s, c->cost_s, m2) - lag(c) / m2 - down(c) / mtbf_s;
}
