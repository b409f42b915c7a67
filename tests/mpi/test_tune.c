/* Candidates of --comm-tune: every one is asked for in its turn, what one rank's library cannot do is refused on
 * all and not timed, and steps go on with the communicators that were taken and give what they gave before. */
#include "driver/tune.h"

#include <mpi.h>
#include <string.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/transformer.h"

static const MPI_Comm world = MPI_COMM_WORLD;
static const double seconds = 0.06;
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

enum { BESIDE = 8, TURNS = TUNE_CANDIDATES + 1 };

static bool is_turn(int i)
{
    return i >= TURNS && (i - TURNS) % 2 == 0;
}

/* The fastest of the others had each turn between the library's own, and only these turns decide. */
static void favourite(const struct tune *t)
{
    int fastest = 1;
    bool shorter = true;
    for (int i = 1; i <= BESIDE; i++)
        if (!t->row[i].refused &&
            (t->row[fastest].refused || t->row[i].step_ms < t->row[fastest].step_ms))
            fastest = i;
    for (int i = TURNS; i < t->n; i += 2) {
        const struct tune_row *turn = &t->row[i];
        double before = turn[-1].step_ms, after = turn[1].step_ms;
        CHECK_EQ(memcmp(&turn->setup, &t->row[fastest].setup, sizeof turn->setup), 0);
        CHECK_EQ(turn->beside, t->row[fastest].beside);
        shorter = shorter && turn->step_ms < before && turn->step_ms < after &&
                  turn->step_ms < 0.995 * (before + after) / 2;
    }
    CHECK_EQ(t->chosen, shorter ? TURNS : 0);
}

/* Weights of zeros would do: steps would be of as much work and all sums finite; but not of a model. */
static void of_a_model(struct execute *execute)
{
    struct execute_samples samples;
    execute_block(execute, VARIANT_FULL, 0, 1, -1, &samples);
    CHECK(samples.step[0].grad_norm > 0.1);
    execute_samples_release(&samples);
}

static void rows(const struct tune *t)
{
    static const struct tune_row expected[] = {
        {.setup = {.enrolment = ENROL_NOTHING}},
        {.setup = {.enrolment = ENROL_BUFFERS}},
        {.setup = {.enrolment = ENROL_WINDOWS}, .refused = true},
        {.setup = {.enrolment = ENROL_WINDOWS, .blocks = COMM_NO_BLOCKS}, .refused = true},
        {.setup = {.blocks = COMM_FEW_BLOCKS}},
        {.setup = {.max_ctas = 16}},
        {.setup = {.max_ctas = 8}},
        {.setup = {.max_ctas = 4}},
        {.beside = true},
        /* the favourite's turns, whatever it is, between the library's own */
        {.setup = {.enrolment = ENROL_NOTHING}},
        {.beside = true},
        {.setup = {.enrolment = ENROL_NOTHING}},
        {.beside = true},
        {.setup = {.enrolment = ENROL_NOTHING}},
        {.beside = true},
        {.setup = {.enrolment = ENROL_NOTHING}},
    };
    CHECK_EQ(t->n, (int)(sizeof expected / sizeof *expected));
    for (int i = 0; i < t->n; i++) {
        const struct tune_row *row = &t->row[i], *want = &expected[i];
        CHECK_EQ(row->refused, want->refused);
        if (!is_turn(i))
            CHECK_EQ(row->beside, want->beside);
        CHECK_EQ(row->step_ms > 0, !want->refused);
        CHECK_EQ(row->alone_ms > 0, !want->refused);
        CHECK(row->refused || row->steps * row->step_ms >= seconds * 1e3 * (1 - 1e-12));
        if (i != BESIDE && !is_turn(i)) {
            CHECK_EQ(row->setup.max_ctas, want->setup.max_ctas);
            CHECK_EQ(row->setup.blocks, want->setup.blocks);
        }
        if (i < 4 || (i >= TUNE_CANDIDATES && !is_turn(i)))
            CHECK_EQ(row->setup.enrolment, want->setup.enrolment);
        CHECK_EQ(memcmp(&asked[i], &row->setup, sizeof asked[i]), 0);
    }
    favourite(t);
    CHECK(t->chosen >= 0 && t->chosen < t->n && !t->row[t->chosen].refused);
    CHECK(t->seconds > seconds * (3 + 1.5 * (t->n - 2))); /* heated before, led in each time */
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
    CHECK_HAS(text, " (taken");
}

/* What is asked for is made once and not timed, and each executor says anew what it wants; what a rank's
 * library refuses is said in its words. */
static void takes(const struct execute_config *config, double loss)
{
    static const struct {
        const char *text;
        int rc;
        const char *words;
    } cases[] = {{"buffers,8", 0, ""},
                 {"windows", FAIL_ABSENT, "a test: no windows"},
                 {"windows,none", FAIL_ABSENT, "a test: no policy"},
                 {"nothing", 0, ""}};
    struct backend backend = *config->backend;
    struct execute_config asks = *config;
    asks.backend = &backend;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct execute execute;
        n_asked = n_opened = n_enrolled = 0;
        fail_clear();
        CHECK_EQ(comm_setup_parse(&backend.comm_setup, cases[i].text), 0);
        int wanted = config->plan->n_channels > 0 ? cases[i].rc : 0;
        CHECK_EQ(execute_open(&execute, &asks), wanted);
        if (wanted != 0 && last())
            CHECK_HAS(fail_message(), cases[i].words);
        if (config->plan->n_channels > 0) {
            CHECK_EQ(n_asked, 1);
            CHECK_EQ(memcmp(&asked[0], &backend.comm_setup, sizeof asked[0]), 0);
            CHECK_EQ(n_enrolled > 0, i < 2);
        }
        if (wanted == 0) {
            CHECK_EQ(n_opened, execute.n_comms);
            CHECK_NEAR(losses(&execute), loss, 0);
        }
        execute_close(&execute);
    }
    fail_clear();
}

static void said(void)
{
    struct tune tune;
    char text[512];
    tune_asked(&tune, &(struct comm_setup){.enrolment = ENROL_BUFFERS, .max_ctas = 8});
    tune_say(&tune, text, sizeof text);
    CHECK_EQ(strcmp(text, "buffers, at most 8 blocks, as asked"), 0);
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
    int channels = n_opened;
    n_asked = 0;
    CHECK_EQ(tune_comms(&tune, &execute, &config, 1, seconds), 0);
    if (plan->n_channels == 0) {
        CHECK_EQ(tune.n, 0);
        CHECK_EQ(n_asked, 0);
    } else {
        of_a_model(&execute);
        rows(&tune);
        words(&tune);
        CHECK(n_enrolled > 0);
        CHECK_EQ(n_opened, channels * (1 + tune.n - 1 + 1)); /* but for the one refused before */
    }
    double loss = losses(&execute);
    execute_close(&execute);
    takes(&config, loss);
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
    said();
    input_close(&input);
    plan_release(&plan);
    MPI_Finalize();
    return test_end();
}
