#include "analysis/command_goodput_ask.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/command_argv.h"
#include "analysis/gnuplot.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/units.h"
#include "topologies/topology.h"

struct options {
    char mtbf[128], failures[32], exposure[96], nodes[256], interval[256], mode[16];
    char blocked[32], complete[32], detect[32], restart[32], step_time[32], run_time[32];
    char local_blocked[32], local_share[32], bytes[32], node_bandwidth[32], shared_bandwidth[32];
    char plot[1024], title[256];
    int64_t ranks_per_node;
    bool csv, json;
};

#define ROW(field_name, field, kind, text, what, words)                                            \
    {                                                                                              \
        .name = field_name, .type = kind, .offset = offsetof(struct options, field),               \
        .size = sizeof(((struct options *)0)->field), .preset = text, .unit = what, .help = words  \
    }
static const struct opt options[] = {
    ROW("mtbf", mtbf, OPT_TEXT, "", "T/node|LO:HI/node",
        "failure law: mean time between failures (s, m, h, d) of a node, device or job"),
    ROW("failures", failures, OPT_TEXT, "", "K",
        "failure law: failures that were counted, with --exposure; 95 % chi-square interval"),
    ROW("exposure", exposure, OPT_TEXT, "", "T/node", "all the node, device or job time watched"),
    ROW("nodes", nodes, OPT_TEXT, "", "N,...",
        "to plan for; without it those measured, and 2 and 4 times the largest"),
    ROW("interval", interval, OPT_TEXT, "", "STEPS|SECONDS,...",
        "more intervals between saves to look at: steps (500) or seconds (30m)"),
    ROW("mode", mode, OPT_TEXT, "", "NAME", "of checkpoints; without it all that were measured"),
    ROW("blocked", blocked, OPT_TEXT, "", "T", "assume that a save costs this: d_b"),
    ROW("complete", complete, OPT_TEXT, "", "T", "assume that it is published after this: d_c"),
    ROW("detect", detect, OPT_TEXT, "", "T", "assume that a failure is known after this: D"),
    ROW("restart", restart, OPT_TEXT, "", "T", "assume this from there to the first new step: R"),
    ROW("step-time", step_time, OPT_TEXT, "", "T", "assume this for a step"),
    ROW("bytes", bytes, OPT_TEXT, "", "120GB",
        "assume this for a save of all ranks; without it as measured, or 12 B a parameter"),
    ROW("node-bandwidth", node_bandwidth, OPT_TEXT, "", "2.5GB/s",
        "assume that a node writes at this rate"),
    ROW("shared-bandwidth", shared_bandwidth, OPT_TEXT, "", "40GB/s",
        "assume that all nodes together write no faster"),
    ROW("local-blocked", local_blocked, OPT_TEXT, "", "T",
        "assume a first level of saves that costs this, in memory or on disks of nodes"),
    ROW("local-share", local_share, OPT_TEXT, "", "P%",
        "share of the failures that it survives, above 0 % and below 100 %"),
    {.name = "ranks-per-node",
     .type = OPT_INT,
     .offset = offsetof(struct options, ranks_per_node),
     .size = sizeof(int64_t),
     .preset = "0",
     .min = 0,
     .max = 4096,
     .unit = "",
     .help = "devices of a node where no file says so"},
    ROW("run-time", run_time, OPT_TEXT, "", "T",
        "how long the planned run is; without it the longest run in the files"),
    ROW("csv", csv, OPT_BOOL, "off", "", "a line per run, and per node count and interval"),
    ROW("json", json, OPT_BOOL, "off", "", "the same as one object; versioned"),
    ROW("plot", plot, OPT_TEXT, "", "F.svg|png|pdf",
        "draw it with gnuplot, beside the report; the script stays as F.gnuplot"),
    ROW("title", title, OPT_TEXT, "", "TEXT", "of the picture"),
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static void print_help(void)
{
    printf("usage: scalereport goodput [FILE.h5...] [options]\n\n"
           "What runs (scalestudy --run-steps) got out of their wall time, by bucket; and, under a "
           "failure law that you\nstate, what to expect on N nodes and how often to save. "
           "Without files all costs are options.\n\n"
           "  scalereport goodput run.h5                                   what was measured\n"
           "  scalereport goodput run.h5 --mtbf 20d:60d/node               and expected\n"
           "  scalereport goodput run.h5 --failures 3 --exposure 900d/node --nodes 64,256\n"
           "  scalereport goodput --mtbf 6h/job --nodes 2048 --blocked 6s --complete 149s --detect "
           "60s --restart 5m\n\n");
    opt_help(options, N_OPTIONS, stdout);
}

/* ---- numbers with units ---- */

static const double longest_s = 1e12; /* 30,000 years */
static const double most_share = 0.9999;

/* NaN when not given; `above`: 0 is refused. */
static int read_time(double *out, const char *option, const char *text, bool above)
{
    size_t length = strlen(text);
    *out = NAN;
    if (length == 0)
        return 0;
    if (!isalpha((unsigned char)text[length - 1]) && strspn(text, "0123456789.") == length)
        return fail(FAIL_USAGE, "--%s: \"%s\" has no unit of time, wanted one such as 90s or 5m",
                    option, text);
    if (units_parse_seconds(text, out) != 0 || (above && !(*out > 0.0)) || *out > longest_s)
        return fail(FAIL_USAGE, "--%s: found \"%s\", wanted a time %s such as 90s or 5m", option,
                    text, above ? "above 0" : "from 0");
    return 0;
}

static int read_fact(double *out, const char *option, const char *text, enum fact_unit unit)
{
    *out = NAN;
    if (text[0] == '\0')
        return 0;
    if (fact_parse(text, unit, out) != 0)
        return fail(FAIL_USAGE, "--%s: found \"%s\", wanted %s above 0 with its unit such as %s",
                    option, text, unit == UNIT_RATE ? "a rate" : "a size",
                    unit == UNIT_RATE ? "2.5GB/s" : "120GB");
    return 0;
}

static int read_levels(struct goodput_given *out, const struct options *asked)
{
    bool costs = asked->local_blocked[0] != '\0', survives = asked->local_share[0] != '\0';
    int rc = 0;
    out->local_share = NAN;
    TRY(read_time(&out->local_s, "local-blocked", asked->local_blocked, true));
    if (survives && (units_parse_share(asked->local_share, &out->local_share) != 0 ||
                     !(out->local_share > 0.0) || out->local_share > most_share))
        return fail(FAIL_USAGE,
                    "--local-share: found \"%s\", wanted a share of the failures above 0 %% and up "
                    "to %g %%, such as 60%%",
                    asked->local_share, 100.0 * most_share);
    if (costs != survives)
        rc = fail(FAIL_USAGE,
                  "%s was given without %s: a level of saves has a cost and a share of "
                  "the failures that it survives",
                  costs ? "--local-blocked" : "--local-share",
                  costs ? "--local-share (60%)" : "--local-blocked (0.5s)");
out:
    return rc;
}

static int read_given(struct goodput_given *out, const struct options *asked)
{
    int rc;
    TRY(read_time(&out->blocked_s, "blocked", asked->blocked, false));
    TRY(read_time(&out->complete_s, "complete", asked->complete, false));
    TRY(read_time(&out->detect_s, "detect", asked->detect, false));
    TRY(read_time(&out->restart_s, "restart", asked->restart, false));
    TRY(read_time(&out->step_s, "step-time", asked->step_time, true));
    TRY(read_fact(&out->bytes, "bytes", asked->bytes, UNIT_BYTES));
    TRY(read_fact(&out->node_per_s, "node-bandwidth", asked->node_bandwidth, UNIT_RATE));
    TRY(read_fact(&out->shared_per_s, "shared-bandwidth", asked->shared_bandwidth, UNIT_RATE));
    TRY(read_levels(out, asked));
    if (out->complete_s < out->blocked_s)
        return fail(FAIL_USAGE,
                    "--complete %s is less than --blocked %s: a save is published after it "
                    "stops blocking",
                    asked->complete, asked->blocked);
    if (isfinite(out->shared_per_s) && isnan(out->node_per_s))
        return fail(FAIL_USAGE, "--shared-bandwidth was given without --node-bandwidth");
out:
    return rc;
}

/* ---- lists ---- */

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* "1,2,4": ascending, each once. */
static int read_nodes(double *out, int *n, const char *text)
{
    char copy[256], *rest = NULL;
    int64_t value;
    int kept = 0;
    *n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (units_parse_int(word, &value) != 0 || value < 1 || *n == GOODPUT_COUNTS)
            return fail(FAIL_USAGE, "--nodes: found \"%s\", wanted up to %d numbers from 1, 8,64",
                        word, (int)GOODPUT_COUNTS);
        out[(*n)++] = (double)value;
    }
    if (*n == 0 && text[0] != '\0')
        return fail(FAIL_USAGE, "--nodes: found \"%s\", wanted numbers from 1, 8,64", text);
    qsort(out, (size_t)*n, sizeof *out, by_value);
    for (int i = 0; i < *n; i++)
        if (kept == 0 || out[kept - 1] != out[i])
            out[kept++] = out[i];
    *n = kept;
    return 0;
}

static int read_intervals(struct goodput_asked *out, const char *text)
{
    char copy[256], *rest = NULL;
    int64_t steps = 0;
    out->n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        bool is_steps = units_parse_int(word, &steps) == 0;
        double value = (double)steps;
        if ((!is_steps && units_parse_seconds(word, &value) != 0) || !(value > 0.0) ||
            value > longest_s || out->n == GOODPUT_ASKED)
            return fail(FAIL_USAGE,
                        "--interval: found \"%s\", wanted up to %d of steps (500) or seconds (30m)",
                        word, (int)GOODPUT_ASKED);
        out->is_steps[out->n] = is_steps;
        out->value[out->n++] = value;
    }
    if (out->n == 0 && text[0] != '\0')
        return fail(FAIL_USAGE, "--interval: found \"%s\", wanted steps (500) or seconds (30m)",
                    text);
    return 0;
}

/* ---- what makes no sense together ---- */

/* What nobody would look at. */
static int check_law(const struct goodput_ask *ask, const struct options *asked)
{
    const struct {
        const char *name;
        bool given;
    } plans[] = {{"nodes", ask->n_nodes > 0},
                 {"interval", ask->intervals.n > 0},
                 {"blocked", asked->blocked[0] != '\0'},
                 {"complete", asked->complete[0] != '\0'},
                 {"detect", asked->detect[0] != '\0'},
                 {"restart", asked->restart[0] != '\0'},
                 {"step-time", asked->step_time[0] != '\0'},
                 {"bytes", asked->bytes[0] != '\0'},
                 {"node-bandwidth", asked->node_bandwidth[0] != '\0'},
                 {"local-blocked", asked->local_blocked[0] != '\0'},
                 {"run-time", asked->run_time[0] != '\0'}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        if (ask->law.kind == LAW_NONE && plans[i].given)
            return fail(FAIL_USAGE,
                        "--%s is about a plan, and a plan needs a failure law: give --mtbf "
                        "40d/node, or --failures k --exposure 4000d/node",
                        plans[i].name);
    return 0;
}

static int take(struct goodput_ask *out, const struct options *asked)
{
    int rc;
    out->csv = asked->csv;
    out->json = asked->json;
    out->ranks_per_node = (int)asked->ranks_per_node;
    memcpy(out->mode, asked->mode, sizeof out->mode);
    memcpy(out->plot, asked->plot, sizeof out->plot);
    memcpy(out->title, asked->title, sizeof out->title);
    if (asked->csv && asked->json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    TRY(goodput_law_parse(&out->law, asked->mtbf, asked->failures, asked->exposure));
    TRY(read_given(&out->given, asked));
    TRY(read_nodes(out->nodes, &out->n_nodes, asked->nodes));
    TRY(read_intervals(&out->intervals, asked->interval));
    TRY(read_time(&out->run_s, "run-time", asked->run_time, true));
    if (asked->plot[0] != '\0')
        TRY(gnuplot_check(asked->plot));
out:
    return rc;
}

int goodput_ask_read(struct goodput_ask *out, int argc, char **argv, int *first_operand)
{
    struct options asked;
    int rc;
    *out = (struct goodput_ask){0};
    opt_defaults(options, N_OPTIONS, &asked);
    TRY(command_argv_once(options, N_OPTIONS, argc, argv));
    TRY(command_argv_not_empty(options, N_OPTIONS, argc, argv));
    TRY(opt_argv(options, N_OPTIONS, &asked, argc, argv, first_operand, &out->help));
    if (out->help) {
        print_help();
        return 0;
    }
    TRY(take(out, &asked));
    if (argc > *first_operand || out->n_nodes == 0) /* without files, the sentence about files */
        TRY(check_law(out, &asked));
    if (argc > *first_operand && out->ranks_per_node > 0)
        rc = fail(FAIL_USAGE, "--ranks-per-node is for a plan without files: they say it");
out:
    return rc;
}
