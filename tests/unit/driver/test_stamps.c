/* Stamps become the right rows: on a device whose clock only moves when the test says so, every
 * term of a step is the number worked out by hand, and exposed communication is that of a count
 * nanosecond by nanosecond. Each stamp is made once, and none is read that was not made. */
#include "base/rng.h"
#include "base/units.h"
#include "tests/unit/driver/clockwork.h"

enum { NANOSECONDS = 400 };

/* ---- a step whose times are worked out by hand ---- */

/*
 * ns       0    10         110 113       143 146   166                260 265 270
 * compute  |input|   gemm    |p|   add    |p| add  |      stall        |sum|clip|
 * dp                         |      call 0  160 |     call 1           |
 */
static void make_step(struct plan *plan)
{
    begin_plan(plan, 1);
    plan_take(plan, BUFFER_PARAMETER, 64);
    add_compute(plan, OP_INPUT, 10, -1);
    int first = add_compute(plan, OP_GEMM, 100, -1);
    int early = add_call(plan, AXIS_DP, 50, first);
    int second = add_compute(plan, OP_ADD, 30, -1);
    int late = add_call(plan, AXIS_DP, 100, second);
    add_compute(plan, OP_ADD, 20, -1);
    add_compute(plan, OP_SUMSQ, 5, late);
    add_compute(plan, OP_CLIP, 5, early);
}

static void run(struct rig *rig, enum variant variant, int level, int n_steps, int keep,
                struct execute_samples *samples)
{
    clockwork_reset();
    execute_block(&rig->execute, variant, level, n_steps, keep, samples);
    CHECK_EQ(samples->n, n_steps);
    for (int i = 0; i < n_steps; i++) {
        CHECK_EQ(samples->step[i].variant, variant);
        CHECK_EQ(samples->step[i].step, i);
    }
}

static void full_step_by_hand(void)
{
    struct rig rig;
    struct execute_samples s;
    make_step(&rig.plan);
    rig_open(&rig, 3, false, -1);
    run(&rig, VARIANT_FULL, 2, 3, 1, &s);
    for (int i = 0; i < 3; i++) {
        const struct step_row *row = &s.step[i];
        CHECK_EQ(row->start_ns, 270 * i);
        CHECK_EQ(row->end_ns, 270 * (i + 1));
        CHECK_EQ(row->compute_ns, 160);
        CHECK_EQ(row->input_ns, 10);
        CHECK_EQ(row->stall_ns, 94);
        CHECK_EQ(row->idle_ns, 2 * POST_NS);
        CHECK_EQ(row->residual_ns, 0);
        CHECK_EQ(row->flags, STEP_INSTRUMENTED);
        CHECK_EQ(row->consumed, 8 * (i + 1));
        CHECK_EQ(row->micro_step, i + 1);
        CHECK_EQ(row->optimizer_step, 6 + i); /* steps done less those skipped */
        CHECK_EQ(row->skipped, 2);
        CHECK_EQ(row->valid_tokens, 10);
        CHECK_NEAR(row->loss, 3 * (i + 1), 0);
        CHECK_NEAR(row->grad_norm, 3 + i, 0);
        CHECK_NEAR(row->lr, (i + 1) / 1000.0, 0);
        const struct stall_row *stall = &s.rows.stalls.rows[i];
        CHECK_EQ(stall->step, i);
        CHECK(strcmp(stall->axis, "dp") == 0);
        CHECK_EQ(stall->waits, 2);
        CHECK_EQ(stall->stall_ns, 94);
        CHECK_EQ(stall->comm_ns, 150);
        CHECK_EQ(stall->exposed_ns, 150 - 30 - 20);
        CHECK_EQ(stall->wire_bytes, 4 * 150); /* two ranks: 2 (n-1)/n S = S */
    }
    CHECK_EQ(s.rows.stalls.n, 3);
    execute_samples_release(&s);
    rig_close(&rig);
}

static void rows_of_the_kept_step(void)
{
    static const char *const kind[] = {"input",      "gemm", "collective", "add",
                                       "collective", "add",  "sumsq",      "clip"};
    static const int op[] = {0, 1, 2, 3, 4, 5, 6, 7},
                     start[] = {0, 10, 110, 113, 160, 146, 260, 265},
                     length[] = {10, 100, 50, 30, 100, 20, 5, 5};
    struct rig rig;
    struct execute_samples s;
    make_step(&rig.plan);
    rig_open(&rig, 3, false, -1);
    run(&rig, VARIANT_FULL, 2, 3, 1, &s);
    CHECK_EQ(s.rows.collectives.n, 2);
    for (int i = 0; i < 2; i++) {
        const struct call_row *call = &s.rows.collectives.rows[i];
        CHECK_EQ(call->step, 1);
        CHECK_EQ(call->call, i);
        CHECK_EQ(call->start_ns, i ? 160 : 110);
        CHECK_EQ(call->duration_ns, i ? 100 : 50);
        CHECK_EQ(call->bytes, i ? 400 : 200);
        CHECK_EQ(call->group, 2);
        CHECK(strcmp(call->kind, "all-reduce") == 0 && strcmp(call->axis, "dp") == 0);
    }
    CHECK_EQ(s.rows.ops.n, 8);
    for (int i = 0; i < 8; i++) {
        const struct op_row *row = &s.rows.ops.rows[i];
        CHECK_EQ(row->step, 1);
        CHECK_EQ(row->op, op[i]);
        CHECK(strcmp(row->kind, kind[i]) == 0);
        CHECK_EQ(row->start_ns, start[i]);
        CHECK_EQ(row->duration_ns, length[i]);
        CHECK_NEAR(row->flops, i == 1 ? 60 : 0, 0); /* 2 m n k of the GEMM */
    }
    execute_samples_release(&s);
    rig_close(&rig);
}

/* Stamp levels 0 and 1 of full steps, and the variants: the same plan behind a mask. */
static void levels_and_variants(void)
{
    struct rig rig;
    struct execute_samples s;
    make_step(&rig.plan);
    rig_open(&rig, 2, true, -1);
    run(&rig, VARIANT_FULL, 0, 2, 1, &s);
    CHECK_EQ(s.step[1].end_ns, 540);
    CHECK_EQ(s.step[1].flags, STEP_BARE);
    CHECK_EQ(s.step[1].stall_ns + s.step[1].compute_ns + s.step[1].residual_ns, 0);
    CHECK_EQ(s.rows.stalls.n + s.rows.collectives.n + s.rows.ops.n, 0);
    execute_samples_release(&s);
    run(&rig, VARIANT_FULL, 1, 2, 1, &s);
    CHECK_EQ(s.step[1].flags, 0);
    CHECK_EQ(s.step[1].stall_ns, 94);
    CHECK_EQ(s.step[1].compute_ns + s.step[1].idle_ns + s.step[1].residual_ns, 0);
    CHECK_EQ(s.rows.stalls.rows[1].comm_ns, 150);
    CHECK_EQ(s.rows.stalls.rows[1].exposed_ns, -1); /* nobody knows when ops computed */
    CHECK_EQ(s.rows.collectives.n, 2);
    CHECK_EQ(s.rows.ops.n, 0);
    execute_samples_release(&s);
    run(&rig, VARIANT_COMPUTE, 2, 2, 1, &s);
    CHECK_EQ(s.step[1].end_ns, 2 * 170);
    CHECK_EQ(s.step[1].flags, STEP_INSTRUMENTED | STEP_SCRATCH);
    CHECK_EQ(s.step[1].compute_ns, 160);
    CHECK_EQ(s.step[1].stall_ns + s.step[1].idle_ns + s.step[1].residual_ns, 0);
    CHECK_EQ(s.step[1].consumed + s.step[1].valid_tokens, 0);
    CHECK_EQ(s.rows.stalls.n + s.rows.collectives.n, 0);
    CHECK_EQ(s.rows.ops.n, 6);
    execute_samples_release(&s);
    run(&rig, VARIANT_COMM, 1, 1, 0, &s);
    CHECK_EQ(s.step[0].end_ns, 150);
    CHECK_EQ(s.step[0].flags, STEP_SCRATCH);
    CHECK_EQ(s.step[0].stall_ns, 150 - 2 * POST_NS);
    CHECK_EQ(s.rows.stalls.n, 1);
    CHECK_EQ(s.rows.stalls.rows[0].comm_ns, 150);
    CHECK_EQ(s.rows.collectives.n, 2);
    CHECK_EQ(s.rows.ops.n, 0);
    execute_samples_release(&s);
    CHECK_EQ(rig.execute.consumed, 4 * 8); /* full steps alone train */
    rig_close(&rig);
}

/* A stamp that somebody waits for is made at any level; two a step otherwise at level 0. */
static void number_of_stamps(void)
{
    struct rig rig;
    struct execute_samples s;
    make_step(&rig.plan);
    rig_open(&rig, 1, false, -1);
    /* full: both ends of the step and the ends of 4 awaited ops; then 2 waits with their begins, and
     * the begins of 2 calls; then begins of 4 ops and ends of 4, and 2 a post. */
    static const int full[] = {2 + 4, 2 + 4 + 4 + 2, 2 + 4 + 4 + 2 + 4 + 4 + 4};
    for (int level = 0; level < 3; level++) {
        run(&rig, VARIANT_FULL, level, 1, 0, &s);
        CHECK_EQ(clockwork.n_made, full[level]);
        execute_samples_release(&s);
    }
    rig_close(&rig);
}

/*
 * A GPU: batches on a stream of their own, stamps that take 2 ns, a host that is 7 ns late once.
 *
 * ns       0 2     12        114  123   155 157     166  173 175  182 184
 * compute  | wait  | gemm    |late| add |   | stall |sum |  | clip|
 * copy     | input |
 * dp                         |      call        166 |
 */
static int make_gpu_step(struct plan *plan)
{
    begin_plan(plan, 1);
    plan->copy_stream = true;
    plan_take(plan, BUFFER_PARAMETER, 64);
    plan_channel(plan, AXIS_DP, 0);
    struct op op = {.kind = OP_INPUT, .layer = 10, .stream = plan_copy_stream(plan)};
    int input = plan_op(plan, &op);
    int first = add_compute(plan, OP_GEMM, 100, input);
    int call = add_call(plan, AXIS_DP, 50, first);
    int late = add_compute(plan, OP_ADD, 30, -1);
    add_compute(plan, OP_SUMSQ, 5, call);
    add_compute(plan, OP_CLIP, 5, -1);
    return late;
}

static void gpu_step_by_hand(void)
{
    struct rig rig;
    struct execute_samples s;
    int late = make_gpu_step(&rig.plan);
    rig_open_on(&rig, &fake_gpu, 1, false, -1);
    clockwork_reset();
    clockwork.late = 7;
    clockwork.late_slot = stamp_of(&rig.execute, late, STAMP_BEGIN);
    execute_block(&rig.execute, VARIANT_FULL, 2, 1, 0, &s);
    CHECK_EQ(s.step[0].start_ns, 0);
    CHECK_EQ(s.step[0].end_ns, 184);
    CHECK_EQ(s.step[0].compute_ns, 102 + 32 + 7 + 7);
    CHECK_EQ(s.step[0].input_ns, 10); /* what was waited, not what the copy took */
    CHECK_EQ(s.step[0].stall_ns, 9);
    CHECK_EQ(s.step[0].idle_ns, 7 + STAMP_NS); /* all of the gap before which the host was late */
    CHECK_EQ(s.step[0].stamps_ns, 4 * STAMP_NS);
    CHECK_EQ(s.step[0].residual_ns, 0);
    CHECK_EQ(s.rows.stalls.rows[0].comm_ns, 52);
    CHECK_EQ(s.rows.stalls.rows[0].exposed_ns, 166 - 155 + 123 - 114);
    CHECK_EQ(clockwork.n_marked, 0); /* every stamp of level 2 is read */
    execute_samples_release(&s);
    rig_close(&rig);
}

/* A gap that is neither what a stamp costs nor the host's is nobody's; an op whose kernels the host
 * gave too late computes from when it had. */
static void gpu_gaps(void)
{
    struct rig rig;
    struct execute_samples s;
    int late = make_gpu_step(&rig.plan);
    rig_open_on(&rig, &fake_gpu, 1, false, -1);
    rig.execute.device.stamp_ns = STAMP_NS - 1; /* calibrated too low */
    clockwork_reset();
    execute_block(&rig.execute, VARIANT_FULL, 2, 1, 0, &s);
    CHECK_EQ(s.step[0].idle_ns, 0);
    CHECK_EQ(s.step[0].stamps_ns, 5 * (STAMP_NS - 1));
    CHECK_EQ(s.step[0].residual_ns, 5);
    CHECK_EQ(s.step[0].flags, STEP_INSTRUMENTED);
    CHECK(s.step[0].host_ns >= 0);
    execute_samples_release(&s);
    rig.execute.device.stamp_ns = STAMP_NS;
    clockwork_reset();
    clockwork.late = 11; /* its kernels come 11 ns after its first stamp was reached */
    clockwork.late_slot = stamp_of(&rig.execute, late, STAMP_END);
    execute_block(&rig.execute, VARIANT_FULL, 2, 1, 0, &s);
    CHECK_EQ(s.step[0].idle_ns,
             32 + 11); /* known only: the host had not given the whole op by then */
    CHECK_EQ(s.step[0].compute_ns, 102 + 7 + 7);
    CHECK_EQ(s.step[0].residual_ns, 0);
    execute_samples_release(&s);
    rig_close(&rig);
}

/* What only orders is no timed stamp: at level 1 the ends of ops that are waited for, at level 0 those
 * of calls too. */
static void gpu_marks(void)
{
    static const int marks[] = {3, 2, 0};
    struct rig rig;
    struct execute_samples s;
    make_gpu_step(&rig.plan);
    rig_open_on(&rig, &fake_gpu, 1, false, -1);
    for (int level = 0; level < 3; level++) {
        run(&rig, VARIANT_FULL, level, 1, 0, &s);
        CHECK_EQ(clockwork.n_marked, marks[level]);
        CHECK_EQ(s.step[0].stall_ns > 0, level > 0);
        execute_samples_release(&s);
    }
    rig_close(&rig);
}

/* ---- calls whose parts routing decides ---- */

enum { EVEN = 6 }; /* elements of a part, as the plan has it */

struct routed {
    struct execute *execute;
    int64_t send[2], receive[2];
    int64_t waited_ns;
};

/* Step by step another routing; and a wait of the host, which is none of its own time. */
static void route(void *arg, int step)
{
    struct routed *routed = arg;
    int64_t begin = units_now_ns();
    routed->send[1] = 2 * EVEN - 1 - step, routed->send[0] = 1 + step;
    routed->receive[0] = 3, routed->receive[1] = 20 * step;
    units_sleep_ns(1000000);
    int64_t waited_ns = units_now_ns() - begin;
    routed->waited_ns += waited_ns;
    routed->execute->context.waited_ns += waited_ns;
}

static void make_routed(struct plan *plan, struct routed *routed)
{
    begin_plan(plan, 1);
    plan_take(plan, BUFFER_PARAMETER, 64);
    int first = add_compute(plan, OP_GEMM, 100, -1);
    int call = add_call(plan, AXIS_DP, 50, first);
    int counted = add_call(plan, AXIS_DP, 2 * EVEN, first);
    struct shape_coll *shape = &plan->ops[counted].shape.coll;
    for (int i = 0; i < 2; i++)
        routed->send[i] = routed->receive[i] = EVEN;
    shape->coll = coll_all_to_all_v(DTYPE_F32, 2 * EVEN, 2, 0, routed->send, routed->receive);
    shape->counted = true;
    plan_wait(plan, add_compute(plan, OP_CLIP, 5, call), counted);
}

static void routed_calls(void)
{
    enum { N_STEPS = 3 };
    struct rig rig;
    struct execute_samples s;
    struct routed routed = {.execute = &rig.execute};
    make_routed(&rig.plan, &routed);
    rig_open(&rig, N_STEPS, false, -1);
    rig.execute.hook = (struct execute_hook){.arg = &routed, .step = route};
    int64_t begin = units_now_ns(), host_ns = 0;
    run(&rig, VARIANT_FULL, 2, N_STEPS, EXECUTE_KEEP_ALL, &s);
    int64_t took_ns = units_now_ns() - begin;
    CHECK_EQ(s.rows.collectives.n, 2 * N_STEPS);
    for (int i = 0; i < N_STEPS; i++) {
        int64_t most = 20 * i + 3 > 2 * EVEN ? 20 * i + 3 : 2 * EVEN;
        CHECK_EQ(s.rows.collectives.rows[2 * i].bytes, 4 * 50);
        CHECK_EQ(s.rows.collectives.rows[2 * i + 1].bytes, 4 * most);
        CHECK_EQ(s.rows.stalls.rows[i].wire_bytes, 4 * 50 + 4 * (2 * EVEN - 1 - i));
        host_ns += s.step[i].host_ns;
        CHECK(s.step[i].host_ns > 0);
    }
    CHECK(host_ns <= took_ns - routed.waited_ns);
    execute_samples_release(&s);
    rig_close(&rig);
}

/* An op that is not launched leaves its stamps, so that whoever waits for it goes on. */
static void dropped_op(void)
{
    struct rig rig;
    struct execute_samples s;
    make_step(&rig.plan);
    rig_open(&rig, 1, false, 1);
    run(&rig, VARIANT_FULL, 2, 1, 0, &s);
    CHECK_EQ(s.step[0].compute_ns, 60);
    CHECK_EQ(s.rows.collectives.rows[0].start_ns, 10);
    CHECK_EQ(rig.execute.ops_given_out, 7);
    execute_samples_release(&s);
    rig_close(&rig);
}

/* ---- exposed communication of any stamps ---- */

struct span {
    int64_t begin, end;
};

enum { MOST = 12 };
struct spans {
    int n;
    struct span of[MOST];
};

/* Ops of the given spans, two axes of communication; returns the rows of an instrumented step. */
static void read_spans(struct rig *rig, const struct spans *compute, const struct spans comm[2],
                       struct execute_samples *out)
{
    static const enum axis axis[] = {AXIS_DP, AXIS_TP};
    begin_plan(&rig->plan, 2);
    int input = add_compute(&rig->plan, OP_INPUT, 0, -1);
    for (int i = 0; i < compute->n; i++)
        add_compute(&rig->plan, OP_ADD, 0, -1);
    for (int a = 0; a < 2; a++)
        for (int i = 0; i < comm[a].n; i++)
            add_call(&rig->plan, axis[a], 1, input);
    rig_open(rig, 1, false, -1);
    clockwork_reset();
    for (int i = 0; i < stamps_per_step(&rig->execute); i++)
        clockwork.made[i] = true;
    int64_t *when = clockwork.when;
    when[stamp_of(&rig->execute, input, STAMP_END)] =
        NANOSECONDS; /* input is no computation that hides */
    when[STAMP_STEP_END] = NANOSECONDS;
    int op = input + 1;
    for (int i = 0; i < compute->n; i++, op++) {
        when[stamp_of(&rig->execute, op, STAMP_BEGIN)] = compute->of[i].begin;
        when[stamp_of(&rig->execute, op, STAMP_END)] = compute->of[i].end;
    }
    for (int a = 0; a < 2; a++)
        for (int i = 0; i < comm[a].n; i++, op++) {
            when[stamp_of(&rig->execute, op, STAMP_BEGIN)] = comm[a].of[i].begin;
            when[stamp_of(&rig->execute, op, STAMP_END)] = comm[a].of[i].end;
        }
    struct execute_fence fence = {
        .variant = VARIANT_FULL, .level = 2, .n_steps = 1, .keep = -1, .samples = out};
    stamps_to_samples(&rig->execute, &fence);
}

static void mark(const struct spans *spans, bool *busy)
{
    memset(busy, 0, NANOSECONDS * sizeof *busy);
    for (int i = 0; i < spans->n; i++)
        for (int64_t t = spans->of[i].begin; t < spans->of[i].end; t++)
            busy[t] = true;
}

/* Nanosecond by nanosecond. */
static void check_spans(const struct spans *compute, const struct spans comm[2])
{
    struct rig rig;
    struct execute_samples s;
    static bool computes[NANOSECONDS], communicates[NANOSECONDS];
    read_spans(&rig, compute, comm, &s);
    mark(compute, computes);
    int64_t row = 0;
    for (int a = 1; a >= 0; a--) { /* the order of axes: tp before dp */
        if (comm[a].n == 0)
            continue;
        int64_t union_ns = 0, exposed_ns = 0;
        mark(&comm[a], communicates);
        for (int t = 0; t < NANOSECONDS; t++) {
            union_ns += communicates[t];
            exposed_ns += communicates[t] && !computes[t];
        }
        CHECK_EQ(s.rows.stalls.rows[row].comm_ns, union_ns);
        CHECK_EQ(s.rows.stalls.rows[row].exposed_ns, exposed_ns);
        row++;
    }
    CHECK_EQ(s.rows.stalls.n, row);
    execute_samples_release(&s);
    rig_close(&rig);
}

static void exposed_by_hand(void)
{
    static const struct {
        struct spans compute, comm;
        int64_t comm_ns, exposed_ns;
    } cases[] = {
        {{0}, {1, {{5, 9}}}, 4, 4},                                        /* nothing computes */
        {{1, {{0, 20}}}, {1, {{5, 9}}}, 4, 0},                             /* all hidden */
        {{1, {{5, 9}}}, {1, {{0, 20}}}, 20, 16},                           /* computes inside */
        {{1, {{0, 5}}}, {1, {{5, 9}}}, 4, 4},                              /* touching ends */
        {{1, {{0, 7}}}, {1, {{5, 9}}}, 4, 2},                              /* the end sticks out */
        {{1, {{7, 20}}}, {1, {{5, 9}}}, 4, 2},                             /* the begin does */
        {{2, {{0, 10}, {10, 20}}}, {1, {{5, 15}}}, 10, 0},                 /* two ops hide it */
        {{2, {{0, 6}, {12, 20}}}, {1, {{5, 15}}}, 10, 6},                  /* a gap between them */
        {{1, {{0, 3}}}, {2, {{5, 9}, {7, 15}}}, 10, 10},                   /* calls overlap */
        {{1, {{8, 10}}}, {2, {{5, 20}, {7, 9}}}, 15, 13},                  /* one inside another */
        {{1, {{6, 8}}}, {2, {{10, 12}, {5, 9}}}, 6, 4},                    /* out of order */
        {{1, {{4, 20}}}, {2, {{5, 9}, {9, 12}}}, 7, 0},                    /* touching calls */
        {{3, {{0, 6}, {8, 11}, {14, 16}}}, {2, {{5, 9}, {10, 15}}}, 9, 5}, /* woven */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig rig;
        struct execute_samples s;
        struct spans comm[2] = {cases[i].comm, {0}};
        read_spans(&rig, &cases[i].compute, comm, &s);
        CHECK_EQ(s.rows.stalls.rows[0].comm_ns, cases[i].comm_ns);
        CHECK_EQ(s.rows.stalls.rows[0].exposed_ns, cases[i].exposed_ns);
        execute_samples_release(&s);
        rig_close(&rig);
        check_spans(&cases[i].compute, comm);
    }
}

static int64_t draw(uint64_t *at, int64_t below)
{
    return (int64_t)rng_below(rng_key(7, "stamps"), (*at)++, (uint32_t)below);
}

static void exposed_at_random(void)
{
    uint64_t at = 0;
    for (int trial = 0; trial < 300; trial++) {
        struct spans compute = {0}, comm[2] = {0};
        int64_t now = 0;
        compute.n = (int)draw(&at, MOST + 1);
        for (int i = 0; i < compute.n; i++) {
            int64_t begin = now + draw(&at, 15);
            now = begin + draw(&at, 18);
            compute.of[i] = (struct span){begin, now};
        }
        for (int a = 0; a < 2; a++) {
            comm[a].n = (int)draw(&at, MOST + 1);
            for (int i = 0; i < comm[a].n; i++) {
                int64_t begin = draw(&at, NANOSECONDS - 60);
                comm[a].of[i] = (struct span){begin, begin + draw(&at, 60)};
            }
        }
        check_spans(&compute, comm);
    }
}

int main(void)
{
    full_step_by_hand();
    rows_of_the_kept_step();
    levels_and_variants();
    number_of_stamps();
    gpu_step_by_hand();
    gpu_gaps();
    gpu_marks();
    dropped_op();
    routed_calls();
    exposed_by_hand();
    exposed_at_random();
    return test_end();
}
