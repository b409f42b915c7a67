/* The POP product telescopes, names the loss that was put in, and agrees with the efficiency. */
#include "analysis/pop.h"

#include <math.h>

#include "base/err.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

enum { POINTS = 3 };

struct study {
    struct record_file file;
    struct scaling scaling;
};

static void open_study(struct study *study, const struct synthetic *points, int n)
{
    const struct record_file *list[] = {&study->file};
    *study = (struct study){0};
    study->file.points = must_alloc((size_t)n, sizeof *study->file.points);
    for (int i = 0; i < n; i++)
        synthetic_point(&study->file.points[study->file.n_points++], &points[i]);
    CHECK_EQ(scaling_init(&study->scaling, list, 1, 1), 0);
}

static void close_study(struct study *study)
{
    scaling_release(&study->scaling);
    for (int i = 0; i < study->file.n_points; i++)
        record_point_release(&study->file.points[i]);
    free(study->file.points);
}

/* Rank 1 computes 30 % longer, communication takes 4 ms outside of compute, input 1 ms. */
static void test_known_losses(void)
{
    struct synthetic points[POINTS] = {synthetic_default(1, 1), synthetic_default(1, 2),
                                       synthetic_default(1, 4)};
    struct study study;
    for (int i = 0; i < POINTS; i++)
        points[i].point = i;
    points[2].slow_rank = 1;
    points[2].slow_factor = 1.3;
    open_study(&study, points, POINTS);
    CHECK_EQ(study.scaling.n_rows, POINTS);
    const struct scaling_row *row = &study.scaling.rows[2];
    struct pop pop = pop_of(&study.scaling, row);
    double useful = 20e6 + 1e6, most = 1.3 * 20e6 + 1e6, mean = (3.0 * useful + most) / 4.0;
    double period = most + 1e6 + 4e6;
    CHECK_NEAR(pop.balance, mean / most, 1e-6);
    CHECK_NEAR(pop.communication, most / (most + 4e6), 1e-6);
    CHECK_NEAR(pop.orchestration, (most + 4e6) / period, 1e-6);
    CHECK_NEAR(pop.computation, 80e6 / (4.0 * mean), 1e-6);
    CHECK_NEAR(pop.parallel, mean / period, 1e-6);
    close_study(&study);
}

static void test_identities(void)
{
    struct synthetic points[POINTS] = {synthetic_default(1, 1), synthetic_default(1, 2),
                                       synthetic_default(1, 4)};
    struct study study;
    for (int i = 0; i < POINTS; i++) {
        points[i].point = i;
        points[i].jitter = 0.05;
        points[i].gap_ns = 2e5;
        points[i].seed = (uint64_t)i + 3;
    }
    open_study(&study, points, POINTS);
    struct pop base = pop_of(&study.scaling, &study.scaling.rows[0]);
    CHECK_NEAR(base.computation, 1.0, 1e-12);
    for (int i = 0; i < study.scaling.n_rows; i++) {
        const struct scaling_row *row = &study.scaling.rows[i];
        struct pop pop = pop_of(&study.scaling, row);
        double period = row->runs[0].account.pop.elapsed_ns;
        double base_period = study.scaling.rows[0].runs[0].account.pop.elapsed_ns;
        CHECK_NEAR(pop.balance * pop.communication * pop.orchestration, pop.parallel, 1e-14);
        CHECK_NEAR(pop.parallel * pop.computation, pop.global, 1e-14);
        CHECK_NEAR(pop.global / base.parallel, base_period / period / row->point->ranks, 1e-12);
        CHECK(pop.balance <= 1.0 && pop.communication <= 1.0 && pop.orchestration <= 1.0);
    }
    close_study(&study);
}

/* Without stamps nothing is known, and it is not 0. */
static void test_unstamped(void)
{
    struct synthetic point = synthetic_default(1, 2);
    struct study study;
    open_study(&study, &point, 1);
    struct record_point *p = &study.file.points[0];
    for (int64_t i = 0; i < p->steps.n; i++)
        p->steps.rows[i].compute_ns = 0;
    const struct record_file *list[] = {&study.file};
    scaling_release(&study.scaling);
    CHECK_EQ(scaling_init(&study.scaling, list, 1, 1), 0);
    struct pop pop = pop_of(&study.scaling, &study.scaling.rows[0]);
    CHECK(isnan(pop.parallel) && isnan(pop.balance) && isnan(pop.global));
    close_study(&study);
}

/* Communication beside compute is active too, but a rank is never active for longer than its step. */
static void test_no_longer_than_the_step(void)
{
    struct synthetic point = synthetic_default(1, 2);
    struct study study;
    open_study(&study, &point, 1);
    struct record_point *p = &study.file.points[0];
    for (int64_t i = 0; i < p->stalls.n; i++)
        if (p->stalls.rows[i].exposed_ns > 0)
            p->stalls.rows[i].exposed_ns = 1000000000;
    const struct record_file *list[] = {&study.file};
    scaling_release(&study.scaling);
    CHECK_EQ(scaling_init(&study.scaling, list, 1, 1), 0);
    const struct account_pop *pop = &study.scaling.rows[0].runs[0].account.pop;
    CHECK_NEAR(pop->useful_most_ns, 41e6, 1e-3);
    CHECK_NEAR(pop->active_most_ns, 46e6, 1e-3);
    CHECK_NEAR(pop->elapsed_ns, 46e6, 1e-3);
    close_study(&study);
}

/* Files in parts give what they give at once, also when the steps were dropped in between. */
static void test_parts(void)
{
    struct synthetic points[2] = {synthetic_default(1, 1), synthetic_default(1, 2)};
    struct study study;
    struct scaling parts = {0};
    points[1].point = 1;
    points[1].jitter = 0.02;
    open_study(&study, points, 2);
    study.file.points[1].steps.rows[7].skipped = 3;
    CHECK_EQ(scaling_add(&parts, &study.file, 0, 1), 0);
    scaling_drop_steps(&study.file);
    CHECK_EQ(study.file.points[1].steps.n, 1);
    CHECK_EQ(study.file.points[1].steps.rows[0].skipped, 3);
    scaling_join(&parts, 1);
    CHECK_EQ(parts.n_rows, study.scaling.n_rows);
    for (int i = 0; i < parts.n_rows; i++) {
        CHECK_NEAR(parts.rows[i].speedup.ratio.low, study.scaling.rows[i].speedup.ratio.low, 0.0);
        CHECK_NEAR(parts.rows[i].efficiency.ratio.high, study.scaling.rows[i].efficiency.ratio.high,
                   0.0);
        CHECK_NEAR(parts.rows[i].step_ns.low, study.scaling.rows[i].step_ns.low, 0.0);
    }
    scaling_release(&parts);
    close_study(&study);
}

int main(void)
{
    test_known_losses();
    test_identities();
    test_unstamped();
    test_no_longer_than_the_step();
    test_parts();
    return test_end();
}
