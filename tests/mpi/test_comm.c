/* Every collective gives exact values on the groups of several axes, alone and beside others, in
 * pieces where it is large; and what is broken on purpose is caught. */
#include "collectives/comm.h"

#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <mpi.h>

#include "base/err.h"
#include "base/units.h"
#include "collectives/comm_check.h"
#include "collectives/comm_mpi.h"
#include "tests/test.h"

enum { AXES = 3, MAX_CALLS = 64, PROVE_COUNT = 30000 };

static int world, rank;
static MPI_Comm point;

/* Groups of `size` neighbours, or of `size` ranks that are world / size apart. */
static struct group make_group(int size, bool neighbours)
{
    int groups = world / size;

    if (neighbours)
        return (struct group){rank / size * size, 1, size, rank % size};
    return (struct group){rank % groups, groups, size, rank / groups};
}

/* The whole point, neighbours, strided; on streams 1, 2 and 3. */
struct comms {
    struct device device;
    struct comm comm[AXES];
};

static void open_comms(struct comms *c, const struct comm_type *type, int size)
{
    static const enum axis axis[AXES] = {AXIS_WORLD, AXIS_TP, AXIS_DP};
    struct group group[AXES] = {make_group(world, true), make_group(size, true),
                                make_group(world / size, false)};

    CHECK_EQ(device_open(&c->device, &device_cpu, 0, 1 + AXES), 0);
    CHECK_EQ(c->device.type->reserve(&c->device, 64, 4 * MAX_CALLS), 0);
    for (int i = 0; i < AXES; i++)
        CHECK_EQ(
            comm_open(&c->comm[i], type, &point, &c->device, 1 + i, axis[i], &group[i], MAX_CALLS),
            0);
}

static void close_comms(struct comms *c)
{
    for (int i = 0; i < AXES; i++)
        comm_close(&c->comm[i]);
    device_close(&c->device);
}

static int sum_over_world(int mine)
{
    int sum = 0;

    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, point);
    return sum;
}

static void test_names(void)
{
    const struct comm_type *type;

    CHECK_EQ(comm_find("mpi", &type), 0);
    CHECK(type == &comm_mpi);
    CHECK_EQ(comm_find("auto", &type), 0);
    CHECK_EQ(comm_find("nccl", &type), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "\"nccl\" is not in this build");
    fail_clear();
    CHECK_EQ(comm_find("tcp", &type), FAIL_USAGE);
    CHECK_HAS(fail_message(), "no communicator is called \"tcp\"");
    fail_clear();
}

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

/* One fp64 call with its own buffers and inputs, to be posted now and verified after a sync. */
struct exchange {
    struct coll coll;
    int trial;
    double *send, *recv;
};

static void post(struct comm *comm, struct exchange *x, enum coll_kind kind, int64_t count)
{
    static int trials;
    int n = comm->group.size;
    struct comm_call call;

    x->trial = trials++;
    x->coll = (struct coll){kind, DTYPE_F64, count, x->trial % n};
    x->send = must_alloc((size_t)(count * n) + 1, sizeof(double));
    x->recv = must_alloc((size_t)(count * n) + 1, sizeof(double));
    for (int64_t i = 0; i < coll_send_count(&x->coll, n); i++)
        x->send[i] = coll_input(&x->coll, comm->group.me, i, x->trial);
    call = (struct comm_call){x->coll, x->send, x->recv};
    comm_post(comm, &call, 1);
}

static void verify(const struct comm *comm, struct exchange *x)
{
    int64_t n_wrong = 0;

    if (x->coll.kind != COLL_REDUCE || comm->group.me == x->coll.peer)
        for (int64_t i = 0; i < coll_recv_count(&x->coll, comm->group.size); i++)
            n_wrong += x->recv[i] !=
                       coll_expected(&x->coll, comm->group.size, comm->group.me, i, x->trial);
    if (n_wrong != 0)
        printf("%s of %lld on %s\n", coll_name((int)x->coll.kind), (long long)x->coll.count,
               axis_name((int)comm->axis));
    CHECK_EQ(n_wrong, 0);
    free(x->send);
    free(x->recv);
}

/* Three communicators in flight at once, many calls each, nothing waited for until the end. */
static void test_concurrent(int size)
{
    enum { ROUNDS = 12 };
    static const int64_t counts[] = {3, 4000, 100000};
    struct exchange x[ROUNDS][AXES];
    struct comms c;

    open_comms(&c, &comm_mpi, size);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < AXES; i++)
            post(&c.comm[i], &x[round][i], (enum coll_kind)((round + i) % COLL_SEND),
                 counts[(round + i) % 3]);
    c.device.type->sync(&c.device);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < AXES; i++)
            verify(&c.comm[i], &x[round][i]);
    close_comms(&c);
}

/* A result of one axis is the input of the next, ordered by stamps alone; counters count. */
static void test_chained(int size)
{
    enum { REDUCED, DONE, COUNT = 1000 };
    struct comms c;
    double *sum = must_alloc(COUNT, sizeof *sum), *all, expected = 0;
    struct coll reduce = {COLL_ALL_REDUCE, DTYPE_F64, COUNT, -1},
                gather = {COLL_ALL_GATHER, DTYPE_F64, COUNT, -1};
    struct comm *tp, *dp;
    const struct device_type *type;

    open_comms(&c, &comm_mpi, size);
    type = c.device.type;
    tp = &c.comm[1];
    dp = &c.comm[2];
    all = must_alloc((size_t)(COUNT * dp->group.size), sizeof *all);
    for (int i = 0; i < COUNT; i++)
        sum[i] = rank + 1;
    type->await(&c.device, dp->stream, REDUCED);
    comm_post(dp, &(struct comm_call){gather, sum, all}, 1);
    type->stamp(&c.device, dp->stream, DONE);
    comm_post(tp, &(struct comm_call){reduce, sum, sum}, 1);
    type->stamp(&c.device, tp->stream, REDUCED);
    type->await(&c.device, DEVICE_COMPUTE, DONE);
    for (int from = 0; from < dp->group.size; from++) {
        int first = group_rank(&dp->group, from) / size * size;
        expected = size * (first + 1) + size * (size - 1) / 2;
        CHECK_EQ(all[from * COUNT], expected);
        CHECK_EQ(all[from * COUNT + COUNT - 1], expected);
    }
    type->sync(&c.device);
    CHECK_EQ(tp->posted_calls, 1);
    CHECK_NEAR(tp->posted_bytes, coll_wire_bytes(&reduce, size), 0);
    CHECK_NEAR(dp->posted_bytes, coll_wire_bytes(&gather, dp->group.size), 0);
    close_comms(&c);
    free(all);
    free(sum);
}

/* The ways of a call beyond 2^31 elements, taken with a limit of 100. */
static void test_beyond_the_limit(int size)
{
    static const int64_t counts[] = {99, 100, 101, 777, 1600};
    struct exchange x;
    struct comms c;

    CHECK_EQ(comm_mpi_pieces(0, INT_MAX), 0);
    CHECK_EQ(comm_mpi_pieces(INT_MAX, INT_MAX), 1);
    CHECK_EQ(comm_mpi_pieces(INT64_C(2147483648), INT_MAX), 2);
    CHECK_EQ(comm_mpi_pieces(INT64_C(5000000000), INT_MAX), 3);
    open_comms(&c, &comm_mpi, size);
    for (int i = 0; i < AXES; i++) {
        comm_mpi_limit(&c.comm[i], 100);
        for (int k = 0; k < 5 * COLL_SEND; k++) {
            if (k % COLL_SEND == COLL_REDUCE_SCATTER)
                continue;
            post(&c.comm[i], &x, (enum coll_kind)(k % COLL_SEND), counts[k / COLL_SEND]);
            c.device.type->sync(&c.device);
            verify(&c.comm[i], &x);
        }
    }
    close_comms(&c);
}

static jmp_buf died;
static int death; /* the code that die() came with */

static void note_death(int code)
{
    death = code;
    longjmp(died, 1);
}

/* What one post is refused with; 0 when it is not. Its words go to stderr. */
static int refused(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    death = 0;
    die_handler(note_death);
    if (setjmp(died) == 0)
        comm->type->post(comm, calls, n_calls);
    die_handler(NULL);
    return death;
}

static void test_refusals(void)
{
    struct comm_call call = {.coll = {COLL_REDUCE_SCATTER, DTYPE_F32, 101, -1}},
                     many[MAX_CALLS + 1];
    struct group wrong = make_group(world, true);
    struct comm comm;
    struct comms c;

    open_comms(&c, &comm_mpi, 1);
    comm_mpi_limit(&c.comm[0], 100);
    CHECK_EQ(refused(&c.comm[0], &call, 1), world > 1 ? FAIL_COMM : 0);
    call.coll = (struct coll){COLL_BROADCAST, DTYPE_U8, 1601, 0};
    if (world > 1)
        CHECK_EQ(refused(&c.comm[0], &call, 1), FAIL_COMM);
    call.coll = (struct coll){COLL_SEND, DTYPE_U8, 1, 0};
    CHECK_EQ(refused(&c.comm[1], &call, 1), FAIL_INTERNAL); /* a group of one */
    for (int i = 0; i <= MAX_CALLS; i++)
        many[i] = (struct comm_call){.coll = {COLL_BROADCAST, DTYPE_U8, 0, 0}};
    CHECK_EQ(refused(&c.comm[0], many, MAX_CALLS + 1), FAIL_INTERNAL);
    CHECK_EQ(refused(&c.comm[0], many, MAX_CALLS), 0);
    c.device.type->sync(&c.device);
    wrong.size++;
    CHECK_EQ(comm_open(&comm, &comm_mpi, &point, &c.device, 1, AXIS_EP, &wrong, 1), FAIL_COMM);
    CHECK_HAS(fail_message(), "ep has");
    CHECK(comm.type == NULL);
    comm_close(&comm); /* of a zeroed struct */
    fail_clear();
    close_comms(&c);
}

/* ---- planted faults ---- */

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
        call.coll = (struct coll){k % 2 ? COLL_ALL_REDUCE : COLL_BROADCAST, DTYPE_F32, 1 + k,
                                  k % 2 ? -1 : 0};
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
        struct comm_call send = {{COLL_SEND, DTYPE_F32, 8, 1}, buffer, NULL};
        struct comm_call recv = {{COLL_RECV, DTYPE_F32, fault == 1 ? 9 : 8, 0}, NULL, buffer};
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

/* ---- an error of MPI itself ends the job, in words: here on the progress thread ---- */

static atomic_int thread_death;

static void end_thread(int code)
{
    atomic_store(&thread_death, code);
    pthread_exit(NULL);
}

/* Whatever is printed to stderr while body() runs. */
static void capture_stderr(void (*body)(void), char *said, size_t size)
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    size_t n = 0;

    if (CHECK(file != NULL && saved >= 0)) {
        fflush(stderr);
        dup2(fileno(file), STDERR_FILENO);
        body();
        fflush(stderr);
        dup2(saved, STDERR_FILENO);
        close(saved);
        rewind(file);
        n = fread(said, 1, size - 1, file);
        fclose(file);
    }
    said[n] = '\0';
}

/* The device is left as it is: its thread is gone. */
static void broadcast_from_nobody(void)
{
    static struct comms c;
    static double value;
    int64_t deadline = units_now_ns() + INT64_C(20000000000);

    open_comms(&c, &comm_mpi, 1);
    die_handler(end_thread);
    comm_post(&c.comm[0],
              &(struct comm_call){{COLL_BROADCAST, DTYPE_F64, 1, world + 5}, &value, &value}, 1);
    while (atomic_load(&thread_death) == 0 && units_now_ns() < deadline)
        units_sleep_ns(1000000);
    die_handler(NULL);
}

static void test_mpi_error(void)
{
    char said[2048];

    if (world == 1)
        return;
    capture_stderr(broadcast_from_nobody, said, sizeof said);
    CHECK_EQ(atomic_load(&thread_death), FAIL_COMM);
    CHECK_HAS(said, "world broadcast of 1 fp64 failed on member");
    CHECK_HAS(said, "root"); /* MPI's own words: MPI_ERR_ROOT: invalid root */
}

int main(int argc, char **argv)
{
    int level, size = 1;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    CHECK(level >= MPI_THREAD_SERIALIZED);
    MPI_Comm_dup(MPI_COMM_WORLD, &point);
    MPI_Comm_size(point, &world);
    MPI_Comm_rank(point, &rank);
    while (2 * size < world && world % (2 * size) == 0)
        size *= 2;
    test_names();
    test_prove(false);
    test_prove(true);
    test_concurrent(size);
    test_chained(size);
    test_beyond_the_limit(size);
    test_refusals();
    test_order_is_compared();
    test_transfers_are_compared();
    test_planted_faults();
    test_mpi_error();
    int rc = sum_over_world(test_end());
    MPI_Comm_free(&point);
    MPI_Finalize();
    return rc != 0;
}
