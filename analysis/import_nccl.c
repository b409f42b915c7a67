#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "analysis/import.h"
#include "analysis/import_collectives.h"
#include "analysis/import_lines.h"
#include "analysis/import_number.h"
#include "base/err.h"

/* Words of a row of nccl-tests: size count type redop root, then time algbw busbw #wrong twice;
 * with -I four more behind each of these. */
enum { LEAD_WORDS = 5, SIDE_WORDS = 4, MOST_WORDS = 5 + 2 * (4 + 4) + 1 };

/* A JSON file is read whole: one of this size has a hundred times the rows that any test prints. */
enum { JSON_BYTES = 16 << 20 };

struct nccl {
    struct import *import;
    const char *path;
    struct import_lines lines;
    struct collective_table pending; /* what the comments said so far; no rows */
    int table;                       /* index of the one that rows go to; -1 */
    int n_hosts;
    char hosts[64][64];
};

/* "all_reduce_perf", "all_gather_perf_mpi" -> all_reduce, all_gather */
static void set_operation(struct collective_table *table, const char *name)
{
    const char *slash = strrchr(name, '/'), *end;
    name = slash != NULL ? slash + 1 : name;
    end = strstr(name, "_perf");
    int n = end != NULL ? (int)(end - name) : (int)strcspn(name, " \t");
    snprintf(table->operation, sizeof table->operation, "%.*s", n < 23 ? n : 23, name);
}

static void see_host(struct nccl *nccl, const char *host)
{
    for (int i = 0; i < nccl->n_hosts; i++)
        if (strncmp(nccl->hosts[i], host, 63) == 0)
            return;
    if (nccl->n_hosts < 64)
        snprintf(nccl->hosts[nccl->n_hosts++], 64, "%.63s", host);
    nccl->pending.nodes = nccl->n_hosts;
}

static void read_comment(struct nccl *nccl, const char *text)
{
    char host[64];
    int rank;
    const char *name = strstr(text, "Collective test starting: ");
    if (strstr(text, "# nccl-tests version") != NULL || name != NULL) {
        if (nccl->table >= 0 || name == NULL) {
            nccl->pending = (struct collective_table){.ranks = -1, .nodes = -1};
            nccl->n_hosts = 0;
        }
        nccl->table = -1;
    }
    if (name != NULL)
        set_operation(&nccl->pending, name + strlen("Collective test starting: "));
    if (sscanf(text, "# Rank %d Group %*d Pid %*d on %63s device", &rank, host) == 2) {
        nccl->pending.ranks = rank + 1 > nccl->pending.ranks ? rank + 1 : nccl->pending.ranks;
        see_host(nccl, host);
    }
}

static int read_number(const struct nccl *nccl, const char *word, const char *column, double *out)
{
    struct import_number number;
    const char *wrong = import_number(word, &number);
    if (wrong == NULL && number.value < 0.0)
        wrong = "is negative";
    if (wrong != NULL)
        return fail(FAIL_FILE, "%s:%lld: %s: \"%.40s\" %s", nccl->path,
                    (long long)nccl->lines.number, column, word, wrong);
    *out = number.value;
    return 0;
}

static int read_side(const struct nccl *nccl, char **words, double *us, double *algbw,
                     double *busbw, double *wrong)
{
    int rc;
    TRY(read_number(nccl, words[0], "time", us));
    TRY(read_number(nccl, words[1], "algbw", algbw));
    TRY(read_number(nccl, words[2], "busbw", busbw));
    TRY(read_number(nccl, words[3], "#wrong", wrong));
    if (!(*us > 0.0))
        rc = fail(FAIL_FILE, "%s:%lld: time \"%s\" is zero or negative", nccl->path,
                  (long long)nccl->lines.number, words[0]);
out:
    return rc;
}

static int split(char *text, char **words)
{
    int n = 0;
    for (char *word = strtok_r(text, " \t", &text); word != NULL && n < MOST_WORDS;
         word = strtok_r(NULL, " \t", &text))
        words[n++] = word;
    return n;
}

/* Opens a table at its first row, once the comments before it are complete. */
static struct collective_table *table_of(struct nccl *nccl)
{
    if (nccl->table < 0) {
        nccl->table = nccl->import->collectives.n;
        *collective_tables_add(&nccl->import->collectives) = nccl->pending;
        snprintf(nccl->import->collectives.tables[nccl->table].source, 256, "%s", nccl->path);
    }
    return &nccl->import->collectives.tables[nccl->table];
}

static int read_row(struct nccl *nccl)
{
    char *words[MOST_WORDS];
    struct collective_row row = collective_row_unknown();
    int rc, n = split(nccl->lines.text, words), side = (n - LEAD_WORDS) / 2;
    if (n < LEAD_WORDS || !isdigit((unsigned char)words[0][0]))
        return 0;                                       /* a warning of a library in between */
    if (side < SIDE_WORDS || (n - LEAD_WORDS) % 2 != 0) /* one side alone has 4 or 8 words */
        return fail(FAIL_FILE, "%s:%lld: %d words where a row of nccl-tests has 13 (21 with -I)",
                    nccl->path, (long long)nccl->lines.number, n);
    row.line = (int)nccl->lines.number;
    TRY(read_number(nccl, words[0], "size", &row.bytes));
    TRY(read_number(nccl, words[1], "count", &row.count));
    TRY(read_side(nccl, words + LEAD_WORDS, &row.time_us, &row.algbw_GBps, &row.busbw_GBps,
                  &row.wrong));
    TRY(read_side(nccl, words + LEAD_WORDS + side, &row.in_place_us, &row.in_place_algbw_GBps,
                  &row.in_place_busbw_GBps, &row.in_place_wrong));
    struct collective_table *table = table_of(nccl);
    if (table->n_rows == 0) {
        snprintf(table->type, sizeof table->type, "%.15s", words[2]);
        snprintf(table->reduction, sizeof table->reduction, "%.15s", words[3]);
    }
    if (row.bytes > 0.0) /* nothing moved: the time of an empty call */
        collective_table_add(table, &row);
out:
    return rc;
}

static int check_tables(struct import *import, int first, const char *path)
{
    int rc = 0;
    if (import->collectives.n == first)
        return fail(FAIL_FILE, "%s has no row of nccl-tests: the test did not get that far", path);
    for (int i = first; i < import->collectives.n && rc == 0; i++)
        rc = import_check_collective(import, &import->collectives.tables[i]);
    return rc;
}

int import_nccl_text(struct import *import, const char *path, const struct import_options *options)
{
    struct nccl nccl = {
        .import = import, .path = path, .table = -1, .pending = {.ranks = -1, .nodes = -1}};
    int rc, more = 0, first = import->collectives.n;
    (void)options;
    TRY(import_lines_open(&nccl.lines, path));
    while (rc == 0 && (more = import_lines_next(&nccl.lines)) > 0) {
        const char *text = nccl.lines.text + strspn(nccl.lines.text, " \t");
        if (*text == '#')
            read_comment(&nccl, text);
        else if (nccl.lines.open_end && isdigit((unsigned char)*text))
            import_note(import, (int)nccl.lines.number,
                        "the file ends in the middle of this line: it was cut and the line is not "
                        "used");
        else if (*text != '\0')
            rc = read_row(&nccl);
    }
    if (rc == 0)
        rc = more < 0 ? -more : check_tables(import, first, path);
out:
    import_lines_close(&nccl.lines);
    return rc;
}

/* ---- JSON, as nccl-tests -J writes it ---- */

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static double time_of(const json_t *side)
{
    double time = number_of(side, "time");
    return isnan(time) ? number_of(side, "cpu_time") : time;
}

static int add_json_row(struct import *import, struct collective_table *table, const json_t *result,
                        int index)
{
    const json_t *out = json_object_get(result, "out_of_place");
    const json_t *in = json_object_get(result, "in_place");
    struct collective_row row = collective_row_unknown();
    const char *path = import->paths[import->n_paths - 1];
    row.line = index + 1;
    row.bytes = number_of(result, "size");
    row.count = number_of(result, "count");
    row.time_us = time_of(out);
    row.algbw_GBps = number_of(out, "alg_bw");
    row.busbw_GBps = number_of(out, "bus_bw");
    row.wrong = number_of(out, "nwrong");
    row.in_place_us = time_of(in);
    row.in_place_algbw_GBps = number_of(in, "alg_bw");
    row.in_place_busbw_GBps = number_of(in, "bus_bw");
    row.in_place_wrong = number_of(in, "nwrong");
    if (!(row.bytes >= 0.0))
        return fail(FAIL_FILE, "%s: result %d has no size", path, index);
    if ((!isnan(row.time_us) && !(row.time_us > 0.0)) ||
        (!isnan(row.in_place_us) && !(row.in_place_us > 0.0)))
        return fail(FAIL_FILE, "%s: result %d: a time is zero or negative", path, index);
    if (isnan(row.time_us) && isnan(row.in_place_us))
        return fail(FAIL_FILE, "%s: result %d has no time", path, index);
    if (row.bytes > 0.0)
        collective_table_add(table, &row);
    return 0;
}

/* Ranks and hosts of "config": {"devices": [{"rank", "hostname"}]}. */
static void read_devices(struct collective_table *table, const json_t *root)
{
    const json_t *devices = json_object_get(json_object_get(root, "config"), "devices");
    int64_t hosts = 0;
    if (!json_is_array(devices))
        devices = json_object_get(root, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const char *host = text_of(json_array_get(devices, i), "hostname");
        size_t j = 0;
        while (j < i && strcmp(text_of(json_array_get(devices, j), "hostname"), host) != 0)
            j++;
        hosts += j == i;
    }
    if (json_array_size(devices) > 0) {
        table->ranks = (int64_t)json_array_size(devices);
        table->nodes = hosts;
    }
}

static int read_json(struct import *import, const char *path, const json_t *root)
{
    const json_t *results = json_object_get(root, "results");
    const char *program = json_string_value(json_array_get(json_object_get(root, "args"), 0));
    if (!json_is_array(results) || json_array_size(results) == 0)
        return fail(FAIL_FILE, "%s is JSON without \"results\": not what nccl-tests -J writes",
                    path);
    int rc = 0, first = import->collectives.n;
    struct collective_table *table = collective_tables_add(&import->collectives);
    snprintf(table->source, sizeof table->source, "%s", path);
    set_operation(table, program != NULL ? program : "unknown");
    snprintf(table->type, sizeof table->type, "%.15s", text_of(json_array_get(results, 0), "type"));
    snprintf(table->reduction, sizeof table->reduction, "%.15s",
             text_of(json_array_get(results, 0), "redop"));
    read_devices(table, root);
    for (size_t i = 0; i < json_array_size(results) && rc == 0; i++)
        rc = add_json_row(import, table, json_array_get(results, i), (int)i);
    return rc != 0 ? rc : check_tables(import, first, path);
}

int import_nccl_json(struct import *import, const char *path, const struct import_options *options)
{
    json_error_t error;
    (void)options;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return fail(FAIL_FILE, "%s could not be opened: %s", path, strerror(errno));
    char *text = must_alloc(JSON_BYTES + 1, 1);
    size_t n = fread(text, 1, JSON_BYTES + 1, file);
    fclose(file);
    if (n > JSON_BYTES) {
        free(text);
        return fail(FAIL_FILE, "%s: more than %d MiB of JSON are not what nccl-tests writes", path,
                    JSON_BYTES >> 20);
    }
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (root == NULL)
        return fail(FAIL_FILE, "%s:%d: %s: the JSON is cut or damaged", path, error.line,
                    error.text);
    int rc = read_json(import, path, root);
    json_decref(root);
    return rc;
}
