/*
 * scalereport check: the plans of all ranks of a layout in one process, before anybody has a GPU.
 * Do the calls fit together, also where a device runs them one at a time; what does each rank hold;
 * what does it send, and from node to node.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/command.h"
#include "analysis/command_check_ask.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/units.h"
#include "workloads/plan_check.h"
#include "workloads/policy_options.h"

struct options {
    struct check_ask ask;
    char parallel[512];
    int64_t global_batch, micro_batch;
    struct policy_choice policy;
};

#define AT(field) offsetof(struct options, field), sizeof(((struct options *)0)->field)
#define ASK_AT(field) AT(ask.field)
#define POLICY_AT(field) AT(policy.field)

static const struct opt options[] = {
    CHECK_OPTIONS(ASK_AT),
    {"parallel", 0, OPT_TEXTS, AT(parallel), "", 0, 0, NULL, "tp=2,shard=4",
     "degrees of a layout to check, repeatable; dp is what remains"},
    {"global-batch", 0, OPT_INT, AT(global_batch), "0", 0, 1 << 30, NULL, "SAMPLES",
     "samples a step; 0: one micro-batch a replica"},
    {"micro-batch", 0, OPT_INT, AT(micro_batch), "0", 0, 1 << 20, NULL, "SAMPLES",
     "samples of a micro-batch of a rank; 0: the model file's, else 1"},
    POLICY_OPTIONS(POLICY_AT),
};
enum { N_OPTIONS = sizeof options / sizeof *options };

/* One layout of those asked for. */
struct job {
    struct model model;
    struct policy policy;
    struct degrees degrees;
    int nodes, ranks_per_node;
};

static int make_plan(void *arg, int rank, struct plan *out)
{
    const struct job *job = arg;
    struct layout layout;
    int rc = 0;
    TRY(layout_init(&layout, job->nodes, job->ranks_per_node, rank, &job->degrees));
    TRY(transformer_plan(out, &job->model, &layout, &job->policy));
out:
    return rc;
}

/* ---- what was asked ---- */

static int set_up(struct job *job, const struct options *asked)
{
    int rc = 0;
    TRY(check_ask_layout(&asked->ask, &job->nodes, &job->ranks_per_node));
    TRY(check_ask_model(&asked->ask, &job->model));
    policy_defaults(&job->policy, &job->model);
    TRY(policy_choose(&job->policy, &asked->policy));
    job->policy.pack = asked->policy.pack ? CHOICE_AUTO : CHOICE_OFF;
    job->policy.micro_batch = asked->micro_batch ? asked->micro_batch : job->model.micro_batch;
    if (job->policy.micro_batch == 0)
        job->policy.micro_batch = 1;
out:
    return rc;
}

static int set_layout(struct job *job, const struct options *asked, const char *parallel)
{
    struct layout layout;
    int rc = 0;
    memset(&job->degrees, 0, sizeof job->degrees);
    snprintf(job->degrees.order, sizeof job->degrees.order, "%s", asked->ask.order);
    TRY(layout_parse(parallel, &job->degrees));
    TRY(layout_init(&layout, job->nodes, job->ranks_per_node, 0, &job->degrees));
    job->degrees = layout.degrees;
    job->policy.tp_chunks = job->degrees.tp > 1 ? (int)asked->policy.tp_chunks : 1;
    bool whole = job->degrees.tp == 1 && job->degrees.pp == 1;
    job->policy.head_chunks = whole ? (int)asked->policy.head_chunks : 1;
    job->policy.global_batch =
        asked->global_batch ? asked->global_batch : job->degrees.dp * job->policy.micro_batch;
out:
    return rc;
}

/* ---- the answer ---- */

/* What lives where most does; what is fixed included. */
static void print_packed(const struct pack_found *pack, const char *const *names)
{
    printf("# packed: %lld B instead of %lld B; at most %lld B live together, at op %d:",
           (long long)pack->after, (long long)pack->before, (long long)pack->live, pack->op);
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (pack->at_op[b] > 0)
            printf(" %s %lld", names[b], (long long)pack->at_op[b]);
    printf("\n");
}

static void print_memory(const struct plan_check *check)
{
    static const char *const names[PLAN_BUFFERS] = {
        [BUFFER_PARAMETER] = "parameter",
        [BUFFER_MASTER] = "master",
        [BUFFER_GRADIENT] = "gradient",
        [BUFFER_SHARD] = "shard",
        [BUFFER_MOMENT1] = "moment1",
        [BUFFER_MOMENT2] = "moment2",
        [BUFFER_ACTIVATION] = "activation",
        [BUFFER_TEMPORARY] = "temporary",
        [BUFFER_WIRE] = "wire",
        [BUFFER_BATCH] = "batch",
        [BUFFER_SCALAR] = "scalar",
    };
    printf("# memory of rank %d, which holds the most; rank %d holds the least, %lld B\n",
           check->most_rank, check->least_rank, (long long)check->least_bytes);
    printf("%-12s %16s\n", "arena", "bytes");
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (check->bytes[b] > 0)
            printf("%-12s %16lld\n", names[b], (long long)check->bytes[b]);
    printf("%-12s %16lld\n", "all", (long long)check->most_bytes);
    if (check->pack.op >= 0)
        print_packed(&check->pack, names);
}

static void print_traffic(const struct plan_check *check)
{
    printf("# traffic of a step, mean of all ranks, rings in the order of ranks assumed\n");
    printf("%-12s %12s %22s %22s\n", "axis", "calls", "inside_node_bytes", "across_nodes_bytes");
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        const struct traffic *t = &check->traffic[axis];
        if (t->calls > 0)
            printf("%-12s %12.6g %22.0f %22.0f\n", axis_name(axis),
                   (double)t->calls / check->n_ranks, t->inside / check->n_ranks,
                   t->across / check->n_ranks);
    }
}

/* Forward, dx and dW take the same; a layer that is recomputed makes dW with dx, behind a forward where
 * all of it is made again. */
static void times_alike(const struct job *job, double seconds[SCHEDULE_PARTS])
{
    const struct policy *p = &job->policy;
    int64_t layers = job->model.layers, again = 0;
    if (p->recompute != RECOMPUTE_NONE)
        again = (layers - 1) / p->recompute_every + 1;
    double share = (double)again / (double)layers;
    seconds[PART_FORWARD] = 1;
    seconds[PART_BACKWARD] = 1 + share * (p->recompute == RECOMPUTE_FULL ? 2 : 1);
    seconds[PART_WEIGHTS] = 1 - share;
}

/* What is known of a pipeline before any op has a time: idle time of equal stages, and what the stages
 * keep. */
static void print_pipeline(const struct job *job)
{
    double alike[SCHEDULE_PARTS];
    struct schedule s = policy_schedule(&job->policy, &job->degrees);
    int most = 0;
    if (s.stages < 2)
        return;
    times_alike(job, alike);
    for (int stage = 0; stage < s.stages; stage++)
        most = schedule_in_flight(&s, stage) > most ? schedule_in_flight(&s, stage) : most;
    printf("# pipeline %s: %d stages of %d chunk%s, %d micro-batch%s; equal stages: bubble/ideal "
           "%.2f %%; at most %d chunk%s in flight\n",
           schedule_name((int)s.kind), s.stages, s.chunks, units_s(s.chunks), s.micro_batches,
           s.micro_batches == 1 ? "" : "es", 100 * schedule_bubble(&s, alike), most, units_s(most));
}

static int check_one(struct job *job)
{
    struct plan_check check;
    struct layout layout;
    char text[128];
    int64_t begin = units_now_ns();
    int rc = 0;
    TRY(plan_check_all(&check, job->nodes * job->ranks_per_node, make_plan, job));
    TRY(layout_init(&layout, job->nodes, job->ranks_per_node, 0, &job->degrees));
    layout_text(&layout, text, sizeof text);
    printf("# %s on %dx%d, %s, %lld sample%s a step in micro-batches of %lld\n", job->model.name,
           job->nodes, job->ranks_per_node, text, (long long)job->policy.global_batch,
           units_s((double)job->policy.global_batch), (long long)job->policy.micro_batch);
    printf("# %d rank%s in %d class%s of equal calls; %lld operations, %lld calls: all meet their "
           "partners, also one at a time; checked in %.2f s\n",
           check.n_ranks, units_s(check.n_ranks), check.n_classes, check.n_classes == 1 ? "" : "es",
           (long long)check.ops, (long long)check.calls, (double)(units_now_ns() - begin) / 1e9);
    job->degrees = layout.degrees;
    print_pipeline(job);
    print_memory(&check);
    print_traffic(&check);
out:
    return rc;
}

static void print_help(void)
{
    printf("usage: scalereport check --layout NxG [--parallel DEGREES]... [OPTION]...\n"
           "       scalereport check --fit ...    which layouts fit a device (--fit --help)\n\n");
    opt_help(options, N_OPTIONS, stdout);
}

int command_check(int argc, char **argv)
{
    struct options asked;
    struct job job = {0};
    bool help = false;
    int first = argc, rc = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--fit") == 0)
            return command_check_fit(argc, argv);
    opt_defaults(options, N_OPTIONS, &asked);
    TRY(opt_argv(options, N_OPTIONS, &asked, argc, argv, &first, &help));
    if (help) {
        print_help();
        return 0;
    }
    if (first < argc)
        return fail(FAIL_USAGE, "check: takes options alone, found \"%s\"", argv[first]);
    TRY(set_up(&job, &asked));
    for (char *at = asked.parallel, *next; at != NULL; at = next) {
        next = strchr(at, ';');
        if (next != NULL)
            *next++ = '\0';
        TRY(set_layout(&job, &asked, at));
        TRY(check_one(&job));
    }
out:
    return rc;
}
