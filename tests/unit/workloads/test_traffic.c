/* traffic: bytes of a ring stay inside a node or cross to the next one, rank by rank. */
#include "tests/test.h"

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
}

int main(void)
{
    rings();
    transfers_and_exchanges();
    return test_end();
}
