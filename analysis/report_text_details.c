#include "analysis/report_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis/report_columns.h"
#include "analysis/report_energy.h"
#include "analysis/report_key.h"
#include "analysis/report_memory.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"

/* Who a row is about; with several launches a point may have several rows. */
static void key_cells(struct table *t, const struct scaling *s, const struct scaling_run *run,
                      bool launches)
{
    char launch[32];
    report_key_cells(t, s, &run->account.record->point);
    notes_launch(launch, run);
    if (launches)
        table_text(t, launch);
}

static void slowest_cell(struct table *t, const struct scaling_run *run)
{
    const struct account *a = &run->account;
    char text[TABLE_CELL] = "";
    if (a->slowest >= 0 && a->record->point.ranks > 1)
        snprintf(text, sizeof text, "%d@%.64s", a->slowest,
                 account_host(&run->file->head, &a->record->point, a->slowest));
    table_text(t, text);
}

static void stability_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                          bool launches)
{
    const struct account *a = &run->account;
    double step = a->series[ACCOUNT_FULL].term_ns[TERM_STEP];
    key_cells(t, s, run, launches);
    table_real(t, report_ms(a->p50_ns.value), 3);
    table_real(t, report_ms(a->p95_ns.value), 3);
    table_real(t, report_ms(a->p99_ns.value), 3);
    table_real(t, 100.0 * a->cv, 2);
    table_real(t, report_ms(a->stall_ns), 3);
    table_real(t, report_ms(a->interval_ns), 3);
    table_real(t, report_ms(a->counterfactual_ns.value), 3);
    table_real(t, report_ms(a->counterfactual_ns.high - a->counterfactual_ns.low) / 2.0, 3);
    table_real(t, 100.0 * a->stall_ns / step, 2);
    slowest_cell(t, run);
    table_real(t, a->record->point.ranks > 1 ? 100.0 * a->slowest_share : (double)NAN, 2);
    table_real(t, a->slowest_mads, 1);
}

static void closure_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                        bool launches)
{
    const struct account *a = &run->account;
    const double *term = a->series[ACCOUNT_INSTRUMENTED].term_ns;
    key_cells(t, s, run, launches);
    for (int i = TERM_STEP; i <= TERM_INPUT; i++)
        table_real(t, report_ms(term[i]), 3);
    table_real(t, report_ms(term[TERM_STALL]), 3);
    table_real(t, report_ms(term[TERM_IDLE]), 3);
    table_real(t, report_ms(term[TERM_STAMPS]), 3);
    table_real(t, report_ms(term[TERM_RESIDUAL]), 3);
    table_real(t, 100.0 * a->worst_residual_share, 2);
    table_int(t, a->series[ACCOUNT_INSTRUMENTED].n);
}

static void variant_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                        bool launches)
{
    const struct account *a = &run->account;
    key_cells(t, s, run, launches);
    table_real(t, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_STEP]), 3);
    table_real(t, report_ms(a->series[ACCOUNT_COMPUTE].term_ns[TERM_STEP]), 3);
    table_real(t, report_ms(a->series[ACCOUNT_COMM].term_ns[TERM_STEP]), 3);
    table_real(t, report_ms(a->difference_ns.value), 3);
    table_real(t, report_ms(a->series[ACCOUNT_INSTRUMENTED].term_ns[TERM_STALL]), 3);
    table_real(t, report_ms(a->slowdown_ns.value), 3);
    table_real(t, report_ms(a->slowdown_ns.low), 3);
    table_real(t, report_ms(a->slowdown_ns.high), 3);
    table_real(t, report_ms(a->disagreement_ns.value), 3);
    table_real(t, report_ms(a->disagreement_ns.high - a->disagreement_ns.low) / 2.0, 3);
}

static void control_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                        bool launches)
{
    const struct account *a = &run->account;
    key_cells(t, s, run, launches);
    table_real(t, a->aa_ratio.value, 4);
    table_real(t, a->aa_ratio.low, 4);
    table_real(t, a->aa_ratio.high, 4);
    table_real(t, a->stamps_ratio.value, 4);
    table_real(t, a->stamps_ratio.low, 4);
    table_real(t, a->stamps_ratio.high, 4);
    for (int kind = 0; kind < ACCOUNT_GRAPH; kind++)
        table_int(t, a->series[kind].n);
    table_int(t, a->series[ACCOUNT_FULL].n_blocks);
}

static bool has_graphs(const struct scaling *s)
{
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].account.series[ACCOUNT_GRAPH].n > 0)
            return true;
    return false;
}

static void graph_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                      bool launches)
{
    const struct account *a = &run->account;
    const struct account_series *full = &a->series[ACCOUNT_FULL];
    const struct account_series *graph = &a->series[ACCOUNT_GRAPH];
    key_cells(t, s, run, launches);
    table_real(t, report_ms(stats_mean(full->period_ns, full->n)), 3);
    table_real(t, report_ms(stats_mean(graph->period_ns, graph->n)), 3);
    table_real(t, a->host_ratio.value, 4);
    table_real(t, a->host_ratio.low, 4);
    table_real(t, a->host_ratio.high, 4);
    table_real(t, a->aa_ratio.low, 4);
    table_real(t, a->aa_ratio.high, 4);
    table_real(t, report_ms(full->term_ns[TERM_HOST]), 3);
    table_real(t, graph->term_ns[TERM_HOST] / 1e3, 1);
    table_int(t, graph->n);
}

/* A rate of nothing is no rate: "-" where no call moved bytes. */
static double wire_gb_per_s(const struct account_axis *axis)
{
    return axis->wire_bytes > 0.0 && axis->transfer_ns > 0.0 ? axis->wire_bytes / axis->transfer_ns
                                                             : (double)NAN;
}

static void axis_rows(struct table *t, const struct scaling *s, const struct scaling_run *run,
                      bool launches)
{
    const struct account *a = &run->account;
    for (int i = 0; i < a->n_axes; i++) {
        const struct account_axis *axis = &a->axes[i];
        key_cells(t, s, run, launches);
        table_text(t, axis->name);
        table_real(t, axis->calls, 1);
        table_real(t, axis->waits, 1);
        table_real(t, axis->wire_bytes / 1e6, 3);
        table_real(t, report_ms(axis->stall_ns), 3);
        table_real(t, report_ms(axis->stall_closed_ns), 3);
        table_real(t, report_ms(axis->comm_ns), 3);
        table_real(t, report_ms(axis->exposed_ns), 3);
        table_real(t, report_ms(axis->transfer_ns), 3);
        table_real(t, report_ms(axis->skew_ns), 3);
        table_digits(t, wire_gb_per_s(axis), 3);
    }
}

static void work_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                     bool launches)
{
    const struct account *a = &run->account;
    const struct point_row *p = &a->record->point;
    double step_s = a->step_ns.value / 1e9;
    key_cells(t, s, run, launches);
    table_int(t, p->positions_per_step);
    table_real(t, a->tokens_per_step, 0);
    table_int(t, p->global_batch);
    table_digits(t, (double)p->global_batch / step_s, 5);
    table_int(t, p->micro_batch);
    table_int(t, p->micro_steps);
    table_int(t, p->sequence);
    table_real(t, p->initial_loss, 4);
    table_real(t, p->final_loss, 4);
    table_real(t, p->input_entropy > 0.0 ? p->input_entropy : (double)NAN, 4);
}

static int64_t process_peak(const struct record_point *point)
{
    int64_t peak = 0;
    for (int64_t i = 0; i < point->memory.n; i++)
        if (strncmp(point->memory.rows[i].class, "process", sizeof(text16)) == 0 &&
            point->memory.rows[i].peak_bytes > peak)
            peak = point->memory.rows[i].peak_bytes;
    return peak;
}

static void phase_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                      bool launches)
{
    const struct record_point *record = run->account.record;
    const struct point_row *p = &record->point;
    int64_t peak = process_peak(record);
    key_cells(t, s, run, launches);
    table_real(t, p->setup_s, 3);
    table_real(t, p->init_s, 3);
    table_real(t, p->prove_s, 3);
    table_real(t, p->gate_s, 3);
    table_real(t, p->warm_up_s, 3);
    table_real(t, p->timed_s, 3);
    table_real(t, peak > 0 ? (double)peak / 1048576.0 : (double)NAN, 1);
    table_real(t, p->clock_error_ns / 1e3, 1);
}

/* The tables in the order in which they are read: what, why, how far to trust it, of what. */
static const struct {
    const char *title, *columns;
    void (*row)(struct table *, const struct scaling *, const struct scaling_run *, bool launches);
    bool (*wanted)(const struct scaling *); /* NULL: always */
} tables[] = {
    {"full steps: stability (longest rank of a step); exposed communication in ms a step, three "
     "ways: stall of full steps,\n# interval of instrumented steps, counterfactual of instrumented "
     "and compute-only steps",
     "p50_ms p95_ms p99_ms cv_% stall_ms interval_ms counterf_ms +-_ms exposed_% slowest_rank +_% "
     "MAD",
     stability_row, NULL},
    {"instrumented steps in ms: step = compute + input + stall + idle + stamps + residual; worst: "
     "|residual| of a rank",
     "step_ms compute_ms input_ms stall_ms idle_ms stamps_ms residual_ms worst_% steps",
     closure_row, NULL},
    {"instrumented, compute-only and comm-only steps in ms: full-co = instr - compute-only; "
     "disagree = full-co - stall_instr - slowdown,\n# not forced to 0",
     "instr_ms compute-only_ms comm-only_ms full-co_ms stall_instr_ms slowdown_ms slowdown_low "
     "slowdown_high "
     "disagree_ms +-_ms",
     variant_row, NULL},
    {"communication by axis, a step and rank: stall of full steps; stall_instr, comm and exposed "
     "of "
     "instrumented steps;\n# calls, transfer and skew (waiting for late peers) come from one step "
     "of "
     "each block",
     "axis calls waits wire_MB stall_ms stall_instr_ms comm_ms exposed_interval_ms transfer_ms "
     "skew_ms wire_GB/s",
     axis_rows, NULL},
    {"controls: odd against even blocks of full steps, instrumented against full steps; steps "
     "measured of each kind, full blocks",
     "A/A A/A_low A/A_high stamps stamps_low stamps_high full instr compute comm blocks",
     control_row, NULL},
    {"graphs: full steps given out op by op and as one graph each, in the same alternation: "
     "eager/graph is the host's part;\n# A/A of eager blocks beside it; what the host takes to "
     "give "
     "a step out, waits for room in the queue included",
     "eager_ms graph_ms eager/graph low high A/A_low A/A_high host_ms submit_us steps", graph_row,
     has_graphs},
    {"work of a full step, and losses of the first and the last",
     "positions/step valid/step samples/step samples/s micro_batch micro_steps sequence first_loss "
     "last_loss entropy",
     work_row, NULL},
    {"outside the timed steps; timed: all kinds of steps together",
     "setup_s init_s prove_s gate_s warm_up_s timed_s process_MiB clock_us", phase_row, NULL},
};

void report_text_details(FILE *to, const struct report *report)
{
    const struct scaling *s = report->scaling;
    bool launches = s->n_launches > 1;
    report_text_pop(to, s);
    if (launches)
        fprintf(to, "#\n# launch is FILE.LAUNCH: the file as listed above from 0, and its launch, "
                    "0 or that of a --resume\n");
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        struct table t;
        char columns[512];
        if (tables[i].wanted != NULL && !tables[i].wanted(s))
            continue;
        fprintf(to, "#\n# %s\n", tables[i].title);
        snprintf(columns, sizeof columns, "%s%s", launches ? "launch " : "", tables[i].columns);
        report_key_open(&t, s, columns);
        for (int j = 0; j < s->n_runs; j++)
            tables[i].row(&t, s, &s->runs[j], launches);
        table_close(&t, to);
    }
    report_text_traffic(to, s, launches);
    report_text_pipeline(to, s, launches);
    report_text_experts(to, s, launches);
    report_memory(to, s, launches);
    report_energy_text(to, s);
    report_audit_text(to, s);
    report_audit_calls_text(to, s);
}
