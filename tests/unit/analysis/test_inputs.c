/* A point is starved when some rank waits for more than 1 % of a step in over 5 % of steps, warm-up
 * and lead-ins apart; and points that differ in their input alone bound each other. */
#include <stdlib.h>

#include "analysis/inputs.h"
#include "tests/test.h"

enum { STEPS = 100, RANKS = 2 };

static void fill(struct record_point *point, int starved_steps, int64_t wait_ns)
{
    *point = (struct record_point){0};
    point->point.ranks = RANKS;
    point->point.nodes = 1;
    point->point.ranks_per_node = RANKS;
    strcpy(point->point.input, "file:x");
    for (int rank = 0; rank < RANKS; rank++)
        for (int step = 0; step < STEPS + 4; step++) {
            struct step_row *s = RECORD_ADD(&point->steps, 1);
            struct input_row *in = RECORD_ADD(&point->inputs, 1);
            bool extra = step >= STEPS; /* waits long, and is not measured */
            *s = (struct step_row){.step = step,
                                   .rank = rank,
                                   .start_ns = step * 2000,
                                   .end_ns = step * 2000 + 1000,
                                   .flags = extra ? step % 2 ? STEP_WARM_UP : STEP_LEAD_IN : 0};
            *in = (struct input_row){.step = step,
                                     .rank = rank,
                                     .depth = rank + 1,
                                     .input_ns = 20,
                                     .read_bytes = 7,
                                     .cpu_ns = 900,
                                     .worker_cpu_ns = 3,
                                     .resident_bytes = 1000 + rank};
            if (extra || (rank == 1 && step < starved_steps))
                in->wait_ns = wait_ns;
            s = RECORD_ADD(&point->steps, 1); /* a variant: counts for nothing */
            in = RECORD_ADD(&point->inputs, 1);
            *s = (struct step_row){.variant = VARIANT_COMPUTE, .step = step, .rank = rank};
            *in = (struct input_row){
                .variant = VARIANT_COMPUTE, .step = step, .rank = rank, .wait_ns = 1000000};
        }
}

static void test_starved(void)
{
    static const struct {
        int steps;
        int64_t wait_ns;
        bool starved;
    } cases[] = {{0, 500, false}, {5, 500, false}, {6, 500, true}, {6, 10, false}, {6, 11, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct record_point point;
        struct inputs in;
        char text[512];
        fill(&point, cases[i].steps, cases[i].wait_ns);
        inputs_of_point(&in, &point);
        CHECK_EQ(in.n_steps, STEPS);
        CHECK_EQ(in.starved, cases[i].starved);
        CHECK_NEAR(in.starved_share, cases[i].wait_ns > 10 ? cases[i].steps / 100.0 : 0, 1e-12);
        CHECK_NEAR(in.wait_ns, (double)(cases[i].steps * cases[i].wait_ns) / 200.0, 1e-9);
        CHECK_NEAR(in.input_ns, 20, 1e-12);
        CHECK_NEAR(in.read_bytes, 7, 1e-12);
        CHECK_NEAR(in.cpu_ns, 900, 1e-12);
        CHECK_NEAR(in.worker_cpu_ns, 3, 1e-12);
        CHECK_NEAR(in.depth, 1.5, 1e-12);
        CHECK_NEAR(in.resident_bytes, 1001, 0);
        CHECK_EQ(inputs_starved_sentence(text, sizeof text, &point), cases[i].starved);
        if (cases[i].starved)
            CHECK_HAS(text, "STARVED (1x2, input file:x): in 6 % of the steps");
        record_point_release(&point);
    }
    struct record_point none = {0};
    struct inputs in;
    inputs_of_point(&in, &none);
    CHECK(isnan(in.wait_ns) && isnan(in.resident_bytes) && !in.starved);
}

/* The launch that waits most, wherever it stands; one without rows is none. */
static void test_launches(void)
{
    static const int64_t wait_ns[3][2] = {{500, 900}, {900, 500}, {0, 900}};
    for (int i = 0; i < 3; i++) {
        struct record_point points[2];
        struct scaling_run runs[2];
        struct scaling_row row = {.runs = runs, .n_runs = 2, .n_used = 2};
        memset(runs, 0, sizeof runs);
        memset(points, 0, sizeof points);
        for (int k = 0; k < 2; k++) {
            runs[k].account.record = &points[k];
            if (wait_ns[i][k] > 0)
                fill(&points[k], 6, wait_ns[i][k]);
        }
        CHECK_NEAR(inputs_of_row(&row).wait_ns, 6 * 900 / 200.0, 1e-9);
        for (int k = 0; k < 2; k++)
            record_point_release(&points[k]);
    }
}

static void test_gaps(void)
{
    static const char *const names[] = {"file:x", "memory", "synthetic", "file:y"};
    struct point_row points[4] = {{0}};
    struct scaling_row rows[4] = {{0}};
    struct scaling s = {.n_rows = 4, .rows = rows};
    char text[512];
    for (int i = 0; i < 4; i++) {
        double step_ns = 4e6 - 1e6 * i; /* 4, 3, 2, 1 ms */
        strcpy(points[i].input, names[i]);
        points[i].nodes = points[i].ranks = points[i].ranks_per_node = i == 3 ? 2 : 1;
        rows[i] = (struct scaling_row){.point = &points[i], .valid = true};
        rows[i].step_ns = (struct stats_interval){step_ns, step_ns - 3e5, step_ns + 4e5, 20};
    }
    CHECK(inputs_base(&s, &rows[0]) == &rows[1]);
    CHECK(inputs_synthetic(&s, &rows[0]) == &rows[2]);
    CHECK(inputs_base(&s, &rows[1]) == &rows[2]);
    CHECK(inputs_base(&s, &rows[2]) == NULL);
    CHECK(inputs_base(&s, &rows[3]) == NULL); /* another shape */
    struct stats_interval gap = inputs_gap_ns(&rows[0], &rows[1]);
    CHECK_NEAR(gap.value, 1e6, 1e-6);
    CHECK_NEAR(gap.low, 1e6 - 5e5, 1e-6); /* 3 and 4 in quadrature */
    CHECK_NEAR(gap.high, 1e6 + 5e5, 1e-6);
    CHECK(inputs_gap_sentence(text, sizeof text, &s, &rows[0]));
    CHECK_HAS(text, "file:x - memory = +1.000 ms a step, interval +0.500 to +1.500: what reading");
    CHECK(inputs_gap_sentence(text, sizeof text, &s, &rows[1]));
    CHECK_HAS(text, "memory - synthetic = +1.000 ms");
    CHECK_HAS(text, "copy path");
    CHECK(!inputs_gap_sentence(text, sizeof text, &s, &rows[2]));
    rows[0].step_ns = (struct stats_interval){1e6, 0.9e6, 1.1e6, 20}; /* faster than memory */
    CHECK(inputs_gap_sentence(text, sizeof text, &s, &rows[0]));
    CHECK_HAS(text, "file:x - memory = -2.000 ms");
    CHECK_HAS(text, "or the machine changed");
    CHECK(strstr(text, "no faster storage") == NULL);
    rows[0].step_ns = (struct stats_interval){4e6, 3.7e6, 4.4e6, 20};
    rows[1].valid = false;
    CHECK(inputs_base(&s, &rows[0]) == &rows[2]);
    CHECK(inputs_gap_sentence(text, sizeof text, &s, &rows[0]));
    CHECK_HAS(text, "copying and reading add together");
    rows[0].step_ns.low = 1e6;
    CHECK(inputs_gap_sentence(text, sizeof text, &s, &rows[0]));
    CHECK_HAS(text, "not told from 0");
    rows[0].step_ns.low = NAN; /* so few steps that nothing bounds them from below */
    CHECK(inputs_gap_sentence(text, sizeof text, &s, &rows[0]));
    CHECK_HAS(text, "interval - to +2.500, not told from 0");
    points[0].copies = points[2].copies = 2; /* which of the two, beside the point alone */
    CHECK(inputs_gap_sentence(text, sizeof text, &s, &rows[0]));
    CHECK_HAS(text, "input at 1x1 loaded: file:x - synthetic");
}

int main(void)
{
    test_starved();
    test_launches();
    test_gaps();
    return test_end();
}
