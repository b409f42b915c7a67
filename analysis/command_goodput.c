/*
 * scalereport goodput: what runs got out of their wall time, and what can be expected under a failure
 * law that is stated.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/command.h"
#include "analysis/gnuplot.h"
#include "analysis/goodput_report.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/units.h"
#include "topologies/topology.h"

enum { SEED = 1, PLANS = 32 };

struct options {
    char mtbf[128], failures[32], exposure[96], nodes[256], interval[256], mode[16];
    char blocked[32], complete[32], detect[32], restart[32], step_time[32], run_time[32];
    char bytes[32], node_bandwidth[32], shared_bandwidth[32], plot[1024], title[256];
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

/* ---- what was asked ---- */

/* NaN when not given; `above`: 0 is refused. */
static int read_time(double *out, const char *option, const char *text, bool above)
{
    *out = NAN;
    if (text[0] == '\0')
        return 0;
    if (units_parse_seconds(text, out) != 0 || (above && !(*out > 0.0)))
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
    if (*n == 0)
        return 0;
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
    int64_t steps;
    out->n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        bool is_steps = units_parse_int(word, &steps) == 0;
        double value = (double)steps;
        if ((!is_steps && units_parse_seconds(word, &value) != 0) || !(value > 0.0) ||
            out->n == GOODPUT_ASKED)
            return fail(FAIL_USAGE,
                        "--interval: found \"%s\", wanted up to %d of steps (500) or seconds (30m)",
                        word, (int)GOODPUT_ASKED);
        out->is_steps[out->n] = is_steps;
        out->value[out->n++] = value;
    }
    return 0;
}

/* ---- the run that is planned ---- */

static double longest_run(const struct goodput_study *study)
{
    double longest = NAN;
    for (int i = 0; i < study->n_points; i++)
        if (study->points[i].run.there)
            longest = fmax(longest, study->points[i].run.wall_s);
    return longest;
}

static int check_interval(const struct goodput_report *report, const char *name, double seconds)
{
    char run[32];
    goodput_duration(run, sizeof run, report->run_s);
    if (seconds > report->run_s)
        return fail(FAIL_USAGE,
                    "--interval: %s is longer than the run of %s: no save would be in it; give a "
                    "shorter one, or --run-time for a longer run",
                    name, run);
    return 0;
}

/* Steps count as long as the step of the node count that they are planned for. */
static int check_intervals(const struct goodput_report *report, const struct goodput_asked *asked)
{
    int rc = 0;
    for (int p = 0; p < report->n_plans; p++)
        for (int r = 0; r < report->plans[p].n_rows; r++)
            for (int i = 0; i < asked->n && rc == 0; i++) {
                char name[48];
                double step = report->plans[p].rows[r].at.step.x.value;
                snprintf(name, sizeof name, "%.6g %s", asked->value[i],
                         asked->is_steps[i] ? "steps" : "s");
                rc =
                    check_interval(report, name, asked->value[i] * (asked->is_steps[i] ? step : 1));
            }
    return rc;
}

/* ---- plans ---- */

struct job {
    struct goodput_law law;
    struct goodput_given given;
    struct goodput_asked intervals;
    struct goodput_study study;
    struct goodput_plan plans[PLANS];
    struct goodput_report report;
    double nodes[GOODPUT_COUNTS + 2];
    int n_nodes;
};

static void add_plan(struct job *job, int kind, const char *mode, const struct options *asked)
{
    struct goodput_known known;
    double nodes[GOODPUT_COUNTS + 2];
    int n = job->n_nodes;
    memcpy(nodes, job->nodes, sizeof nodes);
    if (n == 0) {
        n = goodput_node_counts(&job->study, kind, nodes, GOODPUT_COUNTS);
        nodes[n] = 2.0 * nodes[n - 1];
        nodes[n + 1] = 4.0 * nodes[n - 1];
        n += 2;
    }
    if (job->report.n_plans == PLANS)
        return;
    goodput_known_init(&known, &job->study, kind, mode, &job->given, SEED);
    if (kind < 0 && asked->ranks_per_node > 0)
        known.ranks_per_node = (int)asked->ranks_per_node;
    goodput_plan_make(&job->plans[job->report.n_plans++], &known, &job->law, nodes, n,
                      &job->intervals);
}

static int refuse_mode(const char *mode, char modes[][16], int n)
{
    char list[GOODPUT_MODES * 18] = "";
    for (int i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? "," : "",
                 modes[i]);
    return fail(FAIL_USAGE, "--mode: nothing was saved in mode \"%s\"; there is %s", mode,
                n > 0 ? list : "none");
}

static int plan_kind(struct job *job, int kind, const struct options *asked)
{
    char modes[GOODPUT_MODES][16];
    int n = goodput_modes(&job->study, kind, modes), before = job->report.n_plans;
    for (int m = 0; m < n; m++)
        if (asked->mode[0] == '\0' || strcmp(asked->mode, modes[m]) == 0)
            add_plan(job, kind, modes[m], asked);
    if (job->report.n_plans > before)
        return 0;
    if (asked->mode[0] != '\0')
        return refuse_mode(asked->mode, modes, n);
    add_plan(job, kind, "", asked);
    return 0;
}

static int plan_all(struct job *job, const struct options *asked)
{
    int rc = 0;
    if (job->study.n_kinds == 0)
        add_plan(job, -1, "", asked);
    for (int k = 0; k < job->study.n_kinds && rc == 0; k++)
        rc = plan_kind(job, k, asked);
    return rc;
}

/* Without a file everything is an option. */
static int check_bare(const struct job *job, const struct options *asked, int n_files)
{
    if (n_files > 0)
        return 0;
    if (job->law.kind == LAW_NONE || job->n_nodes == 0)
        return fail(FAIL_USAGE, "no study file was named: scalereport goodput FILE.h5, or --mtbf, "
                                "--nodes and --blocked for a plan without one (see --help)");
    if (job->law.of == LAW_OF_DEVICE && asked->ranks_per_node == 0)
        return fail(FAIL_USAGE, "a law of a device needs --ranks-per-node where no file says it");
    if (isnan(job->given.node_per_s) && isnan(job->given.blocked_s) && isnan(job->given.complete_s))
        return fail(FAIL_USAGE, "nothing says what a save costs: --blocked and --complete, or "
                                "--bytes and --node-bandwidth");
    if (isnan(job->given.complete_s) && isfinite(job->given.node_per_s) && isnan(job->given.bytes))
        return fail(FAIL_USAGE, "--node-bandwidth needs --bytes where no file has a save");
    return 0;
}

static int read_options(struct job *job, const struct options *asked)
{
    int rc;
    if (asked->csv && asked->json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    TRY(goodput_law_parse(&job->law, asked->mtbf, asked->failures, asked->exposure));
    TRY(read_given(&job->given, asked));
    TRY(read_nodes(job->nodes, &job->n_nodes, asked->nodes));
    TRY(read_intervals(&job->intervals, asked->interval));
    TRY(read_time(&job->report.run_s, "run-time", asked->run_time, true));
    if (asked->plot[0] != '\0')
        TRY(gnuplot_check(asked->plot));
out:
    return rc;
}

static int print_report(struct job *job, const struct options *asked)
{
    int rc = 0;
    if (asked->json)
        TRY(goodput_json(stdout, &job->report));
    else if (asked->csv)
        goodput_csv(stdout, &job->report);
    else
        goodput_text(stdout, &job->report);
    if (asked->plot[0] != '\0')
        TRY(goodput_plot(&job->report, asked->plot, asked->title));
out:
    return rc;
}

int command_goodput(int argc, char **argv)
{
    struct options asked;
    struct job *job = must_alloc(1, sizeof *job);
    bool help = false;
    int first = argc, rc;
    opt_defaults(options, N_OPTIONS, &asked);
    TRY(opt_argv(options, N_OPTIONS, &asked, argc, argv, &first, &help));
    if (help) {
        print_help();
        goto out;
    }
    TRY(read_options(job, &asked));
    TRY(check_bare(job, &asked, argc - first));
    TRY(goodput_study_read(&job->study, argv + first, argc - first, SEED));
    job->report.study = &job->study;
    job->report.law = &job->law;
    job->report.plans = job->plans;
    job->report.seed = SEED;
    if (isnan(job->report.run_s))
        job->report.run_s = longest_run(&job->study);
    TRY(plan_all(job, &asked));
    TRY(check_intervals(&job->report, &job->intervals));
    goodput_notes_find(&job->report);
    TRY(print_report(job, &asked));
out:
    for (int i = 0; i < job->report.n_plans; i++)
        goodput_plan_release(&job->plans[i]);
    goodput_study_release(&job->study);
    free(job);
    return rc;
}
