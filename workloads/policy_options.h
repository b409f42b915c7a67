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
    {"recompute", 0, OPT_CHOICE, AT(recompute), "none", 0, 0, "none|selective|full|mlp", "",       \
     "what backward makes again instead of keeping it: attention, whole layers, or the MLP's "     \
     "activation"},                                                                                \
    {"recompute-every", 0, OPT_INT, AT(recompute_every), "1", 1, 4096, NULL, "LAYERS",             \
     "of so many layers the first is recomputed; 1: all"},                                         \
    {"pack", 0, OPT_BOOL, AT(pack), "on", 0, 0, NULL, "",                                         \
     "values that never live together share memory; nothing else of a step changes"},              \
    {"head-chunks", 0, OPT_INT, AT(head_chunks), "1", 1, 64, NULL, "",                              \
     "rows whose logits are there at once are cut into so many parts; with tp and pp 1"},          \
    {"bucket", 0, OPT_BYTES, AT(bucket), "25M", 4, OPT_NO_MAX, NULL, "",                           \
     "gradient bytes of one all-reduce"},                                                          \
    {"overlap", 0, OPT_TEXT, AT(overlap), "grad,param,tp,cp,ep,pp", 0, 0, NULL,                       \
     "grad,param,tp,cp,ep,pp|none",                                                                   \
     "communication that runs beside computation: of gradients, parameters, tp, cp, ep, pp"},         \
    {"cp-kind", 0, OPT_CHOICE, AT(cp_kind), "ring", 0, 0, "ring|allgather|ulysses", "",            \
     "with cp above 1: keys pass from rank to rank, are gathered, or heads are exchanged"},        \
    {"tp-chunks", 0, OPT_INT, AT(tp_chunks), "1", 1, 16, NULL, "",                                 \
     "chunks of rows into which a tensor-parallel product and its call are cut"},                  \
    {"sequence-parallel", 0, OPT_BOOL, AT(sequence_parallel), "on", 0, 0, NULL, "",                \
     "with tp above 1, norms and residuals are split by rows"},                                    \
    {"shard-stage", 0, OPT_INT, AT(shard_stage), "3", 1, 3, NULL, "",                              \
     "with shard above 1: 1 or 2 as ZeRO, 3 as FSDP"},                                             \
    {"fsdp-prefetch", 0, OPT_INT, AT(fsdp_prefetch), "1", 0, 64, NULL, "UNITS",                    \
     "layers whose sharded parameters are gathered ahead"},                                        \
    {"fsdp-reshard", 0, OPT_CHOICE, AT(fsdp_reshard), "auto", 0, 0, "auto|on|off", "",             \
     "let gathered parameters of a layer go after each use; auto: where pp is 1"},                 \
    {"routing", 0, OPT_TEXT, AT(routing), "balanced", 0, 0, NULL, "balanced|skewed:SIGMA|learned", \
     "how tokens come to experts: evenly, by a log-normal popularity, or by the router"},          \
    {"capacity", 0, OPT_TEXT, AT(capacity), "auto", 0, 0, NULL, "auto|none|F",                     \
     "tokens of a sequence that an expert takes, over its even share; none: all, with learned "      \
     "dropless; auto: 1.25 for learned"},                                                           \
    {"reduce", 0, OPT_CHOICE, AT(reduce), "auto", 0, 0, "auto|every|last", "",                     \
     "micro-batches in which gradients of shard stages 2 and 3 are reduced; auto: pp=1 every"},    \
    {"schedule", 0, OPT_CHOICE, AT(schedule), "1f1b", 0, 0, "gpipe|1f1b|interleaved|zb-h1", "",    \
     "with pp above 1: in which order the stages of the pipeline compute"},                        \
    {"virtual-stages", 0, OPT_INT, AT(virtual_stages), "1", 1, 1024, NULL, "",                     \
     "schedule interleaved: chunks of layers on each stage"}
/* clang-format on */

struct policy_choice {
    int dtype, grad_dtype; /* index of the choice */
    int recompute;
    int64_t recompute_every;
    bool pack;
    int64_t head_chunks, bucket;
    char overlap[64];
    int cp_kind;
    int64_t tp_chunks;
    bool sequence_parallel;
    int64_t shard_stage, fsdp_prefetch;
    int fsdp_reshard, reduce, schedule;
    int64_t virtual_stages;
    char routing[32], capacity[16];
};

/* Is `what` ("grad", "param", "tp", "cp", "ep", "pp") one of the words of --overlap? */
bool policy_overlaps(const char *overlap, const char *what);

/* The choices "auto", "on" (or "every"), "off" (or "last") as a choice of the policy. */
int policy_choice_of(int index);

/* Put the choice into a policy that has its defaults. FAIL_USAGE for an unknown word of --overlap,
 * --routing or --capacity. The seed of routing is the caller's to set. */
int policy_choose(struct policy *policy, const struct policy_choice *choice);

#endif
