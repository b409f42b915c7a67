/* plan_check: plans that fit together pass and are counted; those that do not are told apart in words:
 * other calls, another order, groups that disagree, transfers without a partner, rings of waiting
 * ranks that only show where calls run one at a time. */
#include "tests/test.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/plan_check.h"
#include "workloads/transformer.h"

enum { MOST_CALLS = 4 };

/* Plans by hand: the calls of each rank, in order. */
struct script {
    const char *parallel;
    int nodes, ranks_per_node;
    struct {
        int n;
        struct shape_coll call[MOST_CALLS];
    } rank[8];
    int moved; /* this rank thinks that its dp group begins elsewhere; -1 */
};

static int play(void *arg, int rank, struct plan *out)
{
    const struct script *script = arg;
    struct layout layout;
    struct degrees degrees = {0};
    int rc = 0;
    TRY(layout_parse(script->parallel, &degrees));
    TRY(layout_init(&layout, script->nodes, script->ranks_per_node, rank, &degrees));
    if (rank == script->moved)
        layout.group[AXIS_DP].first++;
    plan_init(out, &layout);
    struct tensor at = plan_take(out, BUFFER_GRADIENT, 1024);
    for (int i = 0; i < script->rank[rank].n; i++) {
        struct op op = {.kind = OP_COLLECTIVE, .t = {at, at}};
        op.shape.coll = script->rank[rank].call[i];
        op.stream = plan_channel(out, op.shape.coll.axis, op.shape.coll.direction);
        plan_op(out, &op);
    }
    rc = plan_seal(out);
out:
    return rc;
}

static struct shape_coll call(enum coll_kind kind, enum axis axis, int64_t count, int peer)
{
    return (struct shape_coll){
        .coll = {.kind = kind, .dtype = DTYPE_F32, .count = count, .peer = peer}, .axis = axis};
}

static void fits(struct script *script, int n, int64_t calls)
{
    struct plan_check check;
    if (!CHECK_EQ(plan_check_all(&check, n, play, script), 0))
        printf("%s\n", fail_message());
    fail_clear();
    CHECK_EQ(check.n_ranks, n);
    CHECK_EQ(check.calls, calls);
}

static void refuses(struct script *script, int n, const char *words, const char *more)
{
    struct plan_check check;
    CHECK_EQ(plan_check_all(&check, n, play, script), FAIL_WRONG);
    CHECK_HAS(fail_message(), words);
    CHECK_HAS(fail_message(), more);
    fail_clear();
    CHECK_EQ(check.n_ranks, 0);
}

/* 2 x 2: tp pairs {0,1} {2,3}, dp pairs {0,2} {1,3}. */
static struct script square(void)
{
    struct script s = {.parallel = "tp=2", .nodes = 2, .ranks_per_node = 2, .moved = -1};
    for (int r = 0; r < 4; r++) {
        s.rank[r].n = 2;
        s.rank[r].call[0] = call(COLL_ALL_GATHER, AXIS_TP, 8, -1);
        s.rank[r].call[1] = call(COLL_ALL_REDUCE, AXIS_DP, 16, -1);
    }
    return s;
}

static void swap(struct script *s, int rank)
{
    struct shape_coll first = s->rank[rank].call[0];
    s->rank[rank].call[0] = s->rank[rank].call[1];
    s->rank[rank].call[1] = first;
}

static void collectives(void)
{
    struct script s = square();
    fits(&s, 4, 8);

    /* Two ranks that share no tp group in another order: each group sees one order, the job a ring. */
    swap(&s, 0);
    swap(&s, 3);
    refuses(&s, 4, "the job would hang where calls run one at a time: rank ",
            "which is at its op 0");
    s = square(); /* all in the other order is fine, and so is one pair of pairs */
    for (int r = 0; r < 4; r++)
        swap(&s, r);
    fits(&s, 4, 8);

    s = square();
    s.rank[3].call[1].coll.count = 15;
    refuses(&s, 4, "rank 3 comes with its op 1, all-reduce of 15 fp32 on dp", "has its op 1");
    s = square();
    s.rank[2].call[0].coll.kind = COLL_REDUCE_SCATTER;
    refuses(&s, 4, "reduce-scatter of 8 fp32 on tp", "all-gather of 8 fp32 on tp");
    s = square();
    s.rank[1].call[1].coll.dtype = DTYPE_BF16;
    refuses(&s, 4, "all-reduce of 16 bf16 on dp", "all-reduce of 16 fp32 on dp");
    s = square();
    s.rank[2].n = 1; /* a call that nobody else knows to be missing */
    refuses(&s, 4, "rank 0 waits in its op 1", "rank 2, which is at the end of its plan");
    s = square();
    s.moved = 2;
    refuses(&s, 4, "member", "of its dp group");
    s = square();
    for (int r = 0; r < 4; r++)
        s.rank[r].call[1] = call(COLL_BROADCAST, AXIS_DP, 4, r == 3);
    refuses(&s, 4, "broadcast of 4", "of its group has");
}

/* 1 x 4 as four stages: each sends to the next, first to last. */
static struct script stages(void)
{
    struct script s = {.parallel = "pp=4", .nodes = 1, .ranks_per_node = 4, .moved = -1};
    for (int r = 0; r < 4; r++) {
        if (r > 0)
            s.rank[r].call[s.rank[r].n++] = call(COLL_RECV, AXIS_PP, 32, r - 1);
        if (r < 3)
            s.rank[r].call[s.rank[r].n++] = call(COLL_SEND, AXIS_PP, 32, r + 1);
    }
    return s;
}

static void transfers(void)
{
    struct script s = stages();
    fits(&s, 4, 6);
    s.rank[1].call[1].coll.count = 31;
    refuses(&s, 4, "of 31 fp32 on pp", "of 32 fp32 on pp");
    s = stages();
    s.rank[2].n = 1; /* receives, and sends nothing on */
    refuses(&s, 4, "rank 3 waits in its op 0, recv", "rank 2, which is at the end of its plan");
    s = stages();
    s.rank[3].call[0].coll.kind = COLL_SEND; /* two senders */
    refuses(&s, 4, "send of 32", "where rank");
    s = stages(); /* two neighbours that both send first */
    s.rank[0].call[1] = call(COLL_RECV, AXIS_PP, 8, 1);
    s.rank[0].n = 2;
    s.rank[1].call[0] = call(COLL_SEND, AXIS_PP, 8, 0);
    s.rank[1].call[1] = call(COLL_RECV, AXIS_PP, 32, 0);
    s.rank[1].n = 2;
    s.rank[2].n = s.rank[3].n = 0;
    refuses(&s, 4, "send of", "rank");
}

/* ---- plans of transformers ---- */

struct job {
    struct model model;
    struct policy policy;
    struct degrees degrees;
    int nodes, ranks_per_node;
};

static int make(void *arg, int rank, struct plan *out)
{
    const struct job *job = arg;
    struct layout layout;
    int rc = 0;
    TRY(layout_init(&layout, job->nodes, job->ranks_per_node, rank, &job->degrees));
    TRY(transformer_plan(out, &job->model, &layout, &job->policy));
out:
    return rc;
}

/* What every rank says of itself adds up to what the check says of all. */
static void sums(void)
{
    struct job job = {.nodes = 4, .ranks_per_node = 4};
    struct plan_check check;
    CHECK_EQ(model_load(&job.model, "tiny"), 0);
    CHECK_EQ(layout_parse("tp=2,shard=4", &job.degrees), 0);
    policy_defaults(&job.policy, &job.model);
    job.policy.global_batch = 16;
    job.policy.micro_batch = 1;
    CHECK_EQ(plan_check_all(&check, 16, make, &job), 0);
    double bytes[AXIS_COUNT] = {0}, flops = 0;
    int64_t most = 0, ops = 0;
    for (int r = 0; r < 16; r++) {
        struct plan plan;
        CHECK_EQ(make(&job, r, &plan), 0);
        for (int axis = 0; axis < AXIS_COUNT; axis++)
            bytes[axis] += plan.totals.wire_bytes[axis];
        flops += plan.totals.model_flops;
        ops += plan.n_ops;
        int64_t all = plan_check_bytes(&plan);
        most = all > most ? all : most;
        plan_release(&plan);
    }
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        CHECK_NEAR(check.traffic[axis].inside + check.traffic[axis].across, bytes[axis],
                   1e-9 * bytes[axis]);
    CHECK_NEAR(check.model_flops, flops, 1e-9 * flops);
    CHECK_NEAR(flops, 16 * model_flops_per_sequence(&job.model), 1e-9 * flops);
    CHECK_EQ(check.most_bytes, most);
    CHECK_EQ(check.ops, ops);
    /* tp pairs are neighbours; shard members are 2 apart over 8 ranks, so 2 of 4 steps cross. */
    CHECK_EQ(check.traffic[AXIS_TP].across, 0);
    CHECK_NEAR(check.traffic[AXIS_SHARD].across, check.traffic[AXIS_SHARD].inside,
               1e-9 * check.traffic[AXIS_SHARD].inside);
    CHECK_EQ(check.traffic[AXIS_REPLICATE].inside, 0);
    CHECK(check.traffic[AXIS_REPLICATE].across > 0);
}

/* ---- what pipelines hand on ---- */

/* Of all ranks of a pipeline; one of them may be changed before it is checked. */
struct pipe {
    struct job job;
    int changed, way; /* rank, -1; enum below */
    bool did;
};
enum { SWAP_RECEIVES, SWAP_SENDS, OTHER_CUT };

/* The n-th transfer of a kind in a direction. */
static struct op *transfer(struct plan *plan, enum coll_kind kind, int direction, int n)
{
    for (int i = 0; i < plan->n_ops; i++) {
        struct op *op = &plan->ops[i];
        if (op->kind == OP_COLLECTIVE && op->shape.coll.coll.kind == kind &&
            op->shape.coll.direction == direction && n-- == 0)
            return op;
    }
    return NULL;
}

static int make_pipe(void *arg, int rank, struct plan *out)
{
    struct pipe *pipe = arg;
    int rc = make(&pipe->job, rank, out);
    if (rc != 0 || rank != pipe->changed)
        return rc;
    enum coll_kind kind = pipe->way == SWAP_SENDS ? COLL_SEND : COLL_RECV;
    struct op *a = transfer(out, kind, SCHEDULE_DOWN, 1),
              *b = transfer(out, kind, SCHEDULE_DOWN, 2);
    pipe->did = a != NULL && b != NULL;
    if (pipe->did && pipe->way == OTHER_CUT) {
        a->layer++;
    } else if (pipe->did) { /* what one of them means and does is the other's: sizes are equal */
        struct op was = *a;
        a->micro = b->micro, a->layer = b->layer;
        b->micro = was.micro, b->layer = was.layer;
    }
    return 0;
}

static struct pipe pipe_of(enum schedule_kind kind, int pp, int v, int m, bool overlap)
{
    struct pipe pipe = {.job = {.nodes = 1, .ranks_per_node = pp}, .changed = -1};
    CHECK_EQ(model_load(&pipe.job.model, "tiny"), 0);
    pipe.job.model.layers = 16;
    pipe.job.degrees.pp = pp;
    policy_defaults(&pipe.job.policy, &pipe.job.model);
    pipe.job.policy.schedule = kind;
    pipe.job.policy.virtual_stages = v;
    pipe.job.policy.micro_batch = 1;
    pipe.job.policy.global_batch = m;
    pipe.job.policy.overlap_pipeline = overlap;
    pipe.job.policy.pack = CHOICE_OFF; /* what is called does not depend on it */
    return pipe;
}

/* Every schedule: all transfers meet by order alone, also one at a time; and what is taken for another
 * of the same size is named. */
static void pipelines(void)
{
    for (int pp = 2; pp <= 4; pp *= 2)
        for (int kind = SCHEDULE_GPIPE; kind <= SCHEDULE_ZB_H1; kind++)
            for (int v = 1; v <= 4; v *= 2)
                for (int i = 0; i < 4; i++) {
                    int m = pp * (1 + i / 2);
                    struct plan_check check;
                    if ((kind == SCHEDULE_INTERLEAVED) != (v > 1))
                        continue;
                    struct pipe pipe = pipe_of((enum schedule_kind)kind, pp, v, m, i % 2 == 0);
                    if (!CHECK_EQ(plan_check_all(&check, pp, make_pipe, &pipe), 0))
                        printf("%s pp=%d v=%d m=%d: %s\n", schedule_name(kind), pp, v, m,
                               fail_message());
                    /* both ends of each, and the sums of all stages */
                    CHECK_EQ(check.traffic[AXIS_PP].calls, 4LL * m * (pp * v - 1) + pp);
                    fail_clear();
                    for (pipe.way = SWAP_RECEIVES; pipe.way <= OTHER_CUT; pipe.way++) {
                        pipe.changed = pipe.way == SWAP_SENDS ? 0 : pp - 1;
                        pipe.did = false;
                        int rc = plan_check_all(&check, pp, make_pipe, &pipe);
                        CHECK_EQ(rc, pipe.did ? FAIL_WRONG : 0);
                        if (pipe.did)
                            CHECK_HAS(fail_message(), "they meet by order alone");
                        fail_clear();
                    }
                }
    struct pipe pipe = pipe_of(SCHEDULE_INTERLEAVED, 2, 2, 4, true);
    struct plan_check check;
    pipe.changed = 1, pipe.way = SWAP_RECEIVES;
    CHECK_EQ(plan_check_all(&check, 2, make_pipe, &pipe), FAIL_WRONG);
    CHECK_HAS(
        fail_message(),
        "transfer 2 from rank 0 to rank 1 on pp, direction 0, is micro-batch 1 before layer 4, "
        "forward, ");
    CHECK_HAS(fail_message(), "where the receiver's order has micro-batch 0 before layer 12");
    fail_clear();
}

/* What make() says ends the check. */
static void refusals_pass_through(void)
{
    struct job job = {.nodes = 1, .ranks_per_node = 4};
    struct plan_check check;
    CHECK_EQ(model_load(&job.model, "tiny"), 0);
    CHECK_EQ(layout_parse("shard=3", &job.degrees), 0);
    policy_defaults(&job.policy, &job.model);
    CHECK_EQ(plan_check_all(&check, 4, make, &job), FAIL_USAGE);
    CHECK_HAS(fail_message(), "shard=3 does not divide dp=4");
    fail_clear();
}

int main(void)
{
    collectives();
    transfers();
    sums();
    pipelines();
    refusals_pass_through();
    return test_end();
}
