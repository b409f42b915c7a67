/*
 * Layouts in one job, with real communication: of all layouts and policies of this number of ranks
 * as many as it takes for every pair of choices to occur together, through the gate one after
 * another. That is at least 60 at 2 and 4 ranks. What remains is run in lockstep (unit tests).
 */
#include "tests/test.h"

#include <mpi.h>
#include <stdlib.h>

#include "base/err.h"
#include "driver/agree.h"
#include "driver/gate.h"
#include "tests/layout_space.h"

static int rank, size;
static MPI_Comm world;
static struct gate_reference reference;
static struct backend backend;
static double worst;

enum { FACTORS = 18, VALUES = 8, MOST = 400 };

/* The choices of a point as small numbers. */
static void factors_of(const struct space_point *point, int *f)
{
    const struct policy *p = &point->policy;
    const struct degrees *d = &point->degrees;
    bool shards = d->shard > 1, splits = d->tp > 1;
    const int all[FACTORS] = {
        d->tp % VALUES,
        d->shard % VALUES,
        shards ? p->shard_stage : 0,
        shards ? 1 + p->reduce_every : 0,
        shards ? 1 + p->fsdp_reshard : 0,
        shards ? 1 + p->fsdp_prefetch : 0,
        splits ? 1 + p->sequence_parallel : 0,
        splits ? 1 + p->overlap_tensor : 0,
        p->tp_chunks,
        p->overlap_gradients,
        (int)p->recompute,
        p->micro_batch > 4,
        point->nodes,
        d->cp % VALUES,
        d->cp > 1 ? 1 + (int)p->cp_kind : 0,
        d->cp > 1 ? 1 + p->overlap_context : 0,
        d->pp % VALUES,
        d->pp > 1 ? 1 + (int)p->schedule : 0,
    };
    memcpy(f, all, sizeof all);
}

struct cover {
    bool pair[FACTORS][FACTORS][VALUES][VALUES];
    struct space_point *point; /* [MOST] */
    int n, target, skip;
};

/* New pairs of choices that a point brings; they count as seen when `keep`. */
static int new_pairs(struct cover *cover, const int *f, bool keep)
{
    int n = 0;
    for (int a = 0; a < FACTORS; a++)
        for (int b = a + 1; b < FACTORS; b++) {
            bool *seen = &cover->pair[a][b][f[a]][f[b]];
            n += !*seen;
            *seen = *seen || keep;
        }
    return n;
}

static void choose(void *arg, const struct space_point *point)
{
    struct cover *cover = arg;
    int f[FACTORS];
    factors_of(point, f);
    if (new_pairs(cover, f, false) < cover->target || cover->n == MOST)
        return;
    new_pairs(cover, f, true);
    cover->point[cover->n++] = *point;
}

static struct policy base_policy(void)
{
    struct policy policy;
    policy_defaults(&policy, &reference.model);
    policy.global_batch = reference.batch;
    policy.bucket_bytes = 16384;
    return policy;
}

/* Points with many new pairs first, then fewer, at last those with any: short of the fewest. */
static void cover_pairs(struct cover *cover)
{
    static const int targets[] = {24, 12, 6, 3, 1};
    cover->point = must_alloc(MOST, sizeof *cover->point);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct space space = {.ranks = size,
                              .model = &reference.model,
                              .base = base_policy(),
                              .micro_batches = 2,
                              .visit = choose,
                              .arg = cover};
        cover->target = targets[i];
        space_walk(&space);
    }
}

/* More of the space, at even distances, where pairs are few. */
static void add_more(void *arg, const struct space_point *point)
{
    struct cover *cover = arg;
    if (cover->skip++ % 5 == 0 && cover->n < cover->target)
        cover->point[cover->n++] = *point;
}

static void fill_up(struct cover *cover, int fewest)
{
    struct space space = {.ranks = size,
                          .model = &reference.model,
                          .base = base_policy(),
                          .micro_batches = 2,
                          .visit = add_more,
                          .arg = cover};
    cover->target = fewest;
    space_walk(&space);
}

static void run_point(const struct space_point *point)
{
    static const struct execute_fault none = {.drop_op = -1};
    struct record_point rows;
    struct layout layout;
    char why[512] = "";
    memset(&rows, 0, sizeof rows);
    struct policy policy = point->policy;
    policy.copy_stream = false; /* the cpu device has none */
    bool accumulate = policy.micro_batch * point->degrees.dp < reference.batch;
    CHECK_EQ(layout_init(&layout, point->nodes, point->ranks_per_node, rank, &point->degrees), 0);
    if (!CHECK_EQ(
            gate_point(&reference, &layout, &policy, accumulate, &backend, &world, none, &rows), 0))
        printf("rank %d: %s\n", rank, fail_message());
    if (rank == 0) {
        char text[64];
        layout_text(&layout, text, sizeof text);
        CHECK(rows.gate.n > 0);
        if (!CHECK_EQ(gate_verdict(&rows, why, sizeof why), 0))
            printf("%s stage %d: %s\n", text, policy.shard_stage, why);
        for (int64_t i = 0; i < rows.gate.n; i++)
            worst = fmax(worst, gate_severity(&rows.gate.rows[i]));
    }
    record_point_release(&rows);
}

static void make_reference(void)
{
    struct model model;
    CHECK_EQ(model_load(&model, size % 2 == 0 ? "tiny" : "tiny-llama"), 0);
    model.sequence = 16;
    model.vocabulary = 60;
    model.pad = 64;
    CHECK_EQ(gate_reference_make(&reference, &model, size % 2 == 0 ? size : 1, 4 * size, 1,
                                 GATE_FP32, rank, &world),
             0);
}

int main(int argc, char **argv)
{
    int provided;
    static struct cover cover;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    backend = (struct backend){
        .device = &device_cpu, .comm = &comm_mpi, .kernels = &kernels_cpu, .local_rank = rank};
    kernels_blas_threads(1);
    make_reference();
    cover_pairs(&cover);
    bool even = size % 2 == 0;
    if (even)
        fill_up(&cover, 60);
    CHECK(cover.n >= (even ? 60 : 1) && cover.n < MOST);
    int stride = size > 4 ? 5 : 1; /* many ranks share few cores */
    for (int i = 0; i < cover.n; i += stride)
        run_point(&cover.point[i]);
    if (rank == 0)
        printf(
            "%d ranks: %d layouts and policies cover all pairs, every %d. was run; worst %.2g of "
            "what is allowed\n",
            size, cover.n, stride, worst);
    free(cover.point);
    gate_reference_release(&reference);
    long failed = test_failed;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_LONG, MPI_MAX, world);
    MPI_Comm_free(&world);
    MPI_Finalize();
    int rc = rank == 0 || test_failed ? test_end() : 0;
    return rc || failed;
}
