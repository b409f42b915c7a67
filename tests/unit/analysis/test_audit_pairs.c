/* What the study's own stamps cost is found by pairs of neighbouring blocks, however the machine drifts. */
#include "analysis/audit.h"

#include <string.h>

#include "tests/test.h"

enum { BLOCKS = 24, STEPS = 5 };
static const double drift = 1.004,
                    cost = 1.003; /* a block over the one before; bare over unstamped */

static void add(struct record_point *p, const char *kind, int rank, int block, double ns)
{
    struct audit_row *row = RECORD_ADD(&p->audit, 1);
    strcpy(row->kind, kind);
    row->rank = rank;
    row->block = block;
    row->step_ns = (int64_t)ns;
}

/* N B B N ..., with a block under the profiler between the sixth round and the last. */
static void fill(struct record_point *p, int blocks, int missing)
{
    static const bool is_bare[] = {false, true, true, false};
    double ns = 1e9;
    for (int b = 0; b < blocks; b++) {
        bool bare = is_bare[b % 4];
        if (b == 20)
            add(p, "audit", 0, 100, 5e9);
        for (int s = 0; s < STEPS && b != missing; s++) {
            /* one step of each block is far off, and the other rank knows nothing */
            add(p, bare ? "bare" : "unstamped", 0, b,
                s == 2 ? 3e9 : ns * (bare ? cost : 1) + 1e3 * s);
            add(p, bare ? "bare" : "unstamped", 1, b, bare ? 7e9 : 1e9);
        }
        ns *= drift;
    }
}

static void test_pairs(void)
{
    struct record_point p = {.point = {.ranks = 2}};
    struct audit a;
    fill(&p, BLOCKS, -1);
    audit_of_point(&a, &p, 1);
    CHECK_NEAR(a.bare_ratio.value, cost, 2e-5); /* each second pair has the drift the other way */
    CHECK(a.bare_ratio.low < cost && a.bare_ratio.high > cost);
    CHECK(a.bare_ratio.high - a.bare_ratio.low < 4 * (drift - 1));
    CHECK_EQ(a.bare_ratio.n, BLOCKS / 2);
    record_point_release(&p);
}

/* A block that nobody recorded costs its own pair. */
static void test_missing(void)
{
    struct record_point p = {.point = {.ranks = 2}};
    struct audit a;
    fill(&p, BLOCKS, 5);
    audit_of_point(&a, &p, 1);
    CHECK_EQ(a.bare_ratio.n, BLOCKS / 2 - 1);
    CHECK_NEAR(a.bare_ratio.value, cost, drift - 1);
    record_point_release(&p);
}

/* Two pairs are no interval: then all steps of the kinds count. */
static void test_few(void)
{
    struct record_point p = {.point = {.ranks = 1}};
    struct audit a;
    fill(&p, 4, -1);
    audit_of_point(&a, &p, 1);
    CHECK(a.bare_ratio.n > BLOCKS / 2);
    record_point_release(&p);
}

int main(void)
{
    test_pairs();
    test_missing();
    test_few();
    return test_end();
}
