/*
 * memory_formulas: what the literature says a rank holds, in closed form, in one place.
 *
 * They share no code with the planner and are what it is held against. P parameters of a rank, d
 * ranks that share state, s sequence, b micro-batch, h hidden, a heads, t tensor-parallel degree.
 *
 *   state        bytes a parameter: 2 (bf16 weight) + g (gradient, 2 or 4) + 12 (fp32 master and two
 *                moments). ZeRO (Rajbhandari et al., SC20): stage 1 divides the 12 by d, 2 also g, 3
 *                also the 2. Megatron-LM and DeepSpeed's ZeRO-3 page count g = 4: 18 bytes.
 *   activations  of a layer of GPT-2 style in 2-byte elements with dropout (Korthikanti et al.,
 *                MLSys 2023, equations 1 to 4): s b h (34 + 5 a s/h) without tensor parallelism;
 *                s b h (10 + 24/t + 5 a s/(h t)) with it; s b h/t (34 + 5 a s/h) with sequence
 *                parallelism; the last term is gone with selective recompute, as with attention
 *                that never writes its scores; 2 s b h where layers are recomputed whole, 2 s b h/t
 *                with sequence parallelism.
 *   pipeline     the first of p stages holds p micro-batches of L/p layers; v chunks a stage take
 *                1 + (p-1)/(p v) times that.
 *
 * The plans here have no dropout (two masks of one byte: 34 is 32) and never write scores.
 */
#ifndef WORKLOADS_MEMORY_FORMULAS_H
#define WORKLOADS_MEMORY_FORMULAS_H

#include <stdbool.h>

/* Bytes of training state; stage 0: nothing is shared. */
double memory_formula_state(double parameters, int stage, int ranks, int gradient_bytes);

enum memory_kept { MEMORY_KEEP_ALL, MEMORY_KEEP_NO_SCORES, MEMORY_KEEP_INPUT };
struct memory_formula {
    double sequence, micro_batch, hidden, heads, layers;
    int tp, pp, chunks; /* chunks: of a stage, 1 without interleaving */
    bool sequence_parallel;
    enum memory_kept kept;
};

/* Bytes of one layer, one micro-batch; of the first stage at its peak. */
double memory_formula_layer(const struct memory_formula *f);
double memory_formula_stage(const struct memory_formula *f);

#endif
