/* comm_prove passes on every axis of a sound communicator, plain and wrapped, and what is broken on
 * purpose is caught: other counts, other orders, stale and overrun buffers. */
#include "collectives/comm_check.h"

#include "base/err.h"
#include "tests/mpi/comm_rig.h"

enum { PROVE_COUNT = 30000 }; /* elements: above a page for 7 ranks */

/* comm_prove on every axis of every way to split the world in two, plain and wrapped. */
static void test_prove(bool wrap)
{
    for (int size = 1; size <= world; size++) {
        struct comms c;
        if (world % size != 0)
            continue;
        open_comms(&c, &comm_mpi, size);
        for (int i = 0; i < AXES; i++) {
            int64_t n_wrong = -1;
            if (wrap)
                CHECK_EQ(comm_check_wrap(&c.comm[i], &point), 0);
            CHECK_EQ(comm_prove(&c.comm[i], PROVE_COUNT, &n_wrong), 0);
            CHECK_EQ(n_wrong, 0);
            CHECK_EQ(c.comm[i].posted_calls, 0);
            if (wrap)
                CHECK_EQ(comm_check_order(&c.comm[i]), 0);
        }
        close_comms(&c);
    }
}

static void null_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    (void)comm;
    (void)calls;
    (void)n_calls;
}

static int null_open(struct comm *comm, const void *parent, int max_calls)
{
    (void)comm;
    (void)parent;
    (void)max_calls;
    return 0;
}

static void null_close(struct comm *comm)
{
    (void)comm;
}

/* Moves nothing: so that members can make different calls without hanging. */
static const struct comm_type null_type = {
    .name = "null", .open = null_open, .close = null_close, .post = null_post};

enum { LAST_MAKES_OTHER_COUNT, LAST_SWAPS_TWO, LAST_LEAVES_ONE_OUT, LAST_TAKES_OTHER_ROOT, FAULTS };

/* Ten calls, of which the last member makes some differently; enum above, or FAULTS: none. */
static void make_calls(struct comm *comm, int fault)
{
    static float buffer[64];
    bool is_last = comm->group.me == comm->group.size - 1;

    for (int i = 0; i < 10; i++) {
        int k = i;
        struct comm_call call = {.send = buffer, .recv = buffer};
        if (is_last && fault == LAST_SWAPS_TWO && (i == 3 || i == 4))
            k = 7 - i;
        call.coll = (struct coll){.kind = k % 2 ? COLL_ALL_REDUCE : COLL_BROADCAST,
                                  .dtype = DTYPE_F32,
                                  .count = 1 + k,
                                  .peer = k % 2 ? -1 : 0};
        if (is_last && i == 5 && fault == LAST_MAKES_OTHER_COUNT)
            call.coll.count++;
        if (is_last && i == 6 && fault == LAST_TAKES_OTHER_ROOT)
            call.coll.peer = 1;
        if (!(is_last && i == 9 && fault == LAST_LEAVES_ONE_OUT))
            comm_post(comm, &call, 1);
    }
}

static void test_order_is_compared(void)
{
    static const char *const words[FAULTS] = {
        "call 5 is all-reduce fp32 count 6 peer -1 on member 0 and all-reduce fp32 count 7",
        "call 3 is all-reduce fp32 count 4 peer -1 on member 0 and broadcast fp32 count 5",
        "call 9 is all-reduce fp32 count 10 peer -1 on member 0 and no call on member",
        "call 6 is broadcast fp32 count 7 peer 0 on member 0 and broadcast fp32 count 7 peer 1",
    };
    struct comms c;

    open_comms(&c, &null_type, 1);
    CHECK_EQ(comm_check_wrap(&c.comm[0], &point), 0);
    for (int fault = 0; fault <= FAULTS; fault++) {
        bool is_planted = fault < FAULTS && world > 1;
        make_calls(&c.comm[0], fault);
        c.device.type->sync(&c.device);
        CHECK_EQ(c.comm[0].type->check(&c.comm[0]), is_planted ? FAIL_WRONG : 0);
        if (is_planted)
            CHECK_HAS(fail_message(), words[fault]); /* the same sentence on every member */
        fail_clear();
    }
    close_comms(&c);
}

/* A send without its receive, and a receive of another count. */
static void test_transfers_are_compared(void)
{
    static float buffer[64];
    struct comms c;

    open_comms(&c, &null_type, 1);
    CHECK_EQ(comm_check_wrap(&c.comm[0], &point), 0);
    for (int fault = 0; fault < 3 && world > 1; fault++) {
        struct comm_call send = {
            {.kind = COLL_SEND, .dtype = DTYPE_F32, .count = 8, .peer = 1}, buffer, NULL};
        struct comm_call recv = {
            {.kind = COLL_RECV, .dtype = DTYPE_F32, .count = fault == 1 ? 9 : 8, .peer = 0},
            NULL,
            buffer};
        if (rank == 0)
            comm_post(&c.comm[0], &send, 1);
        if (rank == 1 && fault != 2)
            comm_post(&c.comm[0], &recv, 1);
        c.device.type->sync(&c.device);
        CHECK_EQ(comm_check_order(&c.comm[0]), fault == 0 ? 0 : FAIL_WRONG);
        if (fault == 1)
            CHECK_HAS(fail_message(), "member 0 made 1 sends to member 1, which made 1 receives of "
                                      "other counts");
        if (fault == 2)
            CHECK_HAS(fail_message(), "member 0 made 1 sends to member 1, which made 0 receives");
        fail_clear();
    }
    close_comms(&c);
}

/* Outputs are poisoned on the stream, inputs and buffers in place are not. */
static void test_wrapper_poisons(void)
{
    unsigned char send[4], recv[4], both[4];
    struct comm_call calls[] = {
        {{.kind = COLL_ALL_REDUCE, .dtype = DTYPE_U8, .count = 4, .peer = -1}, send, recv},
        {{.kind = COLL_ALL_REDUCE, .dtype = DTYPE_U8, .count = 4, .peer = -1}, both, both},
    };
    struct comms c;

    memset(send, 1, sizeof send);
    memset(recv, 2, sizeof recv);
    memset(both, 3, sizeof both);
    open_comms(&c, &null_type, 1);
    CHECK_EQ(comm_check_wrap(&c.comm[0], &point), 0);
    comm_post(&c.comm[0], calls, 2);
    c.device.type->sync(&c.device);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(send[i], 1);
        CHECK_EQ(recv[i], 0xff);
        CHECK_EQ(both[i], 3);
    }
    close_comms(&c);
}

/* A communicator that does as "mpi" does, but for one fault. Its state is that of "mpi". */
enum fault { STALE, OVERRUN, LAST_BIT, OTHER_ROOT };
static enum fault fault_now;
static enum coll_kind fault_kind;

static void spoil(void *arg, void *native)
{
    unsigned char *byte = arg;

    (void)native;
    *byte ^= 1;
}

static void faulty_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    struct comm_call call = calls[0];
    size_t bytes =
        (size_t)coll_recv_count(&call.coll, comm->group.size) * dtype_size((int)call.coll.dtype);
    bool is_hit = call.coll.kind == fault_kind && n_calls == 1 && bytes > 0;

    if (is_hit && fault_now == STALE)
        return;
    if (is_hit && fault_now == OTHER_ROOT)
        call.coll.peer = (call.coll.peer + 1) % comm->group.size;
    if (is_hit)
        comm_mpi.post(comm, &call, 1);
    else
        comm_mpi.post(comm, calls, n_calls);
    if (is_hit && (fault_now == OVERRUN || fault_now == LAST_BIT))
        comm->device->type->launch(comm->device, comm->stream, spoil,
                                   (char *)call.recv + bytes - (fault_now == LAST_BIT));
}

static void faulty_close(struct comm *comm)
{
    comm_mpi.close(comm);
}

static int faulty_open(struct comm *comm, const void *parent, int max_calls)
{
    return comm_mpi.open(comm, parent, max_calls);
}

static const struct comm_type faulty = {
    .name = "faulty", .open = faulty_open, .close = faulty_close, .post = faulty_post};

static void test_proof_catches(enum fault fault, enum coll_kind kind, bool wrap)
{
    int64_t n_wrong = 0;
    struct comms c;

    fault_now = fault;
    fault_kind = kind;
    open_comms(&c, &faulty, 1);
    if (wrap)
        CHECK_EQ(comm_check_wrap(&c.comm[0], &point), 0);
    int rc = comm_prove(&c.comm[0], 5000, &n_wrong);
    CHECK(rc == 0 || rc == FAIL_WRONG);
    CHECK_EQ(n_wrong > 0, rc == FAIL_WRONG);
    CHECK(sum_over_world(rc != 0) > 0); /* caught by somebody: by all, but for rooted kinds */
    if (rc != 0) {
        CHECK_HAS(fail_message(), coll_name((int)kind));
        CHECK_HAS(fail_message(), "expected");
    }
    fail_clear();
    close_comms(&c);
}

static void test_planted_faults(void)
{
    for (int kind = 0; kind < COLL_SEND; kind++) {
        test_proof_catches(STALE, (enum coll_kind)kind, kind % 2 == 0);
        test_proof_catches(kind % 2 ? OVERRUN : LAST_BIT, (enum coll_kind)kind, kind % 2 != 0);
    }
    if (world > 1) {
        test_proof_catches(OTHER_ROOT, COLL_BROADCAST, false);
        test_proof_catches(OTHER_ROOT, COLL_REDUCE, true);
    }
}

int main(int argc, char **argv)
{
    rig_begin(&argc, &argv);
    test_prove(false);
    test_prove(true);
    test_order_is_compared();
    test_transfers_are_compared();
    test_wrapper_poisons();
    test_planted_faults();
    return rig_end();
}
