/* Candidates of --comm-tune: every one is asked for in its turn, what one rank's library cannot do is refused on
 * all and not timed, and steps go on with the communicators that were taken and give what they gave before. */
#include "driver/tune.h"

#include <mpi.h>
#include <string.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/transformer.h"

static const MPI_Comm world = MPI_COMM_WORLD;
static int rank, size;

/* ---- a library that can be set up, but without blocks on the last rank, and has no windows there ---- */

static struct comm_type comm;
static struct comm_setup asked[TUNE_ROWS + 1]; /* and the one that is taken */
static int n_asked, n_opened, n_enrolled;

static bool last(void)
{
    return rank == size - 1;
}

static int set_up(const struct comm_setup *setup)
{
    CHECK(n_asked < TUNE_ROWS + 1);
    asked[n_asked++] = *setup;
    return setup->blocks == COMM_NO_BLOCKS && last() ? fail(FAIL_ABSENT, "a test: no policy") : 0;
}

static int open_counted(struct comm *on, const void *parent, int max_calls)
{
    n_opened++;
    return comm_mpi.open(on, parent, max_calls);
}

static int enrol(struct comm *on, void *memory, size_t bytes, enum comm_enrolment how)
{
    (void)on, (void)memory;
    CHECK(bytes > 0);
    n_enrolled++;
    return how == ENROL_WINDOWS && last() ? fail(FAIL_ABSENT, "a test: no windows") : 0;
}

/* ---- a point ---- */

static double losses(struct execute *execute)
{
    struct execute_samples samples;
    execute_reset(execute, 1);
    execute_block(execute, VARIANT_FULL, 0, 2, -1, &samples);
    double loss = samples.step[1].loss;
    execute_samples_release(&samples);
    return loss;
}

static void rows(const struct tune *t)
{
    static const struct tune_row expected[] = {
        {.enrolment = ENROL_NOTHING},
        {.enrolment = ENROL_BUFFERS},
        {.enrolment = ENROL_WINDOWS, .refused = true},
        {.enrolment = ENROL_WINDOWS, .setup = {.blocks = COMM_NO_BLOCKS}, .refused = true},
        {.setup = {.blocks = COMM_FEW_BLOCKS}},
        {.setup = {.max_ctas = 16}},
        {.setup = {.max_ctas = 8}},
        {.setup = {.max_ctas = 4}},
        {.beside = true},
        {.enrolment = ENROL_NOTHING},
    };
    CHECK_EQ(t->n, (int)(sizeof expected / sizeof *expected));
    for (int i = 0; i < t->n; i++) {
        const struct tune_row *row = &t->row[i], *want = &expected[i];
        CHECK_EQ(row->refused, want->refused);
        CHECK_EQ(row->beside, want->beside);
        CHECK_EQ(row->step_ms > 0, !want->refused);
        CHECK_EQ(row->alone_ms > 0, !want->refused);
        if (i != 8) { /* the best so far, beside products */
            CHECK_EQ(row->setup.max_ctas, want->setup.max_ctas);
            CHECK_EQ(row->setup.blocks, want->setup.blocks);
        }
        if (i < 4 || i == 9)
            CHECK_EQ(row->enrolment, want->enrolment);
        CHECK_EQ(memcmp(&asked[i], &row->setup, sizeof asked[i]), 0);
    }
    CHECK(t->chosen >= 0 && t->chosen < t->n && !t->row[t->chosen].refused);
    CHECK_EQ(n_asked, t->n + 1);
    CHECK_EQ(memcmp(&asked[t->n], &t->row[t->chosen].setup, sizeof asked[0]), 0);
}

static void words(const struct tune *t)
{
    char text[2048];
    tune_say(t, text, sizeof text);
    CHECK_HAS(text, "nothing registered, the library's blocks: step ");
    CHECK_HAS(text, "windows, no blocks where copies do: refused\n");
    CHECK_HAS(text, "few blocks: step ");
    CHECK_HAS(text, "at most 8 blocks: step ");
    CHECK_HAS(text, "(taken)");
}

static void tunes(const struct plan *plan, const struct input *input)
{
    struct backend backend = {.device = &device_cpu, .comm = &comm, .kernels = &kernels_cpu};
    struct execute_config config = {.plan = plan,
                                    .backend = &backend,
                                    .input = input,
                                    .parent = &world,
                                    .max_steps = 4,
                                    .fault = {.drop_op = -1}};
    struct execute execute;
    struct tune tune;
    CHECK_EQ(execute_open(&execute, &config), 0);
    double before = losses(&execute);
    int channels = n_opened;
    CHECK_EQ(tune_comms(&tune, &execute, &config), 0);
    if (plan->n_channels == 0) {
        CHECK_EQ(tune.n, 0);
        CHECK_EQ(n_asked, 0);
    } else {
        rows(&tune);
        words(&tune);
        CHECK(n_enrolled > 0);
        CHECK_EQ(n_opened, channels * (1 + tune.n - 1 + 1)); /* but for the one refused before */
    }
    CHECK_NEAR(losses(&execute), before, 0);
    execute_close(&execute);
}

int main(int argc, char **argv)
{
    int provided;
    struct model model;
    struct layout layout;
    struct degrees degrees = {0};
    struct policy policy;
    struct plan plan;
    struct input input;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    comm = comm_mpi;
    comm.set_up = set_up;
    comm.open = open_counted;
    comm.enrol = enrol;
    CHECK_EQ(model_load(&model, "tiny"), 0);
    model.sequence = 16;
    model.layers = 2;
    policy_defaults(&policy, &model);
    policy.global_batch = 2 * size;
    policy.micro_batch = 2;
    CHECK_EQ(layout_init(&layout, size, 1, rank, &degrees), 0);
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), 0);
    CHECK_EQ(input_open(&input, "synthetic", 3, model.vocabulary, 16, 0, 0), 0);
    tunes(&plan, &input);
    input_close(&input);
    plan_release(&plan);
    MPI_Finalize();
    return test_end();
}
