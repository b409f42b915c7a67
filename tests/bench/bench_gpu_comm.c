/*
 * bench_gpu_comm: the collectives of a step, alone, against a bare loop of NCCL calls in the same
 * process: same sizes, same memory, each with a communicator of its own.
 *
 *     mpirun -np N bench_gpu_comm [MODEL [PARALLEL [ROUNDS]]]
 *
 * MODEL gpt2-1558m, PARALLEL as in scalestudy ("" is data parallel). For each kind and size: a round
 * is some calls back to back between two events; rounds alternate bare, ours, ours, bare. Rank 0
 * prints medians, the ratio (bare over ours: 1 is as fast), busbw as nccl-tests counts, and the ratio
 * weighted by the time that a step spends in each.
 */
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "collectives/comm.h"
#include "workloads/transformer.h"

enum { CALLS = 4, MOST_SIZES = 64, MOST_ROUNDS = 400 };

struct size {
    struct coll coll;
    int channel, times; /* in a step */
};

struct bench {
    int rank, ranks, rounds;
    struct plan plan;
    struct device device;
    struct comm comm[PLAN_CHANNELS];
    ncclComm_t bare;
    cudaEvent_t begin, end;
    unsigned char *memory;
    struct size size[MOST_SIZES];
    int n;
};

static void must(int wrong, const char *what)
{
    if (wrong == 0)
        return;
    fprintf(stderr, "bench_gpu_comm: %s failed (%d) %s\n", what, wrong, fail_message());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void make_plan(struct bench *b, const char *name, const char *parallel)
{
    struct model model;
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    must(model_load(&model, name), "model");
    policy_defaults(&policy, &model);
    policy.dtype = DTYPE_BF16;
    policy.micro_batch = model.micro_batch > 0 ? model.micro_batch : 1;
    must(layout_parse(parallel, &degrees), "layout");
    must(layout_init(&layout, 1, b->ranks, b->rank, &degrees), "layout");
    policy.global_batch = policy.micro_batch * layout.group[AXIS_DP].size;
    must(transformer_plan(&b->plan, &model, &layout, &policy), "plan");
}

static void count(struct bench *b, const struct op *op)
{
    const struct coll *c = &op->shape.coll.coll;
    for (int i = 0; i < b->n; i++)
        if (b->size[i].coll.kind == c->kind && b->size[i].coll.dtype == c->dtype &&
            b->size[i].coll.count == c->count) {
            b->size[i].times++;
            return;
        }
    if (b->n < MOST_SIZES)
        b->size[b->n++] = (struct size){*c, op->stream - 1, 1};
}

/* Of channels over all ranks, which alone the bare loop has a communicator for. */
static void list_sizes(struct bench *b)
{
    for (int i = 0; i < b->plan.n_ops; i++) {
        const struct op *op = &b->plan.ops[i];
        bool all =
            op->kind == OP_COLLECTIVE && b->plan.layout.group[op->shape.coll.axis].size == b->ranks;
        enum coll_kind kind = all ? op->shape.coll.coll.kind : COLL_SEND;
        if (kind == COLL_ALL_REDUCE || kind == COLL_ALL_GATHER || kind == COLL_REDUCE_SCATTER)
            count(b, op);
    }
}

static void open_bare(struct bench *b)
{
    ncclUniqueId id;
    if (b->rank == 0)
        must((int)ncclGetUniqueId(&id), "ncclGetUniqueId");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    must((int)ncclCommInitRank(&b->bare, b->ranks, id, b->rank), "ncclCommInitRank");
}

static void bench_open(struct bench *b)
{
    MPI_Comm world = MPI_COMM_WORLD;
    size_t most = 0;
    must(comm_nccl.prepare(NULL), "prepare");
    must(device_open(&b->device, &device_cuda, b->rank, 1 + b->plan.n_channels), "device");
    for (int i = 0; i < b->n; i++) {
        int64_t bytes = coll_bytes(&b->size[i].coll, b->ranks);
        most = (size_t)bytes > most ? (size_t)bytes : most;
    }
    void *memory = NULL;
    must(b->device.type->alloc(&b->device, DEVICE_COMMUNICATION, 2 * most, &memory), "memory");
    b->memory = memory;
    must(b->device.type->reserve(&b->device, 1, 4 * CALLS), "reserve");
    for (int i = 0; i < b->plan.n_channels; i++) {
        enum axis axis = b->plan.channel[i].axis;
        must(comm_open(&b->comm[i], &comm_nccl, &world, &b->device, 1 + i, axis,
                       &b->plan.layout.group[axis], 4 * CALLS),
             "communicator");
    }
    open_bare(b);
    must((int)cudaEventCreate(&b->begin), "event");
    must((int)cudaEventCreate(&b->end), "event");
}

/* ---- calls ---- */

static struct comm_call call_of(const struct bench *b, const struct coll *coll)
{
    size_t part = (size_t)coll->count * dtype_size((int)coll->dtype) * (size_t)b->rank;
    struct comm_call call = {.coll = *coll, .send = b->memory, .recv = b->memory};
    if (coll->kind == COLL_ALL_GATHER)
        call.send = b->memory + part;
    if (coll->kind == COLL_REDUCE_SCATTER)
        call.recv = b->memory + part;
    return call;
}

static void post_bare(const struct bench *b, const struct comm_call *call, cudaStream_t stream)
{
    static const ncclDataType_t types[] = {
        [DTYPE_F32] = ncclFloat32, [DTYPE_F64] = ncclFloat64, [DTYPE_BF16] = ncclBfloat16};
    ncclDataType_t type = types[call->coll.dtype];
    size_t n = (size_t)call->coll.count;
    ncclResult_t result;
    if (call->coll.kind == COLL_ALL_REDUCE)
        result = ncclAllReduce(call->send, call->recv, n, type, ncclSum, b->bare, stream);
    else if (call->coll.kind == COLL_ALL_GATHER)
        result = ncclAllGather(call->send, call->recv, n, type, b->bare, stream);
    else
        result = ncclReduceScatter(call->send, call->recv, n, type, ncclSum, b->bare, stream);
    must((int)result, "a bare call");
}

/* Microseconds of one call. */
static double run_round(struct bench *b, const struct size *size, bool bare)
{
    cudaStream_t stream = b->device.type->native(&b->device, 1 + size->channel);
    struct comm_call call = call_of(b, &size->coll);
    float ms = 0;
    for (int i = -1; i < CALLS; i++) {
        if (i == 0)
            must((int)cudaEventRecord(b->begin, stream), "event");
        if (bare)
            post_bare(b, &call, stream);
        else
            comm_post(&b->comm[size->channel], &call, 1);
    }
    must((int)cudaEventRecord(b->end, stream), "event");
    must((int)cudaEventSynchronize(b->end), "sync");
    must((int)cudaEventElapsedTime(&ms, b->begin, b->end), "elapsed");
    return (double)ms * 1e3 / CALLS;
}

static void bench_size(struct bench *b, const struct size *size, double total[2])
{
    static double us[2][MOST_ROUNDS];
    double n = b->ranks, bytes = (double)coll_bytes(&size->coll, b->ranks);
    double moved = (size->coll.kind == COLL_ALL_REDUCE ? 2 : 1) * (n - 1) / n * bytes;
    for (int round = -2; round < b->rounds; round += 2)
        for (int turn = 0; turn < 4; turn++) {
            bool bare = turn == 0 || turn == 3;
            double t = run_round(b, size, bare);
            if (round >= 0)
                us[bare][round + turn / 2] = t;
        }
    double ours = stats_median(us[0], b->rounds), bare = stats_median(us[1], b->rounds);
    total[0] += size->times * ours, total[1] += size->times * bare;
    if (b->rank == 0)
        printf("%-15s %-5s %10.3f MiB x %3d  bare %9.1f us  ours %9.1f us  ratio %.3f  busbw "
               "%6.1f GB/s\n",
               coll_name((int)size->coll.kind), dtype_name((int)size->coll.dtype), bytes / 1048576,
               size->times, bare, ours, bare / ours, moved / ours / 1e3);
}

int main(int argc, char **argv)
{
    static struct bench b;
    int provided;
    double total[2] = {0};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    b.rounds = argc > 3 ? atoi(argv[3]) / 2 * 2 : 20;
    if (b.rounds < 2 || b.rounds > MOST_ROUNDS)
        b.rounds = 20;
    make_plan(&b, argc > 1 ? argv[1] : "gpt2-1558m", argc > 2 ? argv[2] : "");
    list_sizes(&b);
    if (b.n == 0) {
        printf("no collective over all ranks in this plan\n");
    } else {
        bench_open(&b);
        for (int i = 0; i < b.n; i++)
            bench_size(&b, &b.size[i], total);
        if (b.rank == 0)
            printf("of a step: bare %.1f us, ours %.1f us, ratio %.3f\n", total[1], total[0],
                   total[1] / total[0]);
        ncclCommDestroy(b.bare);
        for (int i = 0; i < b.plan.n_channels; i++)
            comm_close(&b.comm[i]);
        device_close(&b.device);
    }
    plan_release(&b.plan);
    MPI_Finalize();
    return 0;
}
