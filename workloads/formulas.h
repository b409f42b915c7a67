/*
 * formulas: what a step of a whole point must amount to, in closed form.
 *
 * Arithmetic on model, degrees and policy that shares no code with the files that build plans: the
 * first of the three counts by which driver/proof shows that every layout does the same work. With
 * n ranks in a group, a call of S bytes makes each send (n-1)/n S at least, an all-reduce twice that.
 * R rows of a micro-batch, H hidden, L layers, A micro-batches, e bytes of an element, g of a
 * gradient on its way:
 *
 *   tp         A micro-batches: sequence parallel: 10 L + 4 gathers and scatters of R H e (of a
 *              layer 2 forward of either kind, 4 backward of gathers and 2 of scatters; embedding
 *              and head 2 each), 3 more of each recomputed layer; else 4 L + 2 all-reduces, 1 more;
 *              and one gather of 12 R tp, statistics of the loss. A step: gradients of norms and
 *              biases that each rank has from its own rows, of replicated k and v, and 4 sums of 8.
 *   dp         3 sums of 8; all-reduces of g P where no state is sharded, P the padded parameters
 *              of a rank
 *   dp-cp      the same over dp with cp where cp > 1, and then nothing on dp
 *   cp         A L times: (cp-1) of the keys and values that a rank holds, forward; twice that
 *              backward; once more for each layer or attention made again. Ulysses: (cp-1)/cp of qkv
 *              and of the output, forward and backward. With sharded state g P / shard as replicate
 *   shard      e P per gather, g P per scatter, P padded by unit (workloads/shard.h tells how
 *              often), and 1 sum of 8
 *   replicate  g P / shard
 *   pp         A times, down and up, R H e (/ tp under sequence parallel) over each of the p v - 1
 *              boundaries between parts, and 5 sums of 8
 *   embedding  4 times the elements of a tied table, between first and last stage
 *
 * With p stages a rank has the p-th part of all that belongs to layers, embeddings and head; the last
 * stage alone sums losses over dp; a tied table is on two stages. The head's input is gathered over tp
 * once more, and its resharded parameters too, since its backward does not follow its forward at once.
 *   ep, edp    formulas_expert.h. Sharded, experts that ep divides go over edp as the rest over shard: e P
 *              per gather, g P per scatter, and 1 sum of 8
 */
#ifndef WORKLOADS_FORMULAS_H
#define WORKLOADS_FORMULAS_H

#include "workloads/transformer.h"

/* Bytes that one rank sends at least in a step on an axis, the mean of the group. */
double formula_bytes(const struct model *model, const struct degrees *degrees,
                     const struct policy *policy, enum axis axis);

/* Elements of the master weights, and of each moment, that a rank keeps, padding included: the mean over
 * tp and the stages. Sharded: of each unit the shard-th part, of experts that ep divides that of edp. */
double formula_state(const struct model *model, const struct degrees *degrees);

/*
 * Operations of all ranks in a step: launches and calls. Below 0: no closed form (sharded state,
 * whose pieces depend on where tensors are cut).
 */
double formula_ops(const struct model *model, const struct degrees *degrees,
                   const struct policy *policy);

/* FLOPs of one sequence with what is recomputed, for HFU. */
double formula_hardware_flops(const struct model *model, const struct policy *policy);

/* Parameters that one rank computes with, padded rows included and experts left out; the mean over tp
 * is exact. */
double formula_parameters(const struct model *model, int tp);

#endif
