#include <errno.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "analysis/report_json_cell.h"
#include "analysis/report_series.h"
#include "base/err.h"

static json_t *series_of(const struct report_series *report, int index)
{
    const struct series *s = &report->set->series[index];
    json_t *json = json_object(), *curve = json_array();
    json_object_set_new(json, "name", report_json_text(s->name));
    json_object_set_new(json, "source", report_json_text(s->source));
    json_object_set_new(json, "mode", json_string(series_mode_name(s->mode)));
    json_object_set_new(json, "counts", json_string(series_counts_name(s->counts)));
    json_object_set_new(json, "rate_unit", json_string(series_rate_unit(s->rate)));
    json_object_set_new(json, "best_layout", json_boolean(s->best_layout));
    json_object_set_new(json, "model_grows", json_boolean(s->mode == SERIES_WORK));
    for (int i = 0; i < s->n_points; i++) {
        json_t *row = json_object();
        for (int c = 0; c < report->n_columns; c++)
            json_object_set_new(row, report_series_column_name(report, c),
                                report_json_cell(report_series_value(c, report, index, i)));
        json_array_append_new(curve, row);
    }
    json_object_set_new(json, "curve", curve);
    return json;
}

static json_t *whole(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *collective_of(const struct collective_table *c)
{
    static const char *const names[] = {"bytes",
                                        "count",
                                        "time_us",
                                        "algbw_GBps",
                                        "busbw_GBps",
                                        "wrong",
                                        "in_place_us",
                                        "in_place_algbw_GBps",
                                        "in_place_busbw_GBps",
                                        "in_place_wrong"};
    json_t *json = json_object(), *rows = json_array();
    json_object_set_new(json, "source", report_json_text(c->source));
    json_object_set_new(json, "operation", report_json_text(c->operation));
    json_object_set_new(json, "type", report_json_text(c->type));
    json_object_set_new(json, "reduction", report_json_text(c->reduction));
    json_object_set_new(json, "ranks", whole(c->ranks));
    json_object_set_new(json, "nodes", whole(c->nodes));
    for (int i = 0; i < c->n_rows; i++) {
        const struct collective_row *r = &c->rows[i];
        const double values[] = {r->bytes,
                                 r->count,
                                 r->time_us,
                                 r->algbw_GBps,
                                 r->busbw_GBps,
                                 r->wrong,
                                 r->in_place_us,
                                 r->in_place_algbw_GBps,
                                 r->in_place_busbw_GBps,
                                 r->in_place_wrong};
        json_t *row = json_object();
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            json_object_set_new(row, names[k],
                                isfinite(values[k]) ? json_real(values[k]) : json_null());
        json_array_append_new(rows, row);
    }
    json_object_set_new(json, "rows", rows);
    return json;
}

int report_series_json(FILE *to, const struct report_series *report)
{
    json_t *json = json_object(), *list;
    json_object_set_new(json, "program", json_string("scalereport"));
    json_object_set_new(json, "schema", json_integer(REPORT_SCHEMA));
    json_object_set_new(json, "studies", json_array());
    json_object_set_new(json, "series", list = json_array());
    for (int i = 0; i < report->set->n_series; i++)
        json_array_append_new(list, series_of(report, i));
    json_object_set_new(json, "collectives", list = json_array());
    for (int i = 0; i < report->collectives->n; i++)
        json_array_append_new(list, collective_of(&report->collectives->tables[i]));
    json_object_set_new(json, "notes", list = json_array());
    for (int i = 0; i < report->set->n_notes; i++) {
        const struct series_note *note = &report->set->notes[i];
        json_t *row = json_object();
        json_object_set_new(row, "source", report_json_text(note->source));
        json_object_set_new(row, "line", whole(note->line));
        json_object_set_new(row, "text", report_json_text(note->text));
        json_array_append_new(list, row);
    }
    int failed = json_dumpf(json, to, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    failed = failed != 0 || fputc('\n', to) == EOF || fflush(to) != 0;
    json_decref(json);
    return failed ? fail(FAIL_FILE, "report: the JSON could not be written: %s", strerror(errno))
                  : 0;
}
