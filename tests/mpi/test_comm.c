/* Every collective gives exact values on the groups of several axes, alone and beside others, in
 * pieces where it is large; what cannot be done is refused in words. */
#include "collectives/comm.h"

#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "collectives/comm_mpi.h"
#include "tests/mpi/comm_rig.h"

static void test_names(void)
{
    const struct comm_type *type;

    CHECK_EQ(comm_find("mpi", &type), 0);
    CHECK(type == &comm_mpi);
    CHECK_EQ(comm_find("auto", &type), 0);
    if (strcmp(comm_nccl_version(), "none") == 0) {
        CHECK_EQ(comm_find("nccl", &type), FAIL_ABSENT);
        CHECK_HAS(fail_message(), "\"nccl\" is not in this build");
        fail_clear();
    } else {
        CHECK_EQ(comm_find("nccl", &type), 0);
        CHECK_EQ(comm_find_for(&device_cpu, "nccl", &type), FAIL_USAGE);
        CHECK_HAS(fail_message(), "\"nccl\" does not move the memory of device \"cpu\"");
        fail_clear();
    }
    CHECK_EQ(comm_find_for(&device_cpu, "auto", &type), 0);
    CHECK(type == &comm_mpi);
    CHECK_EQ(comm_find("tcp", &type), FAIL_USAGE);
    CHECK_HAS(fail_message(), "no communicator is called \"tcp\"");
    fail_clear();
}

/* One fp64 call with its own buffers and inputs, to be posted now and verified after a sync. */
struct exchange {
    struct coll coll;
    int trial;
    int64_t parts[2][16]; /* of all-to-all-v: what goes, what comes */
    double *send, *recv;
};

/* Parts of one, two and three thirds of `count`. */
static struct coll uneven(struct exchange *x, int64_t count, const struct group *group)
{
    for (int i = 0; i < group->size; i++) {
        x->parts[0][i] = count * (1 + (group->me + 2 * i) % 3) / 3;
        x->parts[1][i] = count * (1 + (i + 2 * group->me) % 3) / 3;
    }
    return coll_all_to_all_v(DTYPE_F64, count * group->size, group->size, group->me, x->parts[0],
                             x->parts[1]);
}

static struct comm_call prepare(struct comm *comm, struct exchange *x, enum coll_kind kind,
                                int64_t count)
{
    static int trials;
    int n = comm->group.size;

    x->trial = trials++;
    x->coll = (struct coll){.kind = kind, .dtype = DTYPE_F64, .count = count, .peer = x->trial % n};
    if (kind == COLL_ALL_TO_ALL_V)
        x->coll = uneven(x, count, &comm->group);
    x->send = must_alloc((size_t)(count * n) + 1, sizeof(double));
    x->recv = must_alloc((size_t)(count * n) + 1, sizeof(double));
    for (int64_t i = 0; i < coll_send_count(&x->coll, n); i++)
        x->send[i] = coll_input(&x->coll, comm->group.me, i, x->trial);
    return (struct comm_call){x->coll, x->send, x->recv};
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

/* Three communicators in flight at once, many groups of calls each, nothing waited for until the
 * end. */
static void test_concurrent(int size)
{
    enum { ROUNDS = 12, EACH = 3 };
    static const int64_t counts[] = {3, 4000, 100000};
    struct exchange x[ROUNDS][AXES][EACH];
    struct comms c;

    open_comms(&c, &comm_mpi, size);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < AXES; i++) {
            struct comm_call calls[EACH];
            int n = 1 + round % EACH;
            for (int k = 0; k < n; k++)
                calls[k] = prepare(&c.comm[i], &x[round][i][k],
                                   (enum coll_kind)((round + i + k) % COLL_SEND),
                                   counts[(round + i + k) % 3]);
            comm_post(&c.comm[i], calls, n);
        }
    }
    c.device.type->sync(&c.device);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < AXES; i++)
            for (int k = 0; k < 1 + round % EACH; k++)
                verify(&c.comm[i], &x[round][i][k]);
    close_comms(&c);
}

/* A result of one axis is the input of the next, ordered by stamps alone; counters count. */
static void test_chained(int size)
{
    enum { REDUCED, DONE, COUNT = 1000 };
    struct comms c;
    double *sum = must_alloc(COUNT, sizeof *sum), *all, expected = 0;
    struct coll reduce = {.kind = COLL_ALL_REDUCE, .dtype = DTYPE_F64, .count = COUNT, .peer = -1},
                gather = {.kind = COLL_ALL_GATHER, .dtype = DTYPE_F64, .count = COUNT, .peer = -1};
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
            if (k % COLL_SEND == COLL_REDUCE_SCATTER || k % COLL_SEND == COLL_ALL_TO_ALL_V)
                continue; /* refused: below */
            struct comm_call call =
                prepare(&c.comm[i], &x, (enum coll_kind)(k % COLL_SEND), counts[k / COLL_SEND]);
            comm_post(&c.comm[i], &call, 1);
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
    fail_clear();
    return death;
}

static void test_refusals(void)
{
    struct comm_call call = {.coll = {.kind = COLL_REDUCE_SCATTER,
                                      .dtype = DTYPE_F32,
                                      .count = 101,
                                      .peer = -1}},
                     many[MAX_CALLS + 1];
    struct group wrong = make_group(world, true);
    struct comm comm;
    struct comms c;

    open_comms(&c, &comm_mpi, 1);
    comm_mpi_limit(&c.comm[0], 100);
    CHECK_EQ(refused(&c.comm[0], &call, 1), world > 1 ? FAIL_COMM : 0);
    call.coll = (struct coll){.kind = COLL_BROADCAST, .dtype = DTYPE_U8, .count = 1601};
    if (world > 1)
        CHECK_EQ(refused(&c.comm[0], &call, 1), FAIL_COMM);
    call.coll = (struct coll){.kind = COLL_SEND, .dtype = DTYPE_U8, .count = 1};
    CHECK_EQ(refused(&c.comm[1], &call, 1), FAIL_INTERNAL); /* a group of one */
    c.device.type->sync(&c.device);                         /* alone, nothing was refused */
    for (int i = 0; i <= MAX_CALLS; i++)
        many[i] = (struct comm_call){
            .coll = {.kind = COLL_BROADCAST, .dtype = DTYPE_U8, .count = 0, .peer = 0}};
    CHECK_EQ(refused(&c.comm[0], many, MAX_CALLS + 1), FAIL_INTERNAL);
    for (int twice = 0; twice < 2; twice++) { /* what has finished is not outstanding */
        CHECK_EQ(refused(&c.comm[0], many, MAX_CALLS), 0);
        c.device.type->sync(&c.device);
    }
    wrong.size++;
    CHECK_EQ(comm_open(&comm, &comm_mpi, &point, &c.device, 1, AXIS_EP, &wrong, 1), FAIL_COMM);
    CHECK_HAS(fail_message(), "ep has");
    CHECK(comm.type == NULL);
    comm_close(&comm); /* of a zeroed struct */
    fail_clear();
    close_comms(&c);
}

/* Before anything is posted, by arithmetic: counts beyond an int, for which there is no memory here. */
static void test_takes(void)
{
    static const struct {
        enum coll_kind kind;
        int64_t most; /* that MPI can count; of reduce-scatter a share */
    } cases[] = {{COLL_ALL_TO_ALL_V, INT_MAX},
                 {COLL_REDUCE_SCATTER, 0},
                 {COLL_ALL_REDUCE, (int64_t)COMM_MPI_PIECES * INT_MAX},
                 {COLL_SEND, (int64_t)COMM_MPI_PIECES * INT_MAX}};
    int64_t parts[64] = {0};
    struct comms c;

    open_comms(&c, &comm_mpi, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t most = cases[i].most > 0 ? cases[i].most : INT_MAX / world;
        struct coll coll = {.kind = cases[i].kind, .dtype = DTYPE_BF16, .count = most};
        CHECK_EQ(comm_mpi.takes(&c.comm[0], &coll), 0);
        coll.count++;
        CHECK_EQ(comm_mpi.takes(&c.comm[0], &coll), world > 1 ? FAIL_USAGE : 0);
        CHECK_EQ(strchr(fail_message(), '\n') == NULL, 1);
        fail_clear();
        CHECK_EQ(comm_mpi.takes(&c.comm[1], &coll), 0); /* alone: nothing moves */
    }
    struct coll shares = {.kind = COLL_ALL_GATHER, .count = INT64_C(5000000000)};
    CHECK_EQ(comm_mpi.takes(&c.comm[0], &shares), 0);
    comm_mpi_limit(&c.comm[0], 100);
    parts[0] = 60, parts[world - 1] += 41; /* each could go, and their places could not be said */
    struct comm_call call = {
        .coll = coll_all_to_all_v(DTYPE_U8, 50, world, c.comm[0].group.me, parts, parts)};
    if (world > 1)
        CHECK_EQ(refused(&c.comm[0], &call, 1), FAIL_COMM);
    close_comms(&c);
}

/* An error of MPI itself ends the job, in words: here on the progress thread. */
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
              &(struct comm_call){
                  {.kind = COLL_BROADCAST, .dtype = DTYPE_F64, .count = 1, .peer = world + 5},
                  &value,
                  &value},
              1);
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
    int size = rig_begin(&argc, &argv);

    test_names();
    test_concurrent(size);
    test_chained(size);
    test_beyond_the_limit(size);
    test_refusals();
    test_takes();
    test_mpi_error();
    return rig_end();
}
