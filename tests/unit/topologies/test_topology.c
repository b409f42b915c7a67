/* Topologies are read, written and refused with file and line; groups lie on levels as counted. */
#include "topologies/topology.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/share.h"
#include "tests/test.h"

static const char *const shipped[] = {"laptop", "h100-8x400g", "h200-8x400g", "a100-8x200g"};

static void shipped_are_sourced(void)
{
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
        struct topology t;
        CHECK_EQ(topology_load(&t, shipped[i]), 0);
        CHECK(strcmp(t.name, shipped[i]) == 0);
        for (int f = 0; f < FACTS; f++) {
            CHECK((t.fact[f].source == SOURCE_NONE) == !(t.fact[f].value > 0));
            CHECK(t.fact[f].source == SOURCE_NONE || t.fact[f].from[0] != '\0');
            CHECK(t.fact[f].source != SOURCE_FILE); /* looked up somewhere, not just written here */
        }
        for (int l = 0; l < t.n_levels; l++)
            CHECK(t.level[l].latency.from[0] != '\0' && t.level[l].bandwidth.from[0] != '\0');
    }
}

static void numbers_of_h100(void)
{
    struct topology t;
    CHECK_EQ(topology_load(&t, "h100-8x400g"), 0);
    CHECK_NEAR(t.fact[FACT_BF16].value, 989.4e12, 1e6);
    CHECK_NEAR(t.fact[FACT_MEMORY].value, 80e9, 1);
    CHECK_NEAR(t.fact[FACT_GEMM_SHARE].value, 0.803, 1e-12);
    CHECK_NEAR(t.level[0].latency.value, 3.4e-6, 1e-15);
    CHECK_EQ(t.level[0].ranks, 8);
    CHECK_EQ(topology_node_ranks(&t), 8);
    CHECK_EQ(t.fact[FACT_BF16].source, SOURCE_VENDOR);
    CHECK_EQ(t.fact[FACT_GEMM_SHARE].source, SOURCE_MEASURED);
}

/* ---- text and back ---- */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void text_reads_back(void)
{
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
        struct topology t, again;
        char text[TOPOLOGY_TEXT], twice[TOPOLOGY_TEXT], path[64];
        snprintf(path, sizeof path, "%s.yaml", shipped[i]);
        CHECK_EQ(topology_load(&t, shipped[i]), 0);
        topology_text(&t, text, sizeof text);
        CHECK(strlen(text) < sizeof text - 1);
        write_file(path, text);
        CHECK_EQ(topology_load(&again, path), 0);
        topology_text(&again, twice, sizeof twice);
        CHECK(strcmp(text, twice) == 0);
        for (int f = 0; f < FACTS; f++)
            CHECK_NEAR(again.fact[f].value, t.fact[f].value, 1e-15 * t.fact[f].value);
        unlink(path);
    }
}

static void facts_have_units(void)
{
    double x = 0;
    CHECK(fact_parse("400 Gbit/s", UNIT_RATE, &x) == 0 && x == 50e9);
    CHECK(fact_parse("80GiB", UNIT_BYTES, &x) == 0 && x == 80.0 * 1073741824.0);
    CHECK(fact_parse("1.5e1 TFLOP/s", UNIT_FLOPS, &x) == 0 && x == 15e12);
    CHECK(fact_parse("100 %", UNIT_SHARE, &x) == 0 && x == 1.0);
    CHECK(fact_parse("101 %", UNIT_SHARE, &x) != 0);
    CHECK(fact_parse("-80 GB", UNIT_BYTES, &x) != 0);
    CHECK(fact_parse("0 GB", UNIT_BYTES, &x) != 0);
    CHECK(fact_parse("80", UNIT_BYTES, &x) != 0);
    CHECK(fact_parse("80 GB/s", UNIT_BYTES, &x) != 0);
    CHECK(fact_parse("80 GB of it", UNIT_BYTES, &x) != 0);
    CHECK(fact_parse("nan GB", UNIT_BYTES, &x) != 0);
    CHECK(fact_parse("", UNIT_BYTES, &x) != 0);
}

/* ---- machine strings ---- */

static void machine_strings(void)
{
    struct topology t, base;
    CHECK_EQ(topology_load(&base, "a100-8x200g"), 0);
    CHECK_EQ(topology_load(&t, "node:512 gpu:8"), 0);
    CHECK_EQ(topology_ranks(&t), 4096);
    CHECK_EQ(topology_node_ranks(&t), 8);
    CHECK_NEAR(t.fact[FACT_BF16].value, 989.4e12, 1e6); /* h100 */
    CHECK(strcmp(t.name, "node:512 gpu:8 of h100-8x400g") == 0);
    CHECK_EQ(topology_load(&t, "a100-8x200g rail:2 node:4 gpu:4"), 0);
    CHECK_EQ(t.n_levels, 3);
    CHECK_EQ(t.level[0].ranks, 4);
    CHECK_EQ(t.level[1].ranks, 16);
    CHECK_EQ(t.level[2].ranks, 32);
    CHECK_EQ(topology_node_ranks(&t), 4);
    CHECK(t.level[2].bandwidth.value == base.level[1].bandwidth.value); /* rail: as the outermost */
    CHECK(t.level[0].bandwidth.value == base.level[0].bandwidth.value);
    CHECK(strcmp(t.name, "a100-8x200g rail:2 node:4 gpu:4") == 0);
    CHECK_EQ(topology_load(&t, "node:16"), 0); /* one device a node, on the nodes' link */
    CHECK_EQ(topology_node_ranks(&t), 1);
    CHECK(strcmp(t.level[0].name, "node") == 0 && t.level[0].bandwidth.value == 45.6e9);
    CHECK_EQ(topology_load(&t, "node:16 gpu:1"), 0);
    CHECK_EQ(t.n_levels, 1);
    CHECK_EQ(topology_load(&t, "gpu:1"), 0);
    CHECK_EQ(topology_ranks(&t), 1);
    /* Names that the topology has not: links of the levels in the same places, from inside out. */
    CHECK_EQ(topology_load(&t, "a100-8x200g rack:4 board:8"), 0);
    CHECK(t.level[0].bandwidth.value == base.level[0].bandwidth.value);
    CHECK(t.level[1].bandwidth.value == base.level[1].bandwidth.value);
    CHECK(base.level[0].bandwidth.value != base.level[1].bandwidth.value);
    CHECK(strcmp(fact_source_name(SOURCE_NONE), "none") == 0);
    CHECK(strcmp(fact_source_name(SOURCE_ASSUMED), "assumed") == 0);
    CHECK(strcmp(fact_source_name(-1), "?") == 0 && strcmp(fact_source_name(SOURCES), "?") == 0);
}

static void refuses(const char *text, int code, const char *words)
{
    struct topology t;
    fail_clear();
    CHECK_EQ(topology_load(&t, text), code);
    CHECK_HAS(fail_message(), words);
    CHECK_EQ(t.n_levels, 0);
    fail_clear();
}

static void bad_names_and_machines(void)
{
    refuses("h100", FAIL_USAGE,
            "no topology called h100; there are a100-8x200g, h100-8x400g, h200-8x400g, laptop");
    refuses("node:0 gpu:8", FAIL_USAGE, "found \"node:0\", wanted LEVEL:COUNT");
    refuses("node:4 gpu", FAIL_USAGE, "found \"gpu\"");
    refuses("node:-1", FAIL_USAGE, "found \"node:-1\"");
    refuses("a:2 b:2 c:2 d:2 e:2 f:2 g:2", FAIL_USAGE, "at most 6 levels");
    refuses("a-level-with-quite-a-long-name:2 another-long-name:16 a-device:8", FAIL_USAGE,
            "more than 60 bytes");
    refuses("node:100000 gpu:100000", FAIL_USAGE, "more than 2147483647 devices");
    refuses("nope node:4", FAIL_USAGE, "no topology called nope");
    refuses("no/such.yaml", FAIL_FILE, "no/such.yaml: cannot be read: No such file");
    refuses("/", FAIL_FILE, "/: cannot be read: Is a directory");
    refuses("/", FAIL_FILE, "");
}

/* ---- bad files: a line of a good one is replaced ---- */

static char good[TOPOLOGY_TEXT];

static void with_line(const char *from, const char *to, int code, const char *words)
{
    char text[2 * TOPOLOGY_TEXT];
    const char *at = strstr(good, from);
    CHECK(at != NULL);
    const char *end = strchr(at, '\n');
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, end);
    write_file("bad.yaml", text);
    refuses("bad.yaml", code, words);
}

static void bad_files(void)
{
    struct topology t;
    CHECK_EQ(topology_load(&t, "laptop"), 0);
    topology_text(&t, good, sizeof good);
    with_line("memory:", "memry: 80 GB", FAIL_USAGE, "unknown key \"memry\"; did you mean memory?");
    with_line("memory:", "", FAIL_USAGE, "\"memory\" is missing: bytes of device memory");
    with_line(
        "memory:", "memory: -80 GB", FAIL_USAGE,
        ":14: memory: found \"-80 GB\", wanted a number above 0 with its unit, such as 80 GB");
    with_line("memory:", "memory: [80 GB]", FAIL_USAGE, "memory: found \"no number\"");
    with_line("memory:", "memory: {value: 80 GB}", FAIL_USAGE, "\"source\" is missing");
    with_line("memory:", "memory: {value: 80 GB, source: rumour}", FAIL_USAGE,
              "found \"rumour\", wanted measured, vendor, file or assumed");
    with_line("memory:", "memory: {value: 80 GB, source: vendor}", FAIL_USAGE,
              "wanted where the number can be looked up");
    with_line("memory:", "memory: {valeu: 80 GB}", FAIL_USAGE, "did you mean value?");
    with_line("memory:", "device: x", FAIL_USAGE, "key \"device\" stands already in line 1");
    with_line("    ranks: 64", "    ranks: 4", FAIL_USAGE,
              "bad.yaml:8: levels go from inside out: level node has 4 ranks, wanted a multiple of "
              "the 4 of level core");
    with_line("    ranks: 64", "    ranks: 6", FAIL_USAGE, "level node has 6 ranks");
    with_line("    ranks: 64", "    ranks: -4", FAIL_USAGE, "bad.yaml:8: ranks: found \"-4\"");
    with_line("    ranks: 64", "    rank: 64", FAIL_USAGE, "did you mean ranks?");
    with_line("    ranks: 64", "", FAIL_USAGE, "bad.yaml:7: \"ranks\" is missing");
    with_line("levels:", "levels: 3", FAIL_FILE, "not YAML");
    with_line("device:", "device: [1, 2]", FAIL_USAGE, ":1: device");
    write_file("bad.yaml", "device: x\nlevels: []\n");
    refuses("bad.yaml", FAIL_USAGE, "is missing");
    write_file("bad.yaml", "");
    refuses("bad.yaml", FAIL_FILE, "bad.yaml:1: wanted a mapping");
    write_file("bad.yaml", "- a\n");
    refuses("bad.yaml", FAIL_FILE, "wanted a mapping");
    write_file("bad.yaml", "a: {b\n");
    refuses("bad.yaml", FAIL_FILE, "not YAML");
    unlink("bad.yaml");
}

/* ---- where ranks sit ---- */

static void spans(void)
{
    struct topology t;
    struct topology_span span;
    struct group tensor = {.first = 8, .stride = 1, .size = 8};
    struct group data = {.first = 3, .stride = 8, .size = 16};
    struct group all = {.first = 0, .stride = 1, .size = 128};
    struct group half = {.first = 0, .stride = 1, .size = 8}; /* four on each of two nodes */
    CHECK_EQ(topology_load(&t, "node:16 gpu:8"), 0);
    topology_span(&t, 8, &tensor, &span);
    CHECK(span.domains[0] == 1 && span.domains[1] == 1);
    topology_span(&t, 8, &data, &span);
    CHECK(span.domains[0] == 16 && span.domains[1] == 1);
    topology_span(&t, 8, &all, &span);
    CHECK(span.devices == 128 && span.domains[0] == 16 && span.domains[1] == 1);
    topology_span(&t, 4, &half, &span);
    CHECK(span.domains[0] == 2 && span.domains[1] == 1);
    CHECK_EQ(topology_level_of(&t, 8, 0, 7), 0);
    CHECK_EQ(topology_level_of(&t, 8, 7, 8), 1);
    CHECK_EQ(topology_level_of(&t, 4, 3, 4), 1);
    CHECK_EQ(topology_fits(&t, 16, 8), 0);
    CHECK_EQ(topology_fits(&t, 16, 9), FAIL_USAGE);
    CHECK_HAS(fail_message(),
              "9 ranks on a node, and a node of node:16 gpu:8 of h100-8x400g has 8");
    fail_clear();
    CHECK_EQ(topology_fits(&t, 17, 1), FAIL_USAGE);
    CHECK_HAS(fail_message(), "17 nodes, and");
    fail_clear();
}

int main(void)
{
    const char *where = getenv("TMPDIR");
    char folder[512];
    snprintf(folder, sizeof folder, "%.400s/topology-XXXXXX", where != NULL ? where : "/tmp");
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 1;
    shipped_are_sourced();
    numbers_of_h100();
    text_reads_back();
    facts_have_units();
    machine_strings();
    bad_names_and_machines();
    bad_files();
    spans();
    rmdir(folder);
    return test_end();
}
