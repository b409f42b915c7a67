/* From a study file with a known truth goodput reads what runs got and what saves and failures cost, and
 * plans with it: measured where it was measured, by the law of the storage elsewhere, assumed where an
 * option says so; and what it prints has every number's source. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "analysis/goodput_report.h"
#include "analysis/goodput_steps.h"
#include "analysis/wall.h"
#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"

enum { RANKS = 2, SAVES = 7, SEED = 1 };
static const double bytes = 2.4e9, node_per_s = 2e9, shared_per_s = 3.5e9, copy_per_s = 4e9;
static char path[64] = "/tmp/test_goodput.XXXXXX";

/* ---- a file ---- */

static struct point_row point_row(int index, int nodes)
{
    struct point_row p = {.point = index,
                          .nodes = nodes,
                          .ranks = nodes * RANKS,
                          .ranks_per_node = RANKS,
                          .copies = 1,
                          .tp = 1,
                          .pp = 1,
                          .cp = 1,
                          .ep = 1,
                          .dp = nodes * RANKS,
                          .shard = 1,
                          .sequence = 64,
                          .global_batch = 8 * nodes * RANKS,
                          .micro_batch = 4,
                          .positions_per_step = 1024,
                          .parameters = 200000000,
                          .valid = 1};
    strcpy(p.model, "tiny");
    strcpy(p.scaling, "weak");
    strcpy(p.dtype, "fp32");
    strcpy(p.device, "cpu");
    strcpy(p.input, "synthetic");
    strcpy(p.gate, "passed");
    return p;
}

static double complete_s(double nodes)
{
    return bytes / fmin(nodes * node_per_s, shared_per_s);
}

/* The first save is slow and the last one lost: neither counts. */
static void add_saves(struct record_point *p, int nodes)
{
    int ranks = nodes * RANKS;
    for (int save = 0; save < SAVES; save++)
        for (int rank = 0; rank < ranks; rank++) {
            struct checkpoint_row *row = RECORD_ADD(&p->checkpoints, 1);
            double jitter = 1 + 0.01 * (save % 3 - 1), slow = save == 0 ? 10 : 1;
            strcpy(row->kind, "save");
            strcpy(row->mode, "staged");
            strcpy(row->file_system, "ext4");
            row->save = save;
            row->rank = rank;
            row->flags = save == 0 ? CHECKPOINT_FIRST : save == SAVES - 1 ? CHECKPOINT_FAILED : 0;
            row->bytes = (int64_t)(bytes / ranks);
            row->blocked_ns = (int64_t)(1e9 * slow * jitter * bytes / ranks / copy_per_s) -
                              (rank == 0 ? 1000000 : 0); /* the slowest rank counts */
            row->complete_ns = (int64_t)(1e9 * slow * jitter * complete_s(nodes));
        }
}

static void add_interval(struct record_point *p, int launch, const char *kind, double begin_s,
                         double end_s, int64_t first_step, int64_t steps)
{
    struct interval_row *row = RECORD_ADD(&p->intervals, 1);
    *row = (struct interval_row){.launch = launch,
                                 .begin_ns = (int64_t)(begin_s * 1e9),
                                 .end_ns = (int64_t)(end_s * 1e9),
                                 .ranks = p->point.ranks,
                                 .first_step = first_step,
                                 .steps = steps,
                                 .tokens = 1024 * steps};
    snprintf(row->kind, sizeof row->kind, "%s", kind);
}

static struct interval_row *last(struct record_point *p)
{
    return &p->intervals.rows[p->intervals.n - 1];
}

/*
 * 100 s on every rank. Launch 0: begins 0, steps from 4; 2 s of warm-up (10 steps), 30 s of 150 steps, a
 * save at 20; killed at 40.5. Known at 42; launch 1 begins at 43, loads 44 to 46, steps of 0.2 s from 50,
 * the first of them warm-up (2 s), then 40 s more, a save at 80, 6 s of nothing, the end.
 */
static void add_run(struct record_point *p)
{
    int ranks = p->point.ranks;
    add_interval(p, 0, "launch", 0, 1, 0, 0);
    add_interval(p, 0, "start-up", 1, 4, 0, 0);
    add_interval(p, 0, "steps", 4, 6, 0, 10);
    last(p)->flags = INTERVAL_WARM_UP;
    add_interval(p, 0, "steps", 6, 20, 10, 70);
    add_interval(p, 0, "save", 20, 21, 80, 0);
    add_interval(p, 0, "steps", 20, 40, 80, 100);
    last(p)->call_ns = 0;
    add_interval(p, 0, "failure", 40.5, 40.5, 180, 0);
    snprintf(last(p)->text, sizeof last(p)->text, "rank 1 in step");
    add_interval(p, 0, "detected", 42, 42, 0, 0);
    add_interval(p, 1, "launch", 43, 44, 0, 0);
    add_interval(p, 1, "load", 44, 46, 80, 0);
    add_interval(p, 1, "start-up", 46, 50, 0, 0);
    add_interval(p, 1, "steps", 50, 52, 80, 10);
    last(p)->flags = INTERVAL_WARM_UP;
    add_interval(p, 1, "steps", 52, 92, 90, 190);
    last(p)->input_ns = (int64_t)(0.5e9 * ranks);
    last(p)->straggler_ns = (int64_t)(1.25e9 * ranks);
    last(p)->stall_ns = (int64_t)(3e9 * ranks);
    last(p)->call_ns = (int64_t)(2e9 * ranks);
    add_interval(p, 1, "save", 80, 81, 220, 0);
    add_interval(p, 1, "end", 100, 100, 280, 0);
}

/* Strong scaling of a tenth that nothing divides: 0.1 + 0.9 / N s a step. */
static double step_s(double nodes)
{
    return 0.1 + 0.9 / nodes;
}

/* Five saves and fewer, each of which makes the steps beside it that much longer together. */
static void add_quiet_run(struct record_point *p, int saves, double slower_s)
{
    double end = 2 + 100 * step_s(p->point.nodes);
    strcpy(p->point.scaling, "strong");
    p->point.global_batch = 16;
    add_interval(p, 0, "launch", 0, 1, 0, 0);
    add_interval(p, 0, "start-up", 1, 2, 0, 0);
    for (int i = 0; i < 20; i++) { /* blocks of 5; those beside the saves are longer */
        double slower = i % 4 == 3 && i / 4 < saves ? slower_s : 0.0, jitter = 0.01 * (i % 3 - 1);
        double begin = i == 0 ? 2 : (double)last(p)->end_ns / 1e9;
        add_interval(p, 0, "steps", begin, begin + 5 * step_s(p->point.nodes) + slower + jitter,
                     5 * i, 5);
        last(p)->flags = slower > 0 ? INTERVAL_SAVING : 0;
        last(p)->steps = 5;
    }
    end = (double)last(p)->end_ns / 1e9;
    for (int i = 3; i < 4 * saves; i += 4) {
        add_interval(p, 0, "save", 2 + 5 * i * step_s(p->point.nodes), end, 5 * i, 0);
        strcpy(last(p)->text, "staged");
    }
    add_interval(p, 0, "end", end, end, 100, 0);
}

static bool write_points(int n, void (*make)(struct record_point *p, int index))
{
    struct record_head head = {.schema = RECORD_SCHEMA, .t0_unix_ns = 1};
    struct record *record = NULL;
    int launch, n_done, *done = NULL;
    strcpy(head.study_digest, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    record_head_set(&head, "study", "model", "tiny");
    record_head_set(&head, "launch", "argv", "scalestudy");
    bool good = record_begin(&record, path, &head, false, &launch, &done, &n_done) == 0;
    for (int i = 0; good && i < n; i++) {
        struct record_point p = {0};
        make(&p, i);
        good = record_append(record, &p) == 0;
        record_point_release(&p);
    }
    good = good && record_finish(record) == 0;
    record_head_release(&head);
    free(done);
    if (!good)
        printf("%s\n", fail_message());
    return good;
}

static void drilled(struct record_point *p, int index)
{
    p->point = point_row(index, 1 << index);
    add_saves(p, 1 << index);
    if (index < 2)
        add_run(p);
}

static void quiet(struct record_point *p, int index)
{
    p->point = point_row(index, 1 << index);
    add_saves(p, 1 << index);
    add_quiet_run(p, 5, 0.3);
}

/* Two runs of one size with five saves and with one; one of longer sequences; one that somebody restarted
 * without a note, in the second try; one whose parameters are sharded. */
static void odd(struct record_point *p, int index)
{
    p->point = point_row(index, index == 3 ? 2 : 1);
    add_saves(p, p->point.nodes);
    if (index != 3)
        add_quiet_run(p, index == 1 ? 1 : 5, index == 1 ? 0.9 : 0.3);
    else
        add_run(p);
    if (index == 2)
        p->point.sequence = 128;
    if (index == 4) {
        p->point.shard = RANKS;
        strcpy(p->point.parallel, "dp=2,shard=2");
    }
    for (int64_t i = 0; index == 3 && i < p->intervals.n; i++) {
        struct interval_row *row = &p->intervals.rows[i];
        row->launch += row->launch == 1;
        if (strcmp(row->kind, "detected") == 0)
            *row = p->intervals.rows[i - 1]; /* the same twice counts once */
    }
}

static bool read_study(struct goodput_study *study)
{
    char *paths[] = {path};
    bool good = goodput_study_read(study, paths, 1, SEED) == 0;
    if (!good)
        printf("%s\n", fail_message());
    return CHECK(good);
}

/* ---- what was measured ---- */

static void runs_are_read(const struct goodput_study *study)
{
    const struct goodput_run *run = &study->points[0].run;
    double sum = 0;
    CHECK_EQ(study->n_points, 3);
    CHECK_EQ(study->n_kinds, 1);
    CHECK(run->there && run->finished && !study->points[2].run.there);
    CHECK(!run->closes); /* 8 of 100 s are nobody's */
    for (int b = 0; b < WALL_BUCKETS; b++)
        sum += run->bucket_s[b];
    CHECK_NEAR(run->wall_s, 100, 0);
    CHECK_NEAR(sum, 100, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_START_UP], 4, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_DETECTION], 1.5, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_RESTART], 8, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_REWORK], 20.5, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_WARM_UP], 4, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_CALL], 2, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_DATA], 0.5, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_STRAGGLER], 1.25, 1e-9);
    CHECK_NEAR(run->bucket_s[WALL_USEFUL], 14 + 40 - 3.75, 1e-9);
    CHECK_NEAR(run->exposed_s, 1.75, 1e-9);
    CHECK_NEAR(run->load_s, 2, 1e-9);
    CHECK_EQ(run->steps, 280); /* kept: warm-up of both launches, too */
    CHECK_EQ(run->warm_up_steps, 20);
    CHECK_EQ(run->rework_steps, 100);
    CHECK_NEAR(run->step_s, 52.0 / 260, 1e-12);
    CHECK_NEAR(run->in_steps, 50.25 / 52, 1e-12);
    CHECK_NEAR(run->tokens_per_s, 1024 * 280 / 100.0, 1e-9);
    CHECK_NEAR(run->tokens_per_step, 1024, 1e-9);
    CHECK_NEAR(run->between_steps, 110, 1e-9); /* 80 in the first launch, 140 in the second */
    CHECK_NEAR(run->between_s, 22, 1e-9);
    CHECK_EQ(run->launches, 2);
    CHECK_EQ(run->failures, 1);
    CHECK_EQ(run->n_recoveries, 1);
    CHECK_NEAR(run->recoveries[0].detect_s, 1.5, 1e-9);
    CHECK_NEAR(run->recoveries[0].restart_s, 8, 1e-9);
    CHECK_NEAR(run->recoveries[0].load_s, 2, 1e-9);
    CHECK_NEAR(run->recoveries[0].began_s, 7, 1e-9);
    CHECK(run->recoveries[0].noted);
    CHECK_EQ(run->recoveries[0].lost_steps, 100);
}

static void definitions_differ_as_they_say(const struct goodput_study *study)
{
    static const double expected[] = {50.25, 50.25 + 1.25 + 0.5 + 4, 50.25 + 1.25 + 4,
                                      50.25 + 1.25 + 4, 100 - 9.5};
    for (int d = 0; d < GOODPUT_DEFINITIONS; d++)
        CHECK_NEAR(100 * goodput_share(&study->points[0].run, &goodput_definitions[d]), expected[d],
                   1e-9);
    struct stats_interval g = goodput_measured(study, 0, 1, 1);
    CHECK_EQ(g.n, 1);
    CHECK(isnan(g.low));
    CHECK_EQ(goodput_measured(study, 0, 4, 0).n, 0);
    CHECK_EQ(goodput_measured(study, 0, 1, 0).n, 0);
    /* Warm-up of slow steps: only what as many good ones would take is productive to Google. */
    struct goodput_run run = study->points[0].run;
    run.warm_up_steps = 5;
    CHECK_NEAR(100 * goodput_share(&run, &goodput_definitions[2]), 50.25 + 1.25 + 1, 1e-9);
}

/* ---- what saves cost ---- */

static void saves_are_read(const struct goodput_study *study)
{
    struct goodput_save_cost c;
    char modes[GOODPUT_MODES][16];
    int n;
    CHECK_EQ(goodput_modes(study, 0, modes), 1);
    CHECK(goodput_save_cost(&c, study, 0, "staged", 2, SEED));
    CHECK_EQ(c.saves, SAVES - 2);
    CHECK_EQ(c.lost, 1);
    CHECK_NEAR(c.bytes, bytes, 8);
    CHECK_NEAR(c.blocked_s.value, bytes / 4 / copy_per_s, 2e-3);
    CHECK_NEAR(c.complete_s.value, complete_s(2), 2e-2);
    CHECK(c.complete_s.low < complete_s(2) && complete_s(2) < c.complete_s.high);
    CHECK_NEAR(c.cost_s.value, c.blocked_s.value, 1e-12); /* steps beside saves were not slower */
    CHECK(!goodput_save_cost(&c, study, 0, "sync", 2, SEED));
    free(goodput_saves(study, 0, "staged", &n));
    CHECK_EQ(n, 3 * (SAVES - 2));
}

static struct goodput_given nothing_given(void)
{
    return (struct goodput_given){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0};
}

static void costs_of_any_size(const struct goodput_study *study)
{
    struct goodput_given given = nothing_given();
    struct goodput_known known;
    struct goodput_at at;
    char why[256];
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    CHECK(known.has_storage && known.storage.node_seen && known.storage.shared_seen);
    CHECK_NEAR(known.storage.node_per_s.value / node_per_s, 1, 0.02);
    CHECK_NEAR(known.storage.shared_per_s.value / shared_per_s, 1, 0.02);
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_EQ(at.cost.source, FROM_MEASURED);
    CHECK_EQ(at.complete.source, FROM_MEASURED);
    CHECK_EQ(at.detect.source, FROM_MEASURED);
    CHECK_EQ(at.step.source, FROM_MEASURED);
    CHECK(goodput_costs_at(&at, &known, 64, why, sizeof why));
    CHECK_EQ(at.complete.source, FROM_FITTED);
    CHECK_NEAR(at.complete.x.value, bytes / shared_per_s, 0.02);
    CHECK_NEAR(at.cost.x.value, bytes / 128 / copy_per_s, 1e-3); /* by bytes of a rank */
    CHECK_EQ(at.restart.source, FROM_CARRIED);
    CHECK_NEAR(at.restart.x.value, 8, 1e-9);
    CHECK_EQ(at.step.source, FROM_CARRIED); /* weak scaling */
    CHECK_NEAR(at.tokens_per_step, 1024 * 64 / 2, 1e-9);
    CHECK(!at.bottom);
    given.node_per_s = 1e9;
    given.shared_per_s = 1.5e9; /* less than what two nodes could write */
    given.restart_s = 45;
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_NEAR(at.complete.x.value, bytes / 1.5e9, 1e-6);
    CHECK_EQ(at.restart.source, FROM_ASSUMED);
    CHECK_NEAR(at.restart.x.value, 45, 0);
    given.shared_per_s = given.restart_s = NAN;
    given.detect_s = 30;
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_EQ(at.complete.source, FROM_ASSUMED);
    CHECK_NEAR(at.complete.x.value, bytes / 2e9, 1e-6);
    CHECK_EQ(at.detect.source, FROM_ASSUMED);
    CHECK_NEAR(at.detect.x.value, 30, 0);
    CHECK(goodput_costs_agree(&at, why, sizeof why));
    /* A synchronous save blocks as long as the storage that is assumed takes. */
    double held = known.costs[2].blocked_s.value / known.costs[2].complete_s.value;
    strcpy(known.mode, "sync");
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_NEAR(at.cost.x.value, held * bytes / 2e9, 1e-9);
    known.given.complete_s = 1e-3;
    known.given.blocked_s = 2e-3;
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK(!goodput_costs_agree(&at, why, sizeof why));
    CHECK_HAS(why, "on 2 nodes a save costs 0.002 s (assumed) and is published 0.001 s");
}

/* Of 100 times the bytes: nothing that was measured there stays as it is; of the same bytes all of it. */
static void bytes_that_were_not_measured(const struct goodput_study *study)
{
    struct goodput_given given = nothing_given();
    struct goodput_known known;
    struct goodput_at was, at;
    char why[256];
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    CHECK(goodput_costs_at(&was, &known, 2, why, sizeof why));
    given.bytes = 100 * known.costs[1].bytes;
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_EQ(at.complete.source, FROM_FITTED);
    CHECK_NEAR(at.complete.x.value, 100 * complete_s(2), 2);
    CHECK_EQ(at.blocked.source, FROM_CARRIED);
    CHECK_NEAR(at.blocked.x.value, 100 * was.blocked.x.value, 1e-9);
    CHECK_NEAR(at.blocked.x.high, 100 * was.blocked.x.high, 1e-9);
    CHECK_EQ(at.cost.source, FROM_CARRIED);
    CHECK(at.cost.x.value >= at.blocked.x.value);
    known.has_storage = false; /* one node count alone */
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_EQ(at.complete.source, FROM_CARRIED);
    CHECK_NEAR(at.complete.x.value, 100 * was.complete.x.value, 1e-9);
    strcpy(known.mode, "sync"); /* blocks in proportion to what it takes, as it did there */
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_EQ(at.blocked.source, FROM_CARRIED);
    CHECK_NEAR(at.blocked.x.value, 100 * was.blocked.x.value, 1e-9);
    given.node_per_s = 1e12;
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_EQ(at.complete.source, FROM_ASSUMED);
    CHECK_EQ(at.blocked.source, FROM_CARRIED);
    CHECK_NEAR(at.blocked.x.value, 100 * was.blocked.x.value, 1e-9);
    CHECK(!goodput_costs_agree(&at, why, sizeof why)); /* copied for longer than it takes */
    given = nothing_given();
    given.bytes = known.costs[1].bytes;
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_EQ(at.complete.source, FROM_MEASURED);
    CHECK_EQ(at.cost.source, FROM_MEASURED);
}

static void without_saves_nothing_is_made_up(const struct goodput_study *study)
{
    struct goodput_given given = nothing_given();
    struct goodput_known known;
    struct goodput_at at;
    char why[256];
    goodput_known_init(&known, study, 0, "", &given, SEED);
    CHECK(!goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_HAS(why, "nothing was saved: give what a save costs");
    given.blocked_s = 3;
    goodput_known_init(&known, NULL, -1, "", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_NEAR(at.complete.x.value, 3, 0);
    CHECK(at.bottom);
    given.blocked_s = NAN;
    given.node_per_s = 1e9;
    goodput_known_init(&known, study, 0, "", &given, SEED); /* 12 B a parameter */
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_EQ(known.bytes_source, FROM_FORMULA);
    CHECK_NEAR(at.complete.x.value, 1.2, 1e-9);
    CHECK_NEAR(at.cost.x.value, 1.2, 1e-9);
}

static void steps_are_forecast(void)
{
    struct goodput_given given = nothing_given();
    struct goodput_study study;
    struct goodput_known known;
    struct goodput_at at;
    char why[256];
    unlink(path);
    if (!CHECK(write_points(3, quiet)) || !read_study(&study))
        return;
    CHECK(study.points[0].run.closes);
    CHECK_NEAR(study.points[2].step_s.value, step_s(4), 2e-3);
    struct goodput_save_cost c; /* 0.3 s a save */
    CHECK(goodput_save_cost(&c, &study, 0, "staged", 4, SEED));
    CHECK(c.of_run && c.detected);
    CHECK_NEAR(c.inflation_s.value, 0.3, 0.01);
    CHECK(c.inflation_s.low > 0.25 && c.inflation_s.low < 0.3 && c.inflation_s.high < 0.35);
    CHECK_NEAR(c.cost_s.value, c.blocked_s.value + c.inflation_s.value, 1e-12);
    CHECK_NEAR(c.cost_s.low, c.blocked_s.low + c.inflation_s.low, 1e-12);
    CHECK_NEAR(c.cost_s.high, c.blocked_s.high + c.inflation_s.high, 1e-12);
    goodput_known_init(&known, &study, 0, "staged", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 16, why, sizeof why));
    CHECK_EQ(at.step.source, FROM_FITTED); /* amdahl is right, log2 asks for more: between them */
    CHECK_NEAR(at.step.x.value, step_s(16), 0.3 * step_s(16));
    CHECK(at.step.x.low < at.step.x.value && at.step.x.value < at.step.x.high);
    CHECK_NEAR(at.tokens_per_step, 1024, 1e-9);
    CHECK(goodput_costs_at(&at, &known, 32, why, sizeof why)); /* eight times the largest */
    CHECK_EQ(at.step.source, FROM_NONE);
    given.step_s = 0.2;
    goodput_known_init(&known, &study, 0, "staged", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 32, why, sizeof why));
    CHECK_EQ(at.step.source, FROM_ASSUMED);
    goodput_study_release(&study);
}

/* Points in memory whose step is known: 2^i nodes, 0.8 / nodes s a step, but one node `one_s`. */
static struct goodput_study curve_of(struct goodput_point *points, struct point_row *rows, int n,
                                     double one_s)
{
    for (int i = 0; i < n; i++) {
        double step = i == 0 ? one_s : 0.8 / (1 << i);
        rows[i] = point_row(i, 1 << i);
        strcpy(rows[i].scaling, "strong");
        rows[i].positions_per_step = 1024;
        points[i] = (struct goodput_point){.row = &rows[i], .step_s = {step, NAN, NAN, 100}};
    }
    return (struct goodput_study){.points = points, .n_points = n, .n_kinds = 1};
}

/* A node alone is in another regime: with three node counts and more it is in no forecast. */
static void regimes_are_not_crossed(void)
{
    struct point_row rows[4];
    struct goodput_point points[4];
    struct goodput_given given = nothing_given();
    struct goodput_known known;
    struct goodput_at at;
    char why[256];
    struct goodput_study study = curve_of(points, rows, 4, 0.4);
    given.blocked_s = 1;
    goodput_known_init(&known, &study, 0, "", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 16, why, sizeof why));
    CHECK_EQ(at.step.source, FROM_FITTED);
    CHECK_NEAR(at.step.x.value, 0.05, 1e-6); /* 2, 4 and 8 nodes scale perfectly */
    study = curve_of(points, rows, 3, 0.4);
    goodput_known_init(&known, &study, 0, "", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 8, why, sizeof why));
    CHECK_EQ(at.step.source, FROM_FITTED); /* two are too few without it */
    CHECK(at.step.x.value > 0.11);
}

/* Launches of a point whose means differ by `spread`; each knows its own steps to 0.2 %. */
static void draw_launches(struct stats_interval *out, int n, double step, double spread,
                          uint64_t key, uint64_t from)
{
    for (int i = 0; i < n; i++) {
        double x = step * exp(spread * (double)rng_normal(key, from + (uint64_t)i));
        out[i] = (struct stats_interval){x, 0.996 * x, 1.004 * x, 100};
    }
}

/* The interval of a step over launches, of one file or several, holds the truth; the newest alone did not. */
static void steps_are_of_all_launches(void)
{
    enum { CASES = 1000 };
    for (int k = 2; k <= 5; k++) {
        int covered = 0, newest = 0;
        for (uint64_t seed = 0; seed < CASES; seed++) {
            struct point_row row = point_row(0, 2);
            struct stats_interval launches[5];
            struct goodput_point points[2];
            struct goodput_steps out;
            draw_launches(launches, k, 0.4, 0.03, rng_key(seed, "steps"), 0);
            points[0] = (struct goodput_point){
                .row = &row, .step_s = launches[0], .launch_s = launches, .n_launches = k - 1};
            points[1] = (struct goodput_point){.row = &row, .step_s = launches[k - 1]};
            struct goodput_study study = {.points = points, .n_points = 2, .n_kinds = 1};
            CHECK(goodput_steps_at(&out, &study, 0, 2, true));
            CHECK_EQ(out.launches, k);
            covered += out.step_s.low <= 0.4 && 0.4 <= out.step_s.high;
            newest += launches[k - 1].low <= 0.4 && 0.4 <= launches[k - 1].high;
        }
        printf("# %d launches: a step's interval holds the truth in %.1f %%, the newest's in "
               "%.1f %%\n",
               k, 100.0 * covered / CASES, 100.0 * newest / CASES);
        CHECK(covered > 0.93 * CASES && covered < 0.975 * CASES);
    }
}

/* What a save costs, over launches that differ by 10 % and saves by 2 %: the interval holds the truth. */
static void saves_are_of_all_launches(void)
{
    enum { CASES = 400, EACH = 6, MOST = 5 };
    for (int k = 3; k <= MOST; k += 2) {
        int covered = 0;
        for (uint64_t seed = 0; seed < CASES; seed++) {
            struct point_row row = point_row(0, 2);
            struct record_point launches[MOST] = {{.point = {.nodes = 2}}};
            const struct record_point *parts[MOST];
            struct goodput_point point = {.row = &row, .parts = parts, .n_parts = k};
            struct goodput_study study = {.points = &point, .n_points = 1, .n_kinds = 1};
            struct goodput_save_cost cost;
            uint64_t key = rng_key(seed, "saves"), at = 0;
            for (int i = 0; i < k; i++) {
                double of_launch = 1 + 0.1 * (double)rng_normal(key, at++);
                for (int save = 0; save < EACH; save++) {
                    struct checkpoint_row *c = RECORD_ADD(&launches[i].checkpoints, 1);
                    double x = of_launch + 0.02 * (double)rng_normal(key, at++);
                    *c = (struct checkpoint_row){.save = save + 1, .bytes = 100};
                    c->blocked_ns = c->complete_ns = (int64_t)(1e9 * x);
                    strcpy(c->kind, "save");
                    strcpy(c->mode, "sync");
                }
                parts[i] = &launches[i];
            }
            CHECK(goodput_save_cost(&cost, &study, 0, "sync", 2, seed));
            covered += !(cost.complete_s.low > 1) && !(cost.complete_s.high < 1); /* NaN: no end */
            for (int i = 0; i < k; i++)
                record_point_release(&launches[i]);
        }
        printf("# saves of %d launches: the interval holds the truth in %.1f %%\n", k,
               100.0 * covered / CASES);
        CHECK(covered >= 0.92 * CASES);
    }
}

/* Means on the law to the digit, each of launches that differ by 8 %: no residual tells it, and the step of a
 * launch of another size still lies in the forecast's interval. Each launch its own file, as jobs make them. */
static void forecasts_hold_launches(void)
{
    enum { SIZES = 4, EACH = 3, DRAWS = 1000 };
    struct point_row rows[SIZES * EACH];
    struct goodput_point points[SIZES * EACH];
    struct goodput_given given = nothing_given();
    struct goodput_known known;
    struct goodput_at at;
    struct stats_interval next[DRAWS];
    char why[256];
    int covered = 0;
    for (int i = 0; i < SIZES * EACH; i++) {
        double step = 0.8 / (1 << i / EACH) * (1 + 0.08 * (i % EACH - 1));
        rows[i] = point_row(i, 1 << i / EACH);
        strcpy(rows[i].scaling, "strong");
        points[i] = (struct goodput_point){.row = &rows[i],
                                           .step_s = {step, 0.996 * step, 1.004 * step, 100}};
    }
    struct goodput_study study = {.points = points, .n_points = SIZES * EACH, .n_kinds = 1};
    given.blocked_s = 1;
    goodput_known_init(&known, &study, 0, "", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 16, why, sizeof why));
    CHECK_NEAR(at.step.x.value, 0.05, 1e-6);
    draw_launches(next, DRAWS, 0.05, 0.08, rng_key(1, "forecast"), 0);
    for (int i = 0; i < DRAWS; i++)
        covered += at.step.x.low <= next[i].value && next[i].value <= at.step.x.high;
    printf("# a forecast holds the step of a launch in %.1f %%\n", 100.0 * covered / DRAWS);
    CHECK(covered >= 0.95 * DRAWS);
}

/* Runs of a node count count alone: two have a t interval, one none. */
static void runs_count_alone(void)
{
    struct point_row row = point_row(0, 2);
    struct goodput_point points[3];
    struct goodput_steps out;
    struct goodput_study study = {.points = points, .n_points = 3, .n_kinds = 1};
    points[0] = (struct goodput_point){.row = &row, .step_s = {0.5, NAN, NAN, 7}};
    points[1] = (struct goodput_point){.row = &row, .step_s = {0.7, NAN, NAN, 9}};
    points[2] = (struct goodput_point){.row = &row, .step_s = {0.1, 0.09, 0.11, 100}};
    points[0].step_of_run = points[1].step_of_run = true;
    CHECK(goodput_steps_at(&out, &study, 0, 2, false));
    CHECK_NEAR(out.step_s.value, 0.6, 1e-12);
    CHECK(isnan(out.step_s.low)); /* below 0: 0.6 - 12.7 x 0.1 */
    CHECK_NEAR(out.step_s.high, 0.6 + 12.706204736432095 * 0.1, 1e-9);
    CHECK(out.launches == 2 && out.step_s.n == 16);
    points[1].row = points[2].row = NULL;
    study.n_points = 1;
    CHECK(goodput_steps_at(&out, &study, 0, 2, false));
    CHECK(out.step_s.value == 0.5 && isnan(out.step_s.high));
    row.oversubscribed = 1;
    CHECK(!goodput_steps_at(&out, &study, 0, 2, false));
    CHECK(!goodput_steps_at(&out, &study, 0, 4, true));
}

/* A step that is carried is no rate: perfect weak scaling was not measured. */
static void carried_steps_are_no_rate(void)
{
    struct point_row rows[2];
    struct goodput_point points[2];
    struct goodput_given given = nothing_given();
    struct goodput_asked asked = {0};
    struct goodput_known known;
    struct goodput_law law;
    struct goodput_plan plan;
    const double nodes[] = {2, 64};
    struct goodput_study study = curve_of(points, rows, 2, 0.8);
    for (int i = 0; i < 2; i++)
        strcpy(rows[i].scaling, "weak");
    given.blocked_s = 1;
    CHECK_EQ(goodput_law_parse(&law, "2h/node", "", ""), 0);
    goodput_known_init(&known, &study, 0, "", &given, SEED);
    goodput_plan_make(&plan, &known, &law, nodes, 2, &asked);
    CHECK_EQ(plan.rows[0].at.step.source, FROM_MEASURED);
    CHECK_NEAR(plan.rows[0].tokens_per_s,
               plan.rows[0].choices[plan.rows[0].best].g.value * 1024 / 0.4, 1e-9);
    CHECK_EQ(plan.rows[1].at.step.source, FROM_CARRIED);
    CHECK(isnan(plan.rows[1].tokens_per_s) && plan.rows[1].best == CHOICE_STEPS);
    goodput_plan_release(&plan);
}

/* ---- plans ---- */

static struct goodput_plan plan_of(const struct goodput_study *study, struct goodput_law *law,
                                   const char *mtbf, const char *failures, const char *exposure)
{
    static const double nodes[] = {1, 2, 4, 8, 64};
    struct goodput_asked asked = {2, {0.5, 7}, {false, true}};
    struct goodput_given given = nothing_given();
    struct goodput_known known;
    struct goodput_plan plan;
    CHECK_EQ(goodput_law_parse(law, mtbf, failures, exposure), 0);
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    goodput_plan_make(&plan, &known, law, nodes, 5, &asked);
    return plan;
}

static void plans_are_the_model(const struct goodput_study *study)
{
    struct goodput_law law;
    struct goodput_plan plan = plan_of(study, &law, "2h/node", "", "");
    double before = 1;
    for (int r = 0; r < plan.n_rows; r++) {
        const struct goodput_row *row = &plan.rows[r];
        struct goodput_costs c = {row->at.cost.x.value, row->at.complete.x.value,
                                  row->at.detect.x.value, row->at.restart.x.value};
        double m = 7200 / row->at.nodes;
        CHECK(row->planned);
        CHECK_NEAR(row->mtbf_s.value, m, 1e-9);
        CHECK_EQ(row->best, CHOICE_STEPS);
        CHECK_NEAR(row->choices[CHOICE_YOUNG].tau_s, goodput_tau_young(m, c.cost_s), 1e-12);
        CHECK_NEAR(row->choices[CHOICE_DALY].tau_s, goodput_tau_daly(m, c.cost_s), 1e-12);
        CHECK_NEAR(row->choices[CHOICE_ASYNC].tau_s, goodput_tau_async(m, &c), 1e-12);
        const struct goodput_choice *best = &row->choices[row->best];
        CHECK_NEAR(best->g.value, goodput_renewal(m, best->tau_s, &c), 1e-12);
        CHECK_NEAR(fmod(best->tau_s + 1e-9, row->at.step.x.value), 0, 1e-6); /* whole steps */
        CHECK(best->g.low < best->g.value && best->g.value < best->g.high);  /* of the costs */
        CHECK(best->g.value < before); /* more nodes fail more often */
        before = best->g.value;
        for (int i = 0; i < row->n_choices; i++)
            CHECK(!(row->choices[i].g.value > best->g.value * (1 + 1e-4)));
        CHECK(row->regret >= 0 && row->regret < 1e-3); /* costs are known well */
    }
    CHECK(strcmp(plan.rows[0].choices[5].name, "as run") == 0);
    CHECK_NEAR(plan.rows[0].choices[5].tau_s, 22, 1e-9);
    CHECK(strcmp(plan.rows[0].choices[7].name, "7 steps") == 0);
    CHECK_NEAR(plan.rows[0].choices[7].tau_s, 1.4, 1e-9);
    CHECK(isnan(plan.rows[0].choices[6].g.value)); /* 0.5 s: before the last one is published */
    goodput_plan_release(&plan);
}

static void ranges_hold_their_corners(const struct goodput_study *study)
{
    struct goodput_law law;
    struct goodput_plan plan = plan_of(study, &law, "1h:9h/node", "", "");
    struct goodput_law one;
    struct goodput_plan low = plan_of(study, &one, "1h/node", "", "");
    for (int r = 0; r < plan.n_rows; r++) {
        const struct goodput_row *row = &plan.rows[r];
        CHECK_NEAR(row->mtbf_s.value, 3 * 3600 / row->at.nodes, 1e-6);
        CHECK(row->regret >= 0 && row->regret < 0.05);
        struct goodput_choice at_low;
        goodput_choice_at(&at_low, &low.rows[r], row->choices[row->best].tau_s);
        CHECK_NEAR(row->choices[row->best].g.low, at_low.g.low, 1e-12);
        struct goodput_costs c = {row->at.cost.x.value, row->at.complete.x.value,
                                  row->at.detect.x.value, row->at.restart.x.value};
        double lost = goodput_renewal(row->mtbf_s.low, goodput_tau_async(row->mtbf_s.low, &c), &c) -
                      at_low.g.value;
        CHECK(row->regret >= lost - 1e-4); /* costs have ends too */
    }
    goodput_plan_release(&plan);
    goodput_plan_release(&low);
    plan = plan_of(study, &law, "", "0", "30h/node");
    CHECK(isfinite(plan.rows[0].choices[4].g.low) && isnan(plan.rows[0].choices[4].g.high));
    CHECK(isnan(plan.rows[0].regret)); /* how far off the truth may lie nobody knows */
    goodput_plan_release(&plan);
}

/* The low end has every cost at its high and MTBF at its low, the high end the other way about. */
static void corners_by_hand(void)
{
    struct goodput_row row = {.mtbf_s = {1e4, 5e3, 2e4, 0}};
    const struct goodput_costs value = {10, 20, 5, 60}, worst = {12, 30, 7, 90},
                               best = {8, 15, 4, 50};
    row.at.cost.x = (struct stats_interval){10, 8, 12, 0};
    row.at.complete.x = (struct stats_interval){20, 15, 30, 0};
    row.at.detect.x = (struct stats_interval){5, 4, 7, 0};
    row.at.restart.x = (struct stats_interval){60, 50, 90, 0};
    row.at.step.x.value = 2;
    struct goodput_choice c = {.outside = 0xff};
    goodput_choice_at(&c, &row, 400);
    CHECK_NEAR(c.g.value, goodput_renewal(1e4, 400, &value), 0);
    CHECK_NEAR(c.g.low, goodput_renewal(5e3, 400, &worst), 0);
    CHECK_NEAR(c.g.high, goodput_renewal(2e4, 400, &best), 0);
    CHECK_NEAR(c.first_order, goodput_first_order(1e4, 400, &value), 0);
    CHECK_NEAR(c.product, goodput_product(1e4, 400, &value), 0);
    CHECK_NEAR(c.ettr, goodput_ettr(1e4, 400, &value), 0);
    CHECK_NEAR(c.runtime, goodput_runtime(1e4, 400, &value), 0);
    CHECK_NEAR(c.steps, 200, 0);
    CHECK_EQ(c.outside, 0);
    goodput_choice_at(&c, &row,
                      12); /* with the worst costs the next save waits for the last: 18 s */
    CHECK_NEAR(c.g.low, goodput_renewal(5e3, 18, &worst), 0);
    CHECK_NEAR(c.g.high, goodput_renewal(2e4, 12, &best), 0);
}

/* Of two levels each has its own MTBF, and the local one its own cost. */
static void levels_are_the_model(const struct goodput_study *study)
{
    static const double nodes[] = {4};
    struct goodput_asked asked = {.n = 0};
    struct goodput_given given = nothing_given();
    struct goodput_known known;
    struct goodput_plan plan;
    struct goodput_law law;
    struct goodput_levels levels;
    given.local_s = 0.25;
    given.local_share = 0.8;
    CHECK_EQ(goodput_law_parse(&law, "1h:9h/node", "", ""), 0);
    goodput_known_init(&known, study, 0, "staged", &given, SEED);
    goodput_plan_make(&plan, &known, &law, nodes, 1, &asked);
    const struct goodput_row *row = &plan.rows[0];
    const struct goodput_choice *level[2] = {NULL, NULL};
    for (int i = 0; i < row->n_choices; i++)
        for (int k = 0; k < 2; k++)
            if (strcmp(row->choices[i].name, k == 0 ? "local" : "global") == 0)
                level[k] = &row->choices[i];
    struct goodput_costs c = {row->at.cost.x.value, row->at.complete.x.value,
                              row->at.detect.x.value, row->at.restart.x.value};
    goodput_two_levels(&levels, row->mtbf_s.value, row->at.step.x.value, &c, 0.25, 0.8);
    for (int k = 0; k < 2 && CHECK(level[k] != NULL); k++) {
        double share = k == 0 ? 0.8 : 0.2;
        CHECK_NEAR(level[k]->tau_s, k == 0 ? levels.local_s : levels.global_s, 0);
        CHECK_NEAR(level[k]->mtbf_s.value, row->mtbf_s.value / share, 1e-6);
        CHECK_NEAR(level[k]->mtbf_s.low, row->mtbf_s.low / share, 1e-6);
        CHECK_NEAR(level[k]->mtbf_s.high, row->mtbf_s.high / share, 1e-6);
        CHECK_NEAR(level[k]->cost.x.value, k == 0 ? 0.25 : row->at.cost.x.value, 0);
        CHECK_NEAR(level[k]->first_order, levels.first_order, 0);
        CHECK(isnan(level[k]->g.value) && isnan(level[k]->product) && isnan(level[k]->ettr));
    }
    goodput_plan_release(&plan);
}

/* ---- what is printed ---- */

static char *printed(void (*print)(FILE *to, const struct goodput_report *report),
                     const struct goodput_report *report)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    print(to, report);
    fclose(to);
    return text;
}

static void print_json(FILE *to, const struct goodput_report *report)
{
    CHECK_EQ(goodput_json(to, report), 0);
}

static void forms_say_the_same(const struct goodput_study *study)
{
    struct goodput_law law;
    struct goodput_plan plan = plan_of(study, &law, "", "3", "30h/node");
    struct goodput_report report = {
        .study = study, .law = &law, .n_plans = 1, .plans = &plan, .run_s = 100, .seed = SEED};
    goodput_notes_find(&report);
    char *text = printed(goodput_text, &report), *csv = printed(goodput_csv, &report);
    char *json = printed(print_json, &report);
    CHECK_HAS(text, "95 % chi-square interval");
    CHECK_HAS(text, "THE ACCOUNT DOES NOT CLOSE: 8.00 % of wall time is in no bucket");
    CHECK_HAS(text, "Kokolis");
    CHECK_HAS(text, "fitted");
    CHECK_HAS(text, "carried");
    CHECK_HAS(text, "is longer than the run of 1.667 m");
    CHECK_HAS(text, "Google");
    CHECK_HAS(text, "Meta");
    json_error_t error;
    json_t *all = json_loads(json, 0, &error);
    json_t *lines = json_object_get(all, "lines");
    int rows = 0;
    for (const char *c = csv; *c != '\0'; c++)
        rows += *c == '\n';
    CHECK(all != NULL);
    CHECK_EQ(rows, 1 + (int)json_array_size(lines));
    json_t *first = json_array_get(lines, 0);
    CHECK_NEAR(json_real_value(json_object_get(first, "goodput_pct")), 50.25, 1e-9);
    CHECK(json_is_null(json_object_get(first, "mtbf_s")));
    CHECK(json_is_false(json_object_get(first, "closes")));
    CHECK_EQ(json_object_size(first), goodput_n_columns());
    json_decref(all);
    free(text);
    free(csv);
    free(json);
    goodput_plan_release(&plan);
}

static void without_a_law_only_what_was_measured(const struct goodput_study *study)
{
    struct goodput_law law;
    struct goodput_plan plan = plan_of(study, &law, "", "", "");
    struct goodput_report report = {
        .study = study, .law = &law, .n_plans = 1, .plans = &plan, .run_s = 100, .seed = SEED};
    goodput_notes_find(&report);
    char *text = printed(goodput_text, &report), *csv = printed(goodput_csv, &report);
    CHECK_HAS(text, "useful_%");
    CHECK_HAS(text, "need a failure law, and none is made up: give --mtbf 40d/node");
    CHECK(strstr(text, "MTBF_s") == NULL && strstr(text, "young") == NULL);
    CHECK(strstr(csv, "expected") == NULL && strstr(csv, "measured") != NULL);
    free(text);
    free(csv);
    goodput_plan_release(&plan);
}

/* A mean over saves, whatever run they are of; kinds by what they are; R as far as it is a machine's. */
static void odd_ones_are_told_apart(void)
{
    struct goodput_given given = nothing_given();
    struct goodput_study study;
    struct goodput_save_cost c;
    struct goodput_known known;
    struct goodput_at at;
    char why[256], text[480];
    unlink(path);
    if (!CHECK(write_points(5, odd)) || !read_study(&study))
        return;
    CHECK_EQ(study.n_kinds, 4);
    CHECK(goodput_save_cost(&c, &study, 0, "staged", 1, SEED));
    CHECK_EQ(c.inflation_s.n, 6);
    CHECK_NEAR(c.inflation_s.value, (5 * 0.3 + 0.9) / 6, 0.01);
    CHECK(!goodput_save_cost(&c, &study, 0, "sync", 1, SEED));
    goodput_kind_text(&study, 0, text, sizeof text);
    CHECK_HAS(text, "16 samples (micro-batch 4) of 64 tokens a step, input synthetic");
    goodput_kind_text(&study, 1, text, sizeof text);
    CHECK_HAS(text, "of 128 tokens");
    goodput_kind_text(&study, 2, text, sizeof text);
    CHECK_HAS(text, "8 samples a rank (micro-batch 4)");
    goodput_kind_text(&study, 3, text, sizeof text);
    CHECK_HAS(text, "input synthetic, dp=2,shard=2");
    const struct goodput_run *run = &study.points[3].run;
    CHECK_EQ(run->launches, 3);
    CHECK_EQ(run->failures, 2);
    CHECK_EQ(run->silent, 1);
    CHECK_EQ(run->n_recoveries, 1);
    CHECK(!run->recoveries[0].noted && isnan(run->recoveries[0].detect_s));
    CHECK_NEAR(run->recoveries[0].restart_s, 50 - 40.5, 1e-9);
    CHECK_NEAR(run->recoveries[0].began_s, 7, 1e-9);
    goodput_known_init(&known, &study, 2, "staged", &given, SEED);
    CHECK(goodput_costs_at(&at, &known, 2, why, sizeof why));
    CHECK_NEAR(at.restart.x.value, 7, 1e-9);
    CHECK_EQ(at.detect.source, FROM_NONE);
    CHECK(at.bottom);
    struct goodput_law law;
    CHECK_EQ(goodput_law_parse(&law, "", "", ""), 0);
    struct goodput_report report = {.study = &study, .law = &law, .run_s = 100, .seed = SEED};
    goodput_notes_find(&report);
    char *all = printed(goodput_text, &report);
    CHECK_HAS(all, "of 1 failure nobody wrote down when it was known");
    CHECK_HAS(all, "1 launch failed before its first row");
    free(all);
    goodput_study_release(&study);
}

int main(void)
{
    struct goodput_study study = {0};
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    unlink(path);
    if (CHECK(write_points(3, drilled)) && read_study(&study)) {
        runs_are_read(&study);
        definitions_differ_as_they_say(&study);
        saves_are_read(&study);
        costs_of_any_size(&study);
        bytes_that_were_not_measured(&study);
        without_saves_nothing_is_made_up(&study);
        plans_are_the_model(&study);
        ranges_hold_their_corners(&study);
        levels_are_the_model(&study);
        forms_say_the_same(&study);
        without_a_law_only_what_was_measured(&study);
    }
    goodput_study_release(&study);
    corners_by_hand();
    steps_are_forecast();
    regimes_are_not_crossed();
    steps_are_of_all_launches();
    saves_are_of_all_launches();
    forecasts_hold_launches();
    runs_count_alone();
    carried_steps_are_no_rate();
    odd_ones_are_told_apart();
    unlink(path);
    return test_end();
}
