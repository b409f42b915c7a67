/*
 * cuda_gemm: matrix products by cuBLASLt, what the files of it share. Nobody else includes it.
 *
 * A product may have a partner (fuse.h): an op that reads what it made, or reads its A too, and
 * that cuBLASLt can do in the epilogue. Each product of the plan has a key; for each key there are
 * ways:
 *
 *   plain  C = op(A) op(B); a bias is put into C before by a kernel of ours, and added to
 *   bias   the bias in the epilogue
 *   fused  the partner in the epilogue, the bias too; sums of a bias gradient go to scratch behind
 *          the workspace and from there into their accumulators
 *
 * Without a search the way is bias where the heuristic has an algorithm for it, else plain, and the
 * algorithm is the heuristic's first. A search (cuda_gemm_search) times the heuristic's candidates of
 * each way, and the best of them in other shapes of clusters, each alone; then the fastest in turn
 * (cuda_race.h); then the best of each way in turn with the kernels that they need beside them, and
 * takes the fastest. The search is set-up: it runs in cuda_gemm_search alone, never in a step.
 */
#ifndef WORKLOADS_KERNELS_CUDA_GEMM_H
#define WORKLOADS_KERNELS_CUDA_GEMM_H

#include "workloads/fuse.h"
#include "workloads/kernels/cuda.h"

enum { GEMM_WORKSPACE = 32 << 20 };

enum gemm_way { WAY_PLAIN, WAY_BIAS, WAY_FUSED, GEMM_WAYS };

/* What a choice of algorithm depends on. Compared as bytes: made by gemm_key alone. */
struct gemm_key {
    int64_t m, n, k;
    int dtype, tf32, trans_a, trans_b, wide, beta, bias;
    int partner;      /* enum fuse_partner */
    int alignment[4]; /* of A, B, C, and what an epilogue reads or writes beside them */
    int fuse_all;
    int multiprocessors; /* that it may take; 0: all */
};

/* An algorithm as the library has it, and what is said of it. */
struct gemm_algorithm {
    uint64_t opaque[8];
    int64_t workspace;
    int id, tile, stages, splits, reduction, cluster;
    float us; /* alone; 0: not measured */
};

/* Plain bytes: ranks of one job hand them to each other. */
struct gemm_choice {
    struct gemm_key key;
    int way;
    int candidates; /* that were timed; 0: none, the heuristic's first was taken */
    struct gemm_algorithm algorithm;
    float way_us
        [GEMM_WAYS]; /* the best of each way, with what it needs beside it; 0: there is none */
    float first_us;  /* the heuristic's first of the way taken, alone */
};

struct gemm {
    struct gemm_choice choice;
    void *product, *a, *b, *c; /* of cuBLASLt: the descriptor, the layouts */
};

struct cuda_gemms {
    void *handle;
    int n;
    struct gemm *gemm; /* [n], one per key of the plan */
    int *of;           /* [n_ops of the plan] index of the gemm, -1 */
    bool searched;
    double search_s; /* time that the search took on this rank */
};

struct gemm_key gemm_key(const struct op *op, const struct op *partner,
                         const struct kernel_context *context);

/* ---- cuda_gemm_make.c ---- */

int gemm_make(struct gemm *g);
void gemm_release(struct gemm *g);

/* Which epilogue the descriptor has. The pointers matter to cuBLASLt by their alignment. */
int gemm_set_way(struct gemm *g, enum gemm_way way, const void *bias, const void *aux);

/* The heuristic's algorithms for the descriptor as it stands, best first; *n: how many, maybe 0. */
int gemm_candidates(const struct cuda_gemms *gemms, const struct gemm *g, bool deterministic,
                    struct gemm_algorithm *out, int most, int *n);

/* The algorithm `like` in the shapes of clusters that it does not have, where the library takes them:
 * *n of them, maybe 0. */
void gemm_neighbours(const struct cuda_gemms *gemms, const struct gemm *g,
                     const struct gemm_algorithm *like, struct gemm_algorithm *out, int most,
                     int *n);

/* Launch the product in its way, and what the way needs beside it but for a partner that runs by
 * itself. 0, or the cublasStatus_t with which the library refused. */
int gemm_run(struct gemm *g, const struct op *op, const struct op *partner,
             struct kernel_context *context, void *native);

/* ---- cuda_gemm_search.c ---- */

/* Search for those products of the set that are wanted: [gemms->n]. One that could not be timed keeps
 * what it has. */
void gemm_search(struct kernel_context *context, const bool *wanted);

#endif
