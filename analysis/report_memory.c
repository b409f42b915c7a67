#include "analysis/report_memory.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis/report_key.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"

static const double mib = 1048576.0;

static const char *const classes[] = {
    "parameters",    "gradients", "optimizer", "activations", "temporaries",
    "communication", "kernels",   "reserved",  "training",    "process",
};
enum { N_CLASSES = sizeof classes / sizeof *classes, N_ARENAS = 6 };

static bool is_class(const struct memory_row *row, const char *class)
{
    return strncmp(row->class, class, sizeof row->class) == 0;
}

/* Of what is kept apart by class, and known before it is taken. */
static bool is_predicted_arena(const struct memory_row *row)
{
    for (int c = 0; c < N_ARENAS; c++)
        if (is_class(row, classes[c]))
            return row->predicted_bytes > 0 || row->peak_bytes > 0;
    return false;
}

/* Files of earlier versions have no prediction: all of it reads as 0. */
static bool has_predictions(const struct record_point *point)
{
    for (int64_t i = 0; i < point->memory.n; i++)
        if (point->memory.rows[i].predicted_bytes > 0)
            return true;
    return false;
}

const struct memory_row *report_memory_worst(const struct record_point *point, const char *class)
{
    const struct memory_row *worst = NULL;
    for (int64_t i = 0; i < point->memory.n; i++) {
        const struct memory_row *row = &point->memory.rows[i];
        if (is_class(row, class) && (worst == NULL || row->peak_bytes > worst->peak_bytes))
            worst = row;
    }
    return worst;
}

bool report_memory_exact(const struct record_point *point, int64_t *n)
{
    bool exact = true;
    *n = 0;
    for (int64_t i = 0; i < point->memory.n && has_predictions(point); i++) {
        const struct memory_row *row = &point->memory.rows[i];
        if (!is_predicted_arena(row))
            continue;
        exact = exact && row->predicted_bytes == row->peak_bytes;
        ++*n;
    }
    return exact;
}

static const struct memory_row *first_wrong(const struct record_point *point)
{
    for (int64_t i = 0; i < point->memory.n && has_predictions(point); i++) {
        const struct memory_row *row = &point->memory.rows[i];
        if (is_predicted_arena(row) && row->predicted_bytes != row->peak_bytes)
            return row;
    }
    return NULL;
}

bool report_memory_sentence(char *text, size_t size, const struct record_point *point)
{
    const struct memory_row *wrong = first_wrong(point);
    const struct memory_row *process = report_memory_worst(point, "process");
    if (wrong != NULL) {
        snprintf(text, size,
                 "memory: %.16s of rank %d: %" PRId64 " bytes were predicted and %" PRId64 " taken",
                 wrong->class, wrong->rank, wrong->predicted_bytes, wrong->peak_bytes);
        return true;
    }
    if (process == NULL || process->predicted_bytes <= 0)
        return false;
    double off = (double)(process->peak_bytes - process->predicted_bytes);
    double allowed = fmax(0.03 * (double)process->predicted_bytes, 1024.0 * mib);
    if (fabs(off) <= allowed)
        return false;
    snprintf(text, size,
             "memory: the process of rank %d holds %.0f MiB, %.0f were predicted: more than 3 %% "
             "and 1 GiB apart",
             process->rank, (double)process->peak_bytes / mib,
             (double)process->predicted_bytes / mib);
    return true;
}

/* ---- the table ---- */

static double in_mib(int64_t bytes)
{
    return bytes > 0 ? (double)bytes / mib : (double)NAN;
}

/* Of all launches of a point, the one whose rank holds most of a class; `same`: all hold as much. */
static const struct scaling_run *worst_run(const struct scaling_row *point, const char *class,
                                           bool *same)
{
    const struct scaling_run *worst = NULL;
    int64_t most = -1;
    int holders = 0;
    *same = true;
    for (int i = 0; i < point->n_runs; i++) {
        const struct memory_row *row = report_memory_worst(point->runs[i].account.record, class);
        if (row == NULL || (row->peak_bytes <= 0 && row->predicted_bytes <= 0))
            continue;
        *same = *same && (holders++ == 0 || row->peak_bytes == most);
        if (row->peak_bytes > most) {
            most = row->peak_bytes;
            worst = &point->runs[i];
        }
    }
    return worst;
}

static void class_row(struct table *t, const struct scaling *s, const struct scaling_run *run,
                      const struct memory_row *row, bool launches, bool same)
{
    const struct point_row *p = &run->account.record->point;
    char launch[32], largest[sizeof row->largest + 1];
    bool known = row->predicted_bytes > 0;
    report_key_cells(t, s, p);
    table_text(t, p->parallel);
    if (launches) {
        notes_launch(launch, run);
        table_text(t, same ? "all" : launch);
    }
    table_text(t, row->class);
    table_int(t, row->rank);
    table_real(t, (double)row->peak_bytes / mib, 2);
    table_real(t, known ? (double)row->predicted_bytes / mib : (double)NAN, 2);
    table_real(t, known ? (double)(row->peak_bytes - row->predicted_bytes) : (double)NAN, 0);
    table_real(t, in_mib(row->largest_bytes), 2);
    snprintf(largest, sizeof largest, "%.*s", (int)sizeof row->largest, row->largest);
    table_text(t, largest);
}

void report_memory(FILE *to, const struct scaling *scaling, bool launches)
{
    struct table t;
    bool any = false;
    for (int i = 0; i < scaling->n_runs; i++)
        any = any || has_predictions(scaling->runs[i].account.record);
    if (!any)
        return;
    fprintf(to,
            "#\n# memory by class, of the rank that holds most: counted, predicted from the plan "
            "before anything was taken, the difference,\n# and the largest tensor in it; "
            "kernels: taken by their libraries; process: as the host or the GPU sees it\n");
    report_key_open(&t, scaling,
                    launches ? "parallel launch class rank peak_MiB predicted_MiB "
                               "off_bytes largest_MiB largest"
                             : "parallel class rank peak_MiB predicted_MiB off_bytes "
                               "largest_MiB largest");
    for (int i = 0; i < scaling->n_rows; i++)
        for (int c = 0; c < N_CLASSES; c++) {
            bool same;
            const struct scaling_run *run = worst_run(&scaling->rows[i], classes[c], &same);
            if (run != NULL)
                class_row(&t, scaling, run, report_memory_worst(run->account.record, classes[c]),
                          launches, same);
        }
    table_close(&t, to);
}
