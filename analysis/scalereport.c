/*
 * scalereport: reads study files and says what they say. No MPI, no device: it runs on a laptop.
 *
 *   scalereport FILE.h5... [--csv] [--json]     the curve
 *   scalereport WORD ...                        a command, one row of the table below
 *
 * Files of one study digest are launches of one study and are joined; others follow as studies of
 * their own. The result goes to stdout, one sentence about a failure to stderr.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_version.h>
#include <jansson.h>

#include "analysis/command.h"
#include "analysis/record.h"
#include "analysis/report.h"
#include "analysis/report_plot.h"
#include "analysis/report_work.h"
#include "analysis/studies.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/revision.h" /* made by cmake/revision.cmake */
#include "base/streams.h"

/* Of the resampling: the same files give the same report. */
enum { SEED = 1 };

struct options {
    bool csv, json, version;
    char plot[1024], title[256], samples[1024], goodput[1024], ceilings[1024];
    double work_tokens;
};

static const struct opt options[] = {
    {.name = "csv",
     .type = OPT_BOOL,
     .offset = offsetof(struct options, csv),
     .size = sizeof(bool),
     .preset = "off",
     .unit = "",
     .help = "one line per point, full precision"},
    {.name = "json",
     .type = OPT_BOOL,
     .offset = offsetof(struct options, json),
     .size = sizeof(bool),
     .preset = "off",
     .unit = "",
     .help = "the curve, its runs with blocks and axes, and the notes; versioned"},
    {.name = "plot",
     .type = OPT_TEXT,
     .offset = offsetof(struct options, plot),
     .size = sizeof(((struct options *)0)->plot),
     .preset = "",
     .unit = "F.svg|png|pdf",
     .help = "draw the curve with gnuplot, beside the report; the script stays as F.gnuplot"},
    {.name = "title",
     .type = OPT_TEXT,
     .offset = offsetof(struct options, title),
     .size = sizeof(((struct options *)0)->title),
     .preset = "",
     .unit = "TEXT",
     .help = "of the picture"},
    {.name = "work-tokens",
     .type = OPT_REAL,
     .offset = offsetof(struct options, work_tokens),
     .size = sizeof(double),
     .preset = "0",
     .min = 0,
     .max = OPT_NO_MAX,
     .unit = "T",
     .help = "add the time to train on T tokens (3e11), devices times hours, E_ttw; 0: none"},
    {.name = "samples-to-target",
     .type = OPT_TEXT,
     .offset = offsetof(struct options, samples),
     .size = sizeof(((struct options *)0)->samples),
     .preset = "",
     .unit = "B=S,...",
     .help = "the same by the samples that each global batch needs, linear between two"},
    {.name = "goodput",
     .type = OPT_TEXT,
     .offset = offsetof(struct options, goodput),
     .size = sizeof(((struct options *)0)->goodput),
     .preset = "",
     .unit = "PCT|N=PCT,...",
     .help = "share of that time in which steps run, for all or by devices"},
    {.name = "ceilings",
     .type = OPT_TEXT,
     .offset = offsetof(struct options, ceilings),
     .size = sizeof(((struct options *)0)->ceilings),
     .preset = "",
     .unit = "FILE.h5",
     .help = "floors of every kind of op and call, by what \"scalestudy calibrate\" wrote"},
    {.name = "version",
     .type = OPT_BOOL,
     .offset = offsetof(struct options, version),
     .size = sizeof(bool),
     .preset = "off",
     .unit = "",
     .help = "what this program was built with"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static const struct command commands[] = {
    {"record", command_record,
     "FILE.h5...: the batch and window contract, a JSON object per point and launch"},
    {"import", command_import, "FILE... [--map ...]: CSV, nccl-tests, training and MLPerf logs"},
    {"check", command_check,
     "whether the plans of all ranks of a layout fit together, and what they hold and send"},
    {"compare", command_compare,
     "FILE.h5...: what differs, then layouts ranked at equal work, and why"},
    {"schema", command_schema, "tables and columns of a study file"},
    {"fit", command_fit,
     "FILE...: laws of a curve, forecasts with intervals, alpha and B of collectives"},
    {"goodput", command_goodput,
     "[FILE.h5...]: what runs got out of wall time; what to expect, and how often to save"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const struct command *find_command(const char *word)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (word && strcmp(commands[i].word, word) == 0)
            return &commands[i];
    return NULL;
}

static void print_help(void)
{
    printf("usage: scalereport FILE.h5... [--csv|--json] [--plot F.svg]\n"
           "       scalereport TABLE.csv|LOG... [--csv|--json]\n");
    for (int i = 0; i < N_COMMANDS; i++)
        printf("       scalereport %-12s %s\n", commands[i].word, commands[i].usage);
    printf("\nA study is a file or its parts directory; files of one study are joined as launches. "
           "Each command has --help.\n\n"
           "  scalereport study.h5 --plot curve.svg           the curve, and its picture\n"
           "  scalereport a.h5 b.h5 c.h5                      three launches: intervals between "
           "them\n"
           "  scalereport fit a.h5 b.h5 c.h5 --predict 64     laws, and 64 devices with an "
           "interval\n"
           "  scalereport table.csv                           a table: gpus, step_s, global_batch\n"
           "  scalereport import 8.log 16.log --devices 8,16  training logs of two sizes\n"
           "  scalereport fit all_reduce.txt                  alpha and B from output of "
           "nccl-tests\n\n");
    opt_help(options, N_OPTIONS, stdout);
}

static void print_version(void)
{
    printf("scalereport %s\n", SCALESTUDY_VERSION);
    printf("revision %s\n", SCALESTUDY_REVISION);
    printf("file schema %d\n", RECORD_SCHEMA);
    printf("json schema %d\n", REPORT_SCHEMA);
    printf("gsl %s\n", gsl_version);
    printf("jansson %s\n", jansson_version_str());
}

static int print_reports(const struct studies *studies, const struct options *asked)
{
    if (asked->csv)
        report_csv(stdout, studies->reports, studies->n);
    else if (asked->json)
        return report_json(stdout, studies->reports, studies->n);
    for (int i = 0; i < studies->n && !asked->csv; i++) {
        if (i > 0)
            printf("\n");
        report_text(stdout, &studies->reports[i]);
    }
    return 0;
}

/* A plain file that neither is HDF5 nor is named like a study. */
static bool is_table(const char *path)
{
    char head[4] = "";
    size_t length = strlen(path);
    FILE *file = length > 3 && strcmp(path + length - 3, ".h5") == 0 ? NULL : fopen(path, "rb");
    if (file == NULL)
        return false;
    size_t n = fread(head, 1, sizeof head, file);
    bool readable = n > 0 || !ferror(file); /* a folder is not */
    fclose(file);
    return readable && memcmp(head, "\x89HDF", 4) != 0;
}

/* "" reads nothing. */
static int read_ceilings(struct record_file *out, const char *path)
{
    int rc = 0;
    if (path[0] == '\0')
        return 0;
    TRY(record_read(out, path));
    if (out->head.n_ceilings == 0)
        rc = fail(FAIL_USAGE,
                  "--ceilings: %s has none: wanted a file that \"scalestudy calibrate\" wrote",
                  path);
out:
    return rc;
}

/* Times of other arithmetic, or of another device, bound nothing here. */
static int ceilings_fit(const struct record_head *ceilings, const char *path,
                        const struct report *report)
{
    const struct record_head *study = &report->files[0]->head;
    const char *theirs = record_head_get(ceilings, "study", "dtype");
    const char *ours = record_head_get(study, "study", "dtype");
    if (theirs != NULL && ours != NULL && strcmp(theirs, ours) != 0)
        return fail(FAIL_USAGE,
                    "--ceilings: %s was measured in %s, %s is in %s: calibrate with -d %s", path,
                    theirs, report->files[0]->path, ours, ours);
    if (ceilings->n_ranks == 0 || study->n_ranks == 0)
        return 0;
    theirs = ceilings->ranks[0].device;
    ours = study->ranks[0].device;
    if (strncmp(theirs, ours, sizeof study->ranks[0].device) != 0)
        return fail(FAIL_USAGE, "--ceilings: %s was measured on %.64s, %s on %.64s", path,
                    theirs[0] != '\0' ? theirs : "the CPU", report->files[0]->path,
                    ours[0] != '\0' ? ours : "the CPU");
    return 0;
}

static int report_files(char **paths, int n, const struct options *asked)
{
    struct studies studies = {0};
    struct record_file calibration = {0};
    struct report_work work;
    int rc;
    if (asked->csv && asked->json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    if (n == 0)
        return fail(FAIL_USAGE, "no study file was named: scalereport FILE.h5 (see --help)");
    int tables = 0;
    for (int i = 0; i < n; i++)
        tables += is_table(paths[i]);
    if (tables > 0 && (tables < n || asked->plot[0] != '\0'))
        return fail(FAIL_USAGE, "%s",
                    tables < n ? "study files and tables in one call: report "
                                 "them one after the other"
                               : "--plot draws study files, and a table was named");
    if (tables > 0)
        return command_import_plain(paths, n, asked->csv, asked->json);
    if (asked->plot[0] != '\0')
        TRY(report_plot_check(asked->plot));
    TRY(report_work_parse(&work, asked->work_tokens, asked->samples, asked->goodput));
    TRY(read_ceilings(&calibration, asked->ceilings));
    TRY(studies_read(&studies, paths, n, SEED));
    for (int i = 0; i < studies.n; i++) {
        studies.reports[i].work = &work;
        studies.reports[i].ceilings = asked->ceilings[0] != '\0' ? &calibration.head : NULL;
        TRY(report_work_check(&work, &studies.reports[i]));
        if (asked->ceilings[0] != '\0')
            TRY(ceilings_fit(&calibration.head, asked->ceilings, &studies.reports[i]));
    }
    TRY(print_reports(&studies, asked));
    if (asked->plot[0] != '\0')
        TRY(report_plot(studies.reports, studies.n, asked->plot, asked->title));
out:
    studies_release(&studies);
    record_file_release(&calibration);
    return rc;
}

static int run(int argc, char **argv)
{
    struct options asked;
    bool help = false;
    int first = argc, rc;
    const struct command *command = find_command(argc > 1 ? argv[1] : NULL);
    if (command) {
        rc = command->run(argc - 1, argv + 1);
        return rc != 0 ? rc : streams_written("the report", NULL);
    }
    opt_defaults(options, N_OPTIONS, &asked);
    rc = opt_argv(options, N_OPTIONS, &asked, argc, argv, &first, &help);
    if (rc != 0)
        return rc;
    if (help)
        print_help();
    else if (asked.version)
        print_version();
    else
        rc = report_files(argv + first, argc - first, &asked);
    return rc != 0 ? rc : streams_written("the report", NULL);
}

int main(int argc, char **argv)
{
    streams_hold();
    int rc = run(argc, argv);
    if (rc != 0)
        fprintf(stderr, "scalereport: %s\n", fail_message());
    return rc;
}
