#include "workloads/kernels/cpu_attention.h"
#include "workloads/kernels/kernels.h"

int64_t kernels_attention_workspace(const struct shape_attention *shape)
{
    int64_t keys = shape->kv_rows > 0 ? shape->kv_rows : shape->sequence;
    return 2 * CPU_ATTENTION_BLOCK * cpu_attention_score_row(keys) * (int64_t)sizeof(float);
}
