/* Which GPU a rank takes: its own where all see the same, the one it was given where each sees
 * another; and who has to share one is refused in words, or allowed where nodes are emulated. */
#include "driver/devices.h"

#include "base/err.h"
#include "tests/test.h"

enum { RANKS = 8 };

static struct devices_view views[RANKS];
static int index_of[RANKS];
static bool shared;

/* Rank r sees `n` GPUs from number first[r] on. */
static void see(int ranks, const int *first, int n)
{
    memset(views, 0, sizeof views);
    for (int r = 0; r < ranks; r++) {
        views[r].rank = 16 + r;
        views[r].n = n;
        for (int u = 0; u < n; u++)
            snprintf(views[r].uuid[u], sizeof views[r].uuid[u], "GPU-%08d", first[r] + u);
    }
}

static int choose(int ranks, bool may_share)
{
    return devices_choose(views, ranks, "n7", may_share, index_of, &shared);
}

static void one_each(void)
{
    static const int same[RANKS] = {0}, own[RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    see(8, same, 8);
    CHECK_EQ(choose(8, false), 0);
    for (int r = 0; r < 8; r++)
        CHECK_EQ(index_of[r], r);
    CHECK(!shared);
    see(3, same, 8); /* fewer ranks than GPUs */
    CHECK_EQ(choose(3, false), 0);
    CHECK_EQ(index_of[2], 2);
    see(8, own, 1); /* the launcher has given each its own */
    CHECK_EQ(choose(8, true), 0);
    for (int r = 0; r < 8; r++)
        CHECK_EQ(index_of[r], 0);
    CHECK(!shared);
}

static void too_many_ranks(void)
{
    static const int same[RANKS] = {0};
    see(4, same, 2);
    CHECK_EQ(choose(4, false), FAIL_USAGE);
    CHECK_HAS(fail_message(), "host n7 has 4 ranks and 2 GPUs");
    CHECK_HAS(fail_message(), "--emulate-nodes");
    fail_clear();
    CHECK_EQ(choose(4, true), 0);
    CHECK(shared);
    for (int r = 0; r < 4; r++)
        CHECK_EQ(index_of[r], r % 2);
}

static void two_on_one(void)
{
    static const int twice[RANKS] = {0, 0, 1, 2}, same[RANKS] = {0};
    see(4, twice, 1);
    CHECK_EQ(choose(4, false), FAIL_USAGE); /* three GPUs for four ranks */
    CHECK_HAS(fail_message(), "4 ranks and 3 GPUs");
    fail_clear();
    see(3, twice, 2); /* views 0 1, 0 1, 1 2: each takes its first */
    CHECK_EQ(choose(3, false), FAIL_USAGE);
    CHECK_HAS(fail_message(), "ranks 16 and 17 of host n7 were both given GPU GPU-00000000");
    fail_clear();
    see(2, same, 1);
    CHECK_EQ(choose(2, false), FAIL_USAGE);
    CHECK_HAS(fail_message(), "2 ranks and 1 GPU for them");
    fail_clear();
    CHECK_EQ(choose(1, false), 0);
    CHECK(!shared);
}

int main(void)
{
    one_each();
    too_many_ranks();
    two_on_one();
    return test_end();
}
