/* One row of a table gives the default, argv, YAML, range checks, --help and text, and every refusal
 * names the option, what was found and what is wanted. */
#include "base/opt.h"

#include <float.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "tests/test.h"

struct sample {
    int64_t count, bucket;
    double rate, share, timeout;
    bool resume, check;
    int scaling;
    char layout[8], note[16], parallel[24];
};

#define AT(field) offsetof(struct sample, field)
#define SIZE(field) sizeof(((struct sample *)0)->field)
static const struct opt rows[] = {
    {"count", 'w', OPT_INT, AT(count), 0, "10", -5, 100, NULL, "", "how many"},
    {"bucket", 0, OPT_BYTES, AT(bucket), 0, "25M", 1, OPT_NO_MAX, NULL, "", "bytes of a bucket"},
    {"rate", 0, OPT_REAL, AT(rate), 0, "6e-4", 0, 0, NULL, "", "learning rate"},
    {"share", 0, OPT_SHARE, AT(share), 0, "1%", 0, 1, NULL, "", "half-width"},
    {"timeout", 'T', OPT_SECONDS, AT(timeout), 0, "300s", 0.5, 3600, NULL, "", "deadline"},
    {"resume", 0, OPT_BOOL, AT(resume), 0, "off", 0, 0, NULL, "", "go on"},
    {"check", 'c', OPT_BOOL, AT(check), 0, "on", 0, 0, NULL, "", "correctness gate"},
    {"scaling", 0, OPT_CHOICE, AT(scaling), 0, "strong", 0, 0, "strong|weak|both", "", "of work"},
    {"layout", 'l', OPT_TEXT, AT(layout), SIZE(layout), "1x1", 0, 0, NULL, "NxG", "nodes x ranks"},
    {"note", 0, OPT_TEXT, AT(note), SIZE(note), "", 0, 0, NULL, "", "anything"},
    {"parallel", 0, OPT_TEXTS, AT(parallel), SIZE(parallel), "", 0, 0, NULL, "tp=2,pp=2",
     "degrees"},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static struct sample now;
static bool help;
static int operand;
static char folder[512], path[600];

/* Parse the words of `line`, split at blanks, over what is there. */
static int argv_over(const char *line)
{
    static char words[512];
    static char *argv[32];
    int argc = 0;
    snprintf(words, sizeof words, "program %s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    help = false;
    fail_clear();
    return opt_argv(rows, ROWS, &now, argc, argv, &operand, &help);
}

static int argv_of(const char *line)
{
    memset(&now, 0, sizeof now);
    opt_defaults(rows, ROWS, &now);
    return argv_over(line);
}

static int yaml_of(const char *text, int *lines)
{
    FILE *file = fopen(path, "wb");
    fputs(text, file);
    fclose(file);
    memset(&now, 0, sizeof now);
    fail_clear();
    return opt_yaml(rows, ROWS, &now, path, lines);
}

static void check_defaults(void)
{
    CHECK_EQ(now.count, 10);
    CHECK_EQ(now.bucket, 26214400);
    CHECK(now.rate == 6e-4 && now.share == 0.01 && now.timeout == 300);
    CHECK(!now.resume && now.check && now.scaling == 0);
    CHECK(strcmp(now.layout, "1x1") == 0 && now.note[0] == '\0' && now.parallel[0] == '\0');
}

static void test_argv(void)
{
    CHECK_EQ(argv_of(""), 0);
    check_defaults();
    CHECK_EQ(
        argv_of("--count 7 --bucket=1K --rate -1e3 --share 5% --timeout 2m --resume --check=off "
                "--scaling weak --layout 2x8 --note a=b --parallel tp=2 --parallel=pp=2,dp=4"),
        0);
    CHECK(now.count == 7 && now.bucket == 1024 && now.rate == -1000 && now.share == 0.05);
    CHECK(now.timeout == 120 && now.resume && !now.check && now.scaling == 1);
    CHECK(strcmp(now.layout, "2x8") == 0 && strcmp(now.note, "a=b") == 0);
    CHECK(strcmp(now.parallel, "tp=2;pp=2,dp=4") == 0);
    CHECK(!help);

    CHECK_EQ(argv_of("-w -3 -T9s -c 0 -l 4x1 --count=4"), 0); /* the last one counts */
    CHECK(now.count == 4 && now.timeout == 9 && !now.check && strcmp(now.layout, "4x1") == 0);
    CHECK_EQ(argv_of("--check off --resume yes"), 0);
    CHECK(!now.check && now.resume);
    CHECK_EQ(argv_of("--resume file.h5 --check false other.h5 --count 3"), 0);
    CHECK(now.resume && !now.check && now.count == 3);
    CHECK_EQ(operand, 6); /* program + 5 words of options: the operands come last */
    CHECK_EQ(argv_of("--help --count 5"), 0);
    CHECK(help && now.count == 5);
    CHECK_EQ(argv_of("-h"), 0);
    CHECK(help);
    CHECK_EQ(argv_of("--bucket 4P --layout 1234567 --layout 12"), 0);
    CHECK_EQ(now.bucket, INT64_C(4) << 50); /* no upper limit means none */
    CHECK(memcmp(now.layout, "12\0\0\0\0\0", sizeof now.layout) ==
          0); /* equal texts: equal bytes */
    CHECK_EQ(argv_of("-- --count"), 0);
    CHECK_EQ(operand, 2);
    CHECK_EQ(argv_of("--buck 4K"), 0); /* unambiguous beginnings, as getopt_long has it */
    CHECK_EQ(now.bucket, 4096);
}

static void test_argv_refusals(void)
{
    static const char *const table[][2] = {
        {"--count ten", "--count: found \"ten\", wanted a whole number, -5 to 100"},
        {"-w 101", "--count: found \"101\", wanted a whole number, -5 to 100"},
        {"--count -6", "--count: found \"-6\", wanted a whole number, -5 to 100"},
        {"--bucket 0", "--bucket: found \"0\", wanted a size such as 25M, at least 1"},
        {"--bucket -1", "--bucket: found \"-1\", wanted a size such as 25M, at least 1"},
        {"--rate fast", "--rate: found \"fast\", wanted a number"},
        {"--share 101%", "--share: found \"101%\", wanted a share such as 1%, 0% to 100%"},
        {"--timeout 1h1", "--timeout: found \"1h1\", wanted a time such as 90s, 0.5s to 3600s"},
        {"--resume=maybe", "--resume: found \"maybe\", wanted on or off"},
        {"-c maybe", "--check: found \"maybe\", wanted on or off"},
        {"--scaling str", "--scaling: found \"str\", wanted one of strong|weak|both"},
        {"--scaling strong|weak",
         "--scaling: found \"strong|weak\", wanted one of strong|weak|both"},
        {"--layout 12345678", "--layout: found \"12345678\", wanted a text (NxG) of 1 to 7 bytes"},
        {"--layout=", "--layout: found \"\", wanted a text (NxG) of 1 to 7 bytes"},
        {"--note 1234567890123456", "wanted a text of 0 to 15 bytes"},
        {"--parallel=", "--parallel: found \"\", wanted a text (tp=2,pp=2)"},
        {"--parallel 123456789012 --parallel 123456789012", "--parallel: found \"123456789012\""},
        {"--count", "--count: found no value, wanted a whole number, -5 to 100"},
        {"-T", "--timeout: found no value, wanted a time such as 90s, 0.5s to 3600s"},
        {"--cuont 3", "--cuont: no such option; did you mean --count?"},
        {"--scalling=weak", "--scalling: no such option; did you mean --scaling?"},
        {"--elephant", "--elephant: no such option; --help lists them"},
        {"--c 3", "--c: could mean 2 options; give the whole name"},
        {"-q", "-q: no such option; --help lists them"},
        {"--help=me", "--help: wanted no value, found \"--help=me\""},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        CHECK_EQ(argv_of(table[i][0]), FAIL_USAGE);
        CHECK_HAS(fail_message(), table[i][1]);
        CHECK(strchr(fail_message(), '\n') == NULL);
    }
}

static void test_yaml(void)
{
    int lines[ROWS];
    CHECK_EQ(yaml_of("{}\n", lines), 0);
    check_defaults();
    CHECK_EQ(yaml_of("# a study\ncount: 7\nbucket: 1K\n\nrate: -1e3\nshare: 5%\ntimeout: 2m\n"
                     "resume: yes\ncheck: off\nscaling: weak\nlayout: 2x8\nnote: \"a b\"\n"
                     "parallel: [\"tp=2\", \"pp=2,dp=4\"]\n",
                     lines),
             0);
    CHECK(now.count == 7 && now.bucket == 1024 && now.rate == -1000 && now.share == 0.05);
    CHECK(now.timeout == 120 && now.resume && !now.check && now.scaling == 1);
    CHECK(strcmp(now.layout, "2x8") == 0 && strcmp(now.note, "a b") == 0);
    CHECK(strcmp(now.parallel, "tp=2;pp=2,dp=4") == 0);
    CHECK_EQ(lines[0], 2);
    CHECK_EQ(lines[2], 5);
    CHECK_EQ(lines[ROWS - 1], 13);
    CHECK_EQ(yaml_of("parallel: tp=2;dp=2\n", lines), 0);
    CHECK(strcmp(now.parallel, "tp=2;dp=2") == 0 && lines[0] == 0);

    /* what argv says replaces what the file said */
    CHECK_EQ(argv_over("--parallel dp=8 --count 1"), 0);
    CHECK(strcmp(now.parallel, "dp=8") == 0 && now.count == 1);
}

static void test_yaml_refusals(void)
{
    static const struct {
        int code;
        const char *text, *message;
    } table[] = {
        {FAIL_USAGE, "count: 7\nlay-out: 2\n", ":2: unknown key \"lay-out\"; did you mean layout?"},
        {FAIL_USAGE, "\nglobal_batch_of_all: 2\n", ":2: unknown key \"global_batch_of_all\""},
        {FAIL_USAGE, "count: 1\nrate: 2\ncount: 3\n", ":3: key \"count\" stands already in line 1"},
        {FAIL_USAGE, "rate: 1\n\ncount: ten\n", ":3: count: found \"ten\", wanted a whole number"},
        {FAIL_USAGE, "count: 1000\n",
         ":1: count: found \"1000\", wanted a whole number, -5 to 100"},
        {FAIL_USAGE, "count: [1, 2]\n", ":1: count: found a list, wanted a whole number"},
        {FAIL_USAGE, "rate: 1\nlayout: {a: b}\n", ":2: layout: found a mapping, wanted a text"},
        {FAIL_USAGE, "parallel: [[a]]\n", ":1: parallel: wanted a list of texts"},
        {FAIL_USAGE, "count:\n", ":1: count: found \"\", wanted a whole number"},
        {FAIL_USAGE, "note: \"a\\0b\"\n", ":1: note: found a text with a zero byte"},
        {FAIL_USAGE, "[a]: 1\n", ":1: wanted a word as key"},
        {FAIL_FILE, "", ":1: wanted a mapping"},
        {FAIL_FILE, "just words\n", ":1: wanted a mapping"},
        {FAIL_FILE, "- count: 1\n", ":1: wanted a mapping"},
        {FAIL_FILE, "count: 1\n---\ncount: 2\n", ":3: wanted one document, found a second"},
        {FAIL_FILE, "count: 1\nrate: [1,\n", ": not YAML: "},
        {FAIL_FILE, "count: 1\n\tx: 2\n", ":2: not YAML: "},
        {FAIL_FILE, "count: \xff\xfe\n", ": not YAML: "},
        {FAIL_FILE, "count: 1\n---\n[\n", ": not YAML: "},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!CHECK_EQ(yaml_of(table[i].text, NULL), table[i].code))
            printf("  %s: %s\n", table[i].text, fail_message());
        CHECK_HAS(fail_message(), table[i].message);
        CHECK(strncmp(fail_message(), path, strlen(path)) == 0);
        CHECK(strchr(fail_message(), '\n') == NULL);
    }
    fail_clear();
    CHECK_EQ(opt_yaml(rows, ROWS, &now, "/nonexistent/x.yaml", NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "/nonexistent/x.yaml: cannot be read: No such file");
    fail_clear();
    CHECK_EQ(opt_yaml(rows, ROWS, &now, folder, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), folder);
    CHECK_HAS(fail_message(), ": cannot be read: Is a directory");

    struct opt must[] = {rows[0], rows[1]};
    must[0].preset = NULL;
    yaml_of("bucket: 1\n", NULL);
    CHECK_EQ(opt_yaml(must, 2, &now, path, NULL), FAIL_USAGE);
    CHECK_HAS(fail_message(), ":1: key \"count\" is missing: how many");
}

static void test_empty_text(void)
{
    CHECK_EQ(yaml_of("note:\nparallel: \"\"\nlayout: 2x2\n", NULL), 0);
    CHECK(now.note[0] == '\0' && now.parallel[0] == '\0');
    CHECK_EQ(yaml_of("layout:\n", NULL), FAIL_USAGE);
}

/* opt_set(opt_text(x)) is x for every type, extremes included. */
static void round_trip(const struct sample *wanted)
{
    struct sample got = {0};
    for (int i = 0; i < ROWS; i++) {
        struct opt row = rows[i];
        row.min = row.max = 0;
        char text[64];
        opt_text(&row, wanted, text, sizeof text);
        CHECK_EQ(opt_set(&row, &got, text, row.name), 0);
    }
    CHECK(got.count == wanted->count && got.bucket == wanted->bucket);
    CHECK(got.rate == wanted->rate && got.share == wanted->share);
    CHECK(got.timeout == wanted->timeout && got.scaling == wanted->scaling);
    CHECK(got.resume == wanted->resume && got.check == wanted->check);
    CHECK(strcmp(got.layout, wanted->layout) == 0 && strcmp(got.note, wanted->note) == 0);
    CHECK(strcmp(got.parallel, wanted->parallel) == 0);
}

static void test_round_trip(void)
{
    CHECK_EQ(argv_of(""), 0);
    round_trip(&now);
    round_trip(&(struct sample){.count = INT64_MAX,
                                .bucket = INT64_MAX,
                                .rate = DBL_MAX,
                                .share = DBL_MAX,
                                .timeout = DBL_MAX,
                                .resume = true,
                                .check = true,
                                .scaling = 2,
                                .layout = "1234567",
                                .note = "123456789012345",
                                .parallel = "tp=2;pp=2;dp=2"});
    round_trip(&(struct sample){.count = INT64_MIN,
                                .rate = -DBL_MAX,
                                .share = 0.07,
                                .timeout = 5e-324,
                                .scaling = 1,
                                .layout = "\xc3\xa9 \"'#:"});
    round_trip(&(struct sample){.count = -1,
                                .bucket = 1536,
                                .rate = 1.0 / 3,
                                .share = 1.0 / 3,
                                .timeout = 1e-9 / 3,
                                .layout = "x"});
}

static void test_help(void)
{
    static char text[8192];
    FILE *file = fopen(path, "w+");
    opt_help(rows, ROWS, file);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    int n_lines = 0;
    for (const char *c = text; *c != '\0'; c++)
        n_lines += *c == '\n';
    CHECK_EQ(n_lines, ROWS + 1);
    for (int i = 0; i < ROWS; i++) {
        char name[32];
        snprintf(name, sizeof name, " --%s ", rows[i].name);
        const char *first = strstr(text, name);
        CHECK(first != NULL && strstr(first + 1, name) == NULL);
        CHECK_HAS(text, rows[i].help);
    }
    CHECK_HAS(text, "  -w, --count N                      how many (default 10; -5 to 100)\n");
    CHECK_HAS(text,
              "      --bucket SIZE                  bytes of a bucket (default 25M; at least 1)\n");
    CHECK_HAS(text, "      --scaling strong|weak|both     of work (default strong)\n");
    CHECK_HAS(text, "  -c, --check [on|off]               correctness gate (default on)\n");
    CHECK_HAS(text, "      --note TEXT                    anything\n");
    CHECK_HAS(text, "      --parallel tp=2,pp=2           degrees (may be repeated)\n");
    CHECK_HAS(text, "  -h, --help                         ");
}

static void test_nearest(void)
{
    CHECK(strcmp(opt_nearest(rows, ROWS, "timeuot"), "timeout") == 0);
    CHECK(strcmp(opt_nearest(rows, ROWS, "chek"), "check") == 0);
    CHECK(strcmp(opt_nearest(rows, ROWS, "lyaotu"), "layout") == 0); /* two swaps */
    CHECK(strcmp(opt_nearest(rows, ROWS, "layouts"), "layout") == 0);
    CHECK(opt_nearest(rows, ROWS, "zzzzzzzz") == NULL);
    CHECK(opt_nearest(rows, ROWS, "") == NULL);
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    CHECK(opt_nearest(rows, ROWS, long_name) == NULL);
    CHECK(opt_find(rows, ROWS, "count") == &rows[0]);
    CHECK(opt_find(rows, ROWS, "coun") == NULL);
}

int main(void)
{
    const char *where = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.400s/opt-XXXXXX", where != NULL ? where : "/tmp");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/file.yaml", folder);
    test_argv();
    test_argv_refusals();
    test_yaml();
    test_yaml_refusals();
    test_empty_text();
    test_round_trip();
    test_help();
    test_nearest();
    unlink(path);
    rmdir(folder);
    return test_end();
}
