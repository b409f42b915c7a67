/*
 * flops: FLOPs and parameters of a dense GPT, and vendors' peaks.
 *
 * Forward and backward of a transformer with an MLP of 4 hidden, full (not causal) attention and
 * logits, as the papers that publish tables count (Narayanan et al., SC21, equation 3; Korthikanti
 * et al., appendix A):
 *
 *     72 B s L h^2 (1 + s / (6 h) + V / (12 L h))          model FLOPs, no recompute
 *     72 B s L h^2 (1 + s / (3 h) + V / (12 L h))          attention core computed again
 *     96 B s L h^2 (1 + s / (6 h) + V / (16 L h))          all layers computed again
 *
 * MFU is the first over time, devices and peak; HFU one of the others. A peak is dense, and of one
 * precision: the 2:4-sparse figure of a data sheet is twice it.
 */
#ifndef ANALYSIS_FLOPS_H
#define ANALYSIS_FLOPS_H

enum flops_recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };

struct flops_gpt {
    double layers, hidden, vocabulary, sequence, batch; /* batch: sequences a step */
};

/* A step; NaN when a part of the shape is not known (not > 0). */
double flops_gpt(const struct flops_gpt *shape, enum flops_recompute recompute);

/* 12 L h^2 (1 + 13 / (12 h) + (V + s) / (12 L h)) */
double flops_gpt_parameters(const struct flops_gpt *shape);

/*
 * Dense peak of a device in TFLOP/s from its data sheet, NaN when it is not in the table; *source
 * says where it is from. `device` is what people write ("NVIDIA H100 80GB HBM3"), `precision` bf16,
 * fp16, fp8, in any case.
 */
double flops_peak(const char *device, const char *precision, const char **source);

#endif
