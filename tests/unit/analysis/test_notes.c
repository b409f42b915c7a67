/* What must be said beside the numbers is said of the studies that it is true of, and of no other. */
#include "analysis/report_notes.h"

#include "analysis/report_columns.h"
#include "analysis/report_proof.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

enum { POINTS_MAX = 4 };

struct study {
    struct record_file file;
    struct record_point points[POINTS_MAX];
    const struct record_file *list[1];
    struct scaling scaling;
    struct report report;
    struct notes notes;
    char *text; /* the whole report */
};

/* A point of `nodes` nodes of one rank: 2x1 is the second of its study. */
static struct record_point *add(struct study *study, int nodes, int launch, double odd_factor)
{
    struct synthetic s = synthetic_default(nodes, 1);
    s.point = nodes - 1;
    s.launch = launch;
    s.jitter = 1e-3;
    s.odd_factor = odd_factor;
    s.seed = (uint64_t)study->file.n_points;
    synthetic_point(&study->points[study->file.n_points], &s);
    return &study->points[study->file.n_points++];
}

static void analyse(struct study *s)
{
    strcpy(s->file.path, "study.h5");
    s->file.whole = true;
    s->file.points = s->points;
    s->list[0] = &s->file;
    synthetic_head(&s->file.head, 4, 1);
    CHECK_EQ(scaling_init(&s->scaling, s->list, 1, 1), 0);
    s->report = (struct report){.files = s->list, .n_files = 1, .scaling = &s->scaling, .seed = 1};
}

static void print(struct study *s)
{
    FILE *to = tmpfile();
    notes_release(&s->notes);
    free(s->text);
    notes_collect(&s->notes, &s->report);
    report_text(to, &s->report);
    long size = ftell(to);
    s->text = calloc((size_t)size + 1, 1);
    rewind(to);
    CHECK_EQ(fread(s->text, 1, (size_t)size, to), size);
    fclose(to);
}

static void release(struct study *s)
{
    notes_release(&s->notes);
    free(s->text);
    scaling_release(&s->scaling);
    for (int i = 0; i < s->file.n_points; i++)
        record_point_release(&s->points[i]);
    record_head_release(&s->file.head);
}

static bool says(const struct study *s, const char *words)
{
    for (int i = 0; i < s->notes.n; i++)
        if (strstr(s->notes.text[i], words) != NULL)
            return true;
    return false;
}

static void test_calm(void)
{
    struct study s = {0};
    add(&s, 1, 0, 1);
    add(&s, 2, 0, 1);
    analyse(&s);
    print(&s);
    CHECK_EQ(s.notes.n, 0);
    CHECK(strstr(s.text, "NOISY") == NULL && strstr(s.text, "launch is") == NULL);
    CHECK_HAS(s.text, "# nodes ranks p50_ms");
    CHECK_HAS(s.text,
              "# proof   2 gate checks a point passed (worst at 25 % of its bound: gradient "
              "wte);\n#         tokens, model FLOPs and wire bytes agree three ways\n");
    CHECK_HAS(s.text, "# columns are defined in analysis/README.md");
    release(&s);
}

/* Every second block takes 1.9 times as long: that is said first. */
static void test_noisy(void)
{
    struct study s = {0};
    add(&s, 1, 0, 1);
    add(&s, 2, 0, 2);
    strcpy(add(&s, 4, 0, 1)->point.why, "");
    s.points[2].point.emulated = 1;
    analyse(&s);
    print(&s);
    CHECK(strncmp(s.notes.text[0], "NOISY: odd and even blocks differ by up to x", 43) == 0);
    CHECK_HAS(s.notes.text[0], " at 2x1; no ratio here is known better than that");
    CHECK(s.notes.n == 2);
    s.scaling.rows[0].runs[0].account.aa_ratio = (struct stats_interval){1, NAN, 3, 9};
    print(&s);
    CHECK_HAS(s.notes.text[0], "by more than can be bounded at 1x1");
    for (int i = 0; i < 3; i++)
        s.scaling.rows[i].runs[0].account.aa_ratio = (struct stats_interval){1, 0.91, 1.09, 9};
    print(&s);
    CHECK(!says(&s, "NOISY"));
    s.scaling.rows[2].runs[0].account.aa_ratio.low = 0.8;
    print(&s);
    CHECK(says(&s, "up to x1.2 at 4x1")); /* 1 / 0.8 */
    release(&s);
}

static void test_one_block(void)
{
    struct study s = {0};
    struct synthetic few = synthetic_default(2, 1);
    few.cycles = 1;
    add(&s, 1, 0, 1);
    synthetic_point(&s.points[s.file.n_points++], &few);
    analyse(&s);
    print(&s);
    CHECK(says(&s, "one block of full steps (2x1): nothing says how noisy"));
    release(&s);
}

static void test_resumed(void)
{
    struct study s = {0};
    add(&s, 1, 0, 1);
    add(&s, 1, 1, 1.5);
    add(&s, 2, 1, 1);
    add(&s, 4, 1, 1);
    analyse(&s);
    print(&s);
    char expected[128];
    snprintf(expected, sizeof expected,
             "2x1, 4x1: speedup within launch 0.1, where 1x1 gave %.1f tokens/s",
             1024e9 / s.scaling.rows[0].runs[1].account.step_ns.value);
    CHECK(says(&s, expected));
    CHECK(says(&s, "2x1, 4x1: eff_node within launch 0.1, where"));
    CHECK(!says(&s, "unpaired"));
    CHECK_HAS(s.text, "# launch is FILE.LAUNCH");
    CHECK_HAS(s.text, "# nodes ranks launch p50_ms");
    release(&s);
}

static void test_peaks(void)
{
    struct study s = {0};
    add(&s, 1, 0, 1);
    add(&s, 1, 1, 1)->point.peak_flops_per_rank = 48e9;
    add(&s, 2, 1, 1)->point.peak_flops_per_rank = 48e9;
    analyse(&s);
    print(&s);
    CHECK(!says(&s, "peaks") && !says(&s, "MFU")); /* 4 % apart */
    CHECK_HAS(s.text, "0.05 TFLOP/s a device");
    scaling_release(&s.scaling);
    s.points[0].point.peak_flops_per_rank = 5e9;
    s.points[1].point.peak_flops_per_rank = s.points[2].point.peak_flops_per_rank = 4e9;
    CHECK_EQ(scaling_init(&s.scaling, s.list, 1, 1), 0);
    print(&s);
    CHECK(says(&s, "the peaks of the launches differ, 0.004 to 0.005 TFLOP/s"));
    CHECK(says(&s, "MFU above 100 % (1x1, 2x1)"));
    release(&s);
}

/* Beyond its interval and one per cent of the step, on more than one rank. */
static void test_disagreement(void)
{
    struct study s = {0};
    add(&s, 1, 0, 1);
    add(&s, 2, 0, 1);
    analyse(&s);
    struct account *one = &s.scaling.rows[0].runs[0].account;
    struct account *two = &s.scaling.rows[1].runs[0].account;
    two->disagreement_ns = (struct stats_interval){0.2e6, 0.1e6, 0.3e6, 9}; /* of 46 ms */
    print(&s);
    CHECK(!says(&s, "disagree"));
    one->disagreement_ns = two->disagreement_ns = (struct stats_interval){2e6, 1e6, 3e6, 9};
    print(&s);
    CHECK(says(&s, "2x1: stall and counterfactual disagree by 2.000 ms"));
    CHECK(!says(&s, "1x1: stall"));
    two->disagreement_ns.low = -1e6;
    print(&s);
    CHECK(!says(&s, "disagree"));
    release(&s);
}

static void test_proof(void)
{
    struct study s = {0};
    char text[256];
    add(&s, 1, 0, 1);
    struct record_point *p = add(&s, 2, 0, 1);
    p->work.rows[1].passed = 0;
    p->point.valid = 0;
    analyse(&s);
    print(&s);
    CHECK_HAS(s.text, "# proof   FAILED: 2x1 fixed work (model FLOPs)\n");
    CHECK_HAS(s.text, "passed invalid:work\n");
    CHECK(strcmp(proof_of_work(&s.scaling.rows[0]), "passed") == 0);
    CHECK(strcmp(proof_of_work(&s.scaling.rows[1]), "failed") == 0);
    p->gate.rows[0].passed = 0;
    proof_sentence(text, sizeof text, &s.scaling, "; ");
    CHECK_HAS(text, "2x1 1 of 2 gate checks and fixed work");
    p->gate.n = p->work.n = s.points[0].gate.n = 0;
    proof_sentence(text, sizeof text, &s.scaling, "; ");
    CHECK(strcmp(text, "no gate check was made; tokens and model FLOPs agree three ways where they "
                       "were counted") == 0);
    CHECK(proof_of_work(&s.scaling.rows[1])[0] == '\0');
    /* Launches of a run that were cut off: what the end of a point publishes is not there yet. */
    p->intervals.n = s.points[0].intervals.n = 1;
    proof_sentence(text, sizeof text, &s.scaling, "; ");
    CHECK_HAS(text, "the gate passed; its checks are published with the end of the run");
    s.points[0].gate.n = 2;
    proof_sentence(text, sizeof text, &s.scaling, "; ");
    CHECK_HAS(text, "2 gate checks a point passed");
    CHECK_HAS(
        text,
        "; 1 launch of a run cut off, without theirs; tokens and model FLOPs agree three ways");
    p->intervals.n = s.points[0].intervals.n = s.points[0].gate.n = 0;
    proof_sentence(text, 16, &s.scaling, "; "); /* a full text ends */
    CHECK_EQ(strlen(text), 15);
    release(&s);
}

/* What has no end is "-", and both sides of what has are covered. */
static void test_bounds(void)
{
    struct study s = {0};
    add(&s, 1, 0, 1);
    add(&s, 2, 0, 1);
    analyse(&s);
    struct scaling_row *row = &s.scaling.rows[1];
    row->tokens_per_s = (struct stats_interval){1000, 900, 1200, 9};
    row->speedup.ratio = (struct stats_interval){1.5, 1.25, 1.6, 9};
    print(&s);
    CHECK_HAS(s.text, "20.00"); /* per cent: the upper side */
    CHECK_HAS(s.text, "1.500 0.250");
    row->tokens_per_s.high = row->speedup.ratio.low = NAN;
    print(&s);
    CHECK_HAS(s.text, "1.500     -");
    CHECK(strstr(s.text, "20.00") == NULL && strstr(s.text, " 10.00 ") == NULL);
    release(&s);
}

/* Points that may not be compared have the same shape: rows and notes say which set they are of. */
static void test_sets(void)
{
    struct study s = {0};
    add(&s, 1, 0, 1);
    add(&s, 2, 0, 1)->point.emulated = 1;
    add(&s, 1, 0, 1)->point.point = 2;
    add(&s, 2, 0, 1)->point.point = 3;
    s.points[3].point.emulated = 1;
    for (int i = 0; i < 2; i++)
        strcpy(s.points[i].point.input, "memory");
    analyse(&s);
    CHECK_EQ(s.scaling.n_sets, 2);
    print(&s);
    CHECK_HAS(s.text, "# - EMULATED NODES (2x1 of set 0, 2x1 of set 1): ");
    CHECK_HAS(s.text, "# nodes ranks set p50_ms");
    CHECK_HAS(s.text, "# nodes ranks set launches steps");
    CHECK_HAS(s.text, "\n      2     2   0 ");
    CHECK_HAS(s.text, "\n      2     2   1 ");
    CHECK(strstr(s.text, "# nodes ranks p50_ms") == NULL && strstr(s.text, "of set -1") == NULL);
    release(&s);
}

int main(void)
{
    test_calm();
    test_sets();
    test_noisy();
    test_one_block();
    test_resumed();
    test_peaks();
    test_disagreement();
    test_proof();
    test_bounds();
    return test_end();
}
