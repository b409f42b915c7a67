/* Byte counts, bandwidth factors and expected values of every collective equal those of a literal
 * simulation of it over ranks 1 to 9. */
#include "collectives/coll.h"

#include <stdbool.h>
#include <stdlib.h>

#include "tests/test.h"

enum { MAX_RANKS = 9, MAX_COUNT = 36, MAX_ELEMENTS = MAX_RANKS * MAX_COUNT };

/* Buffers of all ranks, and the elements that crossed from one rank to another. */
struct world {
    int n;
    double send[MAX_RANKS][MAX_ELEMENTS];
    double recv[MAX_RANKS][MAX_ELEMENTS];
    int64_t moved;
};

static void take_inputs(struct world *w, const struct coll *coll, int trial)
{
    for (int rank = 0; rank < w->n; rank++)
        for (int64_t i = 0; i < coll_send_count(coll, w->n); i++)
            w->send[rank][i] = coll_input(coll, rank, i, trial);
    memset(w->recv, 0, sizeof w->recv);
    w->moved = 0;
}

/* Element `from` of a rank's buffer arrives as element `to` of another's; own data moves nothing. */
static void move(struct world *w, double *to, const double *from, int64_t count, bool crosses)
{
    memcpy(to, from, (size_t)count * sizeof *to);
    w->moved += crosses ? count : 0;
}

/* A partial sum travels round the ring and ends at `last`, every other member adding its part. */
static void reduce_along_ring(struct world *w, double *to, int last, int64_t offset, int64_t count)
{
    double sum[MAX_ELEMENTS] = {0};

    for (int hop = 1; hop <= w->n; hop++) {
        int rank = (last + hop) % w->n;
        for (int64_t i = 0; i < count; i++)
            sum[i] += w->send[rank][offset + i];
        w->moved += hop < w->n ? count : 0; /* handed on to the next */
    }
    memcpy(to, sum, (size_t)count * sizeof *to);
}

static void simulate_reduce_scatter(struct world *w, int64_t count)
{
    for (int rank = 0; rank < w->n; rank++)
        reduce_along_ring(w, w->recv[rank], rank, rank * count, count);
}

static void simulate_all_gather(struct world *w, int64_t count)
{
    for (int rank = 0; rank < w->n; rank++)
        for (int from = 0; from < w->n; from++)
            move(w, &w->recv[rank][from * count], w->send[from], count, from != rank);
}

/* Reduce-scatter of the n-th parts, then all-gather of the results. */
static void simulate_all_reduce(struct world *w, int64_t count)
{
    int64_t part = count / w->n;

    simulate_reduce_scatter(w, part);
    for (int rank = 0; rank < w->n; rank++)
        memcpy(w->send[rank], w->recv[rank], (size_t)part * sizeof(double));
    simulate_all_gather(w, part);
}

static void simulate(struct world *w, const struct coll *coll)
{
    int64_t count = coll->count;

    switch (coll->kind) {
    case COLL_ALL_REDUCE:
        simulate_all_reduce(w, count);
        break;
    case COLL_REDUCE_SCATTER:
        simulate_reduce_scatter(w, count);
        break;
    case COLL_ALL_GATHER:
        simulate_all_gather(w, count);
        break;
    case COLL_ALL_TO_ALL:
        for (int from = 0; from < w->n; from++)
            for (int to = 0; to < w->n; to++)
                move(w, &w->recv[to][from * count], &w->send[from][to * count], count, from != to);
        break;
    case COLL_BROADCAST:
        for (int to = 0; to < w->n; to++)
            move(w, w->recv[to], w->send[coll->peer], count, to != coll->peer);
        break;
    case COLL_REDUCE:
        reduce_along_ring(w, w->recv[coll->peer], coll->peer, 0, count);
        break;
    case COLL_SENDRECV:
        for (int from = 0; from < w->n; from++)
            move(w, w->recv[(from + 1) % w->n], w->send[from], count, w->n > 1);
        break;
    case COLL_ALL_TO_ALL_V:
    case COLL_SEND:
    case COLL_RECV:
    case COLL_KINDS:
        break;
    }
}

/* bf16 holds whole numbers up to 256: so do its sums, over any number of ranks, and they are not all
 * the same. */
static void test_bf16_sums(void)
{
    static const int ranks[] = {1, 2, 7, 256, 257, 100000};
    struct coll coll = {.kind = COLL_ALL_REDUCE, .dtype = DTYPE_BF16, .count = 100, .peer = -1};
    struct coll other = {.kind = COLL_BROADCAST, .dtype = DTYPE_BF16, .count = 100, .peer = 1};
    bool large = false;

    for (size_t k = 0; k < sizeof ranks / sizeof ranks[0]; k++)
        for (int64_t i = 0; i < 100; i++) {
            double sum = 0, expected = coll_expected(&coll, ranks[k], 0, i, 3);
            for (int rank = 0; rank < ranks[k]; rank++)
                sum += coll_input(&coll, rank, i, 3);
            CHECK_NEAR(expected, sum, 0);
            CHECK(expected <= 256 && (ranks[k] < 2 || expected > 0));
            CHECK(coll_input(&coll, 4, i, 3) != coll_input(&coll, 5, i, 3));
            large |= coll_input(&other, 1, i, 3) > 1; /* what is not summed is not so small */
        }
    CHECK(large);
}

static void check_simulated(struct world *w, const struct coll *coll, int trial)
{
    take_inputs(w, coll, trial);
    simulate(w, coll);
    for (int me = 0; me < w->n; me++) {
        if (coll->kind == COLL_REDUCE && me != coll->peer)
            continue;
        for (int64_t i = 0; i < coll_recv_count(coll, w->n); i++)
            CHECK_EQ(coll_expected(coll, w->n, me, i, trial), w->recv[me][i]);
    }
    CHECK_NEAR(coll_wire_bytes(coll, w->n),
               (double)w->moved * (double)dtype_size((int)coll->dtype) / w->n, 1e-9);
}

static void test_against_simulation(void)
{
    static struct world world;
    int trial = 0;

    for (world.n = 1; world.n <= MAX_RANKS; world.n++) {
        for (int kind = 0; kind < COLL_SEND; kind++) {
            if (kind == COLL_ALL_TO_ALL_V) /* has tables: below */
                continue;
            for (int64_t per_rank = 0; per_rank <= MAX_COUNT / MAX_RANKS; per_rank++) {
                struct coll coll = {.kind = (enum coll_kind)kind,
                                    .dtype = trial % 2 ? DTYPE_BF16 : DTYPE_F64,
                                    .count = per_rank * world.n,
                                    .peer = trial % world.n};
                check_simulated(&world, &coll, trial++);
            }
        }
    }
}

static void test_transfers(void)
{
    struct coll send = {.kind = COLL_SEND, .dtype = DTYPE_F32, .count = 10, .peer = 2},
                recv = {.kind = COLL_RECV, .dtype = DTYPE_F32, .count = 10, .peer = 1};

    CHECK_EQ(coll_send_count(&send, 4), 10);
    CHECK_EQ(coll_recv_count(&send, 4), 0);
    CHECK_EQ(coll_send_count(&recv, 4), 0);
    CHECK_EQ(coll_recv_count(&recv, 4), 10);
    CHECK_EQ(coll_wire_bytes(&send, 4), 40);
    CHECK_EQ(coll_wire_bytes(&recv, 4), 0);
    for (int64_t i = 0; i < 10; i++) /* member 1 sends, member 2 receives from 1 */
        CHECK_EQ(coll_expected(&recv, 4, 2, i, 7), coll_input(&send, 1, i, 7));
}

/* Parts of uneven size: what a member expects at a place is what the one it comes from put there. */
static void test_parts(void)
{
    enum { RANKS = 4 };
    int64_t parts[RANKS][RANKS], back[RANKS][RANKS];
    struct coll call[RANKS];
    for (int i = 0; i < RANKS; i++)
        for (int j = 0; j < RANKS; j++)
            parts[i][j] = back[j][i] = (3 * i + 2 * j) % 5;
    for (int i = 0; i < RANKS; i++)
        call[i] = coll_all_to_all_v(DTYPE_BF16, 20, RANKS, i, parts[i], back[i]);
    for (int i = 0; i < RANKS; i++) {
        int64_t at = 0, sent = 0;
        for (int from = 0; from < RANKS; from++) {
            int64_t there = 0;
            for (int to = 0; to < i; to++)
                there += parts[from][to];
            for (int64_t e = 0; e < parts[from][i]; e++, at++)
                CHECK_EQ(coll_expected(&call[i], RANKS, i, at, 3),
                         coll_input(&call[from], from, there + e, 3));
            sent += parts[i][from];
        }
        CHECK_EQ(coll_recv_count(&call[i], RANKS), at);
        CHECK_EQ(coll_send_count(&call[i], RANKS), sent);
        CHECK_EQ(coll_wire_bytes(&call[i], RANKS), 2 * (sent - parts[i][i]));
        CHECK_EQ(coll_bytes(&call[i], RANKS), 40);
    }
    CHECK_NEAR(coll_busbw_factor(COLL_ALL_TO_ALL_V, RANKS), 0.75, 1e-15);
}

/* The table of the header, for 4 ranks and 6 elements of 4 bytes; then one rank. */
static void test_table(void)
{
    static const struct {
        enum coll_kind kind;
        int64_t bytes, send, recv;
        double factor, wire, factor_of_one;
    } table[] = {
        {COLL_ALL_REDUCE, 24, 6, 6, 1.5, 36, 0},
        {COLL_ALL_GATHER, 96, 6, 24, 0.75, 72, 0},
        {COLL_REDUCE_SCATTER, 96, 24, 6, 0.75, 72, 0},
        {COLL_ALL_TO_ALL, 96, 24, 24, 0.75, 72, 0},
        {COLL_BROADCAST, 24, 6, 6, 1, 18, 1},
        {COLL_REDUCE, 24, 6, 6, 1, 18, 1},
        {COLL_SENDRECV, 24, 6, 6, 1, 24, 1},
        {COLL_SEND, 24, 6, 0, 1, 24, 1},
        {COLL_RECV, 24, 0, 6, 1, 0, 1},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct coll coll = {.kind = table[i].kind, .dtype = DTYPE_F32, .count = 6, .peer = 1};
        CHECK_EQ(coll_bytes(&coll, 4), table[i].bytes);
        CHECK_EQ(coll_send_count(&coll, 4), table[i].send);
        CHECK_EQ(coll_recv_count(&coll, 4), table[i].recv);
        CHECK_NEAR(coll_busbw_factor(coll.kind, 4), table[i].factor, 0);
        CHECK_NEAR(coll_wire_bytes(&coll, 4), table[i].wire, 0);
        CHECK_NEAR(coll_busbw_factor(coll.kind, 1), table[i].factor_of_one, 0);
        if (coll.kind != COLL_SEND)
            CHECK_NEAR(coll_wire_bytes(&coll, 1), 0, 0);
    }
    CHECK_EQ(sizeof table / sizeof table[0], COLL_KINDS - 1); /* all-to-all-v: test_parts */
}

/* Far beyond 2^31 elements and 2^32 bytes, still whole and exact. */
static void test_large_counts(void)
{
    struct coll coll = {
        .kind = COLL_ALL_GATHER, .dtype = DTYPE_F64, .count = INT64_C(5000000000), .peer = -1};

    CHECK_EQ(coll_recv_count(&coll, 1000), INT64_C(5000000000000));
    CHECK_EQ(coll_bytes(&coll, 1000), INT64_C(40000000000000));
    CHECK_NEAR(coll_wire_bytes(&coll, 1000), 39960000000000.0, 0);
    CHECK_EQ(coll_expected(&coll, 1000, 3, INT64_C(4999999999) + 7 * coll.count, 1),
             coll_input(&coll, 7, INT64_C(4999999999), 1));
}

/* Sums of 2^16 ranks are exact in fp32; the closed form equals the loop; uint8 wraps. */
static void test_sums_are_exact(void)
{
    static const int ranks[] = {255, 256, 257, 1000, 65536};
    struct coll coll = {.kind = COLL_ALL_REDUCE, .dtype = DTYPE_F32, .count = 5, .peer = -1},
                bytes = {.kind = COLL_REDUCE, .dtype = DTYPE_U8, .count = 5, .peer = 0};

    for (size_t k = 0; k < sizeof ranks / sizeof ranks[0]; k++) {
        for (int64_t i = 0; i < 5; i++) {
            double sum = 0, expected = coll_expected(&coll, ranks[k], 0, i, 3);
            for (int rank = 0; rank < ranks[k]; rank++)
                sum += coll_input(&coll, rank, i, 3);
            CHECK_NEAR(expected, sum, 0);
            CHECK(expected <= 16777216 && (double)(float)expected == expected);
        }
    }
    double sum = 0;
    for (int rank = 0; rank < 300; rank++)
        sum += coll_input(&bytes, rank, 2, 3);
    CHECK_EQ(coll_expected(&bytes, 300, 0, 2, 3), (int64_t)sum % 256);
}

/* What a fault would mix up differs: neighbouring ranks always; elements, trials and kinds mostly. */
static void test_inputs_differ(void)
{
    struct coll a = {.kind = COLL_ALL_REDUCE, .dtype = DTYPE_F32, .count = 2000, .peer = -1},
                b = {.kind = COLL_ALL_GATHER, .dtype = DTYPE_F32, .count = 2000, .peer = -1};
    int same_element = 0, same_trial = 0, same_kind = 0;

    for (int64_t i = 0; i < 2000; i++) {
        double value = coll_input(&a, 3, i, 5);
        CHECK(value >= 0 && value < 256 && value == floor(value));
        CHECK(value != coll_input(&a, 4, i, 5));
        same_element += value == coll_input(&a, 3, i + 1, 5);
        same_trial += value == coll_input(&a, 3, i, 6);
        same_kind += value == coll_input(&b, 3, i, 5);
    }
    CHECK(same_element < 30 && same_trial < 30 && same_kind < 30); /* 2000 / 256 is 8 */
}

static void test_names(void)
{
    CHECK_HAS(coll_name(COLL_REDUCE_SCATTER), "reduce-scatter");
    CHECK_HAS(coll_name(COLL_KINDS), "unknown");
    CHECK_HAS(coll_name(-1), "unknown");
    CHECK_HAS(dtype_name(DTYPE_F64), "fp64");
    CHECK_HAS(dtype_name(DTYPES), "unknown");
    CHECK_EQ(dtype_size(DTYPE_F32), sizeof(float));
    CHECK_EQ(dtype_size(DTYPE_F64), sizeof(double));
    CHECK_EQ(dtype_size(DTYPE_I32), sizeof(int32_t));
    CHECK_EQ(dtype_size(DTYPE_U8), 1);
    CHECK_EQ(dtype_size(DTYPES), 0);
}

int main(void)
{
    test_against_simulation();
    test_transfers();
    test_table();
    test_parts();
    test_large_counts();
    test_bf16_sums();
    test_sums_are_exact();
    test_inputs_differ();
    test_names();
    return test_end();
}
