#include "analysis/import.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/import_collectives.h"
#include "analysis/import_lines.h"
#include "analysis/import_names.h"
#include "base/err.h"
#include "base/units.h"

/* How much of a file is looked at to find out what it is. */
enum { HEAD_LINES = 2000 };

/* A format: what a line of it contains that no other one does, and its reader. */
struct format {
    const char *name;
    const char *marks[4]; /* any of them; none: what is left */
    import_reader *read;
};

static const struct format formats[] = {
    {"mlperf", {":::MLLOG"}, import_mlperf},
    {"nccl-tests", {"# nccl-tests", "out-of-place", "#wrong"}, import_nccl_text},
    {"nccl-tests-json", {"\"nccl_version\"", "\"out_of_place\""}, import_nccl_json},
    {"llm.c", {"| micro batch size B", "bf16 MFU |", "fp32 MFU |"}, import_llmc},
    {"megatron", {"elapsed time per iteration", "using world size:"}, import_megatron},
    {"torchtitan", {"Starting job: torchtitan", "torchtitan", "[titan]"}, import_torchtitan},
    {"csv", {NULL}, import_csv},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static const struct format *find_marks(const char *line)
{
    for (int i = 0; i < N_FORMATS; i++)
        for (int j = 0; j < 4 && formats[i].marks[j] != NULL; j++)
            if (strstr(line, formats[i].marks[j]) != NULL)
                return &formats[i];
    return NULL;
}

/* The first line that is no comment is a header: it has separators, and a name that is known. */
static bool has_known_name(const char *line)
{
    char title[IMPORT_WORD];
    struct import_name name;
    for (size_t length; *line != '\0'; line += length + (line[length] != '\0')) {
        length = strcspn(line, ",;\t");
        snprintf(title, sizeof title, "%.*s", (int)(length < 63 ? length : 63), line);
        if (import_name(title, &name) == NULL && name.target == IMPORT_A_FIGURE)
            return true;
    }
    return false;
}

static int recognise(const char *path, const struct format **out)
{
    struct import_lines lines;
    int more = 0, rc = import_lines_open(&lines, path);
    bool first = true, table = false;
    *out = NULL;
    if (rc != 0)
        return rc;
    for (int i = 0; i < HEAD_LINES && *out == NULL; i++) {
        if ((more = import_lines_next(&lines)) <= 0)
            break;
        const char *text = lines.text + strspn(lines.text, " \t");
        *out = find_marks(text);
        if (first && *text != '\0' && *text != '#') {
            table = strpbrk(text, ",;\t") != NULL;
            first = false;
            if (table && *out == NULL && has_known_name(text))
                break;
        }
    }
    import_lines_close(&lines);
    if (more < 0)
        return -more;
    if (*out == NULL && !table)
        return fail(FAIL_FILE,
                    "%s is none of the formats that import knows (%s); say which one it is with "
                    "--as",
                    path, IMPORT_FORMATS);
    if (*out == NULL)
        *out = &formats[N_FORMATS - 1];
    return 0;
}

int import_file(struct import *import, const char *path, const struct import_options *options)
{
    const struct format *format = NULL;
    int rc = 0, before = import->n_rows;
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, options->format) == 0)
            format = &formats[i];
    if (format == NULL && strcmp(options->format, "auto") != 0)
        return fail(FAIL_USAGE, "--as: \"%s\" is no format: auto or one of %s", options->format,
                    IMPORT_FORMATS);
    if (format == NULL && (rc = recognise(path, &format)) != 0)
        return rc;
    if (options->map[0] != '\0' && format->read != import_csv)
        return fail(FAIL_USAGE, "--map: %s is read as %s, which has no columns to map", path,
                    format->name);
    import->paths = must_grow(import->paths, (size_t)import->n_paths + 1, sizeof *import->paths);
    size_t size = strlen(path) + 1;
    import->paths[import->n_paths++] = memcpy(must_alloc(size, 1), path, size);
    rc = format->read(import, path, options);
    return rc != 0 ? rc : import_collect(import, before);
}

struct import_row import_row_unknown(int file)
{
    struct import_row row = {.file = file};
    for (int i = 0; i < IMPORT_N_FIGURES; i++)
        row.value[i] = row.half[i] = NAN;
    return row;
}

int import_add(struct import *import, const struct import_row *row)
{
    int n = import->n_rows;
    if (n == IMPORT_ROWS)
        return fail(FAIL_FILE,
                    "%s:%d: more than %d points: give steps of one launch a column "
                    "\"step\", or fewer points",
                    import->paths[row->file], row->line, IMPORT_ROWS);
    if ((n & (n - 1)) == 0) /* room for 1, 2, 4, ... */
        import->rows = must_grow(import->rows, n > 0 ? 2 * (size_t)n : 1, sizeof *import->rows);
    import->rows[import->n_rows++] = *row;
    return 0;
}

void import_row_release(struct import_row *row)
{
    for (int i = 0; i < row->n_launches; i++)
        import_steps_release(&row->launches[i]);
    free(row->launches);
    row->launches = NULL;
    row->n_launches = 0;
}

void import_note(struct import *import, int line, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    series_set_note(&import->set, import->paths[import->n_paths - 1], line, "%s", text);
}

void import_release(struct import *import)
{
    for (int i = 0; i < import->n_rows; i++)
        import_row_release(&import->rows[i]);
    for (int i = 0; i < import->n_paths; i++)
        free(import->paths[i]);
    free(import->rows);
    free(import->paths);
    collective_tables_release(&import->collectives);
    series_set_release(&import->set);
    *import = (struct import){0};
}

int import_devices_of(const char *list, int i, int n, int64_t *out)
{
    int items = list[0] != '\0';
    for (const char *at = list; (at = strchr(at, ',')) != NULL; at++)
        items++;
    *out = 0;
    if (items == 0)
        return 0;
    if (items != 1 && items != n)
        return fail(FAIL_USAGE, "--devices: %d numbers for %d files: give one, or one for each",
                    items, n);
    for (int skip = items == 1 ? 0 : i; skip > 0; skip--)
        list = strchr(list, ',') + 1;
    char item[32];
    snprintf(item, sizeof item, "%.*s", (int)(strcspn(list, ",") < 31 ? strcspn(list, ",") : 31),
             list);
    if (units_parse_int(item, out) != 0 || *out < 1)
        return fail(FAIL_USAGE, "--devices: \"%s\" is no number of devices", item);
    return 0;
}
