/* traffic: bytes of a ring stay inside a node or cross to the next one, rank by rank; rows that are
 * counted are sent, received and given to their blocks. */
#include "tests/test.h"

#include "workloads/counts.h"
#include "workloads/traffic.h"

static struct group group_of(int first, int stride, int size, int me)
{
    return (struct group){first, stride, size, me};
}

static void rings(void)
{
    struct coll gather = {.kind = COLL_ALL_GATHER, .dtype = DTYPE_F32, .count = 10, .peer = -1};
    double bytes = 3 * 10 * 4;
    for (int me = 0; me < 4; me++) {
        /* ranks 0..3 on nodes of 4, of 2, of 1 */
        struct group group = group_of(0, 1, 4, me);
        CHECK_NEAR(traffic_of_call(&gather, &group, 4).inside, bytes, 0);
        CHECK_NEAR(traffic_of_call(&gather, &group, 4).across, 0, 0);
        CHECK_NEAR(traffic_of_call(&gather, &group, 2).across, me % 2 ? bytes : 0, 0);
        CHECK_NEAR(traffic_of_call(&gather, &group, 2).inside, me % 2 ? 0 : bytes, 0);
        CHECK_NEAR(traffic_of_call(&gather, &group, 1).across, bytes, 0);
        CHECK_EQ(traffic_of_call(&gather, &group, 1).calls, 1);
    }
    struct group far = group_of(1, 4, 2, 0); /* ranks 1 and 5 */
    CHECK_NEAR(traffic_of_call(&gather, &far, 4).across, 40, 0);
    CHECK_NEAR(traffic_of_call(&gather, &far, 8).inside, 40, 0);
}

static void transfers_and_exchanges(void)
{
    struct group group = group_of(0, 1, 4, 1);
    struct coll send = {.kind = COLL_SEND, .dtype = DTYPE_BF16, .count = 8, .peer = 2},
                receive = {.kind = COLL_RECV, .dtype = DTYPE_BF16, .count = 8, .peer = 2};
    struct coll exchange = {.kind = COLL_ALL_TO_ALL, .dtype = DTYPE_F32, .count = 5, .peer = -1};
    CHECK_NEAR(traffic_of_call(&send, &group, 2).across, 16, 0);
    CHECK_NEAR(traffic_of_call(&send, &group, 4).inside, 16, 0);
    CHECK_NEAR(traffic_of_call(&receive, &group, 2).across, 0, 0);
    CHECK_NEAR(traffic_of_call(&exchange, &group, 2).inside, 20, 1e-12); /* one of three peers */
    CHECK_NEAR(traffic_of_call(&exchange, &group, 2).across, 40, 1e-12);
    struct group pair = group_of(0, 1, 2, 0); /* whose node has others, too */
    CHECK_NEAR(traffic_of_call(&exchange, &pair, 4).inside, 20, 1e-12);
    CHECK_NEAR(traffic_of_call(&exchange, &pair, 4).across, 0, 1e-12);
    const int64_t sent[] = {3, 5, 7}, received[] = {1, 5, 2}; /* member 1 keeps 5 */
    struct group three = group_of(0, 1, 3, 1);                /* ranks 0 and 1, and 2 */
    struct coll uneven = coll_all_to_all_v(DTYPE_F32, 15, 3, 1, sent, received);
    CHECK_NEAR(traffic_of_call(&uneven, &three, 2).inside, 4 * 3, 0);
    CHECK_NEAR(traffic_of_call(&uneven, &three, 2).across, 4 * 7, 0);
    struct traffic none = traffic_of_bytes(0, 2, &(struct group){.size = 0}, 4);
    CHECK(none.calls == 2 && none.inside == 0 && none.across == 0);
}

static void what_can_arrive(void)
{
    int64_t counts[4];
    CHECK_EQ(counts_most(100, 2, 32, 4), 100 * 4 * 2); /* a token's two experts may both be here */
    CHECK_EQ(counts_most(100, 4, 8, 4), 100 * 4 * 2);  /* of which there are two */
    CHECK_EQ(counts_most(100, 2, 8, 1), 100 * 2);
    counts_even(10, 4, counts);
    CHECK(counts[0] == 3 && counts[1] == 3 && counts[2] == 2 && counts[3] == 2);
    counts_even(2, 4, counts);
    CHECK(counts[0] == 1 && counts[1] == 1 && counts[2] == 0 && counts[3] == 0);
}

/* Two ranks of two experts each, and of one each: then all that arrives is one block. */
static void counted_rows(void)
{
    int64_t send[2], receive[2], rows[4], now;
    const int32_t own[] = {1, 2, 3, 4}, arrived[] = {5, 6, 7, 8};
    struct shape_counts s = {.ranks = 2,
                             .experts = 4,
                             .width = 10,
                             .most = 26,
                             .send = send,
                             .receive = receive,
                             .rows = rows,
                             .now = &now};
    counts_put(&s, own, arrived);
    CHECK(send[0] == 10 * (1 + 2) && send[1] == 10 * (3 + 4));
    CHECK(receive[0] == 10 * (5 + 6) && receive[1] == 10 * (7 + 8));
    CHECK(rows[0] == 5 && rows[1] == 6 && rows[2] == 7 && rows[3] == 8);
    CHECK_EQ(now, 26);
    s.experts = 2;
    rows[1] = -1;
    counts_put(&s, own, arrived);
    CHECK(send[0] == 10 * 1 && send[1] == 10 * 2);
    CHECK(receive[0] == 10 * 5 && receive[1] == 10 * 6);
    CHECK(rows[0] == 5 + 6 && rows[1] == -1);
    CHECK_EQ(now, 11);
}

int main(void)
{
    what_can_arrive();
    counted_rows();
    rings();
    transfers_and_exchanges();
    return test_end();
}
