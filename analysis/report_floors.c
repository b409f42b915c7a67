#include "analysis/report_floors.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "analysis/floors.h"
#include "analysis/report_ceilings.h"
#include "analysis/report_columns.h"
#include "analysis/report_json_cell.h"
#include "analysis/report_key.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"

static const struct record_head *ceilings_of(const struct report *r)
{
    return r->ceilings != NULL ? r->ceilings : &r->files[0]->head;
}

static int floors_of(struct floor_row out[FLOORS_MOST], const struct report *r,
                     const struct scaling_row *row, int run)
{
    const struct record_head *head = ceilings_of(r);
    return floors_of_point(out, row->runs[run].account.record, head->ceilings, head->n_ceilings,
                           row->peak_flops);
}

/* A cell has no spaces. */
static void source_cell(struct table *t, const char *source)
{
    char text[TABLE_CELL];
    snprintf(text, sizeof text, "%s", source);
    for (char *at = text; *at != '\0'; at++)
        if (*at == ' ')
            *at = '_';
    table_text(t, text);
}

static void print_row(struct table *t, const struct floor_row *f)
{
    table_text(t, f->axis);
    table_text(t, f->kind);
    table_int(t, f->n);
    table_real(t, f->ms, 3);
    table_real(t, f->alone_ms, 3);
    table_real(t, f->floor_ms, 3);
    table_real(t, f->ms > 0 ? 100 * f->floor_ms / f->ms : (double)NAN, 1);
    source_cell(t, f->source);
}

/* Each launch has rows of its own. */
static int row_text(struct table *t, const struct report *r, const struct scaling_row *row, int run)
{
    struct floor_row rows[FLOORS_MOST];
    char launch[32];
    int n = floors_of(rows, r, row, run);
    notes_launch(launch, &row->runs[run]);
    for (int k = 0; k < n && t != NULL; k++) {
        report_key_cells(t, r->scaling, row->point);
        if (r->scaling->n_launches > 1)
            table_text(t, launch);
        table_text(t, row->point->parallel);
        print_row(t, &rows[k]);
    }
    return n;
}

/* -> how many rows there are; to no table they are only counted. */
static int all_rows(struct table *t, const struct report *r)
{
    int found = 0;
    for (int i = 0; i < r->scaling->n_rows; i++)
        for (int j = 0; j < r->scaling->rows[i].n_runs; j++)
            found += row_text(t, r, &r->scaling->rows[i], j);
    return found;
}

void report_floors(FILE *to, const struct report *r)
{
    const struct scaling *s = r->scaling;
    struct table t;
    report_ceilings(to, &r->files[0]->head);
    if (ceilings_of(r)->n_ceilings == 0 || s->n_rows == 0)
        return;
    if (all_rows(NULL, r) == 0) {
        fprintf(to, "#\n# floors of a step: none: no point has instrumented steps, whose ops they "
                    "are for; a "
                    "run (--run-steps) makes none\n");
        return;
    }
    fprintf(
        to,
        "#\n# floors of a step: ops of rank 0 in instrumented steps, calls by their shortest time "
        "over ranks of its group; alone: as calibrated,\n# nothing beside them; floor_%%: floor "
        "over time; "
        "source: what the floor is made from\n");
    report_key_open(&t, s,
                    s->n_launches > 1
                        ? "launch parallel axis work n ms alone_ms floor_ms floor_% source"
                        : "parallel axis work n ms alone_ms floor_ms floor_% source");
    all_rows(&t, r);
    table_close(&t, to);
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *row_json(const struct floor_row *f, const struct scaling_run *run)
{
    const struct point_row *point = &run->account.record->point;
    json_t *json = json_object();
    json_object_set_new(json, "point", json_integer(point->point));
    json_object_set_new(json, "file", report_json_text(run->file->path));
    json_object_set_new(json, "launch", json_integer(point->launch));
    json_object_set_new(json, "axis", report_json_text(f->axis));
    json_object_set_new(json, "work", report_json_text(f->kind));
    json_object_set_new(json, "n", json_integer(f->n));
    json_object_set_new(json, "ms", number(f->ms));
    json_object_set_new(json, "alone_ms", number(f->alone_ms));
    json_object_set_new(json, "floor_ms", number(f->floor_ms));
    json_object_set_new(json, "source", report_json_text(f->source));
    return json;
}

void report_floors_json(json_t *study, const struct report *r)
{
    struct floor_row rows[FLOORS_MOST];
    json_t *list = json_array();
    if (r->files[0]->head.n_ceilings > 0)
        json_object_set_new(study, "ceilings", report_ceilings_json(&r->files[0]->head));
    for (int i = 0; i < r->scaling->n_rows && ceilings_of(r)->n_ceilings > 0; i++)
        for (int j = 0; j < r->scaling->rows[i].n_runs; j++) {
            const struct scaling_row *row = &r->scaling->rows[i];
            int n = floors_of(rows, r, row, j);
            for (int k = 0; k < n; k++)
                json_array_append_new(list, row_json(&rows[k], &row->runs[j]));
        }
    json_object_set_new(study, "floors", list);
}
