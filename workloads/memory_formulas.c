#include "workloads/memory_formulas.h"

double memory_formula_state(double parameters, int stage, int ranks, int gradient_bytes)
{
    double weight = stage >= 3 ? 2.0 / ranks : 2.0;
    double gradient = stage >= 2 ? (double)gradient_bytes / ranks : gradient_bytes;
    double optimizer = stage >= 1 ? 12.0 / ranks : 12.0;
    return parameters * (weight + gradient + optimizer);
}

double memory_formula_layer(const struct memory_formula *f)
{
    double each = f->sequence * f->micro_batch * f->hidden, t = f->tp;
    double scores = f->kept == MEMORY_KEEP_ALL ? 5.0 * f->heads * f->sequence / f->hidden / t : 0.0;
    double whole =
        f->sequence_parallel ? 10.0 / t : 10.0; /* what tensor parallelism leaves whole */
    if (f->kept == MEMORY_KEEP_INPUT)
        return each * 2.0 / (f->sequence_parallel ? t : 1.0);
    return each * (whole + 24.0 / t + scores);
}

double memory_formula_stage(const struct memory_formula *f)
{
    double more = 1.0 + (f->pp - 1.0) / ((double)f->pp * f->chunks);
    bool interleaved = f->pp > 1 && f->chunks > 1;
    return memory_formula_layer(f) * f->layers * (interleaved ? more : 1.0);
}
