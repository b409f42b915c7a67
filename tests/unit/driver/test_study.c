/* Every option of scalestudy is one row: argv, YAML, --help, text and digest agree on it. */
#include "tests/unit/driver/study_rig.h"

#include <stdlib.h>
#include <unistd.h>

static char folder[512], path[600];

/* A word of a choice that is not its default. */
static const char *other_word(const struct opt *row)
{
    static char word[64];
    size_t length = strcspn(row->choices, "|");
    snprintf(word, sizeof word, "%.*s", (int)length, row->choices);
    if (strcmp(word, row->preset) == 0)
        snprintf(word, sizeof word, "%s", row->choices + length + 1);
    word[strcspn(word, "|")] = '\0';
    return word;
}

static const char *other_number(const struct opt *row)
{
    static char number[32];
    snprintf(number, sizeof number, "%d", strcmp(row->preset, "2") == 0 ? 1 : 2);
    return row->max < 77 ? number : "77";
}

/* A value of a row that is not its default, as text in canonical form. */
static const char *other_value(const struct opt *row)
{
    static const struct {
        const char *name, *value;
    } special[] = {{"layout", "4x2"},
                   {"nodes", "1,4"},
                   {"points", "1x1,4x2"},
                   {"parallel", "dp=8"},
                   {"order", "dp-tp-cp-pp"},
                   {"micro-batch", "1,3"},
                   {"sequence", "8,16"},
                   {"overlap", "none"},
                   {"input", "memory"},
                   {"dtype", "bf16"},
                   {"scaling", "weak"},
                   {"scratch", "recreate"},
                   {"comm-setup", "windows,8"},
                   {"stamps", "2"},
                   {"padding", "25%"},
                   {"settle", "2%"},
                   {"min-steps", "21"},
                   {"test-drop-op", "3"},
                   {"bucket", "1M"}};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        if (strcmp(row->name, special[i].name) == 0)
            return special[i].value;
    if (strcmp(row->name, "base") == 0)
        return "loaded";
    switch (row->type) {
    case OPT_BOOL:
        return strcmp(row->preset, "on") == 0 ? "off" : "on";
    case OPT_INT:
        return other_number(row);
    case OPT_CHOICE:
        return other_word(row);
    case OPT_SECONDS:
        return "12.5s";
    case OPT_TEXT:
        return "word";
    case OPT_BYTES:
        return "1M";
    case OPT_REAL:
        return "0.5";
    case OPT_SHARE:
        return "3%";
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
    CHECK_EQ(study_n_options, 86);
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

    file = fopen(path, "w");
    fputs("layout: 1x1\nkill: rank:0\nrun-steps: 20\ncheckpoint-dir: d\n", file);
    fclose(file);
    snprintf(line, sizeof line, "--study %s", path);
    CHECK_EQ(parse(line), FAIL_USAGE);
    CHECK_HAS(fail_message(), "--kill: nothing is killed but in a drill");
    snprintf(line, sizeof line, "--drill --study %s", path);
    CHECK_EQ(parse(line), 0);
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
        {FAIL_USAGE, "--layout 2x2 --overlap grad,dp",
         "--overlap: found \"grad,dp\", wanted some of"},
        {FAIL_USAGE, "--layout 2x2 --overlap grads", "--overlap: found \"grads\", wanted some of"},
        {FAIL_USAGE, "--layout 2x2 --overlap none,grad", "wanted none alone"},
        {FAIL_USAGE, "--layout 2x2 --input file", "--input: found \"file\", wanted some of"},
        {FAIL_USAGE, "--layout 2x2 --input filed:x", "--input: found \"filed:x\""},
        {FAIL_USAGE, "--layout 2x2 --input disk",
         "--input: found \"disk\", wanted some of synthetic"},
        {FAIL_USAGE, "--layout 2x2 --input synthetic,", "--input: found \"synthetic,\""},
        {FAIL_USAGE, "--layout 2x2 --padding 100%", "--padding: found \"100%\""},
        {FAIL_USAGE, "--layout 2x2 --checkpoint-dir=", "--checkpoint-dir: found \"\", wanted DIR;"},
        {FAIL_USAGE, "--layout 2x2 --resume-f=", "--resume-from: found \"\", wanted DIR; leave"},
        {FAIL_USAGE, "--layout 2x2 --checkpoint-mode=", "--checkpoint-mode: found \"\""},
        {FAIL_USAGE, "--layout 2x2 --checkpoint-dir D --checkpoint-mode sync,lazy,sync",
         "--checkpoint-mode: \"sync,lazy,sync\" says a value twice"},
        {FAIL_USAGE,
         "--layout 2x2 --out=", "--out: found \"\", wanted FILE.h5; leave the option out"},
        {FAIL_USAGE, "--layout 2x2 --study=", "--study: found \"\""},
        {FAIL_USAGE, "--layout 2x2 --checkpoint-dir d --checkpoint-every 1.5",
         "found \"1.5\", wanted steps (20), or a time with its unit (30s)"},
        {FAIL_USAGE, "--layout 2x2 --checkpoint-dir d --checkpoint-every 0.5", "found \"0.5\""},
        {FAIL_USAGE, "--layout 2x2 --kill rank:0", "--kill: nothing is killed but in a drill"},
        {FAIL_USAGE, "--layout 2x2 --kill-in step", "--kill-in: nothing is killed but in a drill"},
        {FAIL_USAGE, "--layout 2x2 --kill-seed 1", "--kill-seed: nothing is killed"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        CHECK_EQ(parse(table[i].line), table[i].code);
        CHECK_HAS(fail_message(), table[i].message);
    }
    CHECK_EQ(parse("--layout 2x2 --out= --out x.h5"), 0); /* the last one counts */
    CHECK_EQ(parse("--layout 2x2 --checkpoint-dir d --checkpoint-every 1.5h"), 0);
    CHECK_EQ(parse("--layout 2x2"), 0);
    CHECK(study_overlaps_gradients(&study));
    static const char *const kinds[] = {"param", "tp", "cp", "ep", "pp"};
    for (int i = 0; i < 5; i++) { /* each is on, and each can be the only one */
        char line[64];
        CHECK_EQ(parse("--layout 2x2"), 0);
        CHECK(study_overlaps(&study, kinds[i]));
        snprintf(line, sizeof line, "--layout 2x2 --overlap %s", kinds[i]);
        CHECK_EQ(parse(line), 0);
        for (int k = 0; k < 5; k++)
            CHECK_EQ(study_overlaps(&study, kinds[k]), k == i);
    }
    CHECK_EQ(parse("--layout 2x2 --overlap none"), 0);
    CHECK(!study_overlaps_gradients(&study));
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
    CHECK_EQ(n_others, 15);
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
    test_text();
    unlink(path);
    rmdir(folder);
    return test_end();
}
