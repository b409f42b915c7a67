#include "analysis/wall_part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

const char *wall_bucket_name(int bucket)
{
    static const char *const names[WALL_BUCKETS] = {
        "restart",    "detection", "rework",         "start-up", "warm-up", "checkpoint-call",
        "data-stall", "inflation", "straggler-wait", "useful",   "record",  "other"};
    return bucket >= 0 && bucket < WALL_BUCKETS ? names[bucket] : "unknown";
}

/* ---- what belongs to the launches and not to their steps ---- */

struct claim {
    enum wall_bucket bucket;
    int64_t begin_ns, end_ns;
};

/* Disjoint pieces in order of time: each belongs to one bucket. */
struct claims {
    int n;
    struct claim *claim;
};

static void add(struct claims *claims, enum wall_bucket bucket, int64_t begin_ns, int64_t end_ns)
{
    if (end_ns > begin_ns)
        claims->claim[claims->n++] = (struct claim){bucket, begin_ns, end_ns};
}

static void claim_all(const struct wall_rows *rows, struct claims *out)
{
    out->claim = must_alloc(4 * (size_t)rows->n_launches + 1, sizeof *out->claim);
    for (int i = 0; i < rows->n_launches; i++) {
        const struct wall_launch *l = &rows->launch[i], *next = l + 1;
        if (i == 0)
            add(out, WALL_START_UP, l->begin_ns, l->has_steps ? l->first_step_ns : l->last_ns);
        if (i + 1 == rows->n_launches) { /* nobody has gone on yet */
            add(out, WALL_REWORK, l->last_ns, l->failure != NULL ? l->failure->begin_ns : -1);
            break;
        }
        add(out, WALL_REWORK, l->rework_ns, l->failed_ns);
        add(out, WALL_DETECTION, l->failed_ns, l->detected_ns);
        add(out, WALL_RESTART, l->detected_ns,
            next->has_steps ? next->first_step_ns : next->last_ns);
    }
}

static int by_time(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Of what claims lie over each other the first bucket wins. */
static struct claims cut(const struct claims *claims)
{
    size_t n = 2 * (size_t)claims->n;
    int64_t *edge = must_alloc(n + 1, sizeof *edge);
    struct claims out = {0, must_alloc(n + 1, sizeof *out.claim)};
    for (int i = 0; i < claims->n; i++) {
        edge[2 * i] = claims->claim[i].begin_ns;
        edge[2 * i + 1] = claims->claim[i].end_ns;
    }
    qsort(edge, n, sizeof *edge, by_time);
    for (size_t e = 0; e + 1 < n; e++) {
        int best = WALL_BUCKETS;
        for (int i = 0; i < claims->n; i++)
            if (claims->claim[i].begin_ns <= edge[e] && claims->claim[i].end_ns >= edge[e + 1] &&
                (int)claims->claim[i].bucket < best)
                best = (int)claims->claim[i].bucket;
        if (best < WALL_BUCKETS)
            add(&out, (enum wall_bucket)best, edge[e], edge[e + 1]);
    }
    free(edge);
    return out;
}

/* Time of an interval that no launch claims. */
static int64_t unclaimed(const struct claims *cuts, const struct interval_row *row)
{
    int64_t left = row->end_ns - row->begin_ns;
    for (int i = 0; i < cuts->n; i++) {
        const struct claim *c = &cuts->claim[i];
        int64_t begin = c->begin_ns > row->begin_ns ? c->begin_ns : row->begin_ns;
        int64_t end = c->end_ns < row->end_ns ? c->end_ns : row->end_ns;
        left -= end > begin ? end - begin : 0;
    }
    return left;
}

/* The end of a claim or a row that has this moment; else -1, and *until is no later than the next begin. */
static int64_t taken_until(const struct wall_rows *rows, const struct claims *cuts, int64_t from,
                           int64_t at, int64_t *until)
{
    for (int i = 0; i < cuts->n; i++) {
        const struct claim *c = &cuts->claim[i];
        if (c->begin_ns <= at && at < c->end_ns)
            return c->end_ns;
        if (at < c->begin_ns && c->begin_ns < *until)
            *until = c->begin_ns;
    }
    for (int64_t i = from; i < rows->n && rows->rows[i].begin_ns < *until; i++) {
        const struct interval_row *row = &rows->rows[i];
        if (!wall_takes_time(row) || row->end_ns <= at)
            continue;
        if (row->begin_ns <= at)
            return row->end_ns;
        *until = row->begin_ns;
    }
    return -1;
}

/* Time from begin to end, beside row `index`, that nothing else claims. */
static int64_t alone(const struct wall_rows *rows, const struct claims *cuts, int64_t index,
                     int64_t begin, int64_t end)
{
    int64_t sum = 0, from = index;
    while (from > 0 && !wall_takes_time(&rows->rows[from]))
        from--;
    for (int64_t at = begin; at < end;) {
        int64_t until = end, taken = taken_until(rows, cuts, from, at, &until);
        sum += taken < 0 ? until - at : 0;
        at = taken < 0 ? until : taken;
    }
    return sum;
}

/* ---- steps ---- */

enum { QUIET_LEAST = 5 };

/* Rank-time of a block that is no call of a save and no wait for data. */
static int64_t rest_of(const struct interval_row *row)
{
    return (row->end_ns - row->begin_ns) * row->ranks - row->call_ns - row->input_ns;
}

/* The mean quiet step of a launch (-1: of all), rank-time; NaN: fewer than five. */
static double quiet_step(const struct wall_rows *rows, int launch)
{
    int64_t steps = 0;
    double sum = 0;
    for (int64_t i = 0; i < rows->n; i++) {
        const struct interval_row *row = &rows->rows[i];
        if ((launch >= 0 && row->launch != launch) || !wall_is(row, "steps") || row->flags != 0)
            continue;
        steps += row->steps;
        sum += (double)rest_of(row);
    }
    return steps >= QUIET_LEAST ? sum / (double)steps : NAN;
}

/* Of the steps of one launch, as far as they are nobody else's. */
struct sums {
    int64_t rest, straggler, stall;
    double excess; /* of steps beside saves over quiet ones */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Part of a sum over a block that falls to the share of it that is left. */
static int64_t share(int64_t sum, int64_t left, const struct interval_row *row)
{
    int64_t whole = row->end_ns - row->begin_ns;
    return left == whole ? sum : (int64_t)((double)sum * (double)left / (double)whole);
}

static void add_block(struct wall *out, const struct interval_row *row, int64_t left, double quiet,
                      struct sums *sums)
{
    int64_t rest = left * row->ranks;
    out->tokens += row->tokens;
    if (row->flags & INTERVAL_WARM_UP) {
        out->rank_ns[WALL_WARM_UP] += rest;
        out->count[WALL_WARM_UP] += row->steps;
        return;
    }
    int64_t call = least(share(row->call_ns, left, row), rest);
    int64_t data = least(share(row->input_ns, left, row), rest - call);
    rest -= call + data;
    out->rank_ns[WALL_CALL] += call;
    out->rank_ns[WALL_DATA] += data;
    out->count[WALL_USEFUL] += row->steps;
    sums->rest += rest;
    sums->straggler += least(share(row->straggler_ns, left, row), rest);
    sums->stall += least(share(row->stall_ns, left, row), rest);
    if ((row->flags & INTERVAL_SAVING) && !isnan(quiet))
        sums->excess += (double)rest - quiet * (double)share(row->steps, left, row);
}

static void add_launch(const struct wall_rows *rows, const struct claims *cuts, int launch,
                       struct wall *out)
{
    struct sums sums = {0};
    double quiet = quiet_step(rows, launch);
    if (isnan(quiet))
        quiet = quiet_step(rows, -1);
    else
        out->quiet_step_ns = quiet / out->ranks;
    for (int64_t i = 0; i < rows->n; i++) {
        const struct interval_row *row = &rows->rows[i];
        if (row->launch != launch)
            continue;
        if (wall_is(row, "save-wait"))
            out->rank_ns[WALL_CALL] += unclaimed(cuts, row) * row->ranks;
        else if (wall_is(row, "file"))
            out->rank_ns[WALL_RECORD] += unclaimed(cuts, row) * row->ranks;
        else if (wall_is(row, "save"))
            out->count[WALL_CALL] += (row->flags & INTERVAL_LOST) == 0;
        if (!wall_is(row, "steps"))
            continue;
        int64_t left = unclaimed(cuts, row);
        if (left > 0)
            add_block(out, row, left, quiet, &sums);
        else
            out->count[WALL_REWORK] += row->steps;
    }
    int64_t inflation = sums.excess > 0 ? least((int64_t)sums.excess, sums.rest) : 0;
    int64_t straggler = least(sums.straggler, sums.rest - inflation);
    int64_t useful = sums.rest - inflation - straggler;
    out->inflation_signed_ns += (int64_t)sums.excess;
    out->rank_ns[WALL_INFLATION] += inflation;
    out->rank_ns[WALL_STRAGGLER] += straggler;
    out->rank_ns[WALL_USEFUL] += useful;
    out->exposed_ns += least(sums.stall - sums.straggler, useful);
}

/* Books are kept beside rows that take time, within the run, and once at a time. */
static void add_books(const struct wall_rows *rows, const struct claims *cuts, struct wall *out)
{
    int64_t covered = out->begin_ns;
    for (int64_t i = 0; i < rows->n; i++) {
        const struct interval_row *row = &rows->rows[i];
        int64_t begin = row->begin_ns > covered ? row->begin_ns : covered;
        int64_t end = row->end_ns < out->end_ns ? row->end_ns : out->end_ns;
        if (!wall_is(row, "record") || end <= begin)
            continue;
        out->rank_ns[WALL_RECORD] += alone(rows, cuts, i, begin, end) * row->ranks;
        covered = end;
    }
}

/* ---- all of it ---- */

static int64_t sum_of(const struct wall *wall)
{
    int64_t sum = 0;
    for (int b = 0; b < WALL_BUCKETS; b++)
        sum += wall->rank_ns[b];
    return sum;
}

static void add_claims(const struct claims *cuts, struct wall *out)
{
    for (int i = 0; i < cuts->n; i++) {
        const struct claim *c = &cuts->claim[i];
        out->rank_ns[c->bucket] += (c->end_ns - c->begin_ns) * out->ranks;
    }
}

static void add_rows(const struct wall_rows *rows, struct wall *out)
{
    struct claims claims = {0, NULL};
    claim_all(rows, &claims);
    struct claims cuts = cut(&claims);
    add_claims(&cuts, out);
    for (int i = 0; i < rows->n_launches; i++) {
        const struct wall_launch *l = &rows->launch[i];
        add_launch(rows, &cuts, l->launch, out);
        if (i > 0 && l->load != NULL)
            out->load_ns += (l->load->end_ns - l->load->begin_ns) * out->ranks;
        out->silent += l->silent;
    }
    add_books(rows, &cuts, out);
    out->launches = rows->n_launches + out->silent;
    out->between_steps = wall_rows_between(rows);
    out->count[WALL_RESTART] = out->count[WALL_DETECTION] = rows->n_launches - 1;
    out->count[WALL_START_UP] = 1;
    free(claims.claim);
    free(cuts.claim);
}

int wall_account(struct wall *out, const struct interval_row *given, int64_t n)
{
    struct wall_rows rows;
    int rc = 0;
    memset(out, 0, sizeof *out);
    out->quiet_step_ns = out->between_steps = NAN;
    TRY(wall_rows_make(&rows, given, n));
    const struct wall_launch *last = &rows.launch[rows.n_launches - 1];
    out->ranks = rows.rows[0].ranks;
    out->begin_ns = rows.launch[0].begin_ns;
    out->end_ns = last->failure != NULL ? last->failure->begin_ns : last->last_ns;
    out->end_ns = out->end_ns < last->last_ns ? last->last_ns : out->end_ns;
    out->finished = last->ended && !last->stopped;
    add_rows(&rows, out);
    wall_recoveries(&rows, out);
    out->rank_ns[WALL_OTHER] = (out->end_ns - out->begin_ns) * out->ranks - sum_of(out);
    if (out->rank_ns[WALL_OTHER] < 0)
        rc = fail(FAIL_FILE, "intervals: they claim %lld ns more than the run lasted",
                  (long long)-out->rank_ns[WALL_OTHER]);
out:
    wall_rows_release(&rows);
    if (rc != 0)
        wall_release(out);
    return rc;
}

int wall_of_point(struct wall *out, const struct record_file *file, int point)
{
    struct interval_row *rows = NULL;
    int64_t n = 0, capacity = 0;
    for (int i = 0; i < file->n_points; i++) {
        const struct record_point *p = &file->points[i];
        if (p->point.point != point || p->intervals.n == 0)
            continue;
        rows = record_room(rows, sizeof *rows, n, &capacity, p->intervals.n);
        memcpy(rows + n, p->intervals.rows, (size_t)p->intervals.n * sizeof *rows);
        n += p->intervals.n;
    }
    int rc = wall_account(out, rows, n);
    free(rows);
    return rc;
}

/* ---- rows ---- */

static void add_row(const struct wall *wall, struct record_point *out, const char *bucket,
                    const char *within, int view, int64_t rank_ns, int64_t count)
{
    struct account_row *row = RECORD_ADD(&out->account, 1);
    snprintf(row->bucket, sizeof row->bucket, "%s", bucket);
    snprintf(row->within, sizeof row->within, "%s", within);
    row->view = view;
    row->ranks = wall->ranks;
    row->rank_ns = rank_ns;
    row->seconds = (double)rank_ns / wall->ranks / 1e9;
    row->share = (double)rank_ns / ((double)(wall->end_ns - wall->begin_ns) * wall->ranks);
    row->count = count;
}

void wall_rows(const struct wall *wall, struct record_point *out)
{
    for (int b = 0; b < WALL_BUCKETS; b++)
        add_row(wall, out, wall_bucket_name(b), "", 0, wall->rank_ns[b], wall->count[b]);
    add_row(wall, out, "exposed", "useful", 1, wall->exposed_ns, 0);
    add_row(wall, out, "load", "restart", 1, wall->load_ns, 0);
    add_row(wall, out, "inflation-raw", "inflation", 1, wall->inflation_signed_ns, 0);
    add_row(wall, out, "wall", "", 2, (wall->end_ns - wall->begin_ns) * wall->ranks, 1);
    if (wall->n_recoveries > 0)
        memcpy(RECORD_ADD(&out->recoveries, wall->n_recoveries), wall->recoveries,
               (size_t)wall->n_recoveries * sizeof *wall->recoveries);
}

bool wall_closes(const struct wall *wall)
{
    double whole = (double)(wall->end_ns - wall->begin_ns) * wall->ranks;
    return (double)wall->rank_ns[WALL_OTHER] <= WALL_OTHER_MOST * whole;
}

void wall_release(struct wall *wall)
{
    free(wall->recoveries);
    memset(wall, 0, sizeof *wall);
}
