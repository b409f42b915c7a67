/*
 * goodput_model: what share of wall time moves the training forward when failures strike, and how
 * often to save.
 *
 * Failures come as a Poisson process, one every M seconds of wall time on average, and strike at any
 * moment, also while the job detects, restarts and loads. A save costs d_b (blocked and inflation)
 * before training goes on, and counts from d_c after its call, when it is published; a
 * synchronous one has d_c = d_b. After a failure D + R passes and training goes on from the newest
 * save that was published. With tau seconds of useful work between saves the renewal argument gives,
 * exactly,
 *
 *     g(tau) = tau exp(-(D + R + d_c - d_b) / M) / (M (exp((tau + d_b) / M) - 1))
 *
 * for tau + d_b >= d_c: a save cannot start before the last one is published. With d_c = d_b it is
 * Daly's model (A higher order estimate of the optimum checkpoint interval, FGCS 22, 2006). Its
 * maximum needs Lambert's W (tau_exact); only d_b moves it, d_c only bounds it from below.
 *
 * Beside it stand the first-order forms that others use, under their own names; they are good while
 * tau, d and D + R are small against M, and leave 0 to 1 where they are not; what leaves it is outside its
 * validity, and a report has no number for it. All times in seconds, M > 0, the others
 * >= 0. NaN: not defined there.
 */
#ifndef ANALYSIS_GOODPUT_MODEL_H
#define ANALYSIS_GOODPUT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

struct goodput_costs {
    double cost_s;     /* d_b: blocked + inflation of a save */
    double complete_s; /* d_c: from the call until it is published; below d_b it counts as d_b */
    double detect_s;   /* D */
    double restart_s;  /* R: restart, load, until the first new step begins */
};

/* Share of wall time; NaN when tau + d_b < d_c, or tau <= 0. */
double goodput_renewal(double mtbf_s, double tau_s, const struct goodput_costs *costs);

/* 1 - d_b/tau - (tau/2 + (d_c - d_b) + D + R)/M: the first-order waste taken off. */
double goodput_first_order(double mtbf_s, double tau_s, const struct goodput_costs *costs);

/*
 * tau/(tau + d_b) (1 - (tau/2 + d_c + D + R)/M): the form that plans of checkpoint libraries use. A
 * failure before a save is published loses the interval before it too.
 */
double goodput_product(double mtbf_s, double tau_s, const struct goodput_costs *costs);

/* E[ETTR] of Kokolis et al. (Revisiting reliability in large-scale machine learning research
 * clusters, HPCA 2025): (1 - (u0 + tau/2)/M) / (1 + w/tau), u0 = D + R, w = d_b. */
double goodput_ettr(double mtbf_s, double tau_s, const struct goodput_costs *costs);

/*
 * Google's runtime goodput of one interruption, (interval - lost work) / (interval + reschedule +
 * resume): interval = M, lost work = tau/2 + d_c - d_b, reschedule + resume = D + R. What saves cost is
 * not in it.
 */
double goodput_runtime(double mtbf_s, double tau_s, const struct goodput_costs *costs);

/* Optimal useful time between saves. Young's holds while it is short against M: from d = M/2 on it is
 * longer than M, where no first order is left. */
bool goodput_young_holds(double mtbf_s, double cost_s);
double goodput_tau_young(double mtbf_s, double cost_s);
double goodput_tau_daly(double mtbf_s, double cost_s);  /* eq. 37; M from d >= 2M on */
double goodput_tau_exact(double mtbf_s, double cost_s); /* M (1 + W0(-exp(-d/M - 1))) */
double goodput_tau_async(double mtbf_s, const struct goodput_costs *costs); /* and >= d_c - d_b */

/*
 * In steps of step_s seconds: the better of floor and ceiling of tau_async under g, at least 1 and at
 * least what d_c - d_b needs. *g receives its goodput (may be NULL).
 */
int64_t goodput_steps(double mtbf_s, double step_s, const struct goodput_costs *costs, double *g);

/* The lowest whole number of steps between saves that lets a save be published before the next. */
int64_t goodput_fewest_steps(double step_s, const struct goodput_costs *costs);

/*
 * Two levels: a local save (memory of another node, a disk in the node) costs local_s and survives
 * local_share of the failures; the save of `costs` survives all. Failures of both kinds are independent, and each
 * level has the first-order optimum of its own: tau_l = sqrt(2 d_l M_l), M_1 = M / local_share, M_2 = M / (1 -
 * local_share); then the global interval is a whole number of local ones, and with step_s (else NaN) the local one
 * of steps, each the better of floor and ceiling. first_order: 1 - sum over levels of d_l/tau_l + tau_l/(2 M_l),
 * less (d_c - d_b)/M_2 and (D + R)/M; good while all of that is small.
 */
struct goodput_levels {
    double local_s, global_s; /* tau_1, tau_2 */
    double first_order;
};
void goodput_two_levels(struct goodput_levels *out, double mtbf_s, double step_s,
                        const struct goodput_costs *costs, double local_s, double local_share);

#endif
