#include "analysis/report_columns.h"

#include <math.h>
#include <string.h>

#include "analysis/inputs.h"
#include "analysis/pop.h"
#include "analysis/report_checkpoints.h"
#include "analysis/report_energy.h"
#include "analysis/report_energy_steps.h"
#include "analysis/report_goodput.h"
#include "analysis/report_means.h"
#include "analysis/report_pace.h"
#include "analysis/report_proof.h"
#include "analysis/report_work.h"

static double hidden_pct(const struct scaling_row *row)
{
    double comm = mean_comm_ms(row);
    return comm > 0.0 ? 100.0 * (1.0 - mean_difference_ms(row) / comm) : (double)NAN;
}

static double axis_ms(const struct scaling_row *row, const char *name)
{
    double sum = 0.0;
    int n = 0;
    for (int i = 0; i < row->n_used; i++) {
        const struct account *a = &row->runs[i].account;
        for (int j = 0; j < a->n_axes; j++) {
            const struct account_axis *axis = &a->axes[j];
            if (strncmp(axis->name, name, sizeof axis->name) != 0)
                continue;
            sum += isnan(axis->stall_ns) ? axis->stall_closed_ns : axis->stall_ns;
            n++;
        }
    }
    return n > 0 ? report_ms(sum / n) : (double)NAN;
}

/* Of the first mode that saved, the mean over launches that did; NaN where none did. */
static struct checkpoints_mode ckpt(const struct scaling_row *row)
{
    struct checkpoints_mode sum = {.inflation = {NAN, NAN, NAN, 0}};
    double inflation = 0.0;
    for (int i = 0; i < row->n_used; i++) {
        struct checkpoints c = report_checkpoints(&row->runs[i]);
        if (c.n_modes == 0)
            continue;
        sum.saves++; /* launches here */
        sum.bytes += c.mode[0].bytes;
        sum.blocked_ns += c.mode[0].blocked_ns;
        sum.complete_ns += c.mode[0].complete_ns;
        inflation += c.mode[0].inflation.value;
        sum.overlaps += c.mode[0].overlaps;
    }
    sum.bytes /= (double)sum.saves; /* NaN for none */
    sum.blocked_ns /= (double)sum.saves;
    sum.complete_ns /= (double)sum.saves;
    sum.inflation.value = inflation / (double)sum.saves;
    return sum;
}

/* No save of any launch began while the one before was on its way. */
static int64_t ckpt_accurate(const struct scaling_row *row)
{
    struct checkpoints_mode mode = ckpt(row);
    return mode.saves == 0 ? REPORT_UNKNOWN : mode.overlaps == 0;
}

/* The worst of its launches; of a timed device only. */
static double late_most_ms(const struct scaling_row *row)
{
    double most = NAN;
    for (int i = 0; i < row->n_used && row->point->topology[0] != '\0'; i++)
        most = fmax(most, row->runs[i].account.record->point.late_most_ms);
    return most;
}

static int64_t base_ranks(const struct report *r, const struct scaling_ratio *ratio)
{
    return ratio->base >= 0 ? r->scaling->rows[ratio->base].point->ranks : REPORT_UNKNOWN;
}

/* ((X - Xp) / Xp) / ((N - Np) / Np) from the ratio form: what the added ranks deliver. */
static double marginal(const struct report *r, const struct scaling_row *row, double ratio)
{
    if (row->incremental.base < 0)
        return NAN;
    double up = (double)row->point->ranks / r->scaling->rows[row->incremental.base].point->ranks;
    return (ratio * up - 1.0) / (up - 1.0);
}

static const char *slowest_host(const struct scaling_row *row)
{
    const struct scaling_run *run = report_slowest(row);
    return run->account.slowest < 0
               ? ""
               : account_host(&run->file->head, &run->account.record->point, run->account.slowest);
}

static int64_t or_unknown(int64_t value)
{
    return value < 0 ? REPORT_UNKNOWN : value;
}

static struct report_work_row ttw(const struct report *r, const struct scaling_row *row)
{
    struct report_work_row out;
    report_work_of(r, row, &out);
    return out;
}

static struct energy_step step_energy(const struct scaling_row *row)
{
    struct energy_steps e = report_energy(row).steps;
    return e.kind[e.full];
}

#define MEAN(figure) mean_##figure(row)
#define UNMEASURED ((double)NAN)

/* X(kind, name, value); `r` is the report, `row` the row, `p` its point. */
#define SHARED_COLUMNS(X)                                                                          \
    X(TEXT, mode, p->scaling)                                                                      \
    X(INTEGER, nodes, p->nodes)                                                                    \
    X(INTEGER, ranks, p->ranks)                                                                    \
    X(INTEGER, tp, p->tp)                                                                          \
    X(INTEGER, pp, p->pp)                                                                          \
    X(INTEGER, cp, p->cp)                                                                          \
    X(INTEGER, ep, p->ep)                                                                          \
    X(INTEGER, dp, p->dp)                                                                          \
    X(TEXT, order, report_attribute(r, "study", "order"))                                          \
    X(INTEGER, mbs, p->micro_batch)                                                                \
    X(INTEGER, gbs, p->global_batch)                                                               \
    X(INTEGER, seq, p->sequence)                                                                   \
    X(REAL, step_ms_p50, report_ms(row->p50_ns))                                                   \
    X(REAL, step_ms_p95, report_ms(row->p95_ns))                                                   \
    X(REAL, step_ms_p99, report_ms(row->p99_ns))                                                   \
    X(REAL, cv_pct, 100.0 * row->cv)                                                               \
    X(REAL, ci_lo_ms, report_ms(row->step_ns.low))                                                 \
    X(REAL, ci_hi_ms, report_ms(row->step_ns.high))                                                \
    X(INTEGER, n_iter, row->step_ns.n)                                                             \
    X(REAL, tokens_per_s, row->tokens_per_s.value)                                                 \
    X(REAL, tokens_per_s_gpu, row->tokens_per_s.value / p->ranks)                                  \
    X(REAL, mfu_pct, 100.0 * report_mfu(row))                                                      \
    X(REAL, t_compute_ms, MEAN(elided_ms))                                                         \
    X(REAL, t_comm_ms, MEAN(comm_ms))                                                              \
    X(REAL, exposed_ms, MEAN(difference_ms))                                                       \
    X(REAL, wait_ms, MEAN(counterfactual_ms))                                                      \
    X(REAL, slowdown_ms, MEAN(slowdown_ms))                                                        \
    X(REAL, hidden_pct, hidden_pct(row))                                                           \
    X(REAL, dp_ms, axis_ms(row, "dp"))                                                             \
    X(REAL, tp_ms, axis_ms(row, "tp"))                                                             \
    X(REAL, pp_ms, axis_ms(row, "pp"))                                                             \
    X(REAL, cp_ms, axis_ms(row, "cp"))                                                             \
    X(REAL, ep_ms, axis_ms(row, "ep"))                                                             \
    X(REAL, bubble_ms, MEAN(bubble_ms))                                                            \
    X(REAL, residual_ms, MEAN(residual_term_ms))                                                   \
    X(REAL, speedup, row->speedup.ratio.value)                                                     \
    X(REAL, efficiency_pct, 100.0 * row->efficiency.ratio.value)                                   \
    X(REAL, inc_eff_pct, 100.0 * row->incremental.ratio.value)                                     \
    X(REAL, intra_GBps, UNMEASURED)                                                                \
    X(REAL, inter_GBps, UNMEASURED)                                                                \
    X(REAL, ckpt_bytes, ckpt(row).bytes)                                                           \
    X(REAL, ckpt_blocked_ms, report_ms(ckpt(row).blocked_ns))                                      \
    X(REAL, ckpt_complete_ms, report_ms(ckpt(row).complete_ns))                                    \
    X(REAL, ckpt_inflation_ms, report_ms(ckpt(row).inflation.value))                               \
    X(INTEGER, ckpt_accurate, ckpt_accurate(row))                                                  \
    X(REAL, goodput_pct, report_goodput_pct(r, row))                                               \
    X(INTEGER, wrong, report_wrong(row))                                                           \
    X(TEXT, slowest_host, slowest_host(row))                                                       \
    X(TEXT, status, report_status(row))

#define OUR_COLUMNS(X)                                                                             \
    X(TEXT, study, r->files[0]->head.study_digest)                                                 \
    X(INTEGER, point, p->point)                                                                    \
    X(INTEGER, set, row->set)                                                                      \
    X(INTEGER, launches, row->n_used)                                                              \
    X(INTEGER, ranks_per_node, p->ranks_per_node)                                                  \
    X(INTEGER, shard, p->shard)                                                                    \
    X(TEXT, parallel, p->parallel)                                                                 \
    X(TEXT, model, p->model)                                                                       \
    X(INTEGER, parameters, p->parameters)                                                          \
    X(TEXT, dtype, p->dtype)                                                                       \
    X(TEXT, device, p->device)                                                                     \
    X(TEXT, comm, p->comm)                                                                         \
    X(TEXT, topology, p->topology)                                                                 \
    X(REAL, critical_ms, MEAN(critical_ms))                                                        \
    X(REAL, late_ms, MEAN(late_ms))                                                                \
    X(REAL, late_most_ms, late_most_ms(row))                                                       \
    X(TEXT, input, p->input)                                                                       \
    X(REAL, input_wait_ms, report_ms(inputs_of_row(row).wait_ns))                                  \
    X(REAL, input_starved_pct, 100.0 * inputs_of_row(row).starved_share)                           \
    X(TRUTH, emulated, p->emulated != 0)                                                           \
    X(TRUTH, oversubscribed, p->oversubscribed != 0)                                               \
    X(TRUTH, valid, row->valid)                                                                    \
    X(TEXT, gate, p->gate)                                                                         \
    X(TEXT, work, proof_of_work(row))                                                              \
    X(TEXT, why, p->why)                                                                           \
    X(REAL, hfu_pct, 100.0 * report_hfu(row))                                                      \
    X(REAL, step_ms_mean, report_ms(row->step_ns.value))                                           \
    X(REAL, tokens_per_s_lo, row->tokens_per_s.low)                                                \
    X(REAL, tokens_per_s_hi, row->tokens_per_s.high)                                               \
    X(INTEGER, positions_per_step, p->positions_per_step)                                          \
    X(REAL, tokens_per_step, row->tokens_per_step)                                                 \
    X(INTEGER, samples_per_step, p->global_batch)                                                  \
    X(REAL, samples_per_s, (double)p->global_batch * 1e9 / row->step_ns.value)                     \
    X(REAL, speedup_lo, row->speedup.ratio.low)                                                    \
    X(REAL, speedup_hi, row->speedup.ratio.high)                                                   \
    X(REAL, efficiency_lo_pct, 100.0 * row->efficiency.ratio.low)                                  \
    X(REAL, efficiency_hi_pct, 100.0 * row->efficiency.ratio.high)                                 \
    X(INTEGER, base_ranks, base_ranks(r, &row->efficiency))                                        \
    X(REAL, base_tokens_per_s, row->efficiency.base_tokens_per_s)                                  \
    X(REAL, eff_device_pct, 100.0 * row->eff_device.ratio.value)                                   \
    X(REAL, eff_device_lo_pct, 100.0 * row->eff_device.ratio.low)                                  \
    X(REAL, eff_device_hi_pct, 100.0 * row->eff_device.ratio.high)                                 \
    X(REAL, eff_node_pct, 100.0 * row->eff_node.ratio.value)                                       \
    X(REAL, eff_node_lo_pct, 100.0 * row->eff_node.ratio.low)                                      \
    X(REAL, eff_node_hi_pct, 100.0 * row->eff_node.ratio.high)                                     \
    X(INTEGER, node_base_ranks, base_ranks(r, &row->eff_node))                                     \
    X(REAL, node_base_tokens_per_s, row->eff_node.base_tokens_per_s)                               \
    X(REAL, inc_eff_lo_pct, 100.0 * row->incremental.ratio.low)                                    \
    X(REAL, inc_eff_hi_pct, 100.0 * row->incremental.ratio.high)                                   \
    X(INTEGER, inc_base_ranks, base_ranks(r, &row->incremental))                                   \
    X(INTEGER, copies, p->copies)                                                                  \
    X(REAL, eff_loaded_pct, 100.0 * row->eff_loaded.ratio.value)                                   \
    X(REAL, eff_loaded_lo_pct, 100.0 * row->eff_loaded.ratio.low)                                  \
    X(REAL, eff_loaded_hi_pct, 100.0 * row->eff_loaded.ratio.high)                                 \
    X(REAL, loaded_base_tokens_per_s, row->eff_loaded.base_tokens_per_s)                           \
    X(REAL, marginal_eff_pct, 100.0 * marginal(r, row, row->incremental.ratio.value))              \
    X(REAL, marginal_eff_lo_pct, 100.0 * marginal(r, row, row->incremental.ratio.low))             \
    X(REAL, marginal_eff_hi_pct, 100.0 * marginal(r, row, row->incremental.ratio.high))            \
    X(REAL, hours_to_work, ttw(r, row).hours.value)                                                \
    X(REAL, hours_to_work_lo, ttw(r, row).hours.low)                                               \
    X(REAL, hours_to_work_hi, ttw(r, row).hours.high)                                              \
    X(REAL, ttw_eff_pct, 100.0 * ttw(r, row).ttw.value)                                            \
    X(REAL, ttw_eff_lo_pct, 100.0 * ttw(r, row).ttw.low)                                           \
    X(REAL, ttw_eff_hi_pct, 100.0 * ttw(r, row).ttw.high)                                          \
    X(REAL, throughput_factor, ttw(r, row).throughput)                                             \
    X(REAL, samples_factor, ttw(r, row).samples)                                                   \
    X(REAL, goodput_factor, ttw(r, row).goodput)                                                   \
    X(TRUTH, unpaired, scaling_unpaired(row))                                                      \
    X(REAL, exposed_stall_ms, MEAN(stall_ms))                                                      \
    X(REAL, exposed_interval_ms, MEAN(interval_ms))                                                \
    X(REAL, exposed_counterfactual_ms, MEAN(counterfactual_ms))                                    \
    X(REAL, stamped_step_ms, MEAN(step_term_ms))                                                   \
    X(REAL, compute_ms, MEAN(compute_term_ms))                                                     \
    X(REAL, input_ms, MEAN(input_term_ms))                                                         \
    X(REAL, stall_ms, MEAN(stall_term_ms))                                                         \
    X(REAL, idle_ms, MEAN(idle_term_ms))                                                           \
    X(REAL, stamps_ms, MEAN(stamps_term_ms))                                                       \
    X(REAL, residual_worst_pct, MEAN(residual_worst_pct))                                          \
    X(REAL, disagreement_ms, joined_disagreement_ms(row).value)                                    \
    X(REAL, disagreement_lo_ms, joined_disagreement_ms(row).low)                                   \
    X(REAL, disagreement_hi_ms, joined_disagreement_ms(row).high)                                  \
    X(REAL, pop_parallel_pct, 100.0 * pop_of(r->scaling, row).parallel)                            \
    X(REAL, pop_balance_pct, 100.0 * pop_of(r->scaling, row).balance)                              \
    X(REAL, pop_communication_pct, 100.0 * pop_of(r->scaling, row).communication)                  \
    X(REAL, pop_orchestration_pct, 100.0 * pop_of(r->scaling, row).orchestration)                  \
    X(REAL, pop_computation_pct, 100.0 * pop_of(r->scaling, row).computation)                      \
    X(REAL, pop_global_pct, 100.0 * pop_of(r->scaling, row).global)                                \
    X(REAL, aa_ratio, joined_aa_ratio(row).value)                                                  \
    X(REAL, aa_ratio_lo, joined_aa_ratio(row).low)                                                 \
    X(REAL, aa_ratio_hi, joined_aa_ratio(row).high)                                                \
    X(TEXT, loss, report_pace_loss(r, row))                                                        \
    X(REAL, independent_pct, 100.0 * row->levels.independent)                                      \
    X(REAL, steps_pct, 100.0 * row->levels.half[LEVEL_STEPS])                                      \
    X(REAL, launches_pct, 100.0 * row->levels.half[LEVEL_LAUNCHES])                                \
    X(TEXT, dominates, report_pace_level(row))                                                     \
    X(REAL, next_launch_ms, report_ms(row->next_ns.value))                                         \
    X(REAL, next_launch_lo_ms, report_ms(row->next_ns.low))                                        \
    X(REAL, next_launch_hi_ms, report_ms(row->next_ns.high))                                       \
    X(REAL, stamps_ratio, joined_stamps_ratio(row).value)                                          \
    X(REAL, stamps_ratio_lo, joined_stamps_ratio(row).low)                                         \
    X(REAL, stamps_ratio_hi, joined_stamps_ratio(row).high)                                        \
    X(REAL, host_ratio, joined_host_ratio(row).value)                                              \
    X(REAL, host_ratio_lo, joined_host_ratio(row).low)                                             \
    X(REAL, host_ratio_hi, joined_host_ratio(row).high)                                            \
    X(REAL, graph_step_ms, MEAN(graph_step_ms))                                                    \
    X(REAL, graph_submit_us, MEAN(graph_submit_us))                                                \
    X(TRUTH, deterministic, p->deterministic != 0)                                                 \
    X(REAL, tflops_per_s_gpu, report_tflops_per_device(row))                                       \
    X(REAL, model_flops_per_step, p->model_flops_per_step)                                         \
    X(REAL, peak_tflops_per_s_gpu, row->peak_flops / 1e12)                                         \
    X(TEXT, peak_source, row->peak_source)                                                         \
    X(INTEGER, slowest_rank, or_unknown(report_slowest(row)->account.slowest))                     \
    X(REAL, slowest_pct, 100.0 * report_slowest(row)->account.slowest_share)                       \
    X(REAL, slowest_mads, report_slowest(row)->account.slowest_mads)                               \
    X(REAL, initial_loss, MEAN(initial_loss))                                                      \
    X(REAL, final_loss, MEAN(final_loss))                                                          \
    X(INTEGER, process_peak_bytes, or_unknown(report_peak_bytes(row)))                             \
    X(REAL, gate_s, MEAN(gate_s))                                                                  \
    X(REAL, setup_s, MEAN(setup_s))                                                                \
    X(REAL, init_s, MEAN(init_s))                                                                  \
    X(REAL, prove_s, MEAN(prove_s))                                                                \
    X(REAL, warm_up_s, MEAN(warm_up_s))                                                            \
    X(REAL, timed_s, MEAN(timed_s))                                                                \
    X(REAL, joules_per_token, report_energy(row).joules_per_token.value)                           \
    X(REAL, joules_per_token_lo, report_energy(row).joules_per_token.low)                          \
    X(REAL, joules_per_token_hi, report_energy(row).joules_per_token.high)                         \
    X(INTEGER, joules_n, report_joules_n(row))                                                     \
    X(TEXT, joules_interval, report_joules_interval(row))                                          \
    X(REAL, tokens_per_joule, report_energy(row).tokens_per_joule)                                 \
    X(REAL, gpu_watts, report_energy(row).power_w)                                                 \
    X(REAL, sm_mhz, report_energy(row).sm_mhz)                                                     \
    X(REAL, sm_least_mhz, report_energy(row).sm_least_mhz)                                         \
    X(REAL, gpu_celsius, report_energy(row).temperature_c)                                         \
    X(REAL, power_held_pct, 100.0 * report_energy(row).power_limited_share)                        \
    X(REAL, heat_held_pct, 100.0 * report_energy(row).thermal_limited_share)                       \
    X(INTEGER, ecc_uncorrected, or_unknown(report_energy(row).ecc_uncorrected))                    \
    X(INTEGER, nvlink_errors, or_unknown(report_energy(row).nvlink_errors))                        \
    X(REAL, audit_ratio, report_audit(row).audit_ratio.value)                                      \
    X(REAL, bare_ratio, report_audit(row).bare_ratio.value)                                        \
    X(REAL, bare_ratio_lo, report_audit(row).bare_ratio.low)                                       \
    X(REAL, bare_ratio_hi, report_audit(row).bare_ratio.high)                                      \
    X(REAL, audit_off_pct, report_audit_off(row))                                                  \
    X(TEXT, throttled, report_throttled(row))                                                      \
    X(TEXT, cp_kind, p->cp_kind)                                                                   \
    X(TEXT, schedule, p->schedule)                                                                 \
    X(INTEGER, virtual_stages, p->virtual_stages)                                                  \
    X(REAL, replay_ms, MEAN(replay_ms))                                                            \
    X(REAL, bubble_step_pct, MEAN(bubble_step_pct))                                                \
    X(REAL, bubble_ideal_pct, MEAN(bubble_ideal_pct))                                              \
    X(REAL, bubble_closed_pct, MEAN(bubble_closed_pct))                                            \
    X(REAL, pp_transfer_ms, MEAN(pp_transfer_ms))                                                  \
    X(REAL, replay_moved_ms, MEAN(replay_moved_ms))                                                \
    X(REAL, step_joules, step_energy(row).joules.value)                                            \
    X(REAL, step_joules_lo, step_energy(row).joules.low)                                           \
    X(REAL, step_joules_hi, step_energy(row).joules.high)                                          \
    X(REAL, comm_joules, report_energy(row).steps.comm_joules.value)                               \
    X(REAL, comm_joules_lo, report_energy(row).steps.comm_joules.low)                              \
    X(REAL, comm_joules_hi, report_energy(row).steps.comm_joules.high)                             \
    X(REAL, power_bound_ms, report_ms(report_energy(row).steps.bound_ns))                          \
    X(REAL, energy_efficiency_pct, 100.0 * report_energy_efficiency(r->scaling, row))

/* One function per column; the ROW_* macros name the field of struct report_value. */
#define FIELD_INTEGER integer
#define FIELD_TRUTH integer
#define FIELD_REAL real
#define FIELD_TEXT text
#define COLUMN_FUNCTION(kind_, name_, value_)                                                      \
    static struct report_value column_##name_(const struct report *r,                              \
                                              const struct scaling_row *row)                       \
    {                                                                                              \
        const struct point_row *p = row->point;                                                    \
        (void)r;                                                                                   \
        (void)p;                                                                                   \
        return (struct report_value){.kind = REPORT_##kind_, .FIELD_##kind_ = (value_)};           \
    }
SHARED_COLUMNS(COLUMN_FUNCTION)
OUR_COLUMNS(COLUMN_FUNCTION)

static const struct {
    const char *name;
    struct report_value (*value)(const struct report *r, const struct scaling_row *row);
} columns[] = {
#define COLUMN_ENTRY(kind_, name_, value_) {#name_, column_##name_},
    SHARED_COLUMNS(COLUMN_ENTRY) OUR_COLUMNS(COLUMN_ENTRY)};

int report_n_columns(void)
{
    return (int)(sizeof columns / sizeof *columns);
}

const char *report_column_name(int column)
{
    return columns[column].name;
}

struct report_value report_value(int column, const struct report *report,
                                 const struct scaling_row *row)
{
    return columns[column].value(report, row);
}
