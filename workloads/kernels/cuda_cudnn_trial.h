/*
 * cuda_cudnn_trial: the tensors of one attention shape, full of normals, for plans that are tried on
 * them; and their results, a sample of which is compared. Tensors lie as those of a step do: q, k and v
 * in one matrix, or keys apart where a sequence is cut. Memory and stream are borrowed. Read by
 * cuda_cudnn*.c alone.
 */
#ifndef WORKLOADS_KERNELS_CUDA_CUDNN_TRIAL_H
#define WORKLOADS_KERNELS_CUDA_CUDNN_TRIAL_H

#include "workloads/kernels/cuda.h"
#include "workloads/kernels/cuda_cudnn_attention.h"

enum { TRIAL_UIDS = 13, TRIAL_OUTS = 3, TRIAL_SAMPLE = 4096 };

struct trial_out {
    int64_t place, bytes,
        middle; /* in memory; of the whole; of the row that sees half of the keys */
    bool added; /* to what is there */
};

struct attention_trial {
    struct attention_entry *entry;
    struct cudnnContext *handle;
    void *stream;
    unsigned char *memory;
    int multiprocessors;
    int n_uids, n_out;
    int64_t uid[TRIAL_UIDS];
    void *at[TRIAL_UIDS];
    struct trial_out out[TRIAL_OUTS];
    int64_t sum, workspace; /* places: what lies before is tensors */
    int64_t dense;          /* place of cuDNN's dq where that is added to another; 0: it is not */
    struct op op;           /* the same for a kernel of this project: offsets are places */
};

/* One way to run it. */
struct trial_way {
    const struct cudnn_plan *plan; /* NULL: a kernel of this project */
    void *pack;                    /* of the plan */
    bool ordered;
};

/* Bytes of an accumulator of dq. */
int64_t trial_sum_bytes(const struct shape_attention *shape);

/* Where everything lies in trial->memory (NULL: only how much it is, in bytes). */
int64_t trial_lay_out(struct attention_trial *trial, int64_t workspace_bytes);

/* What a plan takes, the accumulator where it has one; NULL: cuDNN does not take it. */
void *trial_pack(struct attention_trial *trial, bool ordered);

/* Launch; false: refused. */
bool trial_run(const struct attention_trial *trial, const struct trial_way *way);

/* Results of one run, bf16, sample[TRIAL_OUTS * TRIAL_SAMPLE]: what a plan does not write is NaN. */
bool trial_sample(const struct attention_trial *trial, const struct trial_way *way,
                  uint16_t *sample);

/* The same but for roundings. lse, fp32, is not among them: of it speak the tests of kernels. */
bool trial_same(const struct attention_trial *trial, const uint16_t *a, const uint16_t *b);

#endif
