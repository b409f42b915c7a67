/* Goodput as CSV and as JSON: both are the columns of goodput_lines.c. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "analysis/goodput_report.h"
#include "base/err.h"

/* ---- CSV ---- */

/* RFC 4180: quotes only where they are needed, doubled inside. */
static void csv_text(FILE *to, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        fputc('"', to);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', to);
        fputc(*text, to);
    }
    if (quoted)
        fputc('"', to);
}

static void csv_line(const struct goodput_line *line, void *to)
{
    for (int c = 0; c < goodput_n_columns(); c++) {
        struct goodput_value v = goodput_column_value(c, line);
        if (c > 0)
            fputc(',', to);
        if (v.kind == VALUE_TEXT)
            csv_text(to, v.text);
        else if (v.kind == VALUE_REAL && isfinite(v.real))
            fprintf(to, "%.10g", v.real);
        else if (v.kind != VALUE_REAL && v.whole >= 0)
            fprintf(to, "%lld", (long long)v.whole);
    }
    fputc('\n', to);
}

void goodput_csv(FILE *to, const struct goodput_report *report)
{
    for (int c = 0; c < goodput_n_columns(); c++)
        fprintf(to, "%s%s", c > 0 ? "," : "", goodput_column_name(c));
    fputc('\n', to);
    goodput_each_line(report, csv_line, to);
}

/* ---- JSON ---- */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *value_json(const struct goodput_value *v)
{
    if (v->kind == VALUE_TEXT)
        return v->text[0] != '\0' ? json_string(v->text) : json_null();
    if (v->kind == VALUE_REAL)
        return real(v->real);
    if (v->whole < 0)
        return json_null();
    return v->kind == VALUE_FLAG ? json_boolean(v->whole) : json_integer(v->whole);
}

static void json_line(const struct goodput_line *line, void *to)
{
    json_t *object = json_object();
    for (int c = 0; c < goodput_n_columns(); c++) {
        struct goodput_value v = goodput_column_value(c, line);
        json_object_set_new(object, goodput_column_name(c), value_json(&v));
    }
    json_array_append_new(to, object);
}

static json_t *interval_json(const struct stats_interval *x)
{
    return json_pack("{s:o,s:o,s:o,s:I}", "value", real(x->value), "low", real(x->low), "high",
                     real(x->high), "n", (json_int_t)x->n);
}

static json_t *law_json(const struct goodput_law *law)
{
    static const char *const kinds[] = {"none", "stated", "range", "counted"};
    char text[256];
    goodput_law_text(law, text, sizeof text);
    return json_pack("{s:s,s:s?,s:s,s:o,s:s}", "kind", kinds[law->kind], "of",
                     law->kind == LAW_NONE ? NULL : goodput_law_of_name(law->of), "said", law->said,
                     "mtbf_s", law->kind == LAW_NONE ? json_null() : interval_json(&law->mtbf_s),
                     "text", text);
}

static json_t *storage_json(const struct goodput_report *report)
{
    json_t *all = json_array();
    for (int p = 0; p < report->n_plans; p++) {
        const struct goodput_known *k = &report->plans[p].known;
        const struct goodput_storage *s = &k->storage;
        if (k->has_storage)
            json_array_append_new(
                all,
                json_pack("{s:i,s:s,s:b,s:b,s:b,s:o,s:o,s:i,s:i,s:o}", "kind", k->kind, "ckpt_mode",
                          k->mode, "assumed", s->assumed, "node_seen", s->node_seen, "shared_seen",
                          s->shared_seen, "node_per_s", interval_json(&s->node_per_s),
                          "shared_per_s", interval_json(&s->shared_per_s), "saves", s->n_saves,
                          "node_counts", s->n_sizes, "worst_pct", real(100.0 * s->worst)));
    }
    return all;
}

static json_t *saves_json(const struct goodput_report *report)
{
    json_t *all = json_array();
    for (int p = 0; p < report->n_plans; p++)
        for (int i = 0; i < report->plans[p].known.n_costs; i++) {
            const struct goodput_save_cost *c = &report->plans[p].known.costs[i];
            json_array_append_new(
                all, json_pack("{s:i,s:s,s:f,s:f,s:i,s:i,s:f,s:o,s:o,s:b,s:o,s:o,s:s}", "kind",
                               report->plans[p].known.kind, "ckpt_mode", c->mode, "nodes", c->nodes,
                               "ranks", c->ranks, "saves", c->saves, "lost", c->lost, "bytes",
                               c->bytes, "blocked_s", interval_json(&c->blocked_s), "inflation_s",
                               interval_json(&c->inflation_s), "detected", c->detected,
                               "save_cost_s", interval_json(&c->cost_s), "complete_s",
                               interval_json(&c->complete_s), "of", c->of_run ? "run" : "section"));
        }
    return all;
}

static json_t *recoveries_json(const struct goodput_study *study)
{
    json_t *all = json_array();
    for (int i = 0; i < study->n_points; i++)
        for (int k = 0; k < study->points[i].run.n_recoveries; k++) {
            const struct goodput_recovery *r = &study->points[i].run.recoveries[k];
            json_array_append_new(
                all,
                json_pack("{s:i,s:i,s:b,s:o,s:o,s:o,s:o,s:o,s:I}", "kind", study->points[i].kind,
                          "nodes", (int)study->points[i].row->nodes, "noted", r->noted, "detect_s",
                          real(r->detect_s), "restart_s", real(r->restart_s), "began_s",
                          real(r->began_s), "load_s", real(r->load_s), "lost_s", real(r->lost_s),
                          "lost_steps", (json_int_t)r->lost_steps));
        }
    return all;
}

static json_t *texts_json(const struct goodput_report *report)
{
    json_t *notes = json_array();
    for (int i = 0; i < report->notes.n; i++)
        json_array_append_new(notes, json_string(report->notes.text[i]));
    return notes;
}

int goodput_json(FILE *to, const struct goodput_report *report)
{
    json_t *lines = json_array(), *definitions = json_object();
    for (int d = 0; d < GOODPUT_DEFINITIONS; d++)
        json_object_set_new(definitions, goodput_definitions[d].key,
                            json_string(goodput_definitions[d].text));
    goodput_each_line(report, json_line, lines);
    json_t *all = json_pack(
        "{s:s,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "program", "scalereport goodput", "schema",
        (int)GOODPUT_SCHEMA, "law", law_json(report->law), "definitions", definitions, "lines",
        lines, "saves", saves_json(report), "storage", storage_json(report), "recoveries",
        recoveries_json(report->study), "notes", texts_json(report));
    int failed = all == NULL || json_dumpf(all, to, JSON_INDENT(2)) != 0;
    fputc('\n', to);
    json_decref(all);
    return failed
               ? fail(FAIL_FILE, "goodput: the JSON form could not be written: %s", strerror(errno))
               : 0;
}
