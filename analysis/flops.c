#include "analysis/flops.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

double flops_gpt(const struct flops_gpt *shape, enum flops_recompute recompute)
{
    static const struct {
        double factor, attention, logits;
    } forms[] = {[RECOMPUTE_NONE] = {72.0, 6.0, 12.0},
                 [RECOMPUTE_SELECTIVE] = {72.0, 3.0, 12.0},
                 [RECOMPUTE_FULL] = {96.0, 6.0, 16.0}};
    double l = shape->layers, h = shape->hidden, v = shape->vocabulary, s = shape->sequence;
    if (!(l > 0.0) || !(h > 0.0) || !(v > 0.0) || !(s > 0.0) || !(shape->batch > 0.0))
        return NAN;
    return forms[recompute].factor * shape->batch * s * l * h * h *
           (1.0 + s / (forms[recompute].attention * h) + v / (forms[recompute].logits * l * h));
}

double flops_gpt_parameters(const struct flops_gpt *shape)
{
    double l = shape->layers, h = shape->hidden;
    if (!(l > 0.0) || !(h > 0.0) || !(shape->vocabulary > 0.0) || !(shape->sequence > 0.0))
        return NAN;
    return 12.0 * l * h * h *
           (1.0 + 13.0 / (12.0 * h) + (shape->vocabulary + shape->sequence) / (12.0 * l * h));
}

/* Whether `word` is in `text` as a word of its own, case apart: "A100" in "NVIDIA A100-SXM4". */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; *at != '\0'; at++)
        if (strncasecmp(at, word, n) == 0 && !isalnum((unsigned char)at[n]) &&
            (at == text || !isalnum((unsigned char)at[-1])))
            return true;
    return false;
}

double flops_peak(const char *device, const char *precision, const char **source)
{
    static const struct {
        const char *device, *precision;
        double tflops;
        const char *source;
    } peaks[] = {
        {"V100", "fp16", 125.0, "V100 data sheet, dense"},
        {"A100", "bf16", 312.0, "A100 data sheet, dense"},
        {"A100", "fp16", 312.0, "A100 data sheet, dense"},
        {"H100", "bf16", 989.0, "H100 SXM data sheet, dense"},
        {"H100", "fp16", 989.0, "H100 SXM data sheet, dense"},
        {"H100", "fp8", 1979.0, "H100 SXM data sheet, dense"},
        {"H200", "bf16", 989.0, "H200 data sheet, dense"},
        {"H200", "fp16", 989.0, "H200 data sheet, dense"},
        {"H200", "fp8", 1979.0, "H200 data sheet, dense"},
        {"v5e", "bf16", 197.0, "TPU v5e system page"},
    };
    *source = "";
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
        if (has_word(device, peaks[i].device) && strcasecmp(precision, peaks[i].precision) == 0) {
            *source = peaks[i].source;
            return peaks[i].tflops;
        }
    return NAN;
}
