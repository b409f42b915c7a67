/*
 * report_means: figures of one launch whose mean over the launches of a row stands in the curve. All of
 * them, so that what adds up in each launch (wait = full - compute-only - slowdown - bubble) adds up
 * in the row. A launch that does not know a figure is left out of its mean; NaN when none does.
 *
 * Figures that have an interval in each launch have one over launches in the row: joined_NAME
 * (launches_join), by the same rule as the step's.
 */
#ifndef ANALYSIS_REPORT_MEANS_H
#define ANALYSIS_REPORT_MEANS_H

#include "analysis/scaling.h"

/* X(name, value); `a` is the account of a launch, `p` its point. */
#define REPORT_MEANS(X)                                                                            \
    X(elided_ms, report_ms(a->series[ACCOUNT_COMPUTE].term_ns[TERM_STEP]))                         \
    X(comm_ms, report_ms(a->series[ACCOUNT_COMM].term_ns[TERM_STEP]))                              \
    X(difference_ms, report_ms(a->difference_ns.value))                                            \
    X(counterfactual_ms, report_ms(a->counterfactual_ns.value))                                    \
    X(slowdown_ms, report_ms(a->slowdown_ns.value))                                                \
    X(stall_ms, report_ms(a->stall_ns))                                                            \
    X(interval_ms, report_ms(a->interval_ns))                                                      \
    X(step_term_ms, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_STEP]))                 \
    X(compute_term_ms, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_COMPUTE]))           \
    X(input_term_ms, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_INPUT]))               \
    X(stall_term_ms, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_STALL]))               \
    X(idle_term_ms, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_IDLE]))                 \
    X(stamps_term_ms, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_STAMPS]))             \
    X(residual_term_ms, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_RESIDUAL]))         \
    X(residual_worst_pct, 100.0 * a->worst_residual_share)                                         \
    X(graph_step_ms, report_ms(graph_period_ns(a)))                                                \
    X(graph_submit_us, a->series[ACCOUNT_GRAPH].term_ns[TERM_HOST] / 1e3)                          \
    X(bubble_ms, p->pp == 1 ? 0.0 : OF_PIPELINE(p->bubble_ms))                                     \
    X(replay_ms, OF_PIPELINE(p->replay_ms))                                                        \
    X(bubble_step_pct, OF_PIPELINE(100.0 * p->bubble_ms / p->replay_ms))                           \
    X(bubble_ideal_pct, OF_PIPELINE(100.0 * p->bubble_ideal))                                      \
    X(bubble_closed_pct, OF_PIPELINE(100.0 * p->bubble_closed))                                    \
    X(pp_transfer_ms, OF_PIPELINE(p->transfer_ms))                                                 \
    X(replay_moved_ms, OF_PIPELINE(p->replay_moved_ms))                                            \
    X(critical_ms, OF_TIMED(p->critical_ms))                                                       \
    X(late_ms, OF_TIMED(p->late_ms))                                                               \
    X(initial_loss, p->initial_loss)                                                               \
    X(final_loss, p->final_loss)                                                                   \
    X(gate_s, p->gate_s)                                                                           \
    X(setup_s, p->setup_s)                                                                         \
    X(init_s, p->init_s)                                                                           \
    X(prove_s, p->prove_s)                                                                         \
    X(warm_up_s, p->warm_up_s)                                                                     \
    X(timed_s, p->timed_s)

/* X(name, field of the account, what it is multiplied with). */
#define REPORT_JOINED(X)                                                                           \
    X(disagreement_ms, disagreement_ns, 1e-6)                                                      \
    X(aa_ratio, aa_ratio, 1.0)                                                                     \
    X(host_ratio, host_ratio, 1.0)                                                                 \
    X(stamps_ratio, stamps_ratio, 1.0)

#define REPORT_JOIN(name, field, scale)                                                            \
    struct stats_interval joined_##name(const struct scaling_row *row);
REPORT_JOINED(REPORT_JOIN)
#undef REPORT_JOIN

#define REPORT_MEAN(name, value) double mean_##name(const struct scaling_row *row);
REPORT_MEANS(REPORT_MEAN)
#undef REPORT_MEAN

#endif
