/* Every option of scalestudy is one row: argv, YAML, --help, text and digest agree on it; and the
 * points, batches and order that follow from the options are those that a hand calculation gives.
 * */
#include "driver/study.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "tests/test.h"

static struct study study;
static struct points points;
static bool help;
static char folder[512], path[600];

static const struct model model = {.name = "six",
                                   .path = "models/six.yaml",
                                   .layers = 2,
                                   .hidden = 8,
                                   .heads = 2,
                                   .ffn = 32,
                                   .vocabulary = 100,
                                   .sequence = 64,
                                   .pad = 8,
                                   .lr = 1e-3};

/* Parse the words of a line, split at blanks. */
static int parse(const char *line)
{
    static char words[2048];
    static char *argv[64];
    int argc = 0;
    snprintf(words, sizeof words, "scalestudy %s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    fail_clear();
    int rc = study_parse(&study, argc, argv, &help);
    CHECK(strcmp(argv[0], "scalestudy") == 0);
    return rc;
}

/* A value of a row that is not its default, as text in canonical form. */
static const char *other_value(const struct opt *row)
{
    static const struct {
        const char *name, *value;
    } special[] = {{"layout", "4x2"},    {"nodes", "1,4"},         {"points", "1x1,4x2"},
                   {"parallel", "dp=8"}, {"order", "dp-tp-cp-pp"}, {"micro-batch", "1,3"},
                   {"sequence", "8,16"}, {"overlap", "none"},      {"input", "memory"},
                   {"dtype", "bf16"},    {"scaling", "weak"},      {"scratch", "recreate"},
                   {"stamps", "2"},      {"padding", "25%"},       {"settle", "2%"},
                   {"min-steps", "21"},  {"test-drop-op", "3"},    {"bucket", "1M"}};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        if (strcmp(row->name, special[i].name) == 0)
            return special[i].value;
    switch (row->type) {
    case OPT_BOOL:
        return strcmp(row->preset, "on") == 0 ? "off" : "on";
    case OPT_INT:
        return "77";
    case OPT_SECONDS:
        return "12.5s";
    case OPT_TEXT:
        return "word";
    case OPT_BYTES:
    case OPT_REAL:
    case OPT_SHARE:
    case OPT_CHOICE:
    case OPT_TEXTS:
        break;
    }
    CHECK(row == NULL); /* a row without another value */
    return "";
}

static void expect_text(const struct opt *row, const char *wanted)
{
    char text[STUDY_PATH];
    opt_text(row, &study, text, sizeof text);
    if (!CHECK(strcmp(text, wanted) == 0))
        printf("  --%s: \"%s\" is not \"%s\"\n", row->name, text, wanted);
}

/* Through argv alone; opt_argv does not judge, so that every row can be set alone. */
static void check_row_by_argv(const struct opt *row)
{
    char words[2][STUDY_PATH] = {"scalestudy"};
    char *argv[] = {words[0], words[1], NULL};
    int operand;
    snprintf(words[1], sizeof words[1], "--%s=%s", row->name, other_value(row));
    memset(&study, 0, sizeof study);
    opt_defaults(study_options, study_n_options, &study);
    CHECK_EQ(opt_argv(study_options, study_n_options, &study, 2, argv, &operand, &help), 0);
    for (size_t i = 0; i < study_n_options; i++) {
        const struct opt *each = &study_options[i];
        expect_text(each, each == row ? other_value(row) : each->preset);
    }
}

static void check_row_by_yaml(const struct opt *row)
{
    struct study again = {0};
    char text[STUDY_PATH];
    FILE *file = fopen(path, "w");
    fprintf(file, "%s: \"%s\"\n", row->name, other_value(row));
    fclose(file);
    memset(&study, 0, sizeof study);
    CHECK_EQ(opt_yaml(study_options, study_n_options, &study, path, NULL), 0);
    for (size_t i = 0; i < study_n_options; i++) {
        const struct opt *each = &study_options[i];
        expect_text(each, each == row ? other_value(row) : each->preset);
        opt_text(each, &study, text, sizeof text);
        CHECK_EQ(opt_set(each, &again, text, each->name), 0);
    }
    CHECK(memcmp(&again, &study, sizeof study) == 0); /* text gives every byte back */
}

static void test_every_row(void)
{
    for (size_t i = 0; i < study_n_options; i++) {
        check_row_by_argv(&study_options[i]);
        check_row_by_yaml(&study_options[i]);
    }
    CHECK_EQ(study_n_options, 40);
}

/* Every byte of struct study that can hold a value belongs to exactly one row. */
static void test_rows_cover_the_struct(void)
{
    static unsigned char owners[sizeof(struct study)];
    size_t unowned = 0;
    for (size_t i = 0; i < study_n_options; i++)
        for (size_t b = 0; b < study_options[i].size; b++)
            CHECK(owners[study_options[i].offset + b]++ == 0);
    for (size_t b = 0; b < sizeof owners; b++)
        unowned += owners[b] == 0;
    CHECK(unowned < 8 * 8); /* gaps of alignment only */
    for (size_t b = 0, run = 0; b < sizeof owners; b++) {
        run = owners[b] == 0 ? run + 1 : 0;
        CHECK(run < 8);
    }
}

static void test_help(void)
{
    static char text[32768];
    FILE *file = fopen(path, "w+");
    opt_help(study_options, study_n_options, file);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    for (size_t i = 0; i < study_n_options; i++) {
        const struct opt *row = &study_options[i];
        char name[64];
        snprintf(name, sizeof name, " --%s ", row->name);
        const char *line = strstr(text, name);
        if (!CHECK(line != NULL && strstr(line + 1, name) == NULL))
            continue;
        char rest[512];
        snprintf(rest, sizeof rest, "%.*s", (int)strcspn(line, "\n"), line);
        CHECK_HAS(rest, row->help);
        CHECK_HAS(rest, row->preset);
        CHECK((strncmp(row->name, "test-", 5) == 0) == (strstr(rest, "tests only") != NULL));
        CHECK(row->help[strlen(row->help) - 1] != '.');
    }
    /* and nothing that is no row */
    int n_options = 0;
    for (const char *at = strstr(text, " --"); at != NULL; at = strstr(at + 1, " --"))
        n_options++;
    CHECK_EQ(n_options, study_n_options + 1);
    CHECK_EQ(parse("--help"), 0);
    CHECK(help);
    CHECK_EQ(parse("--version"), 0);
    CHECK(!help && study.version);
}

static void test_letters(void)
{
    static const char known[] = "bcdefgimnorwT"; /* nccl-tests' */
    for (size_t i = 0; i < study_n_options; i++) {
        const struct opt *row = &study_options[i];
        if (row->letter == 0)
            continue;
        const char *wanted = row->letter == 'w'   ? "warm-up"
                             : row->letter == 'd' ? "dtype"
                             : row->letter == 'c' ? "check"
                             : row->letter == 'T' ? "timeout"
                                                  : "";
        CHECK(strchr(known, row->letter) == NULL || strcmp(row->name, wanted) == 0);
    }
    CHECK_EQ(parse("--layout 1x1 -w 3 -d fp32 -c 0 -T 9"), 0);
    CHECK(study.warm_up == 3 && !study.check && study.timeout == 9);
    for (const char *c = "befgimnor"; *c != '\0'; c++) {
        char line[64], wanted[64];
        snprintf(line, sizeof line, "--layout 1x1 -%c 8", *c);
        snprintf(wanted, sizeof wanted, "-%c: no such option", *c);
        CHECK_EQ(parse(line), FAIL_USAGE);
        CHECK_HAS(fail_message(), wanted);
    }
}

static void test_study_file(void)
{
    char line[800];
    FILE *file = fopen(path, "w");
    fputs("layout: 4x1\nseed: 5\nparallel: [dp=4, dp=4]\nwarm-up: 3\n", file);
    fclose(file);
    snprintf(line, sizeof line, "--seed 9 --study %s --parallel dp=4", path);
    CHECK_EQ(parse(line), 0);
    CHECK(study.seed == 9 && study.warm_up == 3 && strcmp(study.layout, "4x1") == 0);
    CHECK(strcmp(study.parallel, "dp=4") == 0 && strcmp(study.study_file, path) == 0);

    file = fopen(path, "w");
    fputs("layout: 4x1\nstudy: other.yaml\n", file);
    fclose(file);
    CHECK_EQ(parse(line), FAIL_USAGE);
    CHECK_HAS(fail_message(), "study: a study file cannot name another");

    file = fopen(path, "w");
    fputs("layout: 4x1\nwarm_up: 3\n", file);
    fclose(file);
    CHECK_EQ(parse(line), FAIL_USAGE);
    CHECK_HAS(fail_message(), "file.yaml:2: unknown key \"warm_up\"; did you mean warm-up?");
    CHECK_EQ(parse("--layout 1x1 --study /nonexistent.yaml"), FAIL_FILE);
    CHECK_HAS(fail_message(), "/nonexistent.yaml: cannot be read");
}

static void test_refused_options(void)
{
    static const struct {
        int code;
        const char *line, *message;
    } table[] = {
        {FAIL_USAGE, "", "--layout: found none, wanted NxG"},
        {FAIL_USAGE, "--layout 4", "--layout: found \"4\", wanted NxG"},
        {FAIL_USAGE, "--layout 0x4", "--layout: found \"0x4\""},
        {FAIL_USAGE, "--layout 4x", "--layout: found \"4x\""},
        {FAIL_USAGE, "--layout 2x2x2", "--layout: found \"2x2x2\""},
        {FAIL_USAGE, "--layout 65536x65536", "--layout: found \"65536x65536\""},
        {FAIL_USAGE, "--layout 2x2 4x4", "found \"4x4\", wanted options only"},
        {FAIL_USAGE, "--layout 2x2 --nodes 1 --points 1x1", "wanted one of the two"},
        {FAIL_USAGE, "--layout 2x2 --min-steps 9 --max-steps 8", "--min-steps 9 is more than"},
        {FAIL_USAGE, "--layout 2x2 --lay-out 2",
         "--lay-out: no such option; did you mean --layout?"},
        {FAIL_USAGE, "--layout 2x2 --resume", "--resume: wanted --out FILE.h5"},
        {FAIL_USAGE, "--layout 2x2 -d fp8", "--dtype: found \"fp8\", wanted one of fp32|tf32|bf16"},
        {FAIL_ABSENT, "--layout 2x2 -d bf16", "--dtype: bf16 is not in this version"},
        {FAIL_ABSENT, "--layout 2x2 -d tf32", "--dtype: tf32 is not in this version"},
        {FAIL_ABSENT, "--layout 2x2 --overlap grad,tp", "--overlap: tp is not in this version"},
        {FAIL_USAGE, "--layout 2x2 --overlap grads", "--overlap: found \"grads\", wanted some of"},
        {FAIL_USAGE, "--layout 2x2 --overlap none,grad", "wanted none alone"},
        {FAIL_ABSENT, "--layout 2x2 --input file:/data/x", "--input: file is not in this version"},
        {FAIL_USAGE, "--layout 2x2 --input disk",
         "--input: found \"disk\", wanted some of synthetic"},
        {FAIL_USAGE, "--layout 2x2 --input synthetic,", "--input: found \"synthetic,\""},
        {FAIL_USAGE, "--layout 2x2 --padding 100%", "--padding: found \"100%\""},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        CHECK_EQ(parse(table[i].line), table[i].code);
        CHECK_HAS(fail_message(), table[i].message);
    }
    CHECK_EQ(parse("--layout 2x2"), 0);
    CHECK(study_overlaps_gradients(&study));
    CHECK_EQ(parse("--layout 2x2 --overlap none"), 0);
    CHECK(!study_overlaps_gradients(&study));
}

static int expand(const char *line, const struct model *of)
{
    points_release(&points);
    int rc = parse(line);
    return rc != 0 ? rc : study_points(&study, of, &points);
}

/* "1x1 1x2 4x2": the points in order. */
static void sizes_of(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < points.n; i++) {
        const struct point *point = &points.point[i];
        CHECK_EQ(point->index, i);
        CHECK_EQ(point->ranks, point->nodes * point->ranks_per_node);
        used += (size_t)snprintf(text + used, size - used, "%s%dx%d", i > 0 ? " " : "",
                                 point->nodes, point->ranks_per_node);
    }
}

static void test_sizes(void)
{
    static const char *const table[][2] = {
        {"--layout 1x1", "1x1"},
        {"--layout 2x1", "1x1 2x1"},
        {"--layout 3x1", "1x1 2x1 3x1"},
        {"--layout 4x1", "1x1 2x1 4x1"},
        {"--layout 6x2", "1x2 2x2 4x2 6x2"},
        {"--layout 7x1", "1x1 2x1 4x1 7x1"},
        {"--layout 8x4", "1x4 2x4 4x4 8x4"},
        {"--layout 12x1", "1x1 2x1 4x1 8x1 12x1"},
        {"--layout 4x8 --nodes 3,1", "3x8 1x8"},
        {"--layout 2x8 --points 1x1,1x2,1x8,2x8,2x4", "1x1 1x2 1x8 2x8 2x4"},
        {"--layout 1x4 --points 1x1,1x2,1x3,1x4", "1x1 1x2 1x3 1x4"},
    };
    char text[256];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!CHECK_EQ(expand(table[i][0], &model), 0))
            printf("  %s\n", fail_message());
        sizes_of(text, sizeof text);
        if (!CHECK(strcmp(text, table[i][1]) == 0))
            printf("  %s: %s\n", table[i][0], text);
    }
}

/* "8/2 8/2": global batch and micro-batch of each point, then the gate's batch. */
static void batches_of(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < points.n; i++)
        used += (size_t)snprintf(text + used, size - used, "%lld/%lld ",
                                 (long long)points.point[i].global_batch,
                                 (long long)points.point[i].micro_batch);
    snprintf(text + used, size - used, "gate %lld", (long long)points.gate_batch);
}

static void test_batches(void)
{
    static const char *const table[][2] = {
        {"--layout 1x1", "2/1 gate 2"},
        {"--layout 4x1", "8/1 8/1 8/1 gate 8"},
        {"--layout 3x1", "6/1 6/1 6/1 gate 6"},
        {"--layout 7x1", "28/1 28/1 28/1 28/1 gate 28"},
        {"--layout 12x1", "24/1 24/1 24/1 24/1 24/1 gate 24"},
        {"--layout 4x2 --micro-batch 3", "48/3 48/3 48/3 gate 16"},
        {"--layout 4x1 --global-batch 4", "4/1 4/1 4/1 gate 8"},
        {"--layout 4x1 --global-batch 4 --check off", "4/1 4/1 4/1 gate 0"},
        {"--layout 2x1 --micro-batch 2,3", "12/2 12/3 12/2 12/3 gate 4"},
        {"--layout 4x1 --scaling weak", "2/1 4/1 8/1 gate 8"},
        {"--layout 3x1 --scaling weak", "2/1 4/1 6/1 gate 6"},
        {"--layout 4x2 --scaling weak --global-batch 6", "6/1 12/1 24/1 gate 16"},
        {"--layout 3x1 --nodes 2,3 --scaling weak", "4/1 6/1 gate 6"},
        {"--layout 3x1 --nodes 3,2 --scaling weak --micro-batch 4", "24/4 16/4 gate 6"},
        {"--layout 1x4 --points 1x4,1x2 --scaling weak", "8/1 4/1 gate 8"},
    };
    char text[256];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!CHECK_EQ(expand(table[i][0], &model), 0))
            printf("  %s\n", fail_message());
        batches_of(text, sizeof text);
        if (!CHECK(strcmp(text, table[i][1]) == 0))
            printf("  %s: %s\n", table[i][0], text);
    }
    struct model proposes = model; /* what the model file says comes before the smallest */
    proposes.global_batch = 64;
    proposes.micro_batch = 4;
    CHECK_EQ(expand("--layout 4x1", &proposes), 0);
    CHECK(points.point[0].global_batch == 64 && points.point[2].micro_batch == 4);
    CHECK_EQ(expand("--layout 4x1 --global-batch 32 --micro-batch 8", &proposes), 0);
    CHECK(points.point[0].global_batch == 32 && points.point[2].micro_batch == 8);
}

/* Whatever the sizes, a chosen batch splits over every point, is large enough, and is the smallest. */
static void test_smallest_batch(void)
{
    for (int n = 1; n <= 24; n++)
        for (int weak = 0; weak < 2; weak++) {
            char line[128];
            snprintf(line, sizeof line, "--layout %dx2 --micro-batch 3 --scaling %s", n,
                     weak ? "weak" : "strong");
            CHECK_EQ(expand(line, &model), 0);
            int64_t chosen = points.point[0].global_batch, smallest = 0;
            for (int64_t batch = 1; smallest == 0 && batch <= chosen; batch++) {
                bool works = true;
                for (int i = 0; i < points.n; i++) {
                    int64_t ranks = points.point[i].ranks, here = weak ? batch * ranks / 2 : batch;
                    works = works && (!weak || batch * ranks % 2 == 0) && here % (3 * ranks) == 0 &&
                            here >= 6 * ranks;
                }
                smallest = works ? batch : 0;
            }
            CHECK_EQ(chosen, smallest);
            for (int i = 0; i < points.n; i++)
                CHECK(points.gate_batch % points.point[i].ranks == 0 &&
                      points.gate_batch / points.point[i].ranks >= 2);
        }
}

static void test_lists(void)
{
    CHECK_EQ(
        expand("--layout 2x2 --parallel dp=4 --nodes 2 --sequence 16,32 --input memory,synthetic",
               &model),
        0);
    CHECK_EQ(points.n, 4);
    CHECK(points.point[1].sequence == 16 && points.point[2].sequence == 32);
    CHECK(strcmp(points.point[0].input, "memory") == 0);
    CHECK(strcmp(points.point[3].input, "synthetic") == 0);
    CHECK(strcmp(points.point[0].parallel, "dp=4") == 0 && points.point[0].degrees.dp == 4);
    CHECK(points.point[0].degrees.tp == 1 && points.point[0].degrees.order[0] == 't');
    CHECK_EQ(points.nodes, 2);
    CHECK_EQ(points.ranks_per_node, 2);

    CHECK_EQ(expand("--layout 2x2 --nodes 2 --parallel tp=2 --parallel pp=2,dp=2", &model), 0);
    CHECK_EQ(points.n, 2);
    CHECK(points.point[0].degrees.tp == 2 && points.point[0].degrees.dp == 2);
    CHECK(points.point[1].degrees.pp == 2);
    CHECK_EQ(points.point[1].global_batch, 8); /* 2 pp = 4 micro-batches for each of 2 replicas */
    CHECK_EQ(expand("--layout 1x1", &model), 0);
    CHECK(points.point[0].sequence == 64 && points.point[0].parallel[0] == '\0');
}

static void test_refused_points(void)
{
    static const char *const table[][2] = {
        {"--layout 4x1 --nodes 1,5", "--nodes: 5 is more than the 4 nodes of --layout"},
        {"--layout 4x1 --nodes 1,2,1", "--nodes: 1x1 is said twice"},
        {"--layout 4x1 --nodes 1,,2", "--nodes: found \"1,,2\""},
        {"--layout 4x1 --nodes 0", "--nodes: found \"0\""},
        {"--layout 4x2 --points 1x4", "--points: 1x4 does not fit into the 4x2 of --layout"},
        {"--layout 4x2 --points 8x1", "--points: 8x1 does not fit into the 4x2 of --layout"},
        {"--layout 4x2 --points 1x1,1x1", "--points: 1x1 is said twice"},
        {"--layout 4x2 --points 1x1,2", "--points: found \"2\", wanted nodes x ranks"},
        {"--layout 4x1 --parallel tp=3", "tp=3"},
        {"--layout 4x1 --parallel xp=3", "xp=3"},
        {"--layout 4x1 --order tp-tp", "tp-tp"},
        {"--layout 4x1 --parallel dp=4 --parallel dp=4 --nodes 4", "says a value twice"},
        {"--layout 4x1 --micro-batch 0", "--micro-batch: found \"0\""},
        {"--layout 4x1 --micro-batch 2,2", "--micro-batch: \"2,2\" says a value twice"},
        {"--layout 4x1 --micro-batch two", "--micro-batch: found \"two\""},
        {"--layout 4x1 --sequence 128",
         "--sequence: 128 is more than the 64 positions of model six"},
        {"--layout 4x1 --sequence 1", "--sequence: found \"1\""},
        {"--layout 4x1 --global-batch 6",
         "--global-batch: 6 samples do not split over point 4x1: dp=4 * micro-batch 1 is 4"},
        {"--layout 4x1 --scaling weak --global-batch 3 --micro-batch 2",
         "--global-batch: 3 samples do not split over point 1x1: dp=1 * micro-batch 2 is 2"},
        {"--layout 3x1 --nodes 3,2 --scaling weak --global-batch 3",
         "--global-batch: 3 samples at the smallest point do not grow to a whole number"},
        {"--layout 2x1 --micro-batch 1073741824",
         "--global-batch: no batch up to 1073741824 samples"},
        {"--layout 40x1 --nodes 31,37,29,23,19", "--check: no batch up to 65536 samples"},
        {"--layout 40x1 --nodes 31,37,29,23,19,17,13", "--global-batch: no batch up to 1073741824"},
        {"--layout 2000x1 --points 1x1 --micro-batch 1 --sequence 2,3,4 --nodes 1",
         "wanted one of"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!CHECK_EQ(expand(table[i][0], &model), FAIL_USAGE))
            printf("  %s\n", table[i][0]);
        CHECK_HAS(fail_message(), table[i][1]);
        CHECK(points.point == NULL && points.n == 0);
    }
    struct model proposes = model;
    proposes.global_batch = 6;
    CHECK_EQ(expand("--layout 4x1", &proposes), FAIL_USAGE);
    CHECK_HAS(fail_message(), "models/six.yaml: global-batch: 6 samples do not split");

    char line[800] = "--layout 100x10 --points 1x1";
    for (int i = 2; i <= 60; i++) /* 60 points x 17 sequences are more than three digits */
        snprintf(line + strlen(line), sizeof line - strlen(line), ",%dx1", i);
    line[strlen("--layout 100x10 --points ") + 250] = '\0';
    *strrchr(line, ',') = '\0';
    snprintf(line + strlen(line), sizeof line - strlen(line),
             " --check off --sequence 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22");
    CHECK_EQ(expand(line, &model), FAIL_USAGE);
    CHECK_HAS(fail_message(), "points, more than 999");
}

static void test_order(void)
{
    int first[20], again[20], next[20];
    for (int n = 3; n <= 8; n++) { /* the default study: drift must not look like size */
        bool sorted = true;
        study_order(1, 0, n, first);
        for (int k = 0; k < n; k++)
            sorted &= first[k] == k;
        CHECK(!sorted);
    }
    study_order(1, 0, 20, first);
    study_order(1, 0, 20, again);
    study_order(1, 1, 20, next);
    CHECK(memcmp(first, again, sizeof first) == 0);
    CHECK(memcmp(first, next, sizeof first) != 0);
    int seen[20] = {0}, moved = 0;
    for (int i = 0; i < 20; i++) {
        seen[first[i]]++;
        moved += first[i] != i;
    }
    for (int i = 0; i < 20; i++)
        CHECK_EQ(seen[i], 1);
    CHECK(moved > 10);
    int counts[6] = {0}; /* all orders of three come up alike */
    for (int launch = 0; launch < 6000; launch++) {
        study_order(7, launch, 3, first);
        counts[first[0] * 2 + (first[1] > first[2])]++;
    }
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(counts[i], 1000, 5 * 29); /* 5 binomial standard deviations */
}

/* The text changes with every term, the model's sizes included, and with nothing else. */
static void test_text(void)
{
    static char base[STUDY_CANONICAL], text[STUDY_CANONICAL];
    CHECK_EQ(parse("--layout 4x2"), 0);
    study_text(&study, &model, base, sizeof base);
    CHECK_HAS(base, "layout=4x2\n");
    CHECK_HAS(base, "model=six\n");
    CHECK_HAS(base, "[model]\n");
    int n_others = 0;
    for (size_t i = 0; i < study_n_options; i++) {
        const struct opt *row = &study_options[i];
        struct study changed = study;
        const char *value = strcmp(row->name, "layout") == 0 ? "8x1" : other_value(row);
        CHECK_EQ(opt_set(row, &changed, value, row->name), 0);
        study_text(&changed, &model, text, sizeof text);
        bool differs = strcmp(base, text) != 0;
        bool by_name = strcmp(row->name, "model") == 0; /* the name comes from the model itself */
        if (!CHECK(differs == (study_is_term(row) && !by_name)))
            printf("  --%s\n", row->name);
        n_others += !study_is_term(row);
    }
    CHECK_EQ(n_others, 10);
    struct model changed = model;
    changed.ffn = 64;
    study_text(&study, &changed, text, sizeof text);
    CHECK(strcmp(base, text) != 0);
    CHECK(strlen(base) < STUDY_CANONICAL - 8192);
}

int main(void)
{
    const char *where = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.400s/study-XXXXXX", where != NULL ? where : "/tmp");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/file.yaml", folder);
    test_every_row();
    test_rows_cover_the_struct();
    test_help();
    test_letters();
    test_study_file();
    test_refused_options();
    test_sizes();
    test_batches();
    test_smallest_batch();
    test_lists();
    test_refused_points();
    test_order();
    test_text();
    points_release(&points);
    unlink(path);
    rmdir(folder);
    return test_end();
}
