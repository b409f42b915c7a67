/* What saves cost, from rows that are known: the slowest rank counts, the first save stands apart, lost
 * ones count for nothing; inflation is the planted one, signed, and not detected where none was. */
#include <stdlib.h>

#include "analysis/checkpoints.h"
#include "tests/test.h"

enum { RANKS = 2, SAVES = 6, QUIET = 40, DRAIN = 8, BEHIND = 5 };

static double noise(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return ((double)(*state >> 8) / 16777216.0 - 0.5) * 2000; /* +- 1,000 ns */
}

static void step(struct record_point *p, const char *mode, int save, int phase, int *turn,
                 double ns, int64_t held)
{
    for (int rank = 0; rank < RANKS; rank++) {
        struct drain_row *row = RECORD_ADD(&p->drains, 1);
        int64_t length = (int64_t)ns - 500 * (RANKS - 1 - rank); /* rank 1 is the slowest */
        snprintf(row->mode, sizeof row->mode, "%s", mode);
        *row = (struct drain_row){.save = save, .phase = phase, .turn = *turn, .rank = rank};
        snprintf(row->mode, sizeof row->mode, "%s", mode);
        row->start_ns = *turn * 1000000;
        row->end_ns = row->start_ns + length + held;
        row->held_ns = held;
    }
    (*turn)++;
}

static void save(struct record_point *p, const char *mode, int index, int flags, int64_t blocked)
{
    for (int rank = 0; rank < RANKS; rank++) {
        struct checkpoint_row *row = RECORD_ADD(&p->checkpoints, 1);
        *row = (struct checkpoint_row){.save = index,
                                       .rank = rank,
                                       .flags = flags | (index == 0 ? CHECKPOINT_FIRST : 0),
                                       .bytes = 1000,
                                       .call_ns = 100 + rank,
                                       .blocked_ns = blocked + rank,
                                       .staged_ns = 300,
                                       .written_ns = 800,
                                       .complete_ns = index == 0 ? 9000 : 1000,
                                       .first_quarter_ns = 250,
                                       .last_quarter_ns = 500,
                                       .host_bytes = 4096};
        snprintf(row->kind, sizeof row->kind, "save");
        snprintf(row->mode, sizeof row->mode, "%s", mode);
        snprintf(row->file_system, sizeof row->file_system, "ext4");
    }
}

/* `slower`: what draining and following steps take more than quiet ones of 100,000 ns. */
static void fill(struct record_point *p, const char *mode, double slower, double first_slower,
                 int64_t held)
{
    int turn = 0;
    unsigned state = 7;
    for (int s = 0; s < SAVES; s++) {
        double more = s == 0 ? first_slower : slower;
        for (int i = 0; i < QUIET; i++)
            step(p, mode, s, DRAIN_QUIET, &turn, 100000 + noise(&state), 0);
        step(p, mode, s, DRAIN_SAVING, &turn, 100000 + more + noise(&state), held);
        for (int i = 1; i < DRAIN; i++)
            step(p, mode, s, DRAIN_DRAINING, &turn, 100000 + more + noise(&state), 0);
        for (int i = 0; i < BEHIND; i++)
            step(p, mode, s, DRAIN_BEHIND, &turn, 100000 + more + noise(&state), 0);
        save(p, mode, s, 0, s == 0 ? 70000 : 200 + 10 * s);
    }
}

static void planted_inflation_is_found(void)
{
    struct record_point p = {0};
    struct checkpoints c;
    fill(&p, "staged", 3000, 500000, 0);
    fill(&p, "lazy", 0, 0, 40000);
    checkpoints_of_point(&c, &p, 1);
    CHECK_EQ(c.n_modes, 2);
    const struct checkpoints_mode *m = &c.mode[0];
    CHECK_HAS(m->mode, "staged");
    CHECK_EQ(m->saves, SAVES - 1);
    CHECK_NEAR(m->bytes, 2000, 0);
    CHECK_NEAR(m->blocked_ns, 231, 0); /* median of 210..250, of rank 1 */
    CHECK_NEAR(m->call_ns, 101, 0);
    CHECK_NEAR(m->first_blocked_ns, 70001, 0);
    CHECK_NEAR(m->first_complete_ns, 9000, 0);
    CHECK_NEAR(m->bytes_per_s, 2e9, 1); /* 2,000 bytes in 1,000 ns */
    CHECK_NEAR(m->first_quarter_bytes_per_s, 2e9, 1);
    CHECK_NEAR(m->last_quarter_bytes_per_s, 1e9, 1);
    CHECK_NEAR(m->steps, DRAIN + BEHIND, 0);
    CHECK_EQ(m->quiet, SAVES * QUIET);
    CHECK_EQ(m->draining, (SAVES - 1) * DRAIN);
    CHECK_NEAR(m->inflation.value, 3000 * (DRAIN + BEHIND), 3000);
    CHECK(m->detectable && m->inflation.low > 30000);
    CHECK_NEAR(m->ratio.value, 1.03, 0.005);
    CHECK(m->ratio.low < 1.03 && m->ratio.high > 1.03);
    m = &c.mode[1];
    CHECK(!m->detectable); /* waits of updates are blocked time, not inflation */
    CHECK(m->inflation.low < 0 && m->inflation.high > 0);
    CHECK_NEAR(m->ratio.value, 1.0, 0.005);
    CHECK(!c.resumed && !c.restored);
    record_point_release(&p);
}

static void faster_is_negative(void)
{
    struct record_point p = {0};
    struct checkpoints c;
    fill(&p, "staged", -4000, -4000, 0);
    checkpoints_of_point(&c, &p, 1);
    CHECK(c.mode[0].detectable && c.mode[0].inflation.high < 0);
    record_point_release(&p);
}

static void lost_and_overlapping(void)
{
    struct record_point p = {0};
    struct checkpoints c;
    save(&p, "staged", 0, 0, 100);
    save(&p, "staged", 1, CHECKPOINT_FAILED, 100000);
    save(&p, "staged", 2, CHECKPOINT_OVERLAPS, 300);
    checkpoints_of_point(&c, &p, 1);
    CHECK_EQ(c.mode[0].lost, 1);
    CHECK_EQ(c.mode[0].overlaps, 1);
    CHECK_EQ(c.mode[0].saves, 1);
    CHECK_NEAR(c.mode[0].blocked_ns, 301, 0);
    CHECK(isnan(c.mode[0].inflation.value) && !c.mode[0].detectable);
    record_point_release(&p);
    save(&p, "sync", 0, 0, 55); /* the first alone is better than nothing */
    checkpoints_of_point(&c, &p, 1);
    CHECK_EQ(c.mode[0].saves, 1);
    CHECK_NEAR(c.mode[0].blocked_ns, 56, 0);
    record_point_release(&p);
}

static void restores(void)
{
    struct record_point p = {0};
    struct checkpoints c;
    for (int rank = 0; rank < RANKS; rank++)
        for (int which = 0; which < 2; which++) {
            struct checkpoint_row *row = RECORD_ADD(&p.checkpoints, 1);
            *row = (struct checkpoint_row){.save = which,
                                           .rank = rank,
                                           .bytes = 500,
                                           .complete_ns = 1000 * (1 + rank),
                                           .read_ns = 600,
                                           .flags = rank ? 0 : CHECKPOINT_DIRECT};
            snprintf(row->kind, sizeof row->kind, "restore");
        }
    checkpoints_of_point(&c, &p, 1);
    CHECK(c.resumed && c.restored && c.n_modes == 0);
    CHECK_NEAR(c.restore.bytes_per_s, 0.5e9, 1); /* 1,000 bytes in the slower rank's 2,000 ns */
    CHECK(!c.restore.direct);
    record_point_release(&p);
}

int main(void)
{
    planted_inflation_is_found();
    faster_is_negative();
    lost_and_overlapping();
    restores();
    return test_end();
}
