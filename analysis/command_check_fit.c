/*
 * scalereport check --fit: which ways of splitting a model fit a device, why the others do not, and
 * what recomputation, a smaller micro-batch or sharding would buy in bytes, for which step time
 * where a study file has measured it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/command.h"
#include "analysis/command_argv.h"
#include "analysis/command_check_ask.h"
#include "analysis/command_check_fit.h"
#include "analysis/report_columns.h"
#include "analysis/studies.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/units.h"
#include "topologies/topology.h"
#include "workloads/memory_fit.h"
#include "workloads/policy_options.h"

enum { SEED = 1, MICRO_BATCHES = 16 };

struct options {
    bool fit, csv, json;
    struct check_ask ask;
    char parallel[512], micro_batch[64], memory[64], beside[64], topology[256];
    int64_t global_batch;
    struct policy_choice policy;
};

#define AT(field) offsetof(struct options, field), sizeof(((struct options *)0)->field)
#define ASK_AT(field) AT(ask.field)
#define POLICY_AT(field) AT(policy.field)

static const struct opt options[] = {
    {"fit", 0, OPT_BOOL, AT(fit), "off", 0, 0, NULL, "", "this command"},
    CHECK_OPTIONS(ASK_AT),
    {"parallel", 0, OPT_TEXT, AT(parallel), "", 0, 0, NULL, "tp=2",
     "degrees to keep; all others are tried"},
    {"memory", 0, OPT_TEXT, AT(memory), "", 0, 0, NULL, "141GB",
     "of a device; else the topology's (GB is 1e9 bytes, GiB 2^30)"},
    {"topology", 0, OPT_TEXT, AT(topology), "", 0, 0, NULL, "NAME|FILE.yaml|MACHINE",
     "machine: its memory, and modelled step times"},
    {"beside", 0, OPT_TEXT, AT(beside), "1.5GiB", 0, 0, NULL, "",
     "kept on a device for context, libraries and communicators; 0: nothing"},
    {"global-batch", 0, OPT_INT, AT(global_batch), "0", 0, 1 << 30, NULL, "SAMPLES",
     "samples a step; 0: the study's or the model file's, else the smallest that splits "
     "everywhere"},
    {"micro-batch", 0, OPT_TEXT, AT(micro_batch), "", 0, 0, NULL, "B[,B]",
     "samples of a micro-batch of a rank, each is tried; else the model file's, else 1"},
    {"csv", 0, OPT_BOOL, AT(csv), "off", 0, 0, NULL, "", "a line for every choice"},
    {"json", 0, OPT_BOOL, AT(json), "off", 0, 0, NULL, "", "choices and what changes buy"},
    POLICY_OPTIONS(POLICY_AT),
};
enum { N_OPTIONS = sizeof options / sizeof *options };

struct job {
    const struct options *asked;
    struct model model;
    struct topology topology;
    struct cost cost;
    struct memory_fit_ask ask;
    int64_t micro_batch[MICRO_BATCHES];
    struct studies studies;
    struct memory_fit fit;
    int n_measured, n_rows; /* choices with a measured time; rows of the study files */
    char differs[320];      /* an option by which rows of the same work are of another policy; "" */
};

/* ---- what was asked ---- */

static int parse_micro_batches(struct job *job)
{
    char copy[64];
    int n = 0;
    snprintf(copy, sizeof copy, "%s", job->asked->micro_batch);
    for (char *at = copy, *next; at != NULL && copy[0] != '\0'; at = next) {
        if ((next = strchr(at, ',')) != NULL)
            *next++ = '\0';
        if (n == MICRO_BATCHES || units_parse_int(at, &job->micro_batch[n]) != 0 ||
            job->micro_batch[n] < 1)
            return fail(FAIL_USAGE,
                        "--micro-batch: found \"%s\", wanted up to %d numbers from 1 such as 4,2,1",
                        job->asked->micro_batch, (int)MICRO_BATCHES);
        n++;
    }
    if (n == 0)
        job->micro_batch[n++] = job->model.micro_batch > 0 ? job->model.micro_batch : 1;
    job->ask.micro_batch = job->micro_batch;
    job->ask.n_micro_batch = n;
    return 0;
}

/* A zero of some unit, "0GiB", or 0 alone. */
static bool is_nothing(const char *text)
{
    char one[80];
    double unit;
    size_t zeros = strspn(text, "0.");
    bool more = text[zeros] >= '1' && text[zeros] <= '9'; /* 0.5GB */
    snprintf(one, sizeof one, "1%s", text + zeros);
    return text[0] == '0' && !more &&
           (text[zeros] == '\0' || fact_parse(one, UNIT_BYTES, &unit) == 0);
}

static int parse_bytes(const char *name, const char *text, bool from_0, double *out)
{
    *out = 0.0;
    if ((from_0 && is_nothing(text)) || fact_parse(text, UNIT_BYTES, out) == 0)
        return 0;
    return fail(FAIL_USAGE, "--%s: found \"%s\", wanted a size %s with its unit such as 141GB",
                name, text, from_0 ? "from 0" : "above 0");
}

static int set_device(struct job *job)
{
    const struct options *asked = job->asked;
    double beside = 0.0;
    int rc = 0;
    TRY(parse_bytes("beside", asked->beside, true, &beside));
    job->ask.beside_bytes = (int64_t)beside;
    if (asked->topology[0] == '\0' && asked->memory[0] == '\0')
        return fail(FAIL_USAGE, "--fit: wanted --memory such as 141GB, or --topology, the machine "
                                "whose devices should hold it");
    if (asked->topology[0] != '\0') {
        TRY(topology_load(&job->topology, asked->topology));
        TRY(topology_fits(&job->topology, job->ask.nodes, job->ask.ranks_per_node));
        job->ask.capacity_bytes = job->topology.fact[FACT_MEMORY].value;
        job->cost = (struct cost){.topology = &job->topology,
                                  .ranks_per_node = job->ask.ranks_per_node,
                                  .tf32 = job->ask.policy.tf32};
        job->ask.cost = &job->cost;
    }
    if (asked->memory[0] != '\0')
        TRY(parse_bytes("memory", asked->memory, false, &job->ask.capacity_bytes));
out:
    return rc;
}

static int set_up(struct job *job)
{
    const struct options *asked = job->asked;
    int rc = 0;
    TRY(check_ask_layout(&asked->ask, &job->ask.nodes, &job->ask.ranks_per_node));
    TRY(check_ask_model(&asked->ask, &job->model));
    policy_defaults(&job->ask.policy, &job->model);
    TRY(policy_choose(&job->ask.policy, &asked->policy));
    job->ask.policy.copy_stream = true; /* as on a device with memory of its own */
    job->ask.model = &job->model;
    TRY(parse_micro_batches(job));
    TRY(layout_parse(asked->parallel, &job->ask.fixed));
    snprintf(job->ask.fixed.order, sizeof job->ask.fixed.order, "%s", asked->ask.order);
    job->ask.global_batch = asked->global_batch > 0 ? asked->global_batch : job->model.global_batch;
    TRY(set_device(job));
out:
    return rc;
}

/* ---- step times that were measured ---- */

static bool same_dtype(const struct job *job, const struct point_row *p)
{
    static const char *const names[] = {"fp32", "tf32", "bf16"};
    return strncmp(p->dtype, names[job->asked->policy.dtype], sizeof p->dtype) == 0;
}

static bool same_work(const struct job *job, const struct point_row *p)
{
    return strncmp(p->model, job->model.name, sizeof p->model) == 0 && same_dtype(job, p) &&
           p->sequence == job->model.sequence && p->nodes == job->ask.nodes &&
           p->ranks_per_node == job->ask.ranks_per_node && p->copies <= 1;
}

/* What a choice says for itself, and what is in its point. */
static bool is_tried(const struct opt *row)
{
    static const char *const names[] = {"dtype", "shard-stage", "recompute", "recompute-every"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(row->name, names[i]) == 0)
            return true;
    return row->offset < offsetof(struct options, policy);
}

/* The step of another policy (--pack, --bucket, --overlap...) is not the step of these choices. An option that the
 * study does not name is newer than it, and had its default. */
static bool same_policy(struct job *job, const struct report *study)
{
    char asked[256];
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct opt *row = &options[i];
        const char *had = report_attribute(study, "study", row->name);
        if (is_tried(row))
            continue;
        opt_text(row, job->asked, asked, sizeof asked);
        had = had[0] != '\0' ? had : row->preset;
        if (strcmp(had, asked) == 0)
            continue;
        snprintf(job->differs, sizeof job->differs, "--%s %s, here %s", row->name, had, asked);
        return false;
    }
    return true;
}

static bool same_choice(const struct job *job, const struct report *study,
                        const struct point_row *p, const struct memory_choice *c)
{
    const struct degrees *d = &c->degrees;
    const char *stage = report_attribute(study, "study", "shard-stage");
    const char *recompute = report_attribute(study, "study", "recompute");
    const char *every = report_attribute(study, "study", "recompute-every");
    bool degrees = p->tp == d->tp && p->pp == d->pp && p->cp == d->cp && p->ep == d->ep &&
                   p->dp == d->dp && p->shard == d->shard;
    bool policy = (c->shard_stage == 0 || atoi(stage) == c->shard_stage) &&
                  strcmp(recompute, memory_recompute_name((int)c->recompute)) == 0 &&
                  (c->recompute == RECOMPUTE_NONE || every[0] == '\0' ||
                   atoi(every) == job->ask.policy.recompute_every);
    return degrees && policy && p->micro_batch == c->micro_batch &&
           p->global_batch == job->fit.global_batch;
}

/* The work of the first row of this model is the work that is asked about. */
static void take_batch(struct job *job)
{
    for (int i = 0; i < job->studies.n; i++)
        for (int j = 0; j < job->studies.scalings[i].n_rows; j++) {
            const struct point_row *p = job->studies.scalings[i].rows[j].point;
            if (job->asked->global_batch == 0 && same_work(job, p)) {
                job->ask.global_batch = p->global_batch;
                return;
            }
        }
}

static void join_row(struct job *job, const struct report *study, const struct scaling_row *row)
{
    bool known = row->valid && row->step_ns.value > 0.0 && same_work(job, row->point) &&
                 same_policy(job, study);
    job->n_rows++;
    for (int i = 0; i < job->fit.n && known; i++) {
        struct memory_choice *c = &job->fit.choice[i];
        if (!same_choice(job, study, row->point, c) || c->measured_s <= row->step_ns.value / 1e9)
            continue;
        job->n_measured += isnan(c->measured_s) != 0;
        c->measured_s = row->step_ns.value / 1e9;
    }
}

static void join_studies(struct job *job)
{
    for (int i = 0; i < job->studies.n; i++)
        for (int j = 0; j < job->studies.scalings[i].n_rows; j++)
            join_row(job, &job->studies.reports[i], &job->studies.scalings[i].rows[j]);
}

static void print_help(void)
{
    printf("usage: scalereport check --fit --layout NxG --memory 141GB [OPTION]... [FILE.h5]...\n\n"
           "FILE: studies of the same model; their step times are put beside the choices.\n\n");
    opt_help(options, N_OPTIONS, stdout);
}

int command_check_fit(int argc, char **argv)
{
    struct options asked;
    struct job job = {.asked = &asked};
    bool help = false;
    int first = argc, rc = 0;
    opt_defaults(options, N_OPTIONS, &asked);
    TRY(command_argv_not_empty(options, N_OPTIONS, argc, argv));
    TRY(opt_argv(options, N_OPTIONS, &asked, argc, argv, &first, &help));
    if (help) {
        print_help();
        return 0;
    }
    if (asked.csv && asked.json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    TRY(set_up(&job));
    if (first < argc)
        TRY(studies_read(&job.studies, argv + first, argc - first, SEED));
    take_batch(&job);
    TRY(memory_fit_all(&job.fit, &job.ask));
    join_studies(&job);
    memory_fit_sort(&job.fit);
    rc = fit_say(&(struct fit_answer){.ask = &job.ask,
                                      .fit = &job.fit,
                                      .n_measured = job.n_measured,
                                      .n_rows = job.n_rows,
                                      .differs = job.differs,
                                      .csv = asked.csv,
                                      .json = asked.json});
out:
    memory_fit_release(&job.fit);
    studies_release(&job.studies);
    return rc;
}
