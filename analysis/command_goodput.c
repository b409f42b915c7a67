/*
 * scalereport goodput: what runs got out of their wall time, and what can be expected under a failure
 * law that is stated.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/command.h"
#include "analysis/command_goodput_ask.h"
#include "analysis/goodput_report.h"
#include "base/err.h"
#include "base/units.h"

enum { SEED = 1, PLANS = 32 };

struct job {
    struct goodput_ask ask;
    struct goodput_study study;
    struct goodput_plan plans[PLANS];
    struct goodput_report report;
};

/* ---- plans ---- */

static void add_plan(struct job *job, int kind, const char *mode)
{
    struct goodput_known known;
    double nodes[GOODPUT_COUNTS + 2];
    int n = job->ask.n_nodes;
    memcpy(nodes, job->ask.nodes, sizeof job->ask.nodes);
    if (n == 0) {
        n = goodput_node_counts(&job->study, kind, nodes, GOODPUT_COUNTS);
        nodes[n] = 2.0 * nodes[n - 1];
        nodes[n + 1] = 4.0 * nodes[n - 1];
        n += 2;
    }
    if (job->report.n_plans == PLANS)
        return;
    goodput_known_init(&known, &job->study, kind, mode, &job->ask.given, SEED);
    if (kind < 0 && job->ask.ranks_per_node > 0)
        known.ranks_per_node = job->ask.ranks_per_node;
    goodput_plan_make(&job->plans[job->report.n_plans++], &known, &job->ask.law, nodes, n,
                      &job->ask.intervals);
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

static int plan_kind(struct job *job, int kind)
{
    char modes[GOODPUT_MODES][16];
    const char *mode = job->ask.mode;
    int n = goodput_modes(&job->study, kind, modes), before = job->report.n_plans;
    for (int m = 0; m < n; m++)
        if (mode[0] == '\0' || strcmp(mode, modes[m]) == 0)
            add_plan(job, kind, modes[m]);
    if (job->report.n_plans > before)
        return 0;
    if (mode[0] != '\0')
        return refuse_mode(mode, modes, n);
    add_plan(job, kind, "");
    return 0;
}

static int plan_all(struct job *job)
{
    int rc = 0;
    if (job->study.n_kinds == 0)
        add_plan(job, -1, "");
    for (int k = 0; k < job->study.n_kinds && rc == 0; k++)
        rc = plan_kind(job, k);
    return rc;
}

/* ---- what the plans themselves refuse ---- */

static double longest_run(const struct goodput_study *study)
{
    double longest = NAN;
    for (int i = 0; i < study->n_points; i++)
        if (study->points[i].run.there)
            longest = fmax(longest, study->points[i].run.wall_s);
    return longest;
}

static int check_length(const struct goodput_report *report, const char *name, double seconds)
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
static int check_interval(const struct goodput_report *report, double value, bool is_steps)
{
    char name[48];
    int known = 0, planned = 0, rc = 0;
    snprintf(name, sizeof name, "%.6g %s", value, is_steps ? "steps" : "s");
    for (int p = 0; p < report->n_plans; p++)
        for (int r = 0; r < report->plans[p].n_rows && rc == 0; r++) {
            double step = report->plans[p].rows[r].at.step.x.value;
            planned += report->plans[p].rows[r].planned;
            known += report->plans[p].rows[r].planned && (!is_steps || step > 0.0);
            rc = check_length(report, name, value * (is_steps ? step : 1.0));
        }
    if (rc == 0 && planned > 0 && known == 0)
        rc = fail(FAIL_USAGE,
                  "--interval: %s: nothing says how long a step is: give --step-time, or seconds "
                  "with their unit (30s)",
                  name);
    return rc;
}

static int check_plans(const struct job *job)
{
    const struct goodput_report *report = &job->report;
    const struct goodput_asked *asked = &job->ask.intervals;
    char why[300];
    int rc = 0;
    for (int p = 0; p < report->n_plans; p++)
        for (int r = 0; r < report->plans[p].n_rows; r++)
            if (report->plans[p].rows[r].planned &&
                !goodput_costs_agree(&report->plans[p].rows[r].at, why, sizeof why))
                return fail(FAIL_USAGE, "%s", why);
    for (int i = 0; i < asked->n && rc == 0; i++)
        rc = check_interval(report, asked->value[i], asked->is_steps[i]);
    return rc;
}

/* Without a file everything is an option. */
static int check_bare(const struct goodput_ask *ask, int n_files)
{
    const struct goodput_given *given = &ask->given;
    if (n_files > 0)
        return 0;
    if (ask->law.kind == LAW_NONE || ask->n_nodes == 0)
        return fail(FAIL_USAGE, "no study file was named: scalereport goodput FILE.h5, or --mtbf, "
                                "--nodes and --blocked for a plan without one (see --help)");
    if (ask->law.of == LAW_OF_DEVICE && ask->ranks_per_node == 0)
        return fail(FAIL_USAGE, "a law of a device needs --ranks-per-node where no file says it");
    if (isnan(given->node_per_s) && isnan(given->blocked_s) && isnan(given->complete_s))
        return fail(FAIL_USAGE, "nothing says what a save costs: --blocked and --complete, or "
                                "--bytes and --node-bandwidth");
    if (isnan(given->complete_s) && isfinite(given->node_per_s) && isnan(given->bytes))
        return fail(FAIL_USAGE, "--node-bandwidth needs --bytes where no file has a save");
    return 0;
}

/* ---- together ---- */

static int print_report(struct job *job)
{
    int rc = 0;
    if (job->ask.json)
        TRY(goodput_json(stdout, &job->report));
    else if (job->ask.csv)
        goodput_csv(stdout, &job->report);
    else
        goodput_text(stdout, &job->report);
    if (job->ask.plot[0] != '\0')
        TRY(goodput_plot(&job->report, job->ask.plot, job->ask.title));
out:
    return rc;
}

static int report_files(struct job *job, int n, char **paths)
{
    int rc;
    TRY(goodput_study_read(&job->study, paths, n, SEED));
    job->report = (struct goodput_report){.study = &job->study,
                                          .law = &job->ask.law,
                                          .plans = job->plans,
                                          .run_s = job->ask.run_s,
                                          .seed = SEED};
    if (isnan(job->report.run_s))
        job->report.run_s = longest_run(&job->study);
    TRY(plan_all(job));
    TRY(check_plans(job));
    goodput_notes_find(&job->report);
    TRY(print_report(job));
out:
    return rc;
}

int command_goodput(int argc, char **argv)
{
    struct job *job = must_alloc(1, sizeof *job);
    int first = argc, rc;
    TRY(goodput_ask_read(&job->ask, argc, argv, &first));
    if (job->ask.help)
        goto out;
    TRY(check_bare(&job->ask, argc - first));
    TRY(report_files(job, argc - first, argv + first));
out:
    for (int i = 0; i < job->report.n_plans; i++)
        goodput_plan_release(&job->plans[i]);
    goodput_study_release(&job->study);
    free(job);
    return rc;
}
