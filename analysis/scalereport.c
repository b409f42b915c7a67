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
#include "analysis/scaling.h"
#include "base/err.h"
#include "base/opt.h"

/* Of the resampling: the same files give the same report. */
enum { SEED = 1 };

struct options {
    bool csv, json, version;
    char plot[1024], title[256];
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
    {"schema", command_schema, "tables and columns of a study file"},
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
    printf("usage: scalereport FILE.h5... [--csv|--json]\n");
    for (int i = 0; i < N_COMMANDS; i++)
        printf("       scalereport %-12s %s\n", commands[i].word, commands[i].usage);
    printf("\nFILE is a study file or its parts directory. Files of one study are joined as "
           "launches.\n\n");
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

/* Everything read and derived; zeroed and releasable at any time. */
struct work {
    int n_files, n_reports;
    struct record_file *files;          /* [n_files] */
    const struct record_file **grouped; /* [n_files] the same, by study */
    struct scaling *scalings;           /* [n_reports] */
    struct report *reports;             /* [n_reports] */
};

static void work_release(struct work *work)
{
    for (int i = 0; i < work->n_reports; i++)
        scaling_release(&work->scalings[i]);
    for (int i = 0; i < work->n_files; i++)
        record_file_release(&work->files[i]);
    free(work->files);
    free(work->grouped);
    free(work->scalings);
    free(work->reports);
    *work = (struct work){0};
}

static bool same_study(const struct record_file *a, const struct record_file *b)
{
    return strcmp(a->head.study_digest, b->head.study_digest) == 0;
}

static int read_files(struct work *work, char **paths, int n)
{
    work->files = must_alloc((size_t)n, sizeof *work->files);
    for (int i = 0; i < n; i++) {
        int rc = record_read(&work->files[i], paths[i]);
        if (rc != 0)
            return rc;
        work->n_files++;
        for (int j = 0; j < i; j++)
            if (same_study(&work->files[i], &work->files[j]) &&
                work->files[i].head.t0_unix_ns == work->files[j].head.t0_unix_ns)
                return fail(FAIL_USAGE,
                            "%s and %s hold the same launch: it would count twice; give one of "
                            "them",
                            paths[j], paths[i]);
    }
    return 0;
}

/* Files of one study side by side, studies in the order in which they were first named. */
static void group_files(struct work *work)
{
    int n = 0;
    work->grouped = must_alloc((size_t)work->n_files, sizeof *work->grouped);
    work->reports = must_alloc((size_t)work->n_files, sizeof *work->reports);
    for (int i = 0; i < work->n_files; i++) {
        int earlier = 0;
        while (earlier < i && !same_study(&work->files[earlier], &work->files[i]))
            earlier++;
        if (earlier < i)
            continue;
        struct report *report = &work->reports[work->n_reports++];
        *report = (struct report){.files = work->grouped + n, .seed = SEED};
        for (int j = i; j < work->n_files; j++)
            if (same_study(&work->files[i], &work->files[j])) {
                work->grouped[n++] = &work->files[j];
                report->n_files++;
            }
    }
}

static int analyse(struct work *work)
{
    group_files(work);
    work->scalings = must_alloc((size_t)work->n_reports, sizeof *work->scalings);
    for (int i = 0; i < work->n_reports; i++) {
        struct report *report = &work->reports[i];
        int rc = scaling_init(&work->scalings[i], report->files, report->n_files, SEED);
        if (rc != 0)
            return rc;
        report->scaling = &work->scalings[i];
    }
    return 0;
}

static int print_reports(const struct work *work, const struct options *asked)
{
    if (asked->csv)
        report_csv(stdout, work->reports, work->n_reports);
    else if (asked->json)
        return report_json(stdout, work->reports, work->n_reports);
    for (int i = 0; i < work->n_reports && !asked->csv; i++) {
        if (i > 0)
            printf("\n");
        report_text(stdout, &work->reports[i]);
    }
    return 0;
}

static int flush_output(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return fail(FAIL_FILE, "the report could not be written to standard output: %s",
                    strerror(errno));
    return 0;
}

static int report_files(char **paths, int n, const struct options *asked)
{
    struct work work = {0};
    int rc;
    if (asked->csv && asked->json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    if (n == 0)
        return fail(FAIL_USAGE, "no study file was named: scalereport FILE.h5 (see --help)");
    if (asked->plot[0] != '\0')
        TRY(report_plot_check(asked->plot));
    TRY(read_files(&work, paths, n));
    TRY(analyse(&work));
    TRY(print_reports(&work, asked));
    if (asked->plot[0] != '\0')
        TRY(report_plot(work.reports, work.n_reports, asked->plot, asked->title));
out:
    work_release(&work);
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
        return rc != 0 ? rc : flush_output();
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
    return rc != 0 ? rc : flush_output();
}

int main(int argc, char **argv)
{
    int rc = run(argc, argv);
    if (rc != 0)
        fprintf(stderr, "scalereport: %s\n", fail_message());
    return rc;
}
