#include "workloads/kernels/cpu_attention.h"
#include "workloads/kernels/kernels.h"

int64_t kernels_attention_workspace(const struct shape_attention *shape)
{
    return 2 * CPU_ATTENTION_BLOCK * cpu_attention_score_row(shape->sequence) *
           (int64_t)sizeof(float);
}
