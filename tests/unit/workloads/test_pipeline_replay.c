/*
 * What pipelines leave idle: plans of all stages, each op as long as the cost model says, replayed with
 * free transfers. Equal stages without the cost of a head give the closed forms; interleaved and zb-h1
 * are shorter than 1f1b; a stage with more to do is seen; what is in flight is what arenas hold. With
 * transfers that take time the step is as long as an op-by-op replay of all stages says, and longer
 * where stages do not compute while they send.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/cost.h"
#include "workloads/pipeline_replay.h"
#include "workloads/transformer.h"

static struct topology machine;

/* A head of 64 words, layers of 24 H^2 FLOPs and a row. */
static struct model model_of(int layers, int64_t vocabulary)
{
    struct model m = {.layers = layers,
                      .hidden = 1024,
                      .heads = 16,
                      .kv_heads = 16,
                      .head = 64,
                      .ffn = 4096,
                      .vocabulary = vocabulary,
                      .sequence = 512,
                      .pad = 8,
                      .tied = false,
                      .style = MODEL_GPT2,
                      .theta = 10000,
                      .lr = 1e-3};
    snprintf(m.name, sizeof m.name, "equal");
    return m;
}

struct played {
    struct cost_step step; /* of cost_stages, with the transfers of the machine */
    double bubble_s;
    struct pipeline_bubble bubble;
    struct pipeline_stage stage[8];
    int64_t activations[8];
    double parts[SCHEDULE_PARTS];
    double transfer_s,
        found_s; /* of the machine; what the replay finds in the times of both ends */
    struct pipeline_bubble moved;
};

/* Adds what a stage takes; calls are not read. */
static void add_stage(struct played *out, const struct cost *cost, const struct plan *plan, int s,
                      double *times)
{
    double *op_s = calloc((size_t)plan->n_ops, sizeof *op_s);
    int slots = schedule_slots(&plan->schedule);
    struct schedule_slot *list = calloc((size_t)slots, sizeof *list);
    for (int i = 0; i < plan->n_ops; i++) {
        bool call = plan->ops[i].kind == OP_COLLECTIVE;
        op_s[i] = call ? 1e9 : cost_op_s(cost, &plan->ops[i]);
    }
    pipeline_add_up(plan, op_s, times);
    schedule_list(&plan->schedule, s, list);
    for (int i = 0; i < slots; i++)
        out->parts[list[i].part] += times[PIPELINE_SLOTS + i];
    out->activations[s] = plan->bytes[BUFFER_ACTIVATION];
    free(list);
    free(op_s);
}

/* The transfers of a stage as it would have timed them: the end that comes early waits. */
static void add_moves(const struct plan *plan, double seconds, double *moves)
{
    double *op_s = calloc((size_t)plan->n_ops, sizeof *op_s);
    for (int i = 0; i < plan->n_ops; i++) {
        const struct shape_coll *call = &plan->ops[i].shape.coll;
        bool early = (call->coll.kind == COLL_SEND) == (call->direction == SCHEDULE_UP);
        if (plan->ops[i].kind == OP_COLLECTIVE)
            op_s[i] = early ? 1 : seconds;
    }
    pipeline_list_moves(plan, op_s, moves);
    free(op_s);
}

static struct played play_with(const struct model *model, enum schedule_kind kind, int pp, int m,
                               int v, bool overlap)
{
    static struct plan plans[8];
    struct played out;
    struct policy policy;
    struct degrees degrees = {.pp = pp};
    struct cost cost = {.topology = &machine, .ranks_per_node = pp};
    memset(&out, 0, sizeof out);
    policy_defaults(&policy, model);
    policy.schedule = kind;
    policy.virtual_stages = v;
    policy.overlap_pipeline = overlap;
    policy.pack = CHOICE_OFF; /* bytes are those of the closed form */
    policy.micro_batch = 2;
    policy.global_batch = (int64_t)m * policy.micro_batch;
    for (int s = 0; s < pp; s++) {
        struct layout layout;
        CHECK_EQ(layout_init(&layout, 1, pp, s, &degrees), 0);
        if (!CHECK_EQ(transformer_plan(&plans[s], model, &layout, &policy), 0))
            return out;
    }
    int n = pipeline_times(&plans[0].schedule), n_moves = pipeline_moves(&plans[0].schedule);
    double *moves = calloc((size_t)pp * (size_t)n_moves, sizeof *moves);
    struct coll sends = {.kind = COLL_SEND,
                         .dtype = DTYPE_F32,
                         .count = policy.micro_batch * model->sequence * model->hidden};
    out.transfer_s = cost_coll_s(&cost, &sends, &(struct group){.stride = 1, .size = 2});
    double *times = calloc((size_t)pp * (size_t)n, sizeof *times);
    for (int s = 0; s < pp; s++)
        add_stage(&out, &cost, &plans[s], s, times + (ptrdiff_t)s * n);
    for (int s = 0; s < pp; s++)
        add_moves(&plans[s], out.transfer_s, moves + (ptrdiff_t)s * n_moves);
    pipeline_replay(&plans[0].schedule, times, (struct schedule_transfer){0}, out.stage,
                    &out.bubble);
    out.found_s = pipeline_transfer(&plans[0].schedule, moves);
    CHECK_EQ(pipeline_blocks(&plans[0]), !overlap);
    struct schedule_transfer transfer = {out.found_s, pipeline_blocks(&plans[0])};
    pipeline_replay(&plans[0].schedule, times, transfer, NULL, &out.moved);
    cost_stages(&cost, plans, pp, &out.step, &out.bubble_s);
    for (int s = 0; s < pp; s++)
        plan_release(&plans[s]);
    free(times);
    free(moves);
    return out;
}

static struct played play(const struct model *model, enum schedule_kind kind, int pp, int m, int v)
{
    return play_with(model, kind, pp, m, v, true);
}

static double ideal_ratio(const struct played *p)
{
    return p->bubble.bubble_s / p->bubble.compute_s;
}

static void closed_forms(void)
{
    struct model model = model_of(32, 8);
    for (int pp = 2; pp <= 4; pp *= 2)
        for (int m = 8; m <= 16; m *= 2) {
            struct played one = play(&model, SCHEDULE_1F1B, pp, m, 1);
            struct played gpipe = play(&model, SCHEDULE_GPIPE, pp, m, 1);
            struct played zb = play(&model, SCHEDULE_ZB_H1, pp, m, 1);
            double expected = (pp - 1) / (double)m;
            CHECK_NEAR(ideal_ratio(&one), expected, 0.05 * expected);
            CHECK_NEAR(ideal_ratio(&gpipe), expected, 0.05 * expected);
            struct schedule s = {SCHEDULE_ZB_H1, pp, m, 1};
            double less = schedule_bubble(&s, zb.parts);
            CHECK_NEAR(ideal_ratio(&zb), less, 0.1 * less);
            CHECK(zb.bubble.step_s < one.bubble.step_s &&
                  ideal_ratio(&zb) < 0.7 * ideal_ratio(&one));
            double before = one.bubble.step_s;
            /* op by op, calls included: the same bubble, and a step that is longer by transfers */
            CHECK_NEAR(one.bubble_s, one.bubble.bubble_s, 1e-9 * one.bubble.step_s);
            CHECK_NEAR(zb.bubble_s, zb.bubble.bubble_s, 1e-9 * zb.bubble.step_s);
            CHECK(one.step.step_s >= one.bubble.step_s &&
                  one.step.step_s < 1.3 * one.bubble.step_s);
            CHECK(zb.step.step_s < one.step.step_s);
            /* Stages compute or wait for calls, so on average that is the step, but for its ends. */
            double busy = one.step.compute_s;
            for (int axis = 0; axis < AXIS_COUNT; axis++)
                busy += one.step.exposed_s[axis];
            CHECK_NEAR(busy, one.step.step_s, 0.02 * one.step.step_s);
            printf("pp=%d m=%-2d bubble/ideal: 1f1b %.4f gpipe %.4f (%.4f) zb-h1 %.4f (%.4f)", pp,
                   m, ideal_ratio(&one), ideal_ratio(&gpipe), expected, ideal_ratio(&zb), less);
            for (int v = 2; v <= 4; v += 2) {
                struct played inter = play(&model, SCHEDULE_INTERLEAVED, pp, m, v);
                CHECK_NEAR(ideal_ratio(&inter), expected / v, 0.05 * expected / v);
                CHECK(inter.bubble.step_s < before);
                /* op by op a receive may stand behind one that comes later: the order is one for all */
                CHECK_NEAR(inter.bubble_s, inter.bubble.bubble_s, 1e-4 * inter.bubble.step_s);
                before = inter.bubble.step_s;
                printf(" v=%d %.4f (%.4f)", v, ideal_ratio(&inter), expected / v);
            }
            printf("\n");
        }
}

/* Transfers take what the machine needs: the replay by slots finds that in the times of their ends, and
 * agrees with the one op by op, so that nothing but transfers holds a slot up; not computing meanwhile
 * costs at least as much on every schedule. */
static void transfers_take_time(void)
{
    static const struct {
        enum schedule_kind kind;
        int chunks;
    } all[] = {{SCHEDULE_GPIPE, 1},
               {SCHEDULE_1F1B, 1},
               {SCHEDULE_INTERLEAVED, 2},
               {SCHEDULE_INTERLEAVED, 4},
               {SCHEDULE_ZB_H1, 1}};
    struct model model = model_of(16, 61);
    for (int pp = 2; pp <= 4; pp *= 2)
        for (int i = 0; i < 5; i++) {
            int kind = (int)all[i].kind, v = all[i].chunks;
            struct played p = play_with(&model, (enum schedule_kind)kind, pp, 8, v, true);
            struct played blocked = play_with(&model, (enum schedule_kind)kind, pp, 8, v, false);
            double cost = p.step.step_s - p.bubble.step_s;
            CHECK_NEAR(p.found_s, p.transfer_s, 1e-12);
            CHECK(cost > p.transfer_s);
            if (!CHECK_NEAR(p.moved.step_s, p.step.step_s, 0.01 * p.step.step_s) ||
                !CHECK_NEAR(blocked.moved.step_s, blocked.step.step_s, 0.01 * p.step.step_s))
                printf("%s v=%d pp=%d\n", schedule_name(kind), v, pp);
            /* with gpipe the first stage's sends may well be hidden by the wait for the others */
            CHECK(blocked.step.step_s >=
                  p.step.step_s + (kind == SCHEDULE_GPIPE ? 0 : 0.9 * p.transfer_s));
            CHECK_NEAR(blocked.bubble.step_s, p.bubble.step_s, 1e-9);
            printf(
                "pp=%d %-11s v=%d free %.3f ms, transfers of %.3f ms %.3f (%.3f op by op), without "
                "overlap %.3f (%.3f)\n",
                pp, schedule_name(kind), v, 1e3 * p.bubble.step_s, 1e3 * p.transfer_s,
                1e3 * p.moved.step_s, 1e3 * p.step.step_s, 1e3 * blocked.moved.step_s,
                1e3 * blocked.step.step_s);
        }
}

/* The head makes the last stage the longest, and all wait for it. */
static void uneven_stages(void)
{
    struct model model = model_of(8, 50257);
    struct played p = play(&model, SCHEDULE_1F1B, 4, 8, 1);
    CHECK(p.stage[3].compute_s > 1.2 * p.stage[1].compute_s);
    CHECK(p.stage[3].bubble_s < p.stage[1].bubble_s);
    CHECK(ideal_ratio(&p) > 1.2 * 3 / 8.0);
    for (int s = 0; s < 4; s++)
        CHECK_NEAR(p.stage[s].compute_s + p.stage[s].bubble_s, p.bubble.step_s, 1e-9);
}

/* A stage keeps as many micro-batches as it has in flight: bytes of one, and inputs and heads. */
static void memory_in_flight(void)
{
    struct model model = model_of(8, 61);
    struct played one = play(&model, SCHEDULE_1F1B, 4, 8, 1);
    struct played gpipe = play(&model, SCHEDULE_GPIPE, 4, 8, 1);
    struct played zb = play(&model, SCHEDULE_ZB_H1, 4, 8, 1);
    int64_t matrix = 2 * 512 * 1024 * 4;
    /* Of a middle stage, where neither table nor head is: 3 in flight against 2, 8 against 3. */
    int64_t each = one.activations[1] - one.activations[2];
    CHECK_EQ(one.activations[0] - one.activations[1],
             each - matrix); /* the first receives none ahead */
    CHECK_EQ(gpipe.activations[1] - one.activations[1], 5 * each - matrix);
    int64_t zb_differ = zb.activations[1] - zb.activations[2]; /* p of them on every stage */
    CHECK(zb_differ % matrix == 0 && llabs(zb_differ) <= 2 * matrix);
    CHECK(each > 2 * 16 * matrix && each < 2 * 20 * matrix); /* two layers */
}

/* Ops of slots go to their slots, others to what stands before, behind until the norm is known, and
 * the update; ops of other streams nowhere. */
static void times_by_hand(void)
{
    struct op ops[8] = {{.kind = OP_ZERO},
                        {.kind = OP_GEMM, .slot = 1},
                        {.kind = OP_GEMM, .slot = 2},
                        {.kind = OP_ADD, .slot = 1},
                        {.kind = OP_COLLECTIVE, .stream = 1},
                        {.kind = OP_SUMSQ},
                        {.kind = OP_CLIP},
                        {.kind = OP_ADAMW}};
    const double op_s[8] = {1, 2, 4, 8, 1000, 16, 32, 64};
    struct plan plan = {.ops = ops, .n_ops = 8, .schedule = {SCHEDULE_1F1B, 2, 1, 1}};
    double times[PIPELINE_SLOTS + 4];
    CHECK_EQ(pipeline_times(&plan.schedule), PIPELINE_SLOTS + 2);
    pipeline_add_up(&plan, op_s, times);
    CHECK_NEAR(times[PIPELINE_BEFORE], 1, 0);
    CHECK_NEAR(times[PIPELINE_NORM], 16, 0);
    CHECK_NEAR(times[PIPELINE_UPDATE], 32 + 64, 0);
    CHECK_NEAR(times[PIPELINE_SLOTS], 2 + 8, 0);
    CHECK_NEAR(times[PIPELINE_SLOTS + 1], 4, 0);
}

static struct op transfer_of(enum coll_kind kind, int direction, enum axis axis, bool with_next)
{
    struct op op = {.kind = OP_COLLECTIVE, .stream = 1, .with_next = with_next};
    op.shape.coll =
        (struct shape_coll){.coll = {.kind = kind}, .axis = axis, .direction = direction};
    return op;
}

/* Transfers keep their direction, their end and their order; one post of two has no time of its own. */
static void moves_by_hand(void)
{
    struct op ops[6] = {transfer_of(COLL_SEND, SCHEDULE_DOWN, AXIS_PP, false),
                        transfer_of(COLL_RECV, SCHEDULE_UP, AXIS_PP, false),
                        transfer_of(COLL_ALL_REDUCE, SCHEDULE_UP, AXIS_DP, false),
                        transfer_of(COLL_SEND, SCHEDULE_DOWN, AXIS_PP, true),
                        transfer_of(COLL_RECV, SCHEDULE_DOWN, AXIS_PP, false),
                        transfer_of(COLL_SEND, SCHEDULE_DOWN, AXIS_PP, false)};
    const double op_s[6] = {1, 2, 4, 8, 16, 32};
    struct plan plan = {.ops = ops, .n_ops = 6, .schedule = {SCHEDULE_INTERLEAVED, 2, 2, 3}};
    double moves[24], expected[24];
    CHECK_EQ(pipeline_moves(&plan.schedule), 24);
    for (int i = 0; i < 24; i++)
        expected[i] = -1;
    expected[(SCHEDULE_DOWN * PIPELINE_ENDS + PIPELINE_SENT) * 6] = 1;
    expected[(SCHEDULE_DOWN * PIPELINE_ENDS + PIPELINE_SENT) * 6 + 2] = 32;
    expected[(SCHEDULE_UP * PIPELINE_ENDS + PIPELINE_RECEIVED) * 6] = 2;
    pipeline_list_moves(&plan, op_s, moves);
    for (int i = 0; i < 24; i++)
        CHECK_NEAR(moves[i], expected[i], 0);
}

/* Of three transfers whose ends differ the shorter ends count, and of those the median. */
static void transfer_by_hand(void)
{
    const struct schedule s = {SCHEDULE_1F1B, 3, 2, 1};
    enum { DOWN = SCHEDULE_DOWN * PIPELINE_ENDS * 2, UP = SCHEDULE_UP * PIPELINE_ENDS * 2 };
    enum { SENT = PIPELINE_SENT * 2, RECEIVED = PIPELINE_RECEIVED * 2 };
    double moves[3][8];
    CHECK_EQ(pipeline_moves(&s), 8);
    for (int i = 0; i < 24; i++)
        moves[i / 8][i % 8] = -1;
    CHECK_NEAR(pipeline_transfer(&s, moves[0]), 0, 0); /* none is known */
    moves[0][DOWN + SENT] = 9;
    moves[1][DOWN + RECEIVED] = 3;
    moves[1][DOWN + SENT + 1] = 4;
    moves[2][DOWN + RECEIVED + 1] = 8;
    moves[2][UP + SENT] = 5;
    moves[1][UP + RECEIVED] = 7;
    moves[0][DOWN + SENT + 1] = 0.5; /* whose other end has no time */
    moves[2][DOWN + RECEIVED] = 0.25;
    CHECK_NEAR(pipeline_transfer(&s, moves[0]), 4, 0);
}

int main(void)
{
    times_by_hand();
    moves_by_hand();
    transfer_by_hand();
    CHECK_EQ(topology_load(&machine, "h100-8x400g"), 0);
    closed_forms();
    transfers_take_time();
    uneven_stages();
    memory_in_flight();
    return test_end();
}
