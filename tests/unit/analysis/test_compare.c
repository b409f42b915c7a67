/*
 * Layouts of known truth are ranked, told apart or not, and each difference has the reason that was
 * put there; fields that differ are found; unequal work is refused.
 */
#include "analysis/compare.h"
#include "analysis/compare_say.h"

#include "base/err.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

enum { FILES_MAX = 4, STUDIES_MAX = 3 };

struct study {
    struct record_file files[FILES_MAX];
    const struct record_file *list[FILES_MAX];
    int n_files;
    struct scaling scaling;
};
struct world {
    struct study study[STUDIES_MAX];
    struct report report[STUDIES_MAX];
    int n;
    struct contract contract;
    struct compare compare;
};

/* 20 ms of compute, 1 of input, 4 of exposed communication, 1 of slowdown: 26 ms on four ranks. */
static struct synthetic four_ranks(int point)
{
    struct synthetic s = synthetic_default(1, 4);
    s.point = point;
    s.cycles = 6;
    s.jitter = 0.002;
    s.seed = (uint64_t)point + 11;
    return s;
}

static struct record_point *add(struct record_file *file, const struct synthetic *s,
                                const char *parallel)
{
    file->points = realloc(file->points, (size_t)(file->n_points + 1) * sizeof *file->points);
    struct record_point *p = &file->points[file->n_points++];
    synthetic_point(p, s);
    snprintf(p->point.parallel, sizeof p->point.parallel, "%s", parallel);
    return p;
}

/* The same communication on another axis. */
static void on_axis(struct record_point *p, const char *axis, int tp)
{
    p->point.tp = tp;
    p->point.dp = p->point.ranks / tp;
    for (int64_t i = 0; i < p->stalls.n; i++)
        snprintf(p->stalls.rows[i].axis, sizeof p->stalls.rows[i].axis, "%s", axis);
    for (int64_t i = 0; i < p->collectives.n; i++)
        snprintf(p->collectives.rows[i].axis, sizeof p->collectives.rows[i].axis, "%s", axis);
}

static void add_op(struct record_point *p, int op, const char *kind, const char *phase, int64_t ns,
                   double flops)
{
    struct op_row *row = RECORD_ADD(&p->ops, 1);
    row->op = op;
    row->duration_ns = ns;
    row->flops = flops;
    snprintf(row->kind, sizeof row->kind, "%s", kind);
    snprintf(row->phase, sizeof row->phase, "%s", phase);
}

/* One step of one rank: 3 ms in backward are forward's matrix products again, 1.5 ms attention. */
static void recomputes(struct record_point *p)
{
    add_op(p, 0, "gemm", "forward", 3000000, 10e6);
    add_op(p, 1, "attention", "forward", 2500000, 0);
    add_op(p, 2, "attention", "backward", 1500000, 0);
    add_op(p, 3, "gemm", "backward", 9000000, 30e6);
    add_op(p, 4, "attention-grad", "backward", 4000000, 0);
}

static struct record_file *open_study(struct world *w)
{
    struct study *s = &w->study[w->n];
    struct record_file *file = &s->files[s->n_files++];
    w->n++;
    synthetic_head(&file->head, 1, 4);
    memset(file->head.study_digest, 'a' + w->n, 64);
    snprintf(file->path, sizeof file->path, "study%d.h5", w->n);
    return file;
}

static int analyse(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        struct study *s = &w->study[i];
        for (int j = 0; j < s->n_files; j++)
            s->list[j] = &s->files[j];
        CHECK_EQ(scaling_init(&s->scaling, s->list, s->n_files, 1), 0);
        w->report[i] = (struct report){
            .files = s->list, .n_files = s->n_files, .scaling = &s->scaling, .seed = 1};
    }
    contract_init(&w->contract, w->report, w->n);
    return compare_init(&w->compare, w->report, w->n, 1);
}

static void release(struct world *w)
{
    compare_release(&w->compare);
    contract_release(&w->contract);
    for (int i = 0; i < w->n; i++) {
        struct study *s = &w->study[i];
        scaling_release(&s->scaling);
        for (int j = 0; j < s->n_files; j++) {
            for (int k = 0; k < s->files[j].n_points; k++)
                record_point_release(&s->files[j].points[k]);
            free(s->files[j].points);
            record_head_release(&s->files[j].head);
        }
    }
    fail_clear();
}

static const struct compare_row *row_of(const struct world *w, int group, const char *parallel)
{
    for (int i = 0; i < w->compare.groups[group].n; i++)
        if (strcmp(w->compare.groups[group].rows[i].row->point->parallel, parallel) == 0)
            return &w->compare.groups[group].rows[i];
    CHECK(false);
    return &w->compare.groups[group].rows[0];
}

static void check_reason(const struct world *w, const char *parallel, int term, double share)
{
    const struct compare_row *r = row_of(w, 0, parallel);
    CHECK_EQ(r->verdict, COMPARE_SLOWER);
    CHECK_EQ(r->reason, term);
    CHECK_NEAR(r->reason_share, share, 0.06);
}

/* One layout for each reason that a step may be longer. */
static void reasons_are_found(void)
{
    struct world w = {.n = 0};
    struct record_file *a = open_study(&w);
    struct synthetic s = four_ranks(0);
    add(a, &s, "dp=4");
    s = four_ranks(1), s.comm_ns = 9e6, s.compute_ns = 19e6;
    on_axis(add(a, &s, "tp=2"), "tp", 2); /* 5 more exposed, 1 less computed: of 4 */
    s = four_ranks(2), s.compute_ns = 26e6;
    add(a, &s, "compute");
    s = four_ranks(3), s.slowdown_ns = 5e6;
    add(a, &s, "slowdown");
    s = four_ranks(4), s.input_ns = 4e6;
    add(a, &s, "input");
    s = four_ranks(5), s.compute_ns = 24.5e6;
    recomputes(add(a, &s, "recompute"));
    struct record_point *p = &a->points[0];
    struct memory_row *m = RECORD_ADD(&p->memory, 1);
    strcpy(m->class, "reserved");
    m->peak_bytes = 7 << 20;
    for (int i = 0; i < 2; i++) {
        struct traffic_row *t = RECORD_ADD(&p->traffic, 1);
        strcpy(t->axis, "dp");
        strcpy(t->level, i == 0 ? "inside" : "across");
        t->executed = i == 0 ? 4e6 : 8e6;
    }
    CHECK_EQ(analyse(&w), 0);
    CHECK_EQ(w.compare.n_groups, 1);
    const struct compare_row *best = &w.compare.groups[0].rows[0];
    CHECK(strcmp(best->row->point->parallel, "dp=4") == 0);
    CHECK_EQ(best->place, 1);
    CHECK_EQ(best->reason, -1);
    CHECK_NEAR(best->row->step_ns.value, 26e6, 0.2e6);
    CHECK_NEAR(best->term_ns[COMPARE_COMPUTE], 20e6, 0.2e6);
    CHECK_NEAR(best->term_ns[COMPARE_SLOWDOWN], 1e6, 0.1e6);
    CHECK_NEAR(best->term_ns[COMPARE_DP], 4e6, 0.1e6);
    CHECK_NEAR(best->term_ns[COMPARE_INPUT], 1e6, 0.01e6);
    CHECK_NEAR(best->exposed_ns, 4e6, 0.1e6);
    CHECK_NEAR(best->inside_bytes, 1e6, 1);
    CHECK_NEAR(best->across_bytes, 2e6, 1);
    CHECK_EQ(best->arena_bytes, 7 << 20);
    CHECK_EQ(best->process_bytes, 100 << 20);
    CHECK_EQ(row_of(&w, 0, "input")->arena_bytes, -1);
    CHECK(isnan(row_of(&w, 0, "input")->inside_bytes));
    check_reason(&w, "tp=2", COMPARE_TP, 9.0 / 4); /* no dp left, 9 of tp, of 4 in all */
    check_reason(&w, "compute", COMPARE_COMPUTE, 1.0);
    check_reason(&w, "slowdown", COMPARE_SLOWDOWN, 1.0);
    check_reason(&w, "input", COMPARE_INPUT, 1.0);
    check_reason(&w, "recompute", COMPARE_RECOMPUTE, 1.0);
    CHECK_NEAR(row_of(&w, 0, "recompute")->term_ns[COMPARE_RECOMPUTE], 4.5e6, 1);
    CHECK_NEAR(row_of(&w, 0, "tp=2")->ratio.value, 30.0 / 26, 0.01);
    char text[128];
    compare_reason(&w.compare.groups[0], row_of(&w, 0, "recompute"), text, sizeof text);
    CHECK_HAS(text, "recompute +4.500 of +4.5");
    for (int t = 0; t < N_COMPARE_TERMS; t++) /* terms add up to the step */
        CHECK(isfinite(best->term_ns[t]));
    double sum = 0.0;
    for (int t = 0; t < N_COMPARE_TERMS; t++)
        sum += best->term_ns[t];
    CHECK_NEAR(sum, best->row->step_ns.value, 1.0);
    release(&w);
}

static void equals_are_not_told_apart(void)
{
    struct world w = {.n = 0};
    struct record_file *a = open_study(&w);
    struct synthetic s = four_ranks(0);
    s.jitter = 0.02;
    add(a, &s, "dp=4");
    s.seed = 99, s.point = 1;
    on_axis(add(a, &s, "tp=4"), "tp", 4);
    s = four_ranks(2), s.compute_ns = 21e6, s.odd_factor = 1.3; /* slower, but so is half of it */
    on_axis(add(a, &s, "tp=2"), "tp", 2);
    CHECK_EQ(analyse(&w), 0);
    const struct compare_row *other = &w.compare.groups[0].rows[1];
    CHECK_EQ(other->verdict, COMPARE_NOT_TOLD_APART);
    CHECK_EQ(other->place, 1);
    CHECK_EQ(other->reason, -1);
    CHECK(other->ratio.low <= 1.0 && other->ratio.high >= 1.0);
    const struct compare_row *noisy = row_of(&w, 0, "tp=2");
    CHECK(noisy->ratio.low > 1.0 && 1.0 - noisy->aa.low > noisy->ratio.value - 1.0);
    CHECK_EQ(noisy->verdict, COMPARE_WITHIN_NOISE);
    CHECK_EQ(noisy->place, 1);
    release(&w);
}

/* Three launches of different pace: ratios inside launches do not see it, those across studies do. */
static void ratios_are_inside_launches(void)
{
    static const double pace[] = {1.0, 1.4, 0.7};
    struct world w = {.n = 0};
    for (int i = 0; i < 3; i++) {
        struct record_file *file =
            i == 0 ? open_study(&w) : &w.study[0].files[w.study[0].n_files++];
        if (i > 0) {
            synthetic_head(&file->head, 1, 4);
            memcpy(file->head.study_digest, w.study[0].files[0].head.study_digest, 65);
            file->head.t0_unix_ns += i;
        }
        for (int point = 0; point < 2; point++) {
            struct synthetic s = four_ranks(point);
            s.seed += (uint64_t)i * 7;
            s.compute_ns = (point == 0 ? 20e6 : 23e6) * pace[i];
            s.comm_ns *= pace[i], s.slowdown_ns *= pace[i], s.input_ns *= pace[i];
            struct record_point *p = add(file, &s, point == 0 ? "dp=4" : "tp=2");
            if (point == 1)
                on_axis(p, "tp", 2);
        }
    }
    struct record_file *b = open_study(&w);
    struct synthetic s = four_ranks(0);
    s.compute_ns = 30e6;
    add(b, &s, "other");
    CHECK_EQ(analyse(&w), 0);
    const struct compare_row *paired = row_of(&w, 0, "tp=2"), *other = row_of(&w, 0, "other");
    CHECK(!paired->unpaired && other->unpaired);
    CHECK_EQ(paired->row->n_used, 3);
    CHECK_NEAR(paired->ratio.value, 29.0 / 26, 0.01);
    CHECK(paired->ratio.low > 1.1 && paired->ratio.high < 1.13);
    CHECK_EQ(paired->verdict, COMPARE_SLOWER);
    CHECK(other->ratio.high - other->ratio.low > 5 * (paired->ratio.high - paired->ratio.low));
    release(&w);
}

static const struct contract_field *field(const struct world *w, const char *name)
{
    for (int i = 0; i < w->contract.n; i++)
        if (strcmp(w->contract.fields[i].name, name) == 0)
            return &w->contract.fields[i];
    return NULL;
}

static void differences_are_found(void)
{
    struct world w = {.n = 0};
    struct record_file *a = open_study(&w), *b = open_study(&w);
    struct synthetic s = four_ranks(0);
    add(a, &s, "dp=4");
    s.compute_ns = 25e6;
    struct record_point *p = add(b, &s, "dp=4");
    strcpy(p->point.input, "memory");
    strcpy(b->head.hosts[0].processor, "Imaginary 4000");
    record_head_set(&a->head, "study", "bucket", "25M");
    record_head_set(&b->head, "study", "bucket", "50M");
    record_head_set(&a->head, "study", "stamps", "1");
    record_head_set(&b->head, "study", "stamps", "2");
    record_head_set(&a->head, "provenance", "compiler", "gcc 12");
    record_head_set(&b->head, "provenance", "compiler", "clang 14");
    record_head_set(&a->head, "provenance", "env.NCCL_ALGO", "Ring");
    record_head_set(&b->head, "provenance", "env.NCCL_ALGO", "Tree");
    record_head_set(&a->head, "provenance", "env.PMIX_RANK", "0");
    record_head_set(&b->head, "provenance", "env.PMIX_RANK", "1");
    record_head_set(&a->head, "provenance", "mpi", "Open MPI 4");
    record_head_set(&b->head, "provenance", "mpi", "Open MPI 4");
    CHECK_EQ(analyse(&w), 0);
    static const struct {
        const char *name;
        enum contract_kind kind;
    } truth[] = {{"input", CONTRACT_POLICY},      {"bucket", CONTRACT_POLICY},
                 {"stamps", CONTRACT_WINDOW},     {"machine", CONTRACT_MACHINE},
                 {"compiler", CONTRACT_SOFTWARE}, {"env.NCCL_ALGO", CONTRACT_SOFTWARE}};
    int differ = 0;
    for (int kind = 0; kind < CONTRACT_KINDS; kind++)
        differ += contract_differs(&w.contract, (enum contract_kind)kind);
    CHECK_EQ(differ, sizeof truth / sizeof *truth);
    for (size_t i = 0; i < sizeof truth / sizeof *truth; i++) {
        const struct contract_field *f = field(&w, truth[i].name);
        CHECK(f != NULL && f->differs && f->kind == truth[i].kind);
    }
    CHECK(field(&w, "env.PMIX_RANK") == NULL);
    CHECK(!field(&w, "mpi")->differs && !field(&w, "gbs")->differs);
    CHECK_HAS(field(&w, "machine")->values[1], "Imaginary 4000, 8 cores, 16 GiB");
    CHECK_HAS(field(&w, "bucket")->values[0], "25M");
    CHECK(row_of(&w, 0, "dp=4")->row != NULL);
    CHECK_EQ(w.compare.groups[0].n, 2);
    release(&w);
}

/* What may not be ranked: other batches, other numbers of devices, points without a proof. */
static void unequal_work_is_refused(void)
{
    static const struct {
        int64_t batch, sequence;
        int ranks;
        const char *words;
    } cases[] = {{32, 64, 4, "gbs is 16 in one and 32 in another"},
                 {16, 128, 4, "seq is 64 in one and 128 in another"},
                 {16, 64, 2, "devices is 4 in one and 2 in another"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w = {.n = 0};
        struct record_file *a = open_study(&w), *b = open_study(&w);
        struct synthetic s = four_ranks(0), t = synthetic_default(1, cases[i].ranks);
        t.global_batch = cases[i].batch;
        t.sequence = cases[i].sequence;
        add(a, &s, "dp=4");
        add(a, &s, "tp=4")->point.tp = 4;
        add(b, &t, "dp=4");
        CHECK_EQ(analyse(&w), FAIL_USAGE); /* though A alone has a ranking */
        CHECK_HAS(fail_message(), cases[i].words);
        CHECK_HAS(fail_message(), "so a ranking would say nothing");
        CHECK_EQ(w.compare.n_groups, 0);
        release(&w);
    }
    struct world w = {.n = 0};
    struct record_file *a = open_study(&w);
    struct synthetic s = four_ranks(0);
    add(a, &s, "dp=4");
    add(a, &s, "tp=4")->point.tp = 4;
    s.global_batch = 32; /* that this one did other work is not what is wrong with it */
    add(a, &s, "tp=2")->point.tp = 2;
    a->points[1].point.valid = a->points[2].point.valid = 0;
    CHECK_EQ(analyse(&w), FAIL_USAGE);
    CHECK_HAS(fail_message(), "there are not two points with a passed proof to rank (2 without)");
    release(&w);
}

/* Rankings come in the order of devices and of batches; a base of several copies is in none. */
static void rankings_are_in_order(void)
{
    static const struct {
        int ranks;
        int64_t batch;
    } given[] = {{4, 32}, {4, 16}, {2, 16}, {4, 64}},
      order[] = {{2, 16}, {4, 16}, {4, 32}, {4, 64}};
    struct world w = {.n = 0};
    struct record_file *a = open_study(&w);
    for (int i = 0; i < 12; i++) {
        struct synthetic s = synthetic_default(1, given[i / 3].ranks);
        s.point = i;
        s.global_batch = given[i / 3].batch;
        s.compute_ns *= i % 3 == 2 ? 0.5 : 1.0 + 0.2 * (i % 3); /* it would be the fastest */
        add(a, &s, i % 3 == 2 ? "copies" : "dp")->point.copies = i % 3 == 2 ? 2 : 1;
    }
    CHECK_EQ(analyse(&w), 0);
    CHECK_EQ(w.compare.n_groups, 4);
    for (int i = 0; i < w.compare.n_groups && i < 4; i++) {
        const struct compare_group *g = &w.compare.groups[i];
        char text[64] = "before";
        CHECK_EQ(g->n, 2);
        CHECK_EQ(g->rows[0].row->point->ranks, order[i].ranks);
        CHECK_EQ(g->rows[0].row->point->global_batch, order[i].batch);
        CHECK(g->rows[0].row->step_ns.value < g->rows[1].row->step_ns.value);
        compare_reason(g, &g->rows[0], text, sizeof text);
        CHECK(text[0] == '\0'); /* the fastest is slower than none */
    }
    release(&w);
}

/* Text, CSV and JSON say the same; a point that stands alone is counted. */
static void forms_agree(void)
{
    struct world w = {.n = 0};
    struct record_file *a = open_study(&w);
    struct synthetic s = four_ranks(0), two = synthetic_default(1, 2);
    add(a, &s, "dp=4");
    s.comm_ns = 9e6, s.point = 1;
    on_axis(add(a, &s, "tp=2"), "tp", 2);
    two.point = 2;
    add(a, &two, "dp=2");
    CHECK_EQ(analyse(&w), 0);
    CHECK_EQ(w.compare.n_alone, 1);
    struct comparison c = {w.report, 1, &w.contract, &w.compare, ""};
    static char text[65536];
    FILE *to = tmpfile();
    compare_text(to, &c);
    fputs("----\n", to);
    compare_csv(to, &c);
    fputs("----\n", to);
    CHECK_EQ(compare_json(to, &c), 0);
    rewind(to);
    text[fread(text, 1, sizeof text - 1, to)] = '\0';
    fclose(to);
    char *csv = strstr(text, "----\n") + 5, *json = strstr(csv, "----\n") + 5;
    csv[-5] = json[-5] = '\0';
    CHECK_HAS(text, "ranking at equal work: model tiny, 16 samples of 64 tokens a step, fp32, on 4 "
                    "cpu devices");
    CHECK_HAS(text, "slower exposed tp +");
    CHECK_HAS(text, "1 point did work, or ran on as many devices, as no other: not ranked");
    CHECK_HAS(text, "covers variation within a launch only");
    CHECK_HAS(csv, "# differs: layout, parallelism: dp=2, dp=4, tp=2\n");
    CHECK_HAS(csv, "\nranking,place,file,");
    CHECK_HAS(csv, "\n0,2,study1.h5,A,");
    CHECK_HAS(csv, ",slower,tp,");
    CHECK_HAS(json, "\"reason\": \"tp\"");
    CHECK_HAS(json, "\"refused\": null");
    release(&w);
}

/* Values too long for a cell are shown from where they part: never twice the same. */
static void long_differences_are_seen(void)
{
    static const char *const settle[] = {"1%", "5%"};
    static const char *const rule[][2] = {
        {"warm-up", "10"}, {"block", "5"}, {"min-steps", "2000000"}, {"max-steps", "10000000"}};
    struct world w = {.n = 0};
    char text[4096] = "", path[300];
    for (int i = 0; i < 2; i++) {
        struct record_file *file = open_study(&w);
        struct synthetic s = four_ranks(0);
        add(file, &s, "dp=4");
        for (int k = 0; k < 4; k++)
            record_head_set(&file->head, "study", rule[k][0], rule[k][1]);
        record_head_set(&file->head, "study", "settle", settle[i]);
        memset(path, i == 0 ? 'a' : 'b', sizeof path); /* of nothing shared, and longer still */
        snprintf(path + 200, 2, "c");
        record_head_set(&file->head, "study", "checkpoint-dir", path);
    }
    CHECK_EQ(analyse(&w), 0);
    struct comparison c = {w.report, w.n, &w.contract, NULL, ""};
    FILE *to = tmpfile();
    compare_text(to, &c);
    rewind(to);
    CHECK(fread(text, 1, sizeof text - 1, to) > 0);
    CHECK_HAS(text, "until the mean is known to +-1% ...");
    CHECK_HAS(text, "until the mean is known to +-5%\n");
    CHECK_HAS(text, " aaaaaaaaaa");
    CHECK_HAS(text, "aaaa... bbbb");
    CHECK_HAS(text, "bbbb...\n");
    fclose(to);
    release(&w);
}

int main(void)
{
    reasons_are_found();
    equals_are_not_told_apart();
    ratios_are_inside_launches();
    differences_are_found();
    unequal_work_is_refused();
    rankings_are_in_order();
    forms_agree();
    long_differences_are_seen();
    return test_end();
}
