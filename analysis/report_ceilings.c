#include "analysis/report_ceilings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "analysis/report_json_cell.h"
#include "analysis/report_table.h"

/* Cells are numbers or words without spaces. */
static void shape_cell(struct table *t, const char *shape)
{
    char text[sizeof((struct ceiling_row *)0)->shape];
    snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, shape);
    for (char *at = text; *at != '\0'; at++)
        if (*at == ' ')
            *at = '_';
    table_text(t, text);
}

static void ceiling_row(struct table *t, const struct ceiling_row *row)
{
    bool flops = strncmp(row->unit, "FLOP/s", sizeof row->unit) == 0;
    table_text(t, row->kind);
    shape_cell(t, row->shape);
    table_text(t, row->dtype);
    table_text(t, row->level);
    table_int(t, row->group);
    table_int(t, row->calls);
    table_int(t, row->n);
    table_digits(t, row->time_us, 5);
    table_digits(t, row->least_us, 5);
    table_digits(t, flops ? row->rate / 1e12 : (double)NAN, 4);
    table_digits(t, flops ? (double)NAN : row->rate / 1e9, 4);
}

void report_ceilings(FILE *to, const struct record_head *head)
{
    struct table t;
    if (head->n_ceilings == 0)
        return;
    fprintf(to, "#\n# ceilings: each kind of work alone, median and fastest of n samples; calls: "
                "like it in a step; GB/s of collectives: bus bandwidth\n");
    table_open(&t, "kind shape dtype level ranks calls n time_us least_us TFLOP/s GB/s");
    for (int64_t i = 0; i < head->n_ceilings; i++)
        ceiling_row(&t, &head->ceilings[i]);
    table_close(&t, to);
}

struct json_t *report_ceilings_json(const struct record_head *head)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < head->n_ceilings; i++) {
        const struct ceiling_row *row = &head->ceilings[i];
        json_t *json = json_object();
        json_object_set_new(json, "kind", report_json_text(row->kind));
        json_object_set_new(json, "shape", report_json_text(row->shape));
        json_object_set_new(json, "dtype", report_json_text(row->dtype));
        json_object_set_new(json, "level", report_json_text(row->level));
        json_object_set_new(json, "ranks", json_integer(row->group));
        json_object_set_new(json, "calls", json_integer(row->calls));
        json_object_set_new(json, "n", json_integer(row->n));
        json_object_set_new(json, "bytes", json_real(row->bytes));
        json_object_set_new(json, "flops", json_real(row->flops));
        json_object_set_new(json, "time_us", json_real(row->time_us));
        json_object_set_new(json, "least_us", json_real(row->least_us));
        json_object_set_new(json, "rate", json_real(row->rate));
        json_object_set_new(json, "unit", report_json_text(row->unit));
        json_array_append_new(list, json);
    }
    return list;
}
