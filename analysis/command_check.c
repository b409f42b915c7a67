/*
 * scalereport check: the plans of all ranks of a layout in one process, before anybody has a GPU.
 * Do the calls fit together, also where a device runs them one at a time; what does each rank hold;
 * what does it send, and from node to node.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "analysis/command.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/units.h"
#include "workloads/plan_check.h"
#include "workloads/policy_options.h"

struct options {
    char layout[32], parallel[512], order[32], model[512];
    int64_t global_batch, micro_batch, sequence;
    struct policy_choice policy;
};

#define AT(field) offsetof(struct options, field), sizeof(((struct options *)0)->field)
#define POLICY_AT(field) AT(policy.field)

static const struct opt options[] = {
    {"layout", 0, OPT_TEXT, AT(layout), "", 0, 0, NULL, "NxG",
     "nodes x ranks on each node; must be given"},
    {"parallel", 0, OPT_TEXTS, AT(parallel), "", 0, 0, NULL, "tp=2,shard=4",
     "degrees of a layout to check, repeatable; dp is what remains"},
    {"order", 0, OPT_TEXT, AT(order), "tp-cp-ep-dp-pp", 0, 0, NULL, "AXES",
     "axes from the fastest varying to the slowest"},
    {"model", 0, OPT_TEXT, AT(model), "tiny", 0, 0, NULL, "NAME|FILE.yaml", "the network"},
    {"global-batch", 0, OPT_INT, AT(global_batch), "0", 0, 1 << 30, NULL, "SAMPLES",
     "samples a step; 0: one micro-batch a replica"},
    {"micro-batch", 0, OPT_INT, AT(micro_batch), "0", 0, 1 << 20, NULL, "SAMPLES",
     "samples of a micro-batch of a rank; 0: the model file's, else 1"},
    {"sequence", 0, OPT_INT, AT(sequence), "0", 0, 1 << 24, NULL, "TOKENS",
     "tokens of a sample; 0: the model's"},
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

static int parse_layout(const char *text, struct job *job)
{
    char copy[32];
    int64_t nodes = 0, ranks = 0;
    snprintf(copy, sizeof copy, "%s", text);
    char *x = strchr(copy, 'x');
    if (x != NULL)
        *x = '\0';
    if (x == NULL || units_parse_int(copy, &nodes) != 0 || units_parse_int(x + 1, &ranks) != 0 ||
        nodes < 1 || ranks < 1 || nodes > INT_MAX || ranks > INT_MAX / nodes)
        return fail(FAIL_USAGE, "--layout: found \"%s\", wanted nodes x ranks such as 64x8", text);
    job->nodes = (int)nodes;
    job->ranks_per_node = (int)ranks;
    return 0;
}

static int set_up(struct job *job, const struct options *asked)
{
    int rc = 0;
    TRY(parse_layout(asked->layout, job));
    TRY(model_load(&job->model, asked->model));
    if (asked->sequence > job->model.sequence)
        return fail(FAIL_USAGE, "--sequence: %lld is more than the %lld positions of model %s",
                    (long long)asked->sequence, (long long)job->model.sequence, job->model.name);
    if (asked->sequence > 0)
        job->model.sequence = asked->sequence;
    policy_defaults(&job->policy, &job->model);
    TRY(policy_choose(&job->policy, &asked->policy));
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
    snprintf(job->degrees.order, sizeof job->degrees.order, "%s", asked->order);
    TRY(layout_parse(parallel, &job->degrees));
    TRY(layout_init(&layout, job->nodes, job->ranks_per_node, 0, &job->degrees));
    job->degrees = layout.degrees;
    job->policy.tp_chunks = job->degrees.tp > 1 ? (int)asked->policy.tp_chunks : 1;
    job->policy.global_batch =
        asked->global_batch ? asked->global_batch : job->degrees.dp * job->policy.micro_batch;
out:
    return rc;
}

/* ---- the answer ---- */

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
    printf("# %s on %dx%d, %s, %lld samples a step in micro-batches of %lld\n", job->model.name,
           job->nodes, job->ranks_per_node, text, (long long)job->policy.global_batch,
           (long long)job->policy.micro_batch);
    printf("# %d ranks in %d classes of equal calls; %lld operations, %lld calls: all meet their "
           "partners, also one at a time; checked in %.2f s\n",
           check.n_ranks, check.n_classes, (long long)check.ops, (long long)check.calls,
           (double)(units_now_ns() - begin) / 1e9);
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
