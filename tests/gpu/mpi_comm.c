/* Collectives of "nccl" on GPUs: every kind in every type gives exact values on the groups of several
 * axes, alone and beside others; the order of calls is compared; NCCL says what it chose. */
#include "collectives/comm.h"

#include <stdlib.h>

#include "base/err.h"
#include "collectives/comm_check.h"
#include "tests/mpi/comm_rig.h"

static struct device device;
static struct comm comms[AXES];

static int open_all(int size)
{
    static const enum axis axis[AXES] = {AXIS_WORLD, AXIS_TP, AXIS_DP};
    struct group group[AXES] = {make_group(world, true), make_group(size, true),
                                make_group(world / size, false)};
    int rc = 0;
    for (int i = 0; i < AXES; i++)
        TRY(comm_open(&comms[i], &comm_nccl, &point, &device, 1 + i, axis[i], &group[i],
                      MAX_CALLS));
out:
    return rc;
}

static void prove_each(void)
{
    for (int i = 0; i < AXES; i++) {
        int64_t wrong = -1;
        int rc = comm_prove(&comms[i], 1 << 20, &wrong);
        CHECK_EQ(rc, 0);
        CHECK_EQ(wrong, 0);
        if (rc != 0)
            printf("%s\n", fail_message());
        fail_clear();
        CHECK_EQ(comms[i].posted_calls, 0);
    }
}

/* ---- groups of calls on three communicators at once, nothing waited for until the end ---- */

enum { ROUNDS = 20, EACH = 3, COUNT = 100003 };

struct exchange {
    struct coll coll;
    int trial;
    float *send, *recv; /* device memory */
};

static void make_exchange(struct exchange *x, const struct comm *comm, enum coll_kind kind,
                          int trial)
{
    int n = comm->group.size;
    size_t bytes = (size_t)COUNT * (size_t)n * sizeof(float);
    float *host = must_alloc((size_t)COUNT * (size_t)n, sizeof *host);
    void *memory = NULL;
    *x = (struct exchange){.coll = {kind, DTYPE_F32, COUNT, trial % n}, .trial = trial};
    CHECK_EQ(device.type->alloc(&device, DEVICE_COMMUNICATION, bytes, &memory), 0);
    x->send = memory;
    CHECK_EQ(device.type->alloc(&device, DEVICE_COMMUNICATION, bytes, &memory), 0);
    x->recv = memory;
    for (int64_t i = 0; i < coll_send_count(&x->coll, n); i++)
        host[i] = (float)coll_input(&x->coll, comm->group.me, i, trial);
    device.type->upload(&device, 0, x->send, host, bytes);
    device.type->sync(&device);
    free(host);
}

static int64_t count_wrong(struct exchange *x, const struct comm *comm)
{
    int n = comm->group.size;
    size_t bytes = (size_t)COUNT * (size_t)n * sizeof(float);
    float *host = must_alloc((size_t)COUNT * (size_t)n, sizeof *host);
    int64_t wrong = 0, count = coll_recv_count(&x->coll, n);
    device.type->download(&device, 0, host, x->recv, bytes);
    device.type->sync(&device);
    if (x->coll.kind == COLL_REDUCE && comm->group.me != x->coll.peer)
        count = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += (double)host[i] != coll_expected(&x->coll, n, comm->group.me, i, x->trial);
    device.type->free(&device, DEVICE_COMMUNICATION, x->send, bytes);
    device.type->free(&device, DEVICE_COMMUNICATION, x->recv, bytes);
    free(host);
    return wrong;
}

static void concurrent(void)
{
    static const enum coll_kind kinds[EACH] = {COLL_ALL_REDUCE, COLL_ALL_TO_ALL,
                                               COLL_REDUCE_SCATTER};
    static struct exchange x[AXES][EACH];
    int64_t waits;
    for (int c = 0; c < AXES; c++)
        for (int i = 0; i < EACH; i++)
            make_exchange(&x[c][i], &comms[c], kinds[i], c * EACH + i);
    waits = device.host_waits;
    for (int round = 0; round < ROUNDS; round++)
        for (int c = 0; c < AXES; c++) {
            struct comm_call calls[EACH];
            for (int i = 0; i < EACH; i++)
                calls[i] = (struct comm_call){x[c][i].coll, x[c][i].send, x[c][i].recv};
            comm_post(&comms[c], calls, EACH);
        }
    CHECK_EQ(device.host_waits, waits);
    while (!device.type->idle(&device))
        for (int c = 0; c < AXES; c++)
            CHECK_EQ(comms[c].type->alive(&comms[c]), 0);
    device.type->sync(&device);
    for (int c = 0; c < AXES; c++) {
        CHECK_EQ(comms[c].posted_calls, ROUNDS * EACH);
        for (int i = 0; i < EACH; i++)
            CHECK_EQ(count_wrong(&x[c][i], &comms[c]), 0);
    }
}

/* ---- what NCCL says, and the order of calls ---- */

static void told(void)
{
    struct exchange x;
    char text[2048] = "";
    make_exchange(&x, &comms[0], COLL_ALL_REDUCE, 0);
    comms[0].type->watch(&comms[0], true);
    comm_post(&comms[0], &(struct comm_call){x.coll, x.send, x.recv}, 1);
    device.type->sync(&device);
    comms[0].type->watch(&comms[0], false);
    comm_post(&comms[0], &(struct comm_call){x.coll, x.send, x.recv}, 1);
    device.type->sync(&device);
    comms[0].type->describe(&comms[0], text, sizeof text);
    if (rank == 0)
        printf("NCCL %s: %s\n", comm_nccl_version(), text);
    if (world > 1) {
        CHECK_HAS(text, "AllReduce");
        CHECK_HAS(text, "channels");
        CHECK_HAS(text, "1 calls"); /* those that were watched */
    } else {
        CHECK_EQ(text[0], '\0');
    }
    CHECK_EQ(count_wrong(&x, &comms[0]), 0);
}

static void wrapped(void)
{
    int64_t wrong = -1;
    CHECK_EQ(comm_check_wrap(&comms[0], &point), 0);
    CHECK_EQ(comm_prove(&comms[0], 1 << 12, &wrong), 0);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(comms[0].type->check(&comms[0]), 0);
}

int main(int argc, char **argv)
{
    int size = rig_begin(&argc, &argv), gpus = 0;
    if (device_cuda.probe(NULL, 0, &gpus) != 0 || gpus < world) {
        if (rank == 0)
            printf("skipped: %d GPUs for %d ranks\n", gpus, world);
        MPI_Finalize();
        return 77;
    }
    CHECK_EQ(comm_nccl.prepare(NULL), 0);
    CHECK_EQ(device_open(&device, &device_cuda, rank % gpus, 1 + AXES), 0);
    CHECK_EQ(device.type->reserve(&device, 64, 0), 0);
    if (CHECK_EQ(open_all(size), 0)) {
        prove_each();
        concurrent();
        told();
        wrapped();
    } else {
        printf("%s\n", fail_message());
    }
    for (int i = 0; i < AXES; i++)
        comm_close(&comms[i]);
    device_close(&device);
    return rig_end();
}
