/* Speedup and efficiency of a known curve come out; bases, refusals to compare, and pairs hold. */
#include "analysis/scaling.h"

#include "base/err.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

enum { FILES_MAX = 4 };

struct curve {
    struct record_file files[FILES_MAX];
    const struct record_file *list[FILES_MAX];
    struct scaling scaling;
    int n_files;
};

static void add_point(struct record_file *file, const struct synthetic *s)
{
    size_t room = (size_t)file->n_points + 1;
    file->points = realloc(file->points, room * sizeof *file->points);
    synthetic_point(&file->points[file->n_points++], s);
}

static void add_shape(struct record_file *file, int nodes, int ranks_per_node)
{
    struct synthetic s = synthetic_default(nodes, ranks_per_node);
    s.point = file->n_points;
    s.jitter = 0.01;
    s.seed = (uint64_t)file->n_points + 1;
    add_point(file, &s);
}

static int analyse(struct curve *c)
{
    for (int i = 0; i < c->n_files; i++)
        c->list[i] = &c->files[i];
    return scaling_init(&c->scaling, c->list, c->n_files, 1);
}

static void release(struct curve *c)
{
    scaling_release(&c->scaling);
    for (int i = 0; i < c->n_files; i++) {
        for (int j = 0; j < c->files[i].n_points; j++)
            record_point_release(&c->files[i].points[j]);
        free(c->files[i].points);
    }
}

static const struct scaling_row *row_of(const struct curve *c, int nodes, int ranks_per_node)
{
    for (int i = 0; i < c->scaling.n_rows; i++)
        if (c->scaling.rows[i].point->nodes == nodes &&
            c->scaling.rows[i].point->ranks_per_node == ranks_per_node)
            return &c->scaling.rows[i];
    CHECK(false);
    return &c->scaling.rows[0];
}

static int base_ranks(const struct curve *c, const struct scaling_ratio *ratio)
{
    return ratio->base < 0 ? -1 : c->scaling.rows[ratio->base].point->ranks;
}

/* 81 ms on one rank; 46 on two, 26 on four. */
static void test_strong_curve(void)
{
    struct curve c = {.n_files = 1};
    const struct {
        int nodes;
        double step_ms, speedup, inc;
    } truth[] = {{1, 81, 1, 0}, {2, 46, 81.0 / 46, 81.0 / 92}, {4, 26, 81.0 / 26, 46.0 / 52}};
    for (int i = 0; i < 3; i++)
        add_shape(&c.files[0], truth[i].nodes, 1);
    CHECK_EQ(analyse(&c), 0);
    CHECK_EQ(c.scaling.n_rows, 3);
    CHECK_EQ(c.scaling.n_sets, 1);
    CHECK_EQ(c.scaling.n_launches, 1);
    for (int i = 0; i < 3; i++) {
        const struct scaling_row *row = &c.scaling.rows[i];
        int n = truth[i].nodes;
        CHECK_EQ(row->point->nodes, n);
        CHECK_NEAR(row->step_ns.value / 1e6, truth[i].step_ms, 0.01 * truth[i].step_ms);
        CHECK_NEAR(row->tokens_per_s.value * row->step_ns.value, 1024e9, 1e-3);
        CHECK(row->tokens_per_s.low < row->tokens_per_s.value);
        CHECK_NEAR(row->speedup.ratio.value, truth[i].speedup, 0.02);
        CHECK_NEAR(row->efficiency.ratio.value, row->speedup.ratio.value / n, 1e-12);
        CHECK_NEAR(row->eff_device.ratio.value, row->speedup.ratio.value / n, 1e-12);
        CHECK_NEAR(row->eff_node.ratio.value, row->speedup.ratio.value / n, 1e-12);
        if (i == 0)
            CHECK(row->incremental.base < 0 && isnan(row->incremental.ratio.value));
        else
            CHECK_NEAR(row->incremental.ratio.value, truth[i].inc, 0.02);
        CHECK(!row->speedup.unpaired);
    }
    CHECK_NEAR(c.scaling.rows[0].speedup.ratio.value, 1, 0);
    release(&c);
}

static void test_weak_curve(void)
{
    struct curve c = {.n_files = 1};
    for (int n = 1; n <= 4; n *= 2) {
        struct synthetic s = synthetic_default(n, 1);
        s.point = c.files[0].n_points;
        s.global_batch = 4 * n;
        s.compute_ns = 20e6;
        add_point(&c.files[0], &s);
        strcpy(c.files[0].points[s.point].point.scaling, "weak");
    }
    CHECK_EQ(analyse(&c), 0);
    CHECK_EQ(c.scaling.n_sets, 1);
    CHECK_NEAR(row_of(&c, 4, 1)->efficiency.ratio.value, 21.0 / 26, 1e-9); /* T(1) / T(N) */
    CHECK_NEAR(row_of(&c, 4, 1)->speedup.ratio.value, 4 * 21.0 / 26, 1e-9);
    CHECK_NEAR(row_of(&c, 4, 1)->p50_ns, 26e6, 1e-3); /* all steps are alike */
    CHECK_NEAR(row_of(&c, 4, 1)->p99_ns, 26e6, 1e-3);
    CHECK_NEAR(row_of(&c, 4, 1)->cv, 0, 1e-12);
    release(&c);
}

/* 2x8 and 4x4 have the same ranks and are never joined; parts of one node lead to both. */
static void test_shapes(void)
{
    struct curve c = {.n_files = 1};
    const int shapes[][2] = {{1, 1}, {1, 2}, {1, 8}, {2, 8}, {4, 4}};
    for (int i = 0; i < 5; i++)
        add_shape(&c.files[0], shapes[i][0], shapes[i][1]);
    CHECK_EQ(analyse(&c), 0);
    const struct scaling_row *wide = row_of(&c, 2, 8), *narrow = row_of(&c, 4, 4);
    CHECK_EQ(base_ranks(&c, &wide->speedup), 1);
    CHECK_EQ(base_ranks(&c, &wide->eff_device), 1);
    CHECK_EQ(base_ranks(&c, &wide->eff_node), 8);
    CHECK_EQ(base_ranks(&c, &wide->incremental), 8);
    CHECK_EQ(base_ranks(&c, &narrow->eff_node), -1); /* 1x4 was not measured */
    CHECK(isnan(narrow->eff_node.ratio.value));
    CHECK_EQ(base_ranks(&c, &narrow->incremental), 2);
    CHECK_EQ(base_ranks(&c, &row_of(&c, 1, 2)->eff_node), -1); /* a part of a node is no node */
    CHECK_EQ(base_ranks(&c, &row_of(&c, 1, 8)->eff_node), 8);
    /* So there are two curves: of 8 a node, and of 4; 1 and 2 are parts of both. */
    int opened = 0, points[9] = {0};
    for (int i = 0; i < c.scaling.n_rows; i++) {
        int shape = c.scaling.rows[i].point->ranks_per_node;
        if (!scaling_opens_shape(&c.scaling, i))
            continue;
        opened++;
        for (int k = 0; k < c.scaling.n_rows; k++)
            points[shape] += scaling_has_shape(&c.scaling.rows[k], c.scaling.rows[i].set, shape);
    }
    CHECK_EQ(opened, 2);
    CHECK_EQ(points[8], 4);
    CHECK_EQ(points[4], 3);
    release(&c);
}

/* One node while all worked takes 101 ms, alone 81: a second base, and no point of the curve. */
static void test_loaded_base(void)
{
    struct curve c = {.n_files = 1};
    for (int i = 0; i < 3; i++) {
        struct synthetic s = synthetic_default(i == 2 ? 2 : 1, 1);
        s.point = i;
        s.compute_ns = i == 1 ? 100e6 : s.compute_ns;
        add_point(&c.files[0], &s);
        c.files[0].points[i].point.copies = i == 1 ? 2 : 1;
    }
    CHECK_EQ(analyse(&c), 0);
    CHECK_EQ(c.scaling.n_sets, 1);
    CHECK_EQ(c.scaling.n_rows, 3);
    const struct scaling_row *alone = &c.scaling.rows[0], *loaded = &c.scaling.rows[1];
    const struct scaling_row *two = &c.scaling.rows[2];
    CHECK(alone->point->copies == 1 && loaded->point->copies == 2 && two->point->nodes == 2);
    CHECK_EQ(two->speedup.base, 0);
    CHECK_EQ(two->eff_node.base, 0);
    CHECK_EQ(two->incremental.base, 0);
    CHECK_NEAR(two->eff_node.ratio.value, 81.0 / 46 / 2, 1e-9);
    CHECK_EQ(two->eff_loaded.base, 1);
    CHECK_NEAR(two->eff_loaded.ratio.value, 101.0 / 46 / 2, 1e-9);
    CHECK_NEAR(loaded->eff_node.ratio.value, 81.0 / 101, 1e-9);
    CHECK_EQ(loaded->incremental.base, -1);
    c.files[0].points[1].point.oversubscribed = 1; /* cores were shared: says nothing of nodes */
    scaling_release(&c.scaling);
    CHECK_EQ(analyse(&c), 0);
    CHECK_EQ(c.scaling.rows[2].eff_loaded.base, -1);
    release(&c);
}

/* Another model, micro-batch, degree or machine of a timed device is another set: never compared. */
static void test_sets(void)
{
    struct curve c = {.n_files = 1};
    for (int i = 0; i < 7; i++)
        add_shape(&c.files[0], 1 << i % 2, 1);
    strcpy(c.files[0].points[5].point.topology, "laptop");
    strcpy(c.files[0].points[6].point.topology, "node:16 gpu:8");
    strcpy(c.files[0].points[2].point.model, "other");
    c.files[0].points[3].point.micro_batch = 2;
    c.files[0].points[4].point.global_batch = 32;
    CHECK_EQ(analyse(&c), 0);
    CHECK_EQ(c.scaling.n_sets, 6);
    int alone = 0;
    for (int i = 0; i < c.scaling.n_rows; i++)
        alone += &c.scaling.rows[i] == &c.scaling.rows[c.scaling.rows[i].speedup.base];
    CHECK_EQ(alone, 6);
    release(&c);
}

static void test_invalid_points(void)
{
    struct curve c = {.n_files = 1};
    for (int i = 0; i < 3; i++)
        add_shape(&c.files[0], 1 << i, 1);
    c.files[0].points[0].point.valid = 0;
    c.files[0].points[0].point.settled = 0;
    CHECK_EQ(analyse(&c), 0);
    const struct scaling_row *first = row_of(&c, 1, 1), *last = row_of(&c, 4, 1);
    CHECK(!first->valid && first->step_ns.n > 0); /* visible */
    CHECK_EQ(first->speedup.base, -1);
    CHECK(isnan(first->speedup.ratio.value) && isnan(first->eff_device.ratio.value));
    CHECK_EQ(base_ranks(&c, &last->speedup), 2); /* the smallest that is valid */
    CHECK_EQ(base_ranks(&c, &last->eff_device), -1);
    CHECK_NEAR(last->speedup.ratio.value, 46.0 / 26, 0.03);
    release(&c);
}

/* Launches of one study: rows of one point are joined, ratios are taken inside each launch. */
static void test_launches(void)
{
    struct curve c = {.n_files = 3};
    for (int i = 0; i < 3; i++)
        for (int n = 1; n <= 2; n++) {
            struct synthetic s = synthetic_default(n, 1);
            s.point = n - 1;
            s.seed = (uint64_t)(10 * i + n);
            s.jitter = 0.001;
            s.compute_ns *= 1.0 + 0.05 * i; /* a launch is as fast as its day */
            s.comm_ns *= 1.0 + 0.05 * i;
            s.slowdown_ns = s.input_ns = 0;
            add_point(&c.files[i], &s);
        }
    CHECK_EQ(analyse(&c), 0);
    CHECK_EQ(c.scaling.n_rows, 2);
    CHECK_EQ(c.scaling.n_launches, 3);
    const struct scaling_row *row = row_of(&c, 2, 1);
    CHECK_EQ(row->n_used, 3);
    CHECK_NEAR(row->p50_ns, 44e6 * 1.05, 0.2e6); /* of the steps of all launches together */
    CHECK_NEAR(row->p95_ns, 44e6 * 1.10, 0.2e6);
    CHECK_NEAR(row->p99_ns, 44e6 * 1.10, 0.2e6);
    CHECK(row->p50_ns < row->p95_ns && row->p95_ns <= row->p99_ns);
    CHECK(!row->speedup.unpaired);
    CHECK_NEAR(row->speedup.ratio.value, 80.0 / 44, 0.005);
    /* The days differ by 5 %: the rate cannot be known well, the ratio can. */
    CHECK(row->step_ns.high - row->step_ns.low > 0.1 * row->step_ns.value);
    CHECK(row->speedup.ratio.high - row->speedup.ratio.low < 0.02);
    release(&c);
}

static void test_unpaired(void)
{
    struct curve c = {.n_files = 1};
    add_shape(&c.files[0], 1, 1);
    add_shape(&c.files[0], 2, 1);
    c.files[0].points[1].point.launch = 1; /* a resumed job that did not re-measure the base */
    CHECK_EQ(analyse(&c), 0);
    CHECK(row_of(&c, 2, 1)->speedup.unpaired);
    CHECK_NEAR(row_of(&c, 2, 1)->speedup.ratio.value, 81.0 / 46, 0.03);
    release(&c);
    c = (struct curve){.n_files = 1};
    add_shape(&c.files[0], 1, 1);
    add_shape(&c.files[0], 2, 1);
    add_shape(&c.files[0], 1, 1);
    c.files[0].points[1].point.launch = c.files[0].points[2].point.launch = 1;
    c.files[0].points[2].point.point = 0; /* now it did */
    CHECK_EQ(analyse(&c), 0);
    CHECK_EQ(c.scaling.n_rows, 2);
    CHECK(!row_of(&c, 2, 1)->speedup.unpaired);
    CHECK_EQ(row_of(&c, 1, 1)->n_used, 2);
    CHECK(!scaling_unpaired(row_of(&c, 2, 1)));
    release(&c);
    c = (struct curve){.n_files = 1};
    add_shape(&c.files[0], 1, 1);
    add_shape(&c.files[0], 2, 1);
    add_shape(&c.files[0], 4, 1);
    add_shape(&c.files[0], 1, 1);
    c.files[0].points[2].point.launch = c.files[0].points[3].point.launch = 1;
    c.files[0].points[3].point.point = 0;
    CHECK_EQ(analyse(&c), 0); /* the base is in both launches, the point before in one */
    CHECK(!row_of(&c, 4, 1)->speedup.unpaired && row_of(&c, 4, 1)->incremental.unpaired);
    CHECK(scaling_unpaired(row_of(&c, 4, 1)) && !scaling_unpaired(row_of(&c, 2, 1)));
    release(&c);
}

/* A resumed job measured its base again, slower: its points are held against that one. */
static void test_resumed_base(void)
{
    struct curve c = {.n_files = 1};
    for (int i = 0; i < 3; i++) {
        struct synthetic s = synthetic_default(i == 2 ? 2 : 1, 1);
        s.point = i == 2;
        s.launch = i > 0;
        s.jitter = 1e-4;
        s.seed = (uint64_t)i;
        s.compute_ns *= i == 1 ? 1.5 : 1;
        add_point(&c.files[0], &s);
        c.files[0].points[i].point.peak_flops_per_rank = i == 0 ? 40e9 : 50e9;
    }
    CHECK_EQ(analyse(&c), 0);
    const struct scaling_row *base = row_of(&c, 1, 1), *row = row_of(&c, 2, 1);
    const struct scaling_ratio *speedup = &row->speedup;
    CHECK_NEAR(speedup->base_tokens_per_s, 1024 / 121e-3, 10);
    CHECK_NEAR(base->tokens_per_s.value, 1024 / 101e-3, 10); /* mean of both */
    CHECK_NEAR(speedup->ratio.value * speedup->base_tokens_per_s, row->tokens_per_s.value, 1e-6);
    CHECK(speedup->partial && row->eff_node.partial && !speedup->unpaired);
    CHECK(!base->speedup.partial);
    CHECK_NEAR(base->speedup.base_tokens_per_s, base->tokens_per_s.value, 0);
    CHECK(scaling_shares(base, &row->runs[0]) && !scaling_shares(row, &base->runs[0]));
    CHECK_NEAR(base->peak_flops, 50e9, 0); /* one peak for the curve */
    CHECK_NEAR(row->peak_flops, 50e9, 0);
    CHECK_NEAR(row->peak_lowest_flops, 40e9, 0);
    release(&c);
}

/* So few and so different steps that the interval of their mean reaches below 0. */
static void test_unbounded(void)
{
    struct curve c = {.n_files = 1};
    struct synthetic s = synthetic_default(1, 1);
    s.cycles = 1;
    s.block = 2;
    s.jitter = 0.3;
    add_point(&c.files[0], &s);
    CHECK_EQ(analyse(&c), 0);
    const struct scaling_row *row = row_of(&c, 1, 1);
    CHECK(isnan(row->step_ns.low) && row->step_ns.high > row->step_ns.value);
    CHECK(isnan(row->tokens_per_s.high) && row->tokens_per_s.low > 0);
    CHECK(row->tokens_per_s.low < row->tokens_per_s.value);
    CHECK(isnan(row->runs[0].account.step_ns.low));
    release(&c);
}

static void test_failure(void)
{
    struct curve c = {.n_files = 1};
    add_shape(&c.files[0], 1, 1);
    add_shape(&c.files[0], 2, 1);
    c.files[0].points[1].steps.rows[3].rank = 77;
    CHECK_EQ(analyse(&c), FAIL_FILE);
    CHECK(c.scaling.runs == NULL);
    fail_clear();
    release(&c);
}

int main(void)
{
    test_strong_curve();
    test_weak_curve();
    test_shapes();
    test_loaded_base();
    test_sets();
    test_invalid_points();
    test_launches();
    test_unpaired();
    test_resumed_base();
    test_unbounded();
    test_failure();
    return test_end();
}
