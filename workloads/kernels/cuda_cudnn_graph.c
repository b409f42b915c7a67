#include "workloads/kernels/cuda_cudnn.h"

#include <cudnn.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

enum { ALIGNMENT = 16, FIRST_OWN_UID = 1000 };

/* ---- descriptors ---- */

static void note(struct cudnn_graph *graph, cudnnStatus_t status, const char *what)
{
    char detail[GRAPH_WHY / 2] = "";
    if (status == CUDNN_STATUS_SUCCESS || graph->status != 0)
        return;
    graph->status = (int)status;
    cudnnGetLastErrorString(detail, sizeof detail);
    for (char *c = detail; *c; c++)
        if (*c == '\n')
            *c = ' ';
    snprintf(graph->why, sizeof graph->why, "%s: %s%s%s", what, cudnnGetErrorString(status),
             detail[0] ? ", " : "", detail);
}

void cudnn_graph_begin(struct cudnn_graph *graph, cudnnHandle_t handle)
{
    memset(graph, 0, sizeof *graph);
    graph->handle = handle;
    graph->next_uid = FIRST_OWN_UID;
}

void cudnn_graph_end(struct cudnn_graph *graph)
{
    for (int i = graph->n_descriptors - 1; i >= 0; i--)
        cudnnBackendDestroyDescriptor(graph->descriptor[i]);
    graph->n_descriptors = 0;
}

static cudnnBackendDescriptor_t make(struct cudnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (graph->n_descriptors == GRAPH_DESCRIPTORS)
        BUG("a cuDNN graph of more than %d descriptors", GRAPH_DESCRIPTORS);
    if (graph->status == 0)
        note(graph, cudnnBackendCreateDescriptor(type, &made), "descriptor");
    if (made != NULL)
        graph->descriptor[graph->n_descriptors++] = made;
    return made;
}

static void set(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *value)
{
    char what[32];
    if (graph->status != 0)
        return;
    snprintf(what, sizeof what, "attribute %d", (int)name);
    note(graph, cudnnBackendSetAttribute(descriptor, name, type, count, value), what);
}

static void set_tensor(struct cudnn_graph *graph, cudnnBackendDescriptor_t op,
                       cudnnBackendAttributeName_t name, struct cudnn_tensor t)
{
    set(graph, op, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t.descriptor);
}

static void set_type(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                     cudnnBackendAttributeName_t name, int type)
{
    cudnnDataType_t value = (cudnnDataType_t)type;
    set(graph, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static void finish(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor, const char *what)
{
    if (graph->status == 0)
        note(graph, cudnnBackendFinalize(descriptor), what);
}

static void finish_op(struct cudnn_graph *graph, cudnnBackendDescriptor_t op, const char *what)
{
    if (graph->n_ops == GRAPH_OPS)
        BUG("a cuDNN graph of more than %d operations", GRAPH_OPS);
    finish(graph, op, what);
    graph->op[graph->n_ops++] = op;
}

/* ---- tensors ---- */

struct tensor_kind {
    int64_t uid;
    int type;
    bool is_virtual, by_value, reordered;
};

static struct cudnn_tensor tensor(struct cudnn_graph *graph, struct tensor_kind kind,
                                  const int64_t size[4], const int64_t stride[4])
{
    struct cudnn_tensor t = {.descriptor = make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR)};
    int64_t alignment = ALIGNMENT;
    cudnnBackendTensorReordering_t order = CUDNN_TENSOR_REORDERING_F16x16;
    cudnnBackendDescriptor_t d = t.descriptor;

    memcpy(t.size, size, sizeof t.size);
    memcpy(t.stride, stride, sizeof t.stride);
    set_type(graph, d, CUDNN_ATTR_TENSOR_DATA_TYPE, kind.type);
    set(graph, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    set(graph, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(graph, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &kind.uid);
    set(graph, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(graph, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &kind.is_virtual);
    if (kind.by_value)
        set(graph, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &kind.by_value);
    if (kind.reordered)
        set(graph, d, CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE, 1,
            &order);
    finish(graph, d, "tensor");
    return t;
}

static void pack(const int64_t size[4], int64_t stride[4])
{
    stride[3] = 1;
    for (int i = 2; i >= 0; i--)
        stride[i] = stride[i + 1] * size[i + 1];
}

struct cudnn_tensor cudnn_memory(struct cudnn_graph *graph, int64_t uid, int type,
                                 const int64_t size[4], const int64_t stride[4])
{
    return tensor(graph, (struct tensor_kind){.uid = uid, .type = type}, size, stride);
}

struct cudnn_tensor cudnn_accumulator(struct cudnn_graph *graph, int64_t uid, const int64_t size[4])
{
    int64_t stride[4];
    pack(size, stride);
    return tensor(graph,
                  (struct tensor_kind){.uid = uid, .type = CUDNN_DATA_FLOAT, .reordered = true},
                  size, stride);
}

struct cudnn_tensor cudnn_virtual(struct cudnn_graph *graph, int type, const int64_t size[4],
                                  const int64_t stride[4])
{
    return tensor(graph,
                  (struct tensor_kind){.uid = graph->next_uid++, .type = type, .is_virtual = true},
                  size, stride);
}

struct cudnn_tensor cudnn_constant(struct cudnn_graph *graph, int64_t uid)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    return tensor(graph,
                  (struct tensor_kind){.uid = uid, .type = CUDNN_DATA_FLOAT, .by_value = true}, one,
                  one);
}

struct cudnn_tensor cudnn_packed(struct cudnn_graph *graph, int type, int64_t a, int64_t b,
                                 int64_t c, int64_t d)
{
    int64_t size[4] = {a, b, c, d}, stride[4];
    pack(size, stride);
    return cudnn_virtual(graph, type, size, stride);
}

/* ---- operations ---- */

void cudnn_matmul(struct cudnn_graph *graph, struct cudnn_tensor a, struct cudnn_tensor b,
                  struct cudnn_tensor c)
{
    cudnnBackendDescriptor_t how = make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(graph, how, "matmul");
    cudnnBackendDescriptor_t op = make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    finish_op(graph, op, "matmul");
}

static cudnnBackendDescriptor_t pointwise_mode(struct cudnn_graph *graph, int mode, int type,
                                               const int64_t *axis)
{
    cudnnBackendDescriptor_t how = make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnPointwiseMode_t value = (cudnnPointwiseMode_t)mode;
    set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &value);
    set_type(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, type);
    if (axis)
        set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, axis);
    finish(graph, how, "pointwise");
    return how;
}

static void pointwise(struct cudnn_graph *graph, cudnnBackendDescriptor_t how,
                      struct cudnn_tensor x, const struct cudnn_tensor *b,
                      const struct cudnn_tensor *mask, struct cudnn_tensor y)
{
    cudnnBackendDescriptor_t op = make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &how);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    if (mask)
        set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *mask);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish_op(graph, op, "pointwise");
}

void cudnn_pointwise(struct cudnn_graph *graph, int mode, int type, struct cudnn_tensor x,
                     const struct cudnn_tensor *b, struct cudnn_tensor y)
{
    pointwise(graph, pointwise_mode(graph, mode, type, NULL), x, b, NULL, y);
}

void cudnn_index(struct cudnn_graph *graph, int64_t axis, struct cudnn_tensor x,
                 struct cudnn_tensor y)
{
    pointwise(graph, pointwise_mode(graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, &axis), x,
              NULL, NULL, y);
}

void cudnn_select(struct cudnn_graph *graph, struct cudnn_tensor x, struct cudnn_tensor otherwise,
                  struct cudnn_tensor mask, struct cudnn_tensor y)
{
    pointwise(graph, pointwise_mode(graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, NULL),
              x, &otherwise, &mask, y);
}

void cudnn_reduction(struct cudnn_graph *graph, int reduce, struct cudnn_tensor x,
                     struct cudnn_tensor y)
{
    cudnnBackendDescriptor_t how = make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnnReduceTensorOp_t value = (cudnnReduceTensorOp_t)reduce;
    set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &value);
    set_type(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(graph, how, "reduction");
    cudnnBackendDescriptor_t op = make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish_op(graph, op, "reduction");
}

void cudnn_reshape(struct cudnn_graph *graph, struct cudnn_tensor x, struct cudnn_tensor y)
{
    cudnnBackendDescriptor_t op = make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_op(graph, op, "reshape");
}

/* ---- the whole ---- */

static cudnnBackendDescriptor_t make_graph(struct cudnn_graph *graph)
{
    cudnnBackendDescriptor_t ops = make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, ops, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &graph->handle);
    set(graph, ops, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->n_ops,
        graph->op);
    finish(graph, ops, "operation graph");
    return ops;
}

/* ---- what the heuristic names ---- */

/* Append what a mode of the heuristic names, best first. The first mode must be there; what the others
 * cannot do is no failure of the graph. */
static int ask_heuristic(struct cudnn_graph *graph, cudnnBackendDescriptor_t ops,
                         cudnnBackendHeurMode_t mode, struct cudnn_config *out)
{
    cudnnBackendDescriptor_t config[MODE_CONFIGS], heuristic;
    int64_t n = 0;
    heuristic = make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    for (int i = 0; i < MODE_CONFIGS; i++)
        config[i] = make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (graph->status != 0 ||
        cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &ops) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                                 &mode) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendFinalize(heuristic) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, MODE_CONFIGS, &n,
                                 config) != CUDNN_STATUS_SUCCESS)
        return 0;
    n = n < MODE_CONFIGS ? n : MODE_CONFIGS;
    for (int64_t i = 0; i < n; i++) {
        cudnn_config_read(config[i], &out[i]);
        out[i].engine.mode = (int)mode;
    }
    return (int)n;
}

int cudnn_graph_configs(struct cudnn_graph *graph, bool all, struct cudnn_config *out)
{
    static const cudnnBackendHeurMode_t modes[GRAPH_MODES] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                              CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t ops = make_graph(graph);
    int n = 0;
    for (int m = 0; m < (all ? GRAPH_MODES : 1) && graph->status == 0; m++) {
        int named = ask_heuristic(graph, ops, modes[m], &out[n]), first = n;
        for (int i = first; i < first + named; i++) {
            int same = 0;
            while (same < n && !cudnn_engine_same(&out[same].engine, &out[i].engine))
                same++;
            if (same == n)
                out[n++] = out[i];
        }
    }
    if (n == 0)
        note(graph, CUDNN_STATUS_NOT_SUPPORTED, "no engine");
    return n;
}

int cudnn_graph_plan(struct cudnn_graph *graph, bool fixed_order, struct cudnn_plan *plan)
{
    struct cudnn_config config[GRAPH_CONFIGS];
    int n = cudnn_graph_configs(graph, fixed_order, config);
    int status = CUDNN_STATUS_NOT_SUPPORTED, tried = 0;
    memset(plan, 0, sizeof *plan);
    if (graph->status != 0)
        return graph->status;
    for (int i = 0; i < n && status != CUDNN_STATUS_SUCCESS; i++) {
        if (fixed_order && !config[i].fixed_order)
            continue;
        status = cudnn_plan_make(graph, &config[i], plan);
        tried++;
    }
    note(graph, (cudnnStatus_t)status,
         tried > 0 ? "execution plan" : "no engine whose sums have a fixed order");
    return graph->status;
}
