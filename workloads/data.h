/*
 * data: data parallelism as trainers do it.
 *
 * Gradients lie in the arena in the order in which backward finishes them, so a bucket is a run of
 * the arena. During backward of the last micro-batch each finished tensor is reported; as soon as
 * the run that is not yet on its way reaches the bucket size (`bucket_bytes`; 1 MiB for the
 * first bucket), its all-reduce is posted on the stream of the dp axis, behind the op that
 * finished it. Without overlap the same calls are posted after backward. The sums of losses and of
 * valid tokens travel in a call of their own, early.
 *
 * Gradients are sums over tokens, not means: the update divides by the valid tokens of the whole
 * global batch, so no rank and no micro-batch ever averages.
 */
#ifndef WORKLOADS_DATA_H
#define WORKLOADS_DATA_H

#include "workloads/plan.h"

enum { DATA_FIRST_BUCKET = 1 << 20 };

struct data_parallel {
    struct plan *plan;
    int64_t bucket_bytes;
    bool overlap;
    int64_t sent, ready; /* bytes of the gradient arena posted, finished */
    int last_writer;     /* op that finished `ready` */
    int scalars;         /* op of the scalar all-reduce, -1 */
    int n_buckets;
    int *bucket;  /* [n_buckets] their ops; owned */
    int64_t *end; /* [n_buckets] where each ends, bytes */
};

void data_begin(struct data_parallel *data, struct plan *plan, int64_t bucket_bytes, bool overlap);
void data_release(struct data_parallel *data);

/* The scalars LOSS_SUM, VALID, TOKENS of this rank are complete after op `writer`. */
void data_reduce_scalars(struct data_parallel *data, int writer);

/* Gradient tensor `tensor` is complete after op `writer`; tensors are reported in arena order. */
void data_gradient_ready(struct data_parallel *data, int tensor, int writer);

/* Backward is over: post what is left. A group of one posts nothing and has no bucket. */
void data_end(struct data_parallel *data);

#endif
