/* Every nanosecond of a run is in one bucket; what a failure cost is what its rows say. */
#include "analysis/wall.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"

#define S INT64_C(1000000000)

static struct interval_row row(int launch, const char *kind, int64_t begin, int64_t end,
                               int64_t first, int64_t steps)
{
    struct interval_row r = {.launch = launch,
                             .begin_ns = begin,
                             .end_ns = end,
                             .ranks = 4,
                             .first_step = first,
                             .steps = steps,
                             .tokens = 10 * steps};
    strcpy(r.kind, kind);
    return r;
}

static int64_t sum_of(const struct wall *w)
{
    int64_t sum = 0;
    for (int b = 0; b < WALL_BUCKETS; b++) {
        CHECK(w->rank_ns[b] >= 0);
        sum += w->rank_ns[b];
    }
    return sum;
}

static int64_t seconds(const struct wall *w, enum wall_bucket b)
{
    return w->rank_ns[b] / 4 / S;
}

/* No failure: no rework, no restart; each bucket what was put in. */
static void without_failure(void)
{
    struct interval_row rows[8] = {
        row(0, "launch", 0, 2 * S, 0, 0),           row(0, "start-up", 2 * S, 10 * S, 0, 0),
        row(0, "steps", 10 * S, 12 * S, 0, 2),      row(0, "steps", 12 * S, 22 * S, 2, 10),
        row(0, "steps", 22 * S, 37 * S, 12, 10),    row(0, "save", 22 * S, 30 * S, 12, 0),
        row(0, "save-wait", 37 * S, 38 * S, 22, 0), row(0, "end", 39 * S, 39 * S, 22, 0)};
    struct wall w;
    rows[2].flags = INTERVAL_WARM_UP;
    rows[3].straggler_ns = 4 * S;
    rows[3].stall_ns = 12 * S;
    rows[3].input_ns = 4 * S;
    rows[4].flags = INTERVAL_SAVING;
    rows[4].call_ns = 8 * S; /* 2 s of each rank */
    CHECK_EQ(wall_account(&w, rows, 8), 0);
    CHECK_EQ(sum_of(&w), 4 * 39 * S);
    CHECK_EQ(seconds(&w, WALL_START_UP), 10);
    CHECK_EQ(seconds(&w, WALL_WARM_UP), 2);
    CHECK_EQ(seconds(&w, WALL_CALL), 2 + 1);
    CHECK_EQ(seconds(&w, WALL_DATA), 1);
    CHECK_EQ(seconds(&w, WALL_INFLATION), 15 - 2 - 9); /* quiet: 0.9 s a step */
    CHECK_EQ(seconds(&w, WALL_STRAGGLER), 1);
    CHECK_EQ(seconds(&w, WALL_USEFUL), 8 + 9);
    CHECK_EQ(seconds(&w, WALL_OTHER), 1);
    CHECK_EQ(w.exposed_ns, 8 * S);
    CHECK_EQ(w.rank_ns[WALL_REWORK] + w.rank_ns[WALL_RESTART] + w.rank_ns[WALL_DETECTION], 0);
    CHECK_EQ(w.count[WALL_USEFUL], 20);
    CHECK_EQ(w.count[WALL_WARM_UP], 2);
    CHECK_EQ(w.tokens, 220); /* warm-up was kept, too */
    CHECK_EQ(w.launches, 1);
    CHECK_NEAR(w.between_steps, 12, 0);
    CHECK(w.finished && !wall_closes(&w) && w.n_recoveries == 0);
    wall_release(&w);
}

/* What a quiet step is has no call of a save in it; 0.3 % of the time that nobody claims are closed. */
static void quiet_steps(void)
{
    struct interval_row rows[] = {row(0, "start-up", 0, 10 * S, 0, 0),
                                  row(0, "steps", 10 * S, 20 * S, 0, 10),
                                  row(0, "steps", 20 * S, 30 * S, 10, 10),
                                  row(0, "end", 30 * S + S / 10, 30 * S + S / 10, 20, 0)};
    struct wall w;
    rows[1].call_ns = 4 * S;         /* 1 s of each rank: a step takes 0.9 s without it */
    rows[2].flags = INTERVAL_SAVING; /* and 1 s beside a save */
    CHECK_EQ(wall_account(&w, rows, 4), 0);
    CHECK_NEAR(w.quiet_step_ns, 0.9e9, 1);
    CHECK_EQ(seconds(&w, WALL_CALL), 1);
    CHECK_EQ(seconds(&w, WALL_INFLATION), 1);
    CHECK_EQ(seconds(&w, WALL_USEFUL), 9 + 9);
    CHECK_EQ(w.rank_ns[WALL_OTHER], 4 * S / 10);
    CHECK(wall_closes(&w));
    wall_release(&w);
}

static void names(void)
{
    CHECK(strcmp(wall_bucket_name(WALL_RESTART), "restart") == 0);
    CHECK(strcmp(wall_bucket_name(WALL_OTHER), "other") == 0);
    CHECK(strcmp(wall_bucket_name(-1), "unknown") == 0);
    CHECK(strcmp(wall_bucket_name(WALL_BUCKETS), "unknown") == 0);
}

/* A run that ended in a failure lasted until that, though its last block ended before. */
static void ended_by_failure(void)
{
    struct interval_row rows[] = {row(0, "start-up", 50 * S, 60 * S, 0, 0),
                                  row(0, "steps", 60 * S, 70 * S, 0, 10),
                                  row(0, "failure", 73 * S, 73 * S, 0, 0)};
    struct record_point p = {0};
    struct wall w;
    CHECK_EQ(wall_account(&w, rows, 3), 0);
    CHECK_EQ(w.end_ns, 73 * S);
    CHECK_EQ(sum_of(&w), 4 * 23 * S);
    CHECK(!w.finished);
    wall_rows(&w, &p); /* shares of the run, whenever it began */
    for (int64_t i = 0; i < p.account.n; i++)
        if (strcmp(p.account.rows[i].bucket, "start-up") == 0) {
            CHECK_NEAR(p.account.rows[i].share, 10.0 / 23, 1e-12);
            CHECK_NEAR(p.account.rows[i].seconds, 10, 1e-9);
        }
    record_point_release(&p);
    wall_release(&w);
}

/* Books between steps have a bucket of their own, less what took time beside them; a piece of the file has
 * all of it. */
static void books(void)
{
    struct interval_row rows[] = {
        row(0, "start-up", 0, 10 * S, 0, 0),      row(0, "steps", 10 * S, 20 * S, 0, 10),
        row(0, "record", 19 * S, 24 * S, 10, 0),  row(0, "save-wait", 21 * S, 22 * S, 10, 0),
        row(0, "steps", 23 * S, 33 * S, 10, 10),  row(0, "file", 33 * S, 35 * S, 20, 0),
        row(0, "record", 33 * S, 36 * S, 20, 0),  row(0, "steps", 37 * S, 40 * S, 20, 1),
        row(0, "record", 40 * S, 100 * S, 21, 0), row(0, "end", 41 * S, 41 * S, 21, 0)};
    struct wall w;
    CHECK_EQ(wall_account(&w, rows, 10), 0);
    CHECK_EQ(sum_of(&w), 4 * 41 * S);
    CHECK_EQ(seconds(&w, WALL_RECORD), 1 + 1 + 2 + 1 + 1);
    CHECK_EQ(seconds(&w, WALL_CALL), 1);
    CHECK_EQ(seconds(&w, WALL_OTHER), 1);
    CHECK_EQ(seconds(&w, WALL_USEFUL), 23);
    wall_release(&w);
}

/* From save to save: what is called because a launch ends is no interval. */
static void between(void)
{
    struct interval_row rows[] = {
        row(0, "start-up", 0, 10 * S, 0, 0),   row(0, "steps", 10 * S, 20 * S, 0, 21),
        row(0, "save", 12 * S, 13 * S, 8, 0),  row(0, "save", 15 * S, 16 * S, 14, 0),
        row(0, "save", 17 * S, 18 * S, 20, 0), row(0, "save", 20 * S, 21 * S, 21, 0),
        row(0, "end", 22 * S, 22 * S, 21, 0)};
    struct wall w;
    CHECK_EQ(wall_account(&w, rows, 7), 0);
    CHECK_NEAR(w.between_steps, 6, 0); /* 8, 6, 6 */
    wall_release(&w);
    rows[3].flags = INTERVAL_LOST;
    CHECK_EQ(wall_account(&w, rows, 7), 0);
    CHECK_NEAR(w.between_steps, 12, 0); /* 8 to 20 */
    wall_release(&w);
    rows[4].flags = INTERVAL_LOST;
    CHECK_EQ(wall_account(&w, rows, 7), 0);
    CHECK(isnan(
        w.between_steps)); /* the one at 8 may have come as soon as it could, the last at the end */
    wall_release(&w);
}

/* A run of 42 steps whose one save that was due is at `step`. */
static double one_save(int64_t step, bool stopped)
{
    struct interval_row rows[] = {
        row(0, "start-up", 0, 10 * S, 0, 0),        row(0, "steps", 10 * S, 11 * S, 0, 1),
        row(0, "steps", 11 * S, 52 * S, 1, 41),     row(0, "save", 12 * S, 13 * S, step, 0),
        row(0, "save-wait", 52 * S, 53 * S, 42, 0), row(0, "save", 52 * S, 53 * S, 42, 0),
        row(0, "end", 53 * S, 53 * S, 42, 0)};
    struct wall w;
    if (stopped)
        rows[6].flags = INTERVAL_STOPS;
    CHECK_EQ(wall_account(&w, rows, 7), 0);
    double found = w.between_steps;
    wall_release(&w);
    return found;
}

/* Where one was due: the interval is from the begin to it. Saves without an interval to keep begin behind the
 * first block, which is no interval, and neither is what is left of the run behind the only save. */
static void between_few(void)
{
    for (int stopped = 0; stopped < 2; stopped++) {
        CHECK_NEAR(one_save(41, stopped), 41, 0);
        CHECK_NEAR(one_save(20, stopped), 20, 0);
        CHECK(isnan(one_save(1, stopped)));
        CHECK(isnan(one_save(42, stopped)));
    }
}

/* Saved at step 10, killed at 22 s in step 14, known at 23, goes on at 30 with step 10. */
static int drilled(struct interval_row *rows)
{
    int n = 0;
    rows[n++] = row(0, "start-up", 0, 5 * S, 0, 0);
    rows[n++] = row(0, "steps", 5 * S, 15 * S, 0, 10);
    rows[n++] = row(0, "steps", 15 * S, 17 * S, 10, 2);
    rows[n++] = row(0, "save", 15 * S, 16 * S, 10, 0);
    rows[n++] = row(0, "steps", 17 * S, 19 * S, 12, 2);
    rows[n] = row(0, "failure", 22 * S, 22 * S, 0, 0);
    strcpy(rows[n++].text, "host 1 in save");
    rows[n++] = row(0, "detected", 23 * S, 23 * S, 0, 0);
    rows[n++] = row(1, "launch", 24 * S, 26 * S, 0, 0);
    rows[n++] = row(1, "start-up", 26 * S, 27 * S, 0, 0);
    rows[n++] = row(1, "load", 27 * S, 29 * S, 10, 0);
    rows[n++] = row(1, "steps", 30 * S, 31 * S, 10, 1);
    rows[n++] = row(1, "steps", 31 * S, 40 * S, 11, 9);
    rows[n++] = row(1, "end", 40 * S, 40 * S, 20, 0);
    return n;
}

static void with_failure(void)
{
    struct interval_row rows[16];
    struct wall w;
    int n = drilled(rows);
    rows[n] = rows[4]; /* what came twice counts once */
    CHECK_EQ(wall_account(&w, rows, n + 1), 0);
    CHECK_EQ(sum_of(&w), 4 * 40 * S);
    CHECK_EQ(seconds(&w, WALL_START_UP), 5);
    CHECK_EQ(seconds(&w, WALL_REWORK), 22 - 15);
    CHECK_EQ(seconds(&w, WALL_DETECTION), 1);
    CHECK_EQ(seconds(&w, WALL_RESTART), 30 - 23);
    CHECK_EQ(seconds(&w, WALL_USEFUL), 10 + 10);
    CHECK_EQ(seconds(&w, WALL_OTHER), 0);
    CHECK_EQ(w.count[WALL_USEFUL], 20);
    CHECK_EQ(w.count[WALL_REWORK], 4);
    CHECK_EQ(w.load_ns, 4 * 2 * S);
    CHECK_EQ(w.n_recoveries, 1);
    const struct recovery_row *r = &w.recoveries[0];
    CHECK(strcmp(r->cause, "host") == 0 && strcmp(r->moment, "save") == 0 && r->victim == 1);
    CHECK_EQ(r->launch, 0);
    CHECK_EQ(r->ranks, 4);
    CHECK_EQ(r->failed_ns, 22 * S);
    CHECK_EQ(r->detected_ns, 23 * S);
    CHECK_EQ(r->began_ns, 24 * S);
    CHECK_EQ(r->loading_ns, 27 * S);
    CHECK_EQ(r->loaded_ns, 29 * S);
    CHECK_EQ(r->first_step_ns, 31 * S);
    CHECK_EQ(r->caught_up_ns, 40 * S); /* of the block: step 14 is one of its 9 */
    CHECK_EQ(r->reached_step, 14);
    CHECK_EQ(r->resumed_step, 10);
    CHECK_EQ(r->lost_steps, 4);
    CHECK_EQ(r->lost_ns, 7 * S);
    CHECK_EQ(w.launches, 2);
    CHECK_EQ(w.silent, 0);
    CHECK_EQ(w.tokens, 200);
    wall_release(&w);
}

/* A launch in between was killed before it left a row: whoever restarts said so, or its number is missing.
 * It is counted, once, and the detection of the failure stays what it was. */
static void silent(void)
{
    for (int said = 0; said < 2; said++)
        for (int numbered = 0; numbered < 2; numbered++) {
            struct interval_row rows[16] = {0};
            struct wall w;
            int n = drilled(rows);
            for (int i = 0; i < n; i++)
                rows[i].launch += numbered && rows[i].launch == 1;
            if (said)
                rows[n++] = row(0, "detected", 23 * S + S / 2, 23 * S + S / 2, 0, 0);
            CHECK_EQ(wall_account(&w, rows, n), 0);
            CHECK_EQ(w.launches, 2 + (said || numbered));
            CHECK_EQ(w.silent, said || numbered);
            CHECK_EQ(w.n_recoveries, 1);
            CHECK_EQ(seconds(&w, WALL_DETECTION), 1);
            CHECK_EQ(seconds(&w, WALL_RESTART), 30 - 23);
            CHECK_EQ(sum_of(&w), 4 * 40 * S);
            wall_release(&w);
        }
}

/* Stopped by a signal with everything saved: the wait for the next launch is restart, nothing is lost. */
static void preempted(void)
{
    struct interval_row rows[] = {
        row(0, "start-up", 0, 5 * S, 0, 0),         row(0, "steps", 5 * S, 15 * S, 0, 10),
        row(0, "save-wait", 15 * S, 16 * S, 10, 0), row(0, "end", 17 * S, 17 * S, 10, 0),
        row(1, "start-up", 100 * S, 101 * S, 0, 0), row(1, "load", 101 * S, 103 * S, 10, 0),
        row(1, "steps", 103 * S, 113 * S, 10, 10),  row(1, "end", 113 * S, 113 * S, 20, 0)};
    struct wall w;
    rows[3].flags = INTERVAL_STOPS;
    CHECK_EQ(wall_account(&w, rows, 8), 0);
    CHECK_EQ(sum_of(&w), 4 * 113 * S);
    CHECK_EQ(seconds(&w, WALL_RESTART), 103 - 17);
    CHECK_EQ(seconds(&w, WALL_REWORK), 0);
    CHECK_EQ(seconds(&w, WALL_USEFUL), 20);
    CHECK_EQ(seconds(&w, WALL_CALL), 1);
    CHECK_EQ(seconds(&w, WALL_OTHER), 1);
    CHECK(strcmp(w.recoveries[0].cause, "preempted") == 0);
    CHECK_EQ(w.recoveries[0].lost_ns, 0);
    wall_release(&w);
}

/* Times count from the t0 that the study's file has: its program began before, and that is start-up too. */
static void before_its_t0(void)
{
    struct interval_row rows[16];
    struct wall w;
    int n = drilled(rows);
    rows[n++] = row(0, "launch", -3 * S, 0, 0, 0);
    CHECK_EQ(wall_account(&w, rows, n), 0);
    CHECK_EQ(w.begin_ns, -3 * S);
    CHECK_EQ(sum_of(&w), 4 * 43 * S);
    CHECK_EQ(seconds(&w, WALL_START_UP), 3 + 5);
    CHECK_EQ(seconds(&w, WALL_RESTART), 30 - 23);
    wall_release(&w);
}

/* Two failures without a save between: both launches' steps are done again. */
static void twice(void)
{
    struct interval_row rows[16];
    struct wall w;
    int n = drilled(rows) - 1; /* launch 1 goes on until it is killed, too */
    rows[n] = row(1, "failure", 41 * S, 41 * S, 0, 0);
    n++;
    rows[n++] = row(2, "start-up", 50 * S, 51 * S, 0, 0);
    rows[n++] = row(2, "steps", 60 * S, 70 * S, 10, 10);
    CHECK_EQ(wall_account(&w, rows, n), 0);
    CHECK_EQ(sum_of(&w), 4 * 70 * S);
    CHECK_EQ(seconds(&w, WALL_REWORK), 7 + (41 - 30));
    CHECK_EQ(seconds(&w, WALL_RESTART), 7 + (60 - 41));
    CHECK_EQ(seconds(&w, WALL_USEFUL), 10 + 10);
    CHECK_EQ(w.n_recoveries, 2);
    CHECK_EQ(w.recoveries[1].launch, 1);
    CHECK_EQ(w.recoveries[1].lost_steps, 10);
    CHECK(!w.finished);
    wall_release(&w);
}

/* Whatever the rows are, what sums is whole. */
static void random_runs(void)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct interval_row rows[200];
        uint64_t key = rng_key(seed, "wall"), i = 0;
        int64_t at = 0, step = 0, saved = 0;
        int n = 0, launch = 0, last = 0;
        while (n < 150) {
            static const char *const kinds[] = {"steps", "steps", "steps", "save-wait", "file"};
            const char *kind = n == 0 ? "start-up" : kinds[rng_below(key, i++, 5)];
            int64_t length = 1 + rng_below(key, i++, 1000000007), k = strcmp(kind, "steps") == 0;
            rows[n] = row(launch, kind, at, at + length, step, k ? 1 + rng_below(key, i++, 9) : 0);
            struct interval_row *r = &rows[last = n++];
            r->flags = (int)rng_below(key, i++, 3);
            r->call_ns = rng_below(key, i++, 3000000000u);
            r->input_ns = rng_below(key, i++, 2000000000u);
            r->straggler_ns = rng_below(key, i++, 2000000000u);
            r->stall_ns = r->straggler_ns + rng_below(key, i++, 1000000000u);
            step += r->steps;
            if (rng_below(key, i++, 3) == 0) { /* beside it, and before and behind */
                int64_t early = rng_below(key, i++, 2000), late = rng_below(key, i++, 2000000000);
                rows[n++] = row(launch, "record", at + length - early, at + length + late, step, 0);
            }
            at += length + rng_below(key, i++, 1000);
            if (rng_below(key, i++, 8) == 0)
                saved = step;
            if (rng_below(key, i++, 20) == 0 && rows[last].steps > 0) {
                launch++;
                step = saved;
                at += rng_below(key, i++, 1000000000);
            }
        }
        struct wall w;
        CHECK_EQ(wall_account(&w, rows, n), 0);
        CHECK_EQ(sum_of(&w), 4 * (rows[last].end_ns - rows[0].begin_ns));
        CHECK(w.exposed_ns >= 0 && w.exposed_ns <= w.rank_ns[WALL_USEFUL]);
        double shares = 0;
        struct record_point p = {0};
        wall_rows(&w, &p);
        for (int64_t a = 0; a < p.account.n; a++)
            shares += p.account.rows[a].view == 0 ? p.account.rows[a].share : 0;
        CHECK_NEAR(shares, 1.0, 1e-9);
        record_point_release(&p);
        wall_release(&w);
    }
}

static void bad(void)
{
    struct interval_row rows[] = {row(0, "start-up", 0, 5, 0, 0), row(0, "steps", 4, 9, 0, 1)};
    struct wall w;
    CHECK_EQ(wall_account(&w, NULL, 0), FAIL_FILE);
    fail_clear();
    CHECK_EQ(wall_account(&w, rows, 2), FAIL_FILE);
    CHECK_HAS(fail_message(), "begins 1 ns before");
    fail_clear();
    rows[1].begin_ns = 10; /* ends before it begins */
    CHECK_EQ(wall_account(&w, rows, 2), FAIL_FILE);
    fail_clear();
    rows[1].begin_ns = 5;
    rows[1].ranks = 3;
    CHECK_EQ(wall_account(&w, rows, 2), FAIL_FILE);
    fail_clear();
}

int main(void)
{
    without_failure();
    quiet_steps();
    names();
    ended_by_failure();
    books();
    between();
    between_few();
    with_failure();
    silent();
    preempted();
    before_its_t0();
    twice();
    random_runs();
    bad();
    return test_end();
}
