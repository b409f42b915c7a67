#include "analysis/run_record.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "analysis/report_columns.h"
#include "analysis/report_json_cell.h"
#include "analysis/report_proof.h"
#include "base/err.h"
#include "base/units.h"

const char *run_record_failure_class(const struct point_row *point)
{
    if (!point->valid)
        return strncmp(point->gate, "failed", sizeof point->gate) == 0 ? "wrong-result"
                                                                       : "work-mismatch";
    return point->settled ? "none" : "unsettled";
}

void run_record_hardware(const struct record_head *head, const struct point_row *point, char *text,
                         size_t size)
{
    for (int64_t i = 0; i < head->n_hosts; i++) {
        const struct host_row *host = &head->hosts[i];
        if (host->launch != point->launch)
            continue;
        snprintf(text, size, "%d node%s x %d rank%s%s%s%s on %s, %d core%s, %.0f GiB", point->nodes,
                 point->nodes == 1 ? "" : "s", point->ranks_per_node,
                 point->ranks_per_node == 1 ? "" : "s",
                 point->emulated ? " (emulated on one host)" : "",
                 point->topology[0] != '\0' ? ", timed as " : "", point->topology,
                 host->processor[0] != '\0' ? host->processor : "unknown processor", host->cores,
                 units_s(host->cores), (double)host->memory_bytes / 1073741824.0);
        return;
    }
    snprintf(text, size, "unknown");
}

static const char *asked(const struct record_head *head, const char *name)
{
    const char *text = record_head_get(head, "study", name);
    return text ? text : "";
}

void run_record_rule(const struct record_head *head, char *text, size_t size)
{
    if (asked(head, "min-steps")[0] == '\0') {
        snprintf(text, size, "not recorded");
        return;
    }
    const char *run_steps = asked(head, "run-steps");
    if (run_steps[0] != '\0' && strcmp(run_steps, "0") != 0) {
        snprintf(
            text, size,
            "a run of %s more steps at each point, no timed blocks: the first %s of each launch "
            "are warm-up, all others that were kept count",
            run_steps, asked(head, "warm-up"));
        return;
    }
    snprintf(
        text, size,
        "at least %s warm-up steps; then blocks of %s steps, %s to %s of them, until the mean is "
        "known to +-%s",
        asked(head, "warm-up"), asked(head, "block"), asked(head, "min-steps"),
        asked(head, "max-steps"), asked(head, "settle"));
}

static int64_t warm_up_steps(const struct account *account)
{
    int64_t n = 0;
    for (int64_t i = 0; i < account->record->steps.n; i++) {
        const struct step_row *row = &account->record->steps.rows[i];
        n += row->variant == VARIANT_FULL && row->rank == 0 && (row->flags & STEP_WARM_UP) != 0;
    }
    return n;
}

/* ---- the object ---- */

static void text(json_t *to, const char *key, const char *value)
{
    bool known = value != NULL && value[0] != '\0';
    json_object_set_new(to, key, known ? report_json_text(value) : json_null());
}

static void number(json_t *to, const char *key, double value)
{
    json_object_set_new(to, key, isfinite(value) ? json_real(value) : json_null());
}

static void count(json_t *to, const char *key, int64_t value)
{
    json_object_set_new(to, key, json_integer(value));
}

static void add_batch(json_t *to, const struct point_row *p, const struct record_head *head)
{
    count(to, "gbs", p->global_batch);
    count(to, "mbs", p->micro_batch);
    count(to, "accumulation", p->micro_steps);
    count(to, "local_batch", p->micro_batch * p->micro_steps);
    count(to, "seq", p->sequence);
    text(to, "input", p->input);
    text(to, "padding", asked(head, "padding"));
    text(to, "precision", p->dtype);
    const char *gradients = asked(head, "grad-dtype");
    text(to, "gradient_precision", gradients[0] != '\0' ? gradients : p->dtype);
    const char *recompute = asked(head, "recompute");
    text(to, "recompute", recompute[0] != '\0' ? recompute : "none");
}

static void add_split(json_t *to, const struct point_row *p, const struct record_head *head)
{
    count(to, "world_size", p->ranks);
    count(to, "nodes", p->nodes);
    count(to, "ranks_per_node", p->ranks_per_node);
    count(to, "copies", p->copies);
    text(to, "parallelism", p->parallel);
    count(to, "tp", p->tp);
    count(to, "pp", p->pp);
    count(to, "cp", p->cp);
    count(to, "ep", p->ep);
    count(to, "dp", p->dp);
    count(to, "shard", p->shard);
    text(to, "order", asked(head, "order"));
    text(to, "overlap", asked(head, "overlap"));
    text(to, "bucket", asked(head, "bucket"));
}

static void add_window(json_t *to, const struct account *a, const struct record_head *head)
{
    const struct point_row *p = &a->record->point;
    count(to, "warm_up_steps", warm_up_steps(a));
    count(to, "n_iter", a->series[ACCOUNT_FULL].n);
    count(to, "blocks", a->series[ACCOUNT_FULL].n_blocks);
    text(to, "settle", asked(head, "settle"));
    number(to, "timed_s", p->timed_s);
    number(to, "step_ms_mean", a->step_ns.value / 1e6);
    number(to, "ci_lo_ms", a->step_ns.low / 1e6);
    number(to, "ci_hi_ms", a->step_ns.high / 1e6);
    number(to, "tokens_per_step", a->tokens_per_step);
    number(to, "tokens_per_s", a->tokens_per_step * 1e9 / a->step_ns.value);
    text(to, "gate", p->gate);
    text(to, "failure_class", run_record_failure_class(p));
    text(to, "why", p->why);
}

static json_t *object_of(const struct record_file *file, const struct account *a)
{
    const struct point_row *p = &a->record->point;
    const struct record_head *head = &file->head;
    char hardware[256];
    json_t *json = json_object();
    text(json, "study", head->study_digest);
    count(json, "launch", p->launch);
    count(json, "point", p->point);
    text(json, "mode", p->scaling);
    text(json, "model", p->model);
    text(json, "model_sha256", asked(head, "model_sha256"));
    count(json, "parameters", p->parameters);
    add_split(json, p, head);
    add_batch(json, p, head);
    run_record_hardware(head, p, hardware, sizeof hardware);
    text(json, "hardware_class", hardware);
    text(json, "device", p->device);
    text(json, "topology", p->topology);
    text(json, "communicator", p->comm);
    text(json, "launcher", record_head_get(head, "provenance", "launcher"));
    text(json, "revision", record_head_get(head, "provenance", "revision"));
    add_window(json, a, head);
    return json;
}

static int print_run(FILE *to, const struct record_file *file, const struct account *a)
{
    json_t *json = object_of(file, a);
    int rc = json_dumpf(json, to, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(json);
    if (rc != 0 || fputc('\n', to) == EOF)
        return fail(FAIL_FILE, "record: standard output could not be written: %s", strerror(errno));
    return 0;
}

int run_record_print(FILE *to, const struct record_file *file)
{
    int rc = 0;
    for (int i = 0; i < file->n_points && rc == 0; i++) {
        struct account account = {0};
        rc = account_point(&account, &file->points[i], 1);
        if (rc == 0)
            rc = print_run(to, file, &account);
        account_release(&account);
    }
    return rc;
}
