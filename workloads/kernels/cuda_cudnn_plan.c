/* Execution plans, what a run passes to them, and the run. */
#include "workloads/kernels/cuda_cudnn.h"

#include <cudnn.h>
#include <string.h>

int cudnn_plan_make(const struct cudnn_graph *graph, const struct cudnn_config *config,
                    struct cudnn_plan *plan)
{
    int64_t n = 0;
    memset(plan, 0, sizeof *plan);
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                          CUDNN_TYPE_HANDLE, 1, &graph->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config->config);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(plan->plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &n, &plan->workspace_bytes);
    plan->engine = config->engine;
    if (status != CUDNN_STATUS_SUCCESS)
        cudnn_plan_release(plan);
    return (int)status;
}

void cudnn_plan_release(struct cudnn_plan *plan)
{
    if (plan->plan != NULL)
        cudnnBackendDestroyDescriptor(plan->plan);
    memset(plan, 0, sizeof *plan);
}

int cudnn_pack_make(void **pack, int n, const int64_t *uids, void *const *pointers, void *workspace)
{
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, n, uids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, n, pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(*pack);
    if (status != CUDNN_STATUS_SUCCESS) {
        cudnn_pack_release(*pack);
        *pack = NULL;
    }
    return (int)status;
}

void cudnn_pack_release(void *pack)
{
    if (pack != NULL)
        cudnnBackendDestroyDescriptor(pack);
}

int cudnn_plan_run(const struct cudnn_plan *plan, cudnnHandle_t handle, void *pack)
{
    return (int)cudnnBackendExecute(handle, plan->plan, pack);
}
