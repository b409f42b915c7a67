#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "analysis/collective_fit_text.h"
#include "analysis/command.h"
#include "analysis/curve_fit.h"
#include "analysis/fit_input.h"
#include "analysis/import_choice.h"
#include "base/err.h"
#include "base/opt.h"

enum { SEED = 1, SCHEMA = 1 };

struct options {
    char law[128], predict[256];
    int residuals, unit, algorithm;
    struct import_choice how; /* tables and logs are read */
    bool csv, json;
};

#define ROW(field_name, field, kind, text, names, what, words)                                     \
    {                                                                                              \
        .name = field_name, .type = kind, .offset = offsetof(struct options, field),               \
        .size = sizeof(((struct options *)0)->field), .preset = text, .choices = names,            \
        .unit = what, .help = words                                                                \
    }
#define HOW_AT(field) offsetof(struct options, how.field), sizeof(((struct options *)0)->how.field)
static const struct opt options[] = {
    ROW("law", law, OPT_TEXT, "", NULL, "NAME,...",
        "laws to print (linear amdahl log2 power usl physical); without it all that the points "
        "allow"),
    ROW("residuals", residuals, OPT_CHOICE, "relative", "relative|absolute", "",
        "what least squares are of"),
    ROW("predict", predict, OPT_TEXT, "", NULL, "N,...",
        "sizes to forecast; without it 2 and 4 times the largest"),
    ROW("unit", unit, OPT_CHOICE, "as-given", "as-given|devices|nodes", "", "what N counts"),
    ROW("algorithm", algorithm, OPT_CHOICE, "unknown", "unknown|ring|hierarchical", "",
        "that a table of collectives was measured with: decides the rate of an interface"),
    IMPORT_OPTIONS(HOW_AT),
    ROW("csv", csv, OPT_BOOL, "off", NULL, "", "one line per point, parameter and forecast"),
    ROW("json", json, OPT_BOOL, "off", NULL, "", "the same as one object; versioned"),
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static void print_help(void)
{
    printf(
        "usage: scalereport fit FILE... [options]\n\n"
        "FILE is a study file, a table, a log or the output of nccl-tests. Laws are fitted inside "
        "one\nregime of a curve, and forecast with an interval.\n\n");
    opt_help(options, N_OPTIONS, stdout);
}

static int read_laws(char *list, unsigned *out)
{
    char *rest = NULL;
    *out = 0;
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        const struct law *law = law_find(name);
        if (law == NULL)
            return fail(FAIL_USAGE, "--law: \"%s\" is no law: one or more of %s", name,
                        law_names());
        *out |= 1u << (law - laws);
    }
    return 0;
}

static int read_sizes(char *list, struct curve_fit_options *out)
{
    char *rest = NULL;
    out->n_predict = 0;
    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char *end;
        double n = strtod(word, &end);
        if (end == word || *end != '\0' || !isfinite(n) || !(n > 0.0))
            return fail(FAIL_USAGE, "--predict: \"%s\" is no size: wanted positive numbers, 16,32",
                        word);
        if (out->n_predict == CURVE_FIT_PREDICTIONS)
            return fail(FAIL_USAGE, "--predict: more than %d sizes", CURVE_FIT_PREDICTIONS);
        out->predict[out->n_predict++] = n;
    }
    return 0;
}

/* Where results go: one of three forms. */
struct output {
    const struct options *asked;
    json_t *curves, *collectives, *hierarchies, *refused;
    int n_curves, n_collectives, n_refused;
    char first[1024]; /* the first refusal: of the command when nothing else came out */
    int first_code;
};

static void refuse(struct output *out, const char *name, int code, const char *sentence)
{
    if (out->n_refused++ == 0) {
        out->first_code = code;
        snprintf(out->first, sizeof out->first, "%s: %s", name, sentence);
    }
    json_array_append_new(out->refused, json_pack("{s:s,s:s}", "series", name, "why", sentence));
}

static void say_curve(struct output *out, const struct curve_fit *fit)
{
    if (out->asked->json) {
        json_array_append_new(out->curves, curve_fit_json(fit));
    } else if (out->asked->csv) {
        if (out->n_curves == 0)
            curve_fit_csv_head(stdout);
        curve_fit_csv(stdout, fit);
    } else {
        printf("%s", out->n_curves > 0 ? "#\n" : "");
        curve_fit_text(stdout, fit);
    }
    out->n_curves++;
}

static int fit_series(struct output *out, const struct series *series,
                      const struct curve_fit_options *how)
{
    struct regime regimes[REGIMES];
    const char *why;
    int n, rc;
    if (!series_fittable(series, &why)) {
        refuse(out, series->name, FAIL_USAGE, why);
        return 0;
    }
    rc = regime_find(regimes, &n, series, how->unit);
    for (int i = 0; i < n && rc == 0; i++) {
        struct curve_fit fit;
        char name[160];
        int failed;
        snprintf(name, sizeof name, "%s, %s", series->name, regime_name(regimes[i].kind));
        failed = curve_fit_init(&fit, series, &regimes[i], how);
        if (failed != 0) {
            refuse(out, name, failed, fail_message());
            fail_clear();
            continue;
        }
        say_curve(out, &fit);
        curve_fit_release(&fit);
    }
    return rc;
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *line_json(const struct collective_fit *f, const struct collective_line *line)
{
    return json_pack("{s:f,s:f,s:i,s:f,s:o,s:o,s:o,s:f}", "from_bytes", f->bytes[line->first],
                     "to_bytes", f->bytes[line->first + line->n - 1], "n", line->n, "alpha_us",
                     line->alpha_us, "alpha_error_us", real(line->alpha_error), "busbw_GBps",
                     real(line->bus_GBps), "busbw_error_GBps", real(line->bus_error), "worst_pct",
                     100.0 * line->worst);
}

static json_t *collective_json(const struct collective_table *table, const struct collective_fit *f)
{
    static const char *const models[] = {"line", "pieces", "table"};
    json_t *pieces = json_array(), *rows = json_array();
    for (int i = 0; i < f->n_pieces; i++)
        json_array_append_new(pieces, line_json(f, &f->pieces[i]));
    for (int i = 0; i < f->n_rows; i++)
        json_array_append_new(rows, json_pack("{s:f,s:f,s:f,s:f}", "bytes", f->bytes[i], "time_us",
                                              f->time_us[i], "line_us",
                                              collective_line_us(f, &f->line, f->bytes[i]),
                                              "used_us", collective_time_us(f, f->bytes[i])));
    return json_pack("{s:s,s:s?,s:s?,s:I,s:o,s:s,s:I,s:I,s:f,s:s,s:o,s:o,s:o}", "source",
                     table->source, "point", table->point[0] != '\0' ? table->point : NULL, "axis",
                     table->axis[0] != '\0' ? table->axis : NULL, "groups",
                     (json_int_t)table->at_once, "groups_apart",
                     real(table->at_once > 1 ? table->apart : (double)NAN), "operation",
                     table->operation, "ranks", (json_int_t)table->ranks, "nodes",
                     (json_int_t)table->nodes, "factor", f->factor, "model", models[f->model],
                     "line", line_json(f, &f->line), "pieces", pieces, "rows", rows);
}

static void say_collective(struct output *out, const struct collective_table *table,
                           const struct collective_fit *f)
{
    if (out->asked->json) {
        json_array_append_new(out->collectives, collective_json(table, f));
    } else if (out->asked->csv) {
        if (out->n_collectives == 0)
            printf("source,operation,ranks,bytes,time_us,line_us,used_us,alpha_us,busbw_GBps,point,"
                   "axis\n");
        for (int i = 0; i < f->n_rows; i++)
            printf("\"%s\",%s,%lld,%.0f,%.10g,%.10g,%.10g,%.10g,%.10g,\"%s\",%s\n", table->source,
                   table->operation, (long long)table->ranks, f->bytes[i], f->time_us[i],
                   collective_line_us(f, &f->line, f->bytes[i]), collective_time_us(f, f->bytes[i]),
                   f->line.alpha_us, f->line.bus_GBps, table->point, table->axis);
    } else {
        printf("%s", out->n_curves + out->n_collectives > 0 ? "#\n" : "");
        collective_fit_text(stdout, table, f, (enum collective_algorithm)out->asked->algorithm);
    }
    out->n_collectives++;
}

static json_t *bracket_json(const struct collective_bracket *b)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "latency_us", real(b->latency_us), "hop_ring_us",
                     real(b->hop_ring_us), "hop_tree_us", real(b->hop_tree_us), "nic_ring_GBps",
                     real(b->nic_ring_GBps), "nic_tree_GBps", real(b->nic_tree_GBps), "worst_pct",
                     real(100.0 * b->worst));
}

static void say_hierarchy(struct output *out, const struct collective_hierarchy *h)
{
    if (out->asked->json)
        json_array_append_new(out->hierarchies,
                              json_pack("{s:I,s:I,s:i,s:o,s:o}", "ranks", (json_int_t)h->ranks,
                                        "nodes", (json_int_t)h->nodes, "sizes", h->n_rows,
                                        "one_after_another", bracket_json(&h->sum), "overlapped",
                                        bracket_json(&h->max)));
    else if (!out->asked->csv)
        collective_hierarchy_text(stdout, h);
}

/* An all-reduce on several nodes beside one of the same kind on one node. */
static void say_hierarchies(struct output *out, const struct collective_tables *tables,
                            const struct collective_fit *fits)
{
    for (int i = 0; i < tables->n; i++)
        for (int j = 0; j < tables->n; j++) {
            const struct collective_table *all = &tables->tables[i], *node = &tables->tables[j];
            struct collective_hierarchy h;
            if (all->nodes < 2 || node->nodes != 1 || strcmp(all->operation, "all_reduce") != 0 ||
                strcmp(node->operation, "all_reduce") != 0 || fits[i].n_rows == 0 ||
                fits[j].n_rows == 0 || node->ranks * all->nodes != all->ranks)
                continue;
            if (collective_hierarchy_fit(&h, &fits[j], &fits[i], all->nodes) == 0)
                say_hierarchy(out, &h);
            collective_hierarchy_release(&h);
            fail_clear();
        }
}

static void fit_collectives(struct output *out, const struct collective_tables *tables)
{
    struct collective_fit *fits = must_alloc((size_t)tables->n + 1, sizeof *fits);
    for (int i = 0; i < tables->n; i++) {
        const struct collective_table *table = &tables->tables[i];
        char name[64];
        snprintf(name, sizeof name, "%.23s, %lld ranks%s%s", table->operation,
                 (long long)table->ranks, table->axis[0] != '\0' ? " of axis " : "", table->axis);
        int rc = collective_fit_init(&fits[i], table);
        if (rc == 0)
            say_collective(out, table, &fits[i]);
        else
            refuse(out, name, rc, fail_message());
        fail_clear();
    }
    say_hierarchies(out, tables, fits);
    for (int i = 0; i < tables->n; i++)
        collective_fit_release(&fits[i]);
    free(fits);
}

/* What was not fitted, and what the tables contradict themselves in; beside a CSV on stderr. */
static void print_rest(const struct output *out, const struct fit_input *input)
{
    FILE *to = out->asked->csv ? stderr : stdout;
    const char *mark = out->asked->csv ? "scalereport:" : "# -";
    size_t i;
    json_t *one;
    json_array_foreach(out->refused, i, one) fprintf(
        to, "%s not fitted: %s: %s\n", mark, json_string_value(json_object_get(one, "series")),
        json_string_value(json_object_get(one, "why")));
    for (int k = 0; k < input->import.set.n_notes; k++)
        fprintf(to, "%s %s:%d: %s\n", mark, input->import.set.notes[k].source,
                input->import.set.notes[k].line, input->import.set.notes[k].text);
}

static int print_json(struct output *out, const struct series_set *set)
{
    json_t *notes = json_array();
    for (int k = 0; k < set->n_notes; k++)
        json_array_append_new(notes,
                              json_pack("{s:s,s:i,s:s}", "file", set->notes[k].source, "line",
                                        set->notes[k].line, "note", set->notes[k].text));
    json_t *all =
        json_pack("{s:s,s:i,s:O,s:O,s:O,s:O,s:o}", "program", "scalereport fit", "schema",
                  (int)SCHEMA, "curves", out->curves, "collectives", out->collectives,
                  "hierarchies", out->hierarchies, "refused", out->refused, "notes", notes);
    int failed = json_dumpf(all, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(all);
    return failed ? fail(FAIL_FILE, "fit: the JSON form could not be written: %s", strerror(errno))
                  : 0;
}

static int say_all(const struct fit_input *input, const struct options *asked,
                   const struct curve_fit_options *how)
{
    struct output out = {.asked = asked};
    const struct series *series;
    int rc = 0;
    out.curves = json_array();
    out.collectives = json_array();
    out.hierarchies = json_array();
    out.refused = json_array();
    for (int i = 0; rc == 0 && (series = fit_input_series(input, i)) != NULL; i++)
        rc = fit_series(&out, series, how);
    if (rc == 0) {
        fit_collectives(&out, &input->import.collectives);
        fit_collectives(&out, &input->calls);
    }
    if (rc == 0 && out.n_curves + out.n_collectives == 0)
        rc = out.n_refused > 0 ? fail(out.first_code, "%s", out.first)
                               : fail(FAIL_USAGE, "fit: no curve and no table of collectives was "
                                                  "found in what was named");
    if (rc == 0 && asked->json)
        rc = print_json(&out, &input->import.set);
    else if (rc == 0)
        print_rest(&out, input);
    json_decref(out.curves);
    json_decref(out.collectives);
    json_decref(out.hierarchies);
    json_decref(out.refused);
    return rc;
}

int command_fit(int argc, char **argv)
{
    char scaling[16], format[32];
    struct options asked;
    struct curve_fit_options how = {.seed = SEED};
    struct fit_input input = {0};
    bool help = false;
    int first = argc, rc;
    opt_defaults(options, N_OPTIONS, &asked);
    TRY(opt_argv(options, N_OPTIONS, &asked, argc, argv, &first, &help));
    if (help) {
        print_help();
        return 0;
    }
    if (asked.csv && asked.json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    if (first == argc)
        return fail(FAIL_USAGE, "fit: no file was named: scalereport fit FILE... (see --help)");
    TRY(read_laws(asked.law, &how.laws));
    TRY(read_sizes(asked.predict, &how));
    how.residual = asked.residuals == 0 ? FIT_RELATIVE : FIT_ABSOLUTE;
    how.unit = (enum regime_unit)asked.unit;
    opt_text(opt_find(options, N_OPTIONS, "scaling"), &asked, scaling, sizeof scaling);
    opt_text(opt_find(options, N_OPTIONS, "as"), &asked, format, sizeof format);
    struct import_options reading = {
        .map = asked.how.map, .format = format, .warm_up = asked.how.warm_up};
    TRY(fit_input_read(&input, argv + first, argc - first, &reading, asked.how.devices, scaling,
                       SEED));
    rc = say_all(&input, &asked, &how);
out:
    fit_input_release(&input);
    return rc;
}
