#include "analysis/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "analysis/audit_calls.h"
#include "analysis/checkpoints.h"
#include "analysis/inputs.h"
#include "analysis/report_columns.h"
#include "analysis/report_energy_steps.h"
#include "analysis/report_floors.h"
#include "analysis/report_json_cell.h"
#include "analysis/report_notes.h"
#include "analysis/report_proof.h"
#include "base/err.h"

/* JSON has no NaN: what is unknown is null. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Text of a file may hold any bytes; JSON takes UTF-8 only. */
json_t *report_json_text(const char *value)
{
    json_t *json = json_string(value);
    if (json != NULL)
        return json;
    char plain[1024];
    size_t n = 0;
    for (; value[n] != '\0' && n < sizeof plain - 1; n++)
        plain[n] = (unsigned char)value[n] < 0x80 ? value[n] : '?';
    plain[n] = '\0';
    return json_string(plain);
}

static json_t *interval(const struct stats_interval *x, double scale)
{
    json_t *json = json_object();
    json_object_set_new(json, "value", real(x->value * scale));
    json_object_set_new(json, "low", real(x->low * scale));
    json_object_set_new(json, "high", real(x->high * scale));
    json_object_set_new(json, "n", json_integer(x->n));
    return json;
}

json_t *report_json_cell(struct report_value value)
{
    switch (value.kind) {
    case REPORT_INTEGER:
        return value.integer != REPORT_UNKNOWN ? json_integer(value.integer) : json_null();
    case REPORT_TRUTH:
        return json_boolean(value.integer != 0);
    case REPORT_REAL:
        return real(value.real);
    case REPORT_TEXT:
        return value.text[0] != '\0' ? report_json_text(value.text) : json_null();
    }
    return json_null();
}

static json_t *curve_row(const struct report *report, const struct scaling_row *row)
{
    json_t *json = json_object();
    for (int c = 0; c < report_n_columns(); c++)
        json_object_set_new(json, report_column_name(c),
                            report_json_cell(report_value(c, report, row)));
    return json;
}

static json_t *blocks_of(const struct account_series *series)
{
    static const char *const names[TERMS] = {"step_ms",     "compute_ms", "input_ms",
                                             "stall_ms",    "idle_ms",    "stamps_ms",
                                             "residual_ms", "exposed_ms", "host_ms"};
    json_t *list = json_array();
    for (int64_t i = 0; i < series->n_blocks; i++) {
        const struct account_block *b = &series->blocks[i];
        json_t *json = json_object();
        json_object_set_new(json, "block", json_integer(b->block));
        json_object_set_new(json, "steps", json_integer(b->steps));
        for (int t = 0; t < TERMS; t++)
            json_object_set_new(json, names[t], real(report_ms(b->term_ns[t])));
        json_array_append_new(list, json);
    }
    return list;
}

static json_t *axes_of(const struct account *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->n_axes; i++) {
        const struct account_axis *axis = &a->axes[i];
        json_t *json = json_object();
        json_object_set_new(json, "axis", report_json_text(axis->name));
        json_object_set_new(json, "calls_per_step", real(axis->calls));
        json_object_set_new(json, "waits_per_step", real(axis->waits));
        json_object_set_new(json, "wire_bytes_per_step", real(axis->wire_bytes));
        json_object_set_new(json, "stall_ms", real(report_ms(axis->stall_ns)));
        json_object_set_new(json, "stall_instrumented_ms", real(report_ms(axis->stall_closed_ns)));
        json_object_set_new(json, "comm_ms", real(report_ms(axis->comm_ns)));
        json_object_set_new(json, "exposed_ms", real(report_ms(axis->exposed_ns)));
        json_object_set_new(json, "transfer_ms", real(report_ms(axis->transfer_ns)));
        json_object_set_new(json, "skew_ms", real(report_ms(axis->skew_ns)));
        json_array_append_new(list, json);
    }
    return list;
}

static json_t *failed_checks(const struct record_point *p)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < p->gate.n; i++) {
        const struct gate_row *r = &p->gate.rows[i];
        if (r->passed)
            continue;
        json_t *json = json_object();
        json_object_set_new(json, "check", report_json_text(r->check));
        json_object_set_new(json, "subject", report_json_text(r->subject));
        json_object_set_new(json, "difference", real(r->difference));
        json_object_set_new(json, "allowed", real(r->allowed));
        json_object_set_new(json, "rank", json_integer(r->rank));
        json_array_append_new(list, json);
    }
    return list;
}

static json_t *work_of(const struct record_point *p)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < p->work.n; i++) {
        const struct work_row *r = &p->work.rows[i];
        json_t *json = json_object();
        json_object_set_new(json, "quantity", report_json_text(r->quantity));
        json_object_set_new(json, "unit", report_json_text(r->unit));
        json_object_set_new(json, "formula", real(r->formula));
        json_object_set_new(json, "plan", real(r->plan));
        json_object_set_new(json, "executed", real(r->executed));
        json_object_set_new(json, "passed", json_boolean(r->passed));
        json_array_append_new(list, json);
    }
    return list;
}

/* Layers as a whole. */
static json_t *experts_of(const struct record_point *p)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < p->experts.n; i++) {
        const struct load_row *r = &p->experts.rows[i];
        json_t *json;
        if (r->expert >= 0)
            continue;
        json = json_object();
        json_object_set_new(json, "layer", json_integer(r->layer));
        json_object_set_new(json, "choices", json_integer(r->tokens));
        json_object_set_new(json, "hottest_load", real(r->load));
        json_object_set_new(json, "dropped", json_integer(r->dropped));
        json_object_set_new(json, "tied", json_integer(r->tied));
        json_object_set_new(json, "balance_loss", real(r->balance));
        json_array_append_new(list, json);
    }
    return list;
}

static json_t *traffic_of(const struct record_point *p)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < p->traffic.n; i++) {
        const struct traffic_row *r = &p->traffic.rows[i];
        json_t *json = json_object();
        json_object_set_new(json, "axis", report_json_text(r->axis));
        json_object_set_new(json, "level", report_json_text(r->level));
        json_object_set_new(json, "calls", json_integer(r->calls));
        json_object_set_new(json, "formula_bytes", real(r->formula));
        json_object_set_new(json, "plan_bytes", real(r->plan));
        json_object_set_new(json, "executed_bytes", real(r->executed));
        json_object_set_new(json, "most_bytes_of_a_rank", real(r->most));
        json_object_set_new(json, "passed", json_boolean(r->passed));
        json_array_append_new(list, json);
    }
    return list;
}

/* Memory by class, the worst rank of each. */
static json_t *memory_of(const struct record_point *p)
{
    json_t *json = json_object();
    for (int64_t i = 0; i < p->memory.n; i++) {
        const struct memory_row *r = &p->memory.rows[i];
        char key[64];
        snprintf(key, sizeof key, "%.16s_peak_bytes", r->class);
        json_t *old = json_object_get(json, key);
        if (old != NULL && json_integer_value(old) >= r->peak_bytes)
            continue;
        json_object_set_new(json, key, json_integer(r->peak_bytes));
        snprintf(key, sizeof key, "%.16s_predicted_bytes", r->class);
        bool known = r->predicted_bytes >= 0;
        json_object_set_new(json, key, known ? json_integer(r->predicted_bytes) : json_null());
        snprintf(key, sizeof key, "%.16s_largest", r->class);
        json_object_set_new(json, key,
                            r->largest[0] != '\0' ? report_json_text(r->largest) : json_null());
    }
    return json;
}

/* Did the launch keep its pace, and who was late. */
static void add_pace(json_t *json, const struct shift *shift, const struct straggler *late)
{
    static const char *const kinds[] = {"none", "drift", "change"};
    json_t *pace = json_object(), *ranks = json_object();
    json_object_set_new(pace, "kind", json_string(kinds[shift->kind]));
    json_object_set_new(pace, "drift_pct", real(100.0 * shift->drift));
    json_object_set_new(pace, "drift_p", real(shift->drift_p));
    json_object_set_new(pace, "change_pct", real(100.0 * shift->change));
    json_object_set_new(pace, "change_p", real(shift->change_p));
    json_object_set_new(pace, "change_at_step", json_integer(shift->change_at));
    json_object_set_new(ranks, "kind", json_string(straggler_name(late->kind)));
    json_object_set_new(ranks, "rank", json_integer(late->rank));
    json_object_set_new(ranks, "steps", json_integer(late->steps));
    json_object_set_new(ranks, "late_steps", json_integer(late->late));
    json_object_set_new(ranks, "late_steps_of_rank", json_integer(late->of_rank));
    json_object_set_new(ranks, "excess_pct", real(100.0 * late->excess));
    json_object_set_new(ranks, "cost_pct", real(100.0 * late->cost));
    json_object_set_new(ranks, "wait_ms", real(report_ms(late->wait_ns)));
    json_object_set_new(ranks, "others_wait_ms", real(report_ms(late->others_wait_ns)));
    json_object_set_new(json, "pace", pace);
    json_object_set_new(json, "late_ranks", ranks);
}

static void add_account(json_t *json, const struct account *a)
{
    static const char *const kinds[ACCOUNT_KINDS] = {"full", "instrumented", "compute_only",
                                                     "comm_only", "graph"};
    json_object_set_new(json, "step_ms", interval(&a->step_ns, 1e-6));
    json_object_set_new(json, "step_ms_p50", interval(&a->p50_ns, 1e-6));
    json_object_set_new(json, "step_ms_p95", interval(&a->p95_ns, 1e-6));
    json_object_set_new(json, "step_ms_p99", interval(&a->p99_ns, 1e-6));
    json_object_set_new(json, "exposed_stall_ms", real(report_ms(a->stall_ns)));
    json_object_set_new(json, "exposed_interval_ms", real(report_ms(a->interval_ns)));
    json_object_set_new(json, "exposed_counterfactual_ms", interval(&a->counterfactual_ns, 1e-6));
    json_object_set_new(json, "slowdown_ms", interval(&a->slowdown_ns, 1e-6));
    json_object_set_new(json, "full_minus_compute_only_ms", interval(&a->difference_ns, 1e-6));
    json_object_set_new(json, "disagreement_ms", interval(&a->disagreement_ns, 1e-6));
    json_object_set_new(json, "aa_ratio", interval(&a->aa_ratio, 1.0));
    json_object_set_new(json, "stamps_ratio", interval(&a->stamps_ratio, 1.0));
    json_object_set_new(json, "host_ratio", interval(&a->host_ratio, 1.0));
    add_pace(json, &a->shift, &a->straggler);
    json_t *blocks = json_object();
    for (int k = 0; k < ACCOUNT_KINDS; k++)
        json_object_set_new(blocks, kinds[k], blocks_of(&a->series[k]));
    json_object_set_new(json, "blocks", blocks);
    json_object_set_new(json, "axes", axes_of(a));
}

static json_t *inputs_json(const struct record_point *p)
{
    struct inputs in;
    json_t *json = json_object();
    inputs_of_point(&in, p);
    json_object_set_new(json, "input_ms", real(report_ms(in.input_ns)));
    json_object_set_new(json, "wait_ms", real(report_ms(in.wait_ns)));
    json_object_set_new(json, "starved_pct", real(100.0 * in.starved_share));
    json_object_set_new(json, "starved", json_boolean(in.starved));
    json_object_set_new(json, "depth", real(in.depth));
    json_object_set_new(json, "read_bytes", real(in.read_bytes));
    json_object_set_new(json, "cpu_ms", real(report_ms(in.cpu_ns)));
    json_object_set_new(json, "worker_cpu_ms", real(report_ms(in.worker_cpu_ns)));
    json_object_set_new(json, "resident_bytes", real(in.resident_bytes));
    return json;
}

static json_t *restore_json(const struct checkpoints_restore *r)
{
    json_t *json = json_object();
    json_object_set_new(json, "bytes", real(r->bytes));
    json_object_set_new(json, "restore_ms", real(report_ms(r->ns)));
    json_object_set_new(json, "GBps", real(r->bytes_per_s / 1e9));
    json_object_set_new(json, "read_ms", real(report_ms(r->read_ns)));
    json_object_set_new(json, "verify_ms", real(report_ms(r->verify_ns)));
    json_object_set_new(json, "recut_ms", real(report_ms(r->recut_ns)));
    json_object_set_new(json, "upload_ms", real(report_ms(r->upload_ns)));
    json_object_set_new(json, "direct", json_boolean(r->direct));
    return json;
}

static json_t *save_json(const struct checkpoints_mode *m)
{
    json_t *json = json_object();
    json_object_set_new(json, "mode", report_json_text(m->mode));
    json_object_set_new(json, "saves", json_integer(m->saves));
    json_object_set_new(json, "lost", json_integer(m->lost));
    json_object_set_new(json, "overlaps", json_integer(m->overlaps));
    json_object_set_new(json, "bytes", real(m->bytes));
    json_object_set_new(json, "call_ms", real(report_ms(m->call_ns)));
    json_object_set_new(json, "blocked_ms", real(report_ms(m->blocked_ns)));
    json_object_set_new(json, "staged_ms", real(report_ms(m->staged_ns)));
    json_object_set_new(json, "complete_ms", real(report_ms(m->complete_ns)));
    json_object_set_new(json, "GBps", real(m->bytes_per_s / 1e9));
    json_object_set_new(json, "first_quarter_GBps", real(m->first_quarter_bytes_per_s / 1e9));
    json_object_set_new(json, "last_quarter_GBps", real(m->last_quarter_bytes_per_s / 1e9));
    json_object_set_new(json, "first_blocked_ms", real(report_ms(m->first_blocked_ns)));
    json_object_set_new(json, "first_complete_ms", real(report_ms(m->first_complete_ns)));
    json_object_set_new(json, "inflation_ms", interval(&m->inflation, 1e-6));
    json_object_set_new(json, "detectable",
                        isnan(m->inflation.low) ? json_null() : json_boolean(m->detectable));
    json_object_set_new(json, "drain_ratio", interval(&m->ratio, 1));
    json_object_set_new(json, "drain_ratio_p99", real(m->ratio_p99));
    json_object_set_new(json, "quiet_steps", json_integer(m->quiet));
    json_object_set_new(json, "draining_steps", json_integer(m->draining));
    json_object_set_new(json, "node_bytes", real(m->host_bytes));
    json_object_set_new(json, "file_system", report_json_text(m->file_system));
    json_object_set_new(json, "direct", json_boolean(m->direct));
    return json;
}

static json_t *checkpoints_json(const struct record_point *p)
{
    struct checkpoints c;
    json_t *json = json_object(), *saves = json_array();
    checkpoints_of_point(&c, p, 8);
    for (int i = 0; i < c.n_modes; i++)
        json_array_append_new(saves, save_json(&c.mode[i]));
    json_object_set_new(json, "saves", saves);
    if (c.resumed)
        json_object_set_new(json, "resume", restore_json(&c.resume));
    if (c.restored)
        json_object_set_new(json, "restore", restore_json(&c.restore));
    return json;
}

static json_t *run_of(const struct scaling_run *run)
{
    const struct account *a = &run->account;
    const struct point_row *p = &a->record->point;
    json_t *json = json_object();
    json_object_set_new(json, "point", json_integer(p->point));
    json_object_set_new(json, "file", report_json_text(run->file->path));
    json_object_set_new(json, "launch", json_integer(p->launch));
    json_object_set_new(json, "nodes", json_integer(p->nodes));
    json_object_set_new(json, "ranks", json_integer(p->ranks));
    json_object_set_new(json, "valid", json_boolean(p->valid));
    add_account(json, a);
    report_energy_steps_json(json, a);
    json_object_set_new(json, "work", work_of(a->record));
    json_object_set_new(json, "traffic", traffic_of(a->record));
    json_object_set_new(json, "experts", experts_of(a->record));
    json_object_set_new(json, "failed_checks", failed_checks(a->record));
    json_object_set_new(json, "memory", memory_of(a->record));
    json_object_set_new(json, "inputs", inputs_json(a->record));
    json_object_set_new(json, "checkpoints", checkpoints_json(a->record));
    json_object_set_new(json, "audit_calls", audit_calls_json(a->record));
    return json;
}

static json_t *study_of(const struct report *r)
{
    json_t *json = json_object(), *list = json_array();
    struct notes notes;
    char proof[512];
    json_object_set_new(json, "digest", report_json_text(r->files[0]->head.study_digest));
    for (int i = 0; i < r->n_files; i++)
        json_array_append_new(list, report_json_text(r->files[i]->path));
    json_object_set_new(json, "files", list);
    json_object_set_new(json, "launches", json_integer(r->scaling->n_launches));
    json_object_set_new(json, "interval_level", json_real(0.95));
    json_object_set_new(json, "interval_seed", json_integer((json_int_t)r->seed));
    json_object_set_new(json, "intervals", report_json_text(notes_coverage(r->scaling)));
    proof_sentence(proof, sizeof proof, r->scaling, "; ");
    json_object_set_new(json, "proof", report_json_text(proof));
    report_floors_json(json, r);
    json_object_set_new(json, "curve", list = json_array());
    for (int i = 0; i < r->scaling->n_rows; i++)
        json_array_append_new(list, curve_row(r, &r->scaling->rows[i]));
    json_object_set_new(json, "runs", list = json_array());
    for (int i = 0; i < r->scaling->n_runs; i++)
        json_array_append_new(list, run_of(&r->scaling->runs[i]));
    json_object_set_new(json, "notes", list = json_array());
    notes_collect(&notes, r);
    for (int i = 0; i < notes.n; i++)
        json_array_append_new(list, report_json_text(notes.text[i]));
    notes_release(&notes);
    return json;
}

int report_json(FILE *to, const struct report *reports, int n)
{
    json_t *json = json_object(), *list = json_array();
    json_object_set_new(json, "program", json_string("scalereport"));
    json_object_set_new(json, "schema", json_integer(REPORT_SCHEMA));
    for (int i = 0; i < n; i++)
        json_array_append_new(list, study_of(&reports[i]));
    json_object_set_new(json, "studies", list);
    int failed = json_dumpf(json, to, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    failed = failed != 0 || fputc('\n', to) == EOF || fflush(to) != 0;
    json_decref(json);
    return failed ? fail(FAIL_FILE, "report: the JSON could not be written: %s", strerror(errno))
                  : 0;
}
