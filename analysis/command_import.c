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
#include "analysis/import_choice.h"
#include "analysis/import_group.h"
#include "analysis/report_series.h"
#include "base/err.h"
#include "base/opt.h"

struct asked {
    struct import_choice how;
    bool csv, json;
};

#define AT(field) offsetof(struct asked, field), sizeof(((struct asked *)0)->field)
#define HOW_AT(field) AT(how.field)

static const struct opt options[] = {
    IMPORT_OPTIONS(HOW_AT),
    {"csv", 0, OPT_BOOL, AT(csv), "off", 0, 0, NULL, "", "one line per point, full precision"},
    {"json", 0, OPT_BOOL, AT(json), "off", 0, 0, NULL, "",
     "series, tables of collectives and notes"},
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
        .map = asked->how.map, .format = format, .warm_up = asked->how.warm_up};
    if (asked->csv && asked->json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    if (n == 0)
        return fail(FAIL_USAGE, "import: no file was named (see scalereport import --help)");
    for (int i = 0; i < n; i++) {
        TRY(import_devices_of(asked->how.devices, i, n, &import_options.devices));
        TRY(import_file(&import, paths[i], &import_options));
    }
    TRY(import_group(&import, modes[asked->how.scaling]));
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
