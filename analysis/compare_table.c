/* The forms of a comparison for programs: one list of columns for CSV and JSON. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "analysis/compare_say.h"
#include "analysis/report_columns.h"
#include "analysis/report_json_cell.h"
#include "base/err.h"

/* A row in its place. */
struct place {
    int group;
    const struct compare_group *in;
    const struct compare_row *r;
    char letter[16], reason[128];
};

#define MS(ns) report_ms(ns)
#define TERM(term) MS(at->r->term_ns[term])
#define BYTES(x) ((x) >= 0 ? (x) : REPORT_UNKNOWN)

/* X(kind, name, value); `at` is the place, `p` the point. */
#define COMPARE_COLUMNS(X)                                                                         \
    X(INTEGER, ranking, at->group)                                                                 \
    X(INTEGER, place, at->r->place)                                                                \
    X(TEXT, file, at->r->report->files[0]->path)                                                   \
    X(TEXT, letter, at->letter)                                                                    \
    X(TEXT, study, at->r->report->files[0]->head.study_digest)                                     \
    X(INTEGER, point, p->point)                                                                    \
    X(TEXT, model, p->model)                                                                       \
    X(INTEGER, gbs, p->global_batch)                                                               \
    X(INTEGER, seq, p->sequence)                                                                   \
    X(TEXT, dtype, p->dtype)                                                                       \
    X(INTEGER, nodes, p->nodes)                                                                    \
    X(INTEGER, ranks, p->ranks)                                                                    \
    X(INTEGER, ranks_per_node, p->ranks_per_node)                                                  \
    X(TEXT, parallel, p->parallel)                                                                 \
    X(TEXT, order, report_attribute(at->r->report, "study", "order"))                              \
    X(INTEGER, mbs, p->micro_batch)                                                                \
    X(TEXT, recompute, report_attribute(at->r->report, "study", "recompute"))                      \
    X(INTEGER, launches, at->r->row->n_used)                                                       \
    X(REAL, step_ms_mean, MS(at->r->row->step_ns.value))                                           \
    X(REAL, ci_lo_ms, MS(at->r->row->step_ns.low))                                                 \
    X(REAL, ci_hi_ms, MS(at->r->row->step_ns.high))                                                \
    X(REAL, tokens_per_s, at->r->row->tokens_per_s.value)                                          \
    X(REAL, ratio, at->r->ratio.value)                                                             \
    X(REAL, ratio_lo, at->r->ratio.low)                                                            \
    X(REAL, ratio_hi, at->r->ratio.high)                                                           \
    X(TRUTH, unpaired, at->r->unpaired)                                                            \
    X(REAL, aa_ratio_lo, at->r->aa.low)                                                            \
    X(REAL, aa_ratio_hi, at->r->aa.high)                                                           \
    X(TEXT, verdict, compare_verdict_name((int)at->r->verdict))                                    \
    X(TEXT, reason, at->r->reason < 0 ? "" : compare_term_name(at->r->reason))                     \
    X(REAL, reason_pct, at->r->reason < 0 ? (double)NAN : 100.0 * at->r->reason_share)             \
    X(TEXT, routing, p->routing)                                                                   \
    X(REAL, compute_ms, TERM(COMPARE_COMPUTE))                                                     \
    X(REAL, recompute_ms, TERM(COMPARE_RECOMPUTE))                                                 \
    X(REAL, slowdown_ms, TERM(COMPARE_SLOWDOWN))                                                   \
    X(REAL, exposed_ms, MS(at->r->exposed_ns))                                                     \
    X(REAL, dp_ms, TERM(COMPARE_DP))                                                               \
    X(REAL, shard_ms, TERM(COMPARE_SHARD))                                                         \
    X(REAL, replicate_ms, TERM(COMPARE_REPLICATE))                                                 \
    X(REAL, tp_ms, TERM(COMPARE_TP))                                                               \
    X(REAL, pp_ms, TERM(COMPARE_PP))                                                               \
    X(REAL, cp_ms, TERM(COMPARE_CP))                                                               \
    X(REAL, ep_ms, TERM(COMPARE_EP))                                                               \
    X(REAL, edp_ms, TERM(COMPARE_EDP))                                                             \
    X(REAL, input_ms, TERM(COMPARE_INPUT))                                                         \
    X(REAL, idle_ms, TERM(COMPARE_IDLE))                                                           \
    X(REAL, other_ms, TERM(COMPARE_OTHER))                                                         \
    X(REAL, inside_bytes, at->r->inside_bytes)                                                     \
    X(REAL, across_bytes, at->r->across_bytes)                                                     \
    X(INTEGER, reserved_peak_bytes, BYTES(at->r->arena_bytes))                                     \
    X(INTEGER, process_peak_bytes, BYTES(at->r->process_bytes))                                    \
    X(TRUTH, emulated, p->emulated != 0)                                                           \
    X(TRUTH, oversubscribed, p->oversubscribed != 0)

#define FIELD_INTEGER integer
#define FIELD_TRUTH integer
#define FIELD_REAL real
#define FIELD_TEXT text
#define COLUMN_FUNCTION(kind_, name_, value_)                                                      \
    static struct report_value column_##name_(const struct place *at)                              \
    {                                                                                              \
        const struct point_row *p = at->r->row->point;                                             \
        (void)p;                                                                                   \
        return (struct report_value){.kind = REPORT_##kind_, .FIELD_##kind_ = (value_)};           \
    }
COMPARE_COLUMNS(COLUMN_FUNCTION)

static const struct {
    const char *name;
    struct report_value (*value)(const struct place *at);
} columns[] = {
#define COLUMN_ENTRY(kind_, name_, value_) {#name_, column_##name_},
    COMPARE_COLUMNS(COLUMN_ENTRY)};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static struct place place_of(const struct compare *ranking, int group, int row)
{
    struct place at = {
        .group = group, .in = &ranking->groups[group], .r = &ranking->groups[group].rows[row]};
    compare_letter(at.r->study, at.letter);
    return at;
}

void compare_csv(FILE *to, const struct comparison *c)
{
    for (int i = 0; i < c->contract->n; i++) {
        const struct contract_field *f = &c->contract->fields[i];
        if (!f->differs)
            continue;
        fprintf(to, "# differs: %s, %s:", contract_kind_name((int)f->kind), f->name);
        for (int j = 0; j < c->n_studies; j++)
            fprintf(to, "%s %s", j > 0 ? " |" : "", f->values[j][0] != '\0' ? f->values[j] : "-");
        fputc('\n', to);
    }
    for (int k = 0; k < N_COLUMNS; k++)
        fprintf(to, "%s%s", k > 0 ? "," : "", columns[k].name);
    fputc('\n', to);
    for (int i = 0; c->ranking != NULL && i < c->ranking->n_groups; i++)
        for (int j = 0; j < c->ranking->groups[i].n; j++) {
            struct place at = place_of(c->ranking, i, j);
            for (int k = 0; k < N_COLUMNS; k++) {
                if (k > 0)
                    fputc(',', to);
                report_csv_value(to, columns[k].value(&at));
            }
            fputc('\n', to);
        }
}

/* ---- JSON ---- */

static json_t *studies_json(const struct comparison *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->n_studies; i++) {
        const struct report *r = &c->studies[i];
        json_t *files = json_array();
        char letter[16];
        compare_letter(i, letter);
        for (int j = 0; j < r->n_files; j++)
            json_array_append_new(files, report_json_text(r->files[j]->path));
        json_array_append_new(list, json_pack("{s:s,s:o,s:o}", "letter", letter, "digest",
                                              report_json_text(r->files[0]->head.study_digest),
                                              "files", files));
    }
    return list;
}

static json_t *contract_json(const struct comparison *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->contract->n; i++) {
        const struct contract_field *f = &c->contract->fields[i];
        if (!f->differs)
            continue;
        json_t *values = json_array();
        for (int j = 0; j < c->n_studies; j++)
            json_array_append_new(values, report_json_text(f->values[j]));
        json_array_append_new(list,
                              json_pack("{s:s,s:o,s:o}", "kind", contract_kind_name((int)f->kind),
                                        "field", report_json_text(f->name), "values", values));
    }
    return list;
}

static json_t *rankings_json(const struct comparison *c)
{
    json_t *list = json_array();
    for (int i = 0; c->ranking != NULL && i < c->ranking->n_groups; i++) {
        json_t *rows = json_array();
        for (int j = 0; j < c->ranking->groups[i].n; j++) {
            struct place at = place_of(c->ranking, i, j);
            json_t *row = json_object();
            for (int k = 0; k < N_COLUMNS; k++)
                json_object_set_new(row, columns[k].name, report_json_cell(columns[k].value(&at)));
            compare_reason(at.in, at.r, at.reason, sizeof at.reason);
            json_object_set_new(row, "why", report_json_text(at.reason));
            json_array_append_new(rows, row);
        }
        json_array_append_new(list, rows);
    }
    return list;
}

int compare_json(FILE *to, const struct comparison *c)
{
    json_t *refusal = c->refusal[0] != '\0' ? report_json_text(c->refusal) : json_null();
    json_t *all = json_pack("{s:s,s:i,s:o,s:o,s:o,s:o}", "program", "scalereport compare", "schema",
                            (int)COMPARE_SCHEMA, "studies", studies_json(c), "differs",
                            contract_json(c), "rankings", rankings_json(c), "refused", refusal);
    int bad = json_dumpf(all, to, JSON_INDENT(2));
    fputc('\n', to);
    json_decref(all);
    return bad ? fail(FAIL_FILE, "compare: the JSON form could not be written: %s", strerror(errno))
               : 0;
}
