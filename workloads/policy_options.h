/*
 * policy_options: the options that choose a policy, said once for every program that has them.
 *
 * POLICY_OPTIONS(AT) are rows of a table of base/opt; AT(field) gives offset and size of the field of
 * that name in the struct that the table describes: a struct policy_choice, or a struct with the
 * same fields.
 */
#ifndef WORKLOADS_POLICY_OPTIONS_H
#define WORKLOADS_POLICY_OPTIONS_H

#include "base/opt.h"
#include "workloads/transformer.h"

/* clang-format off */
#define POLICY_OPTIONS(AT)                                                                         \
    {"dtype", 'd', OPT_CHOICE, AT(dtype), "fp32", 0, 0, "fp32|tf32|bf16", "",                      \
     "of parameters and activations; tf32: fp32 with products in tf32"},                           \
    {"grad-dtype", 0, OPT_CHOICE, AT(grad_dtype), "fp32", 0, 0, "fp32|bf16", "",                   \
     "of gradients on their way between replicas"},                                                \
    {"recompute", 0, OPT_CHOICE, AT(recompute), "none", 0, 0, "none|selective|full", "",           \
     "what backward makes again instead of keeping it: attention, or whole layers"},               \
    {"recompute-every", 0, OPT_INT, AT(recompute_every), "1", 1, 4096, NULL, "LAYERS",             \
     "of so many layers the first is recomputed; 1: all"},                                         \
    {"bucket", 0, OPT_BYTES, AT(bucket), "25M", 4, OPT_NO_MAX, NULL, "",                           \
     "gradient bytes of one all-reduce"},                                                          \
    {"overlap", 0, OPT_TEXT, AT(overlap), "grad,param,tp", 0, 0, NULL, "grad,param,tp|none",       \
     "communication that runs beside computation: of gradients, parameters, tensor parallel"},     \
    {"tp-chunks", 0, OPT_INT, AT(tp_chunks), "1", 1, 16, NULL, "",                                 \
     "chunks of rows into which a tensor-parallel product and its call are cut"},                  \
    {"sequence-parallel", 0, OPT_BOOL, AT(sequence_parallel), "on", 0, 0, NULL, "",                \
     "with tp above 1, norms and residuals are split by rows"},                                    \
    {"shard-stage", 0, OPT_INT, AT(shard_stage), "3", 1, 3, NULL, "",                              \
     "with shard above 1: 1 or 2 as ZeRO, 3 as FSDP"},                                             \
    {"fsdp-prefetch", 0, OPT_INT, AT(fsdp_prefetch), "1", 0, 64, NULL, "UNITS",                    \
     "layers whose sharded parameters are gathered ahead"},                                        \
    {"fsdp-reshard", 0, OPT_BOOL, AT(fsdp_reshard), "on", 0, 0, NULL, "",                          \
     "let gathered parameters of a layer go after its forward"},                                   \
    {"reduce", 0, OPT_CHOICE, AT(reduce), "every", 0, 0, "every|last", "",                         \
     "micro-batches in which gradients of shard stages 2 and 3 are reduced"}
/* clang-format on */

struct policy_choice {
    int dtype, grad_dtype; /* index of the choice */
    int recompute;
    int64_t recompute_every, bucket;
    char overlap[64];
    int64_t tp_chunks;
    bool sequence_parallel;
    int64_t shard_stage, fsdp_prefetch;
    bool fsdp_reshard;
    int reduce;
};

/* Is `what` ("grad", "param", "tp") one of the words of --overlap? */
bool policy_overlaps(const char *overlap, const char *what);

/* Put the choice into a policy that has its defaults. FAIL_USAGE for an unknown word of --overlap. */
int policy_choose(struct policy *policy, const struct policy_choice *choice);

#endif
