/*
 * scalereport import FILE...: tables and logs of others as curves. The same happens without the word
 * when the files are no study files.
 */
#include "analysis/command.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "analysis/import.h"
#include "analysis/import_group.h"
#include "analysis/report_series.h"
#include "base/err.h"
#include "base/opt.h"

struct asked {
    char map[1024], devices[1024];
    int format, scaling;
    int64_t warm_up;
    bool csv, json;
};

static const struct opt options[] = {
    {.name = "map",
     .type = OPT_TEXT,
     .offset = offsetof(struct asked, map),
     .size = sizeof((struct asked *)0)->map,
     .preset = "",
     .unit = "name=column,...",
     .help = "what the columns of a CSV file are: step_s=Iter time,gpus=N"},
    {.name = "as",
     .type = OPT_CHOICE,
     .offset = offsetof(struct asked, format),
     .size = sizeof(int),
     .preset = "auto",
     .choices = "auto|" IMPORT_FORMATS,
     .unit = "",
     .help = "format of the files"},
    {.name = "scaling",
     .type = OPT_CHOICE,
     .offset = offsetof(struct asked, scaling),
     .size = sizeof(int),
     .preset = "auto",
     .choices = "auto|strong|weak",
     .unit = "",
     .help = "what a table is that has neither a batch nor a column mode; otherwise it is checked"},
    {.name = "devices",
     .type = OPT_TEXT,
     .offset = offsetof(struct asked, devices),
     .size = sizeof((struct asked *)0)->devices,
     .preset = "",
     .unit = "N[,N...]",
     .help = "of logs that do not say how many they ran on: one for all, or one for each file"},
    {.name = "warm-up",
     .type = OPT_INT,
     .offset = offsetof(struct asked, warm_up),
     .size = sizeof(int64_t),
     .preset = "1",
     .min = 0,
     .max = 1e6,
     .unit = "samples",
     .help = "leading samples of a log that are left out at least"},
    {.name = "csv",
     .type = OPT_BOOL,
     .offset = offsetof(struct asked, csv),
     .size = sizeof(bool),
     .preset = "off",
     .unit = "",
     .help = "one line per point, full precision"},
    {.name = "json",
     .type = OPT_BOOL,
     .offset = offsetof(struct asked, json),
     .size = sizeof(bool),
     .preset = "off",
     .unit = "",
     .help = "series, tables of collectives and notes"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static void print_help(void)
{
    printf(
        "usage: scalereport import FILE... [--map ...] [--csv|--json]\n\n"
        "FILE is a CSV table, a log of Megatron-LM, torchtitan or llm.c, an MLPerf result log, or "
        "output of nccl-tests.\nLogs of one size are launches; logs of several sizes are a "
        "curve.\n\n");
    opt_help(options, N_OPTIONS, stdout);
}

static int print_import(const struct import *import, const struct asked *asked)
{
    struct report_series report;
    int rc = 0;
    report_series_open(&report, &import->set, &import->collectives);
    if (asked->json)
        rc = report_series_json(stdout, &report);
    else if (asked->csv)
        report_series_csv(stdout, &report);
    else
        report_series_text(stdout, &report);
    if (asked->csv) /* rows alone on stdout; what is wrong with them must not be lost */
        for (int i = 0; i < import->set.n_notes; i++)
            fprintf(stderr, "scalereport: %s:%d: %s\n", import->set.notes[i].source,
                    import->set.notes[i].line, import->set.notes[i].text);
    report_series_close(&report);
    return rc;
}

static int import_paths(char **paths, int n, const struct asked *asked)
{
    static const char *const modes[] = {"auto", "strong", "weak"};
    char format[32];
    struct import import = {0};
    int rc = 0;
    opt_text(opt_find(options, N_OPTIONS, "as"), asked, format, sizeof format);
    struct import_options import_options = {
        .map = asked->map, .format = format, .warm_up = asked->warm_up};
    if (asked->csv && asked->json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    if (n == 0)
        return fail(FAIL_USAGE, "import: no file was named (see scalereport import --help)");
    for (int i = 0; i < n; i++) {
        TRY(import_devices_of(asked->devices, i, n, &import_options.devices));
        TRY(import_file(&import, paths[i], &import_options));
    }
    TRY(import_group(&import, modes[asked->scaling]));
    rc = print_import(&import, asked);
out:
    import_release(&import);
    return rc;
}

int command_import_plain(char **paths, int n, bool csv, bool json)
{
    struct asked asked;
    opt_defaults(options, N_OPTIONS, &asked);
    asked.csv = csv;
    asked.json = json;
    return import_paths(paths, n, &asked);
}

int command_import(int argc, char **argv)
{
    struct asked asked;
    bool help = false;
    int first = argc;
    opt_defaults(options, N_OPTIONS, &asked);
    int rc = opt_argv(options, N_OPTIONS, &asked, argc, argv, &first, &help);
    if (rc != 0)
        return rc;
    if (help) {
        print_help();
        return 0;
    }
    return import_paths(argv + first, argc - first, &asked);
}
