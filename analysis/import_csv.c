#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "analysis/import.h"
#include "analysis/import_lines.h"
#include "analysis/import_names.h"
#include "analysis/import_number.h"
#include "base/err.h"

enum { COLUMNS = 256 };

struct csv {
    struct import *import;
    struct import_lines lines;
    const char *path;
    char separator;
    int n_columns;
    char *title[COLUMNS]; /* owned */
    struct import_name name[COLUMNS];
    char *field[COLUMNS]; /* of the current line, into lines.text */
    int n_fields;
    int last; /* row of this file that a further step may belong to; -1 */
};

static int line_of(const struct csv *csv)
{
    return (int)csv->lines.number;
}

/* RFC 4180, but a field may not go over the end of a line. Splits lines.text in place. */
static int split(struct csv *csv)
{
    char *from = csv->lines.text, *to;
    csv->n_fields = 0;
    for (bool more = true; more;) {
        if (csv->n_fields == COLUMNS)
            return fail(FAIL_FILE, "%s:%d: more than %d columns", csv->path, line_of(csv), COLUMNS);
        while (*from == ' ')
            from++;
        char *field = to = from;
        bool quoted = *from == '"', closed = !quoted;
        for (from += quoted; *from != '\0' && (quoted || *from != csv->separator); from++) {
            if (quoted && *from == '"' && from[1] != '"') {
                closed = true;
                from++;
                break;
            }
            from += quoted && *from == '"';
            *to++ = *from;
        }
        if (!closed)
            return fail(FAIL_FILE, "%s:%d: a quote is not closed on its line", csv->path,
                        line_of(csv));
        while (quoted && *from == ' ')
            from++;
        if (quoted && *from != '\0' && *from != csv->separator)
            return fail(FAIL_FILE, "%s:%d: text follows a closing quote", csv->path, line_of(csv));
        more = *from != '\0';
        from += more;
        while (to > field && to[-1] == ' ')
            to--;
        *to = '\0';
        csv->field[csv->n_fields++] = field;
    }
    return 0;
}

/* 1: fields are there; 0: end. Comments and empty lines are passed over. */
static int next_record(struct csv *csv)
{
    int more;
    while ((more = import_lines_next(&csv->lines)) > 0) {
        const char *text = csv->lines.text + strspn(csv->lines.text, " \t");
        if (*text != '#' && *text != '\0')
            break;
    }
    if (more <= 0)
        return more;
    if (csv->lines.overlong)
        return -fail(FAIL_FILE, "%s:%d: a line of more than %d bytes is no line of a table",
                     csv->path, line_of(csv), IMPORT_LINE);
    if (csv->separator == '\0')
        csv->separator = strchr(csv->lines.text, '\t') != NULL  ? '\t'
                         : strchr(csv->lines.text, ';') != NULL ? ';'
                                                                : ',';
    int rc = split(csv);
    return rc != 0 ? -rc : 1;
}

static int find_title(const struct csv *csv, const char *wanted, size_t length)
{
    for (int i = 0; i < csv->n_columns; i++)
        if (strlen(csv->title[i]) == length && strncasecmp(csv->title[i], wanted, length) == 0)
            return i;
    return -1;
}

/* --map name=column,...: says what columns mean, before their titles do. */
static int apply_map(struct csv *csv, const char *map)
{
    while (*map != '\0') {
        char ours[64];
        size_t item = strcspn(map, ","), equals = strcspn(map, "=");
        if (equals >= item || equals == 0 || equals >= sizeof ours)
            return fail(FAIL_USAGE, "--map: \"%.*s\" is not name=column", (int)item, map);
        snprintf(ours, sizeof ours, "%.*s", (int)equals, map);
        struct import_name name;
        const char *wrong = import_name(ours, &name);
        if (wrong != NULL)
            return fail(FAIL_USAGE, "--map: %s %s", ours, wrong);
        if (name.target == IMPORT_NOTHING)
            return fail(FAIL_USAGE,
                        "--map: \"%s\" is no name that import knows: gpus, step_s, global_batch, "
                        "tokens_per_s and the others in analysis/README.md",
                        ours);
        int column = find_title(csv, map + equals + 1, item - equals - 1);
        if (column < 0)
            return fail(FAIL_USAGE, "--map: %s has no column \"%.*s\"", csv->path,
                        (int)(item - equals - 1), map + equals + 1);
        for (int i = 0; i < csv->n_columns; i++)
            if (csv->name[i].target == name.target && csv->name[i].index == name.index)
                csv->name[i].target = IMPORT_NOTHING;
        csv->name[column] = name;
        map += item + (map[item] == ',');
    }
    return 0;
}

static int check_titles(struct csv *csv)
{
    char unused[200] = "";
    size_t n = 0;
    for (int i = 0; i < csv->n_columns; i++) {
        const struct import_name *a = &csv->name[i];
        for (int j = 0; j < i && a->target != IMPORT_NOTHING; j++)
            if (csv->name[j].target == a->target && csv->name[j].index == a->index)
                return fail(FAIL_USAGE,
                            "%s:%d: columns \"%s\" and \"%s\" both give %s: choose with --map %s=…",
                            csv->path, line_of(csv), csv->title[j], csv->title[i],
                            import_name_of(a->target, a->index),
                            import_name_of(a->target, a->index));
        if (a->target == IMPORT_NOTHING && n + 1 < sizeof unused)
            n += (size_t)snprintf(unused + n, sizeof unused - n, "%s%s", n > 0 ? ", " : "",
                                  csv->title[i]);
    }
    if (n > 0)
        import_note(csv->import, line_of(csv), "columns that were not used: %s", unused);
    return 0;
}

static int read_header(struct csv *csv, const char *map)
{
    int more = next_record(csv), known = 0, rc;
    if (more <= 0)
        return more < 0 ? -more
                        : fail(FAIL_FILE, "%s has no header line: nothing but comments or blanks",
                               csv->path);
    csv->n_columns = csv->n_fields;
    for (int i = 0; i < csv->n_columns; i++) {
        size_t size = strlen(csv->field[i]) + 1;
        csv->title[i] = memcpy(must_alloc(size, 1), csv->field[i], size);
        const char *wrong = map[0] == '\0' ? import_name(csv->title[i], &csv->name[i]) : NULL;
        if (map[0] != '\0' && import_name(csv->title[i], &csv->name[i]) != NULL)
            csv->name[i].target = IMPORT_NOTHING;
        if (wrong != NULL)
            return fail(FAIL_WRONG, "%s:%d: column \"%s\" %s", csv->path, line_of(csv),
                        csv->title[i], wrong);
    }
    rc = apply_map(csv, map);
    for (int i = 0; i < csv->n_columns; i++)
        known += csv->name[i].target == IMPORT_A_FIGURE;
    if (rc == 0 && known == 0)
        return fail(FAIL_USAGE,
                    "%s:%d: no column of the header is known (gpus, step_s, global_batch, …): say "
                    "what they are with --map gpus=COLUMN,step_s=COLUMN",
                    csv->path, line_of(csv));
    return rc != 0 ? rc : check_titles(csv);
}

/* Why a figure cannot be one of its kind, or NULL. */
static const char *check_figure(int index, double value, double scale)
{
    enum { COUNT, INDEX, POSITIVE, SHARE, ANY, BYTES, RATE };
#define KIND(name, kind) kind,
    static const int kinds[] = {IMPORT_FIGURES(KIND)};
#undef KIND
    bool whole = value == floor(value) && value < 9e15;
    switch (kinds[index]) {
    case COUNT:
        return whole && value >= 1.0 ? NULL : "is not a whole number of 1 or more";
    case INDEX:
        return whole && value >= 0.0 ? NULL : "is not a whole number of 0 or more";
    case POSITIVE:
        return !(value > 0.0)                  ? "is zero or negative"
               : value < 1e-12 || value > 1e30 ? "was never measured: a damaged number"
                                               : NULL;
    case SHARE:
        return value < 0.0                   ? "is negative"
               : value > 2.0 && scale == 1.0 ? "is no share: a column in percent is named with _pct"
                                             : NULL;
    case BYTES:
    case RATE:
        return value >= 0.0 ? NULL : "is negative";
    default:
        return NULL;
    }
}

static int read_field(const struct csv *csv, int column, struct import_row *row)
{
    const struct import_name *name = &csv->name[column];
    const char *text = csv->field[column];
    struct import_number number;
    if (name->target == IMPORT_A_WORD) {
        if (strlen(text) >= IMPORT_WORD)
            return fail(FAIL_FILE, "%s:%d: column \"%s\": more than %d bytes", csv->path,
                        line_of(csv), csv->title[column], IMPORT_WORD - 1);
        snprintf(row->word[name->index], IMPORT_WORD, "%s", text);
        return 0;
    }
    const char *wrong =
        name->index == IMPORT_BYTES ? import_bytes(text, &number) : import_number(text, &number);
    if (wrong == NULL && !isnan(number.value))
        wrong = check_figure(name->index, number.value * name->scale, name->scale);
    if (wrong != NULL)
        return fail(FAIL_FILE, "%s:%d: column \"%s\": \"%.40s\" %s", csv->path, line_of(csv),
                    csv->title[column], text, wrong);
    row->value[name->index] = number.value * name->scale;
    row->half[name->index] = number.half * name->scale;
    return 0;
}

/* Steps of one launch: everything but the step and its time is the same. */
static bool same_launch(const struct import_row *a, const struct import_row *b)
{
    for (int i = 0; i < IMPORT_N_FIGURES; i++)
        if (i != IMPORT_STEP && i != IMPORT_STEP_S && i != IMPORT_LOSS &&
            i != IMPORT_SAMPLES_TO_TARGET && !(isnan(a->value[i]) && isnan(b->value[i])) &&
            !(fabs(a->value[i] - b->value[i]) <= 0.0))
            return false;
    return memcmp(a->word, b->word, sizeof a->word) == 0;
}

static int keep_row(struct csv *csv, const struct import_row *row)
{
    struct import *import = csv->import;
    bool is_step = !isnan(row->value[IMPORT_STEP]) && !isnan(row->value[IMPORT_STEP_S]);
    struct import_row *last = csv->last >= 0 ? &import->rows[csv->last] : NULL;
    if (!is_step || last == NULL || !same_launch(last, row)) {
        csv->last = is_step ? import->n_rows : -1;
        int rc = import_add(import, row);
        if (rc != 0)
            return rc;
        last = &import->rows[import->n_rows - 1];
    } else if (row->value[IMPORT_STEP] <= last->value[IMPORT_STEP])
        return fail(FAIL_FILE, "%s:%d: step %.0f follows step %.0f of the same launch", csv->path,
                    line_of(csv), row->value[IMPORT_STEP], last->value[IMPORT_STEP]);
    if (!is_step)
        return 0;
    if (last->n_launches == 0) {
        last->launches = must_alloc(1, sizeof *last->launches);
        last->n_launches = 1;
    }
    import_steps_add(last->launches, row->value[IMPORT_STEP_S]);
    last->value[IMPORT_STEP] = row->value[IMPORT_STEP];
    last->value[IMPORT_LOSS] = row->value[IMPORT_LOSS];
    return 0;
}

static int read_row(struct csv *csv)
{
    struct import_row row = import_row_unknown(csv->import->n_paths - 1);
    row.line = line_of(csv);
    if (csv->n_fields < csv->n_columns && csv->lines.open_end)
        return fail(FAIL_FILE,
                    "%s:%d: the file ends in the middle of a line (%d of %d columns): it was cut",
                    csv->path, line_of(csv), csv->n_fields, csv->n_columns);
    if (csv->n_fields != csv->n_columns)
        return fail(FAIL_FILE, "%s:%d: %d columns where the header has %d%s", csv->path,
                    line_of(csv), csv->n_fields, csv->n_columns,
                    csv->n_fields > csv->n_columns && csv->separator == ','
                        ? ": a decimal comma or thousands separator?"
                        : "");
    for (int i = 0; i < csv->n_columns; i++) {
        int rc = csv->name[i].target == IMPORT_NOTHING ? 0 : read_field(csv, i, &row);
        if (rc != 0)
            return rc;
    }
    if (csv->lines.open_end)
        import_note(csv->import, line_of(csv),
                    "the last line has no line end: if the file was cut, its last figure \"%.40s\" "
                    "is wrong",
                    csv->field[csv->n_fields - 1]);
    return keep_row(csv, &row);
}

int import_csv(struct import *import, const char *path, const struct import_options *options)
{
    struct csv csv = {.import = import, .path = path, .last = -1};
    int rc, more = 0, before = import->n_rows;
    TRY(import_lines_open(&csv.lines, path));
    TRY(read_header(&csv, options->map));
    while (rc == 0 && (more = next_record(&csv)) > 0)
        rc = read_row(&csv);
    if (rc == 0 && more < 0)
        rc = -more;
    if (rc == 0 && import->n_rows == before)
        rc = fail(FAIL_FILE, "%s has a header and no rows", path);
out:
    for (int i = 0; i < csv.n_columns; i++)
        free(csv.title[i]);
    import_lines_close(&csv.lines);
    return rc;
}
