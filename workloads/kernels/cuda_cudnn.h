/*
 * cuda_cudnn: a graph for cuDNN's backend, as it is written down, and the plan that runs it.
 *
 * A graph keeps the first cudnnStatus_t that went wrong in it, and functions on it do nothing from
 * then on: so a graph is written without tests and asked once, by cudnn_graph_plan. Tensors have
 * four dimensions. A virtual tensor lives only between two operations; a constant is passed by
 * value. Statuses, types and modes are cuDNN's own (cudnnStatus_t, cudnnDataType_t, ...) as int,
 * descriptors its void *. Read by cuda_cudnn*.c alone.
 */
#ifndef WORKLOADS_KERNELS_CUDA_CUDNN_H
#define WORKLOADS_KERNELS_CUDA_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GRAPH_DESCRIPTORS = 256, GRAPH_OPS = 40, GRAPH_CONSTANTS = 4, GRAPH_WHY = 200 };

/* Configurations that a mode of the heuristic may name, the modes (A, B, fallback), all of them. */
enum { MODE_CONFIGS = 16, GRAPH_MODES = 3, GRAPH_CONFIGS = MODE_CONFIGS * GRAPH_MODES };
enum { ENGINE_KNOBS = 16 };

struct cudnnContext;

struct cudnn_tensor {
    void *descriptor;
    int64_t size[4], stride[4];
};

struct cudnn_graph {
    struct cudnnContext *handle;
    int status;
    char why[GRAPH_WHY]; /* what went wrong first */
    int n_descriptors, n_ops, n_constants;
    void *descriptor[GRAPH_DESCRIPTORS]; /* all that is to be destroyed */
    void *op[GRAPH_OPS];
    int64_t next_uid; /* of tensors that nobody passes */
};

/* Which engine with which settings: what makes two plans of one graph the same on two GPUs of a kind.
 * Plain bytes, unused ones zero. */
struct cudnn_engine {
    int mode;    /* of the heuristic that named it first; no part of what it is */
    int index;   /* global */
    int n_knobs; /* settings as cuDNN numbers them, with their values */
    int knob[ENGINE_KNOBS];
    int64_t value[ENGINE_KNOBS];
};

/* Lives as long as its graph. */
struct cudnn_config {
    void *config;
    struct cudnn_engine engine;
    bool fixed_order; /* its notes can be read, and none says that sums have no order */
};

/* What runs: owned by the holder, released by cudnn_plan_release. */
struct cudnn_plan {
    void *plan;
    int64_t workspace_bytes;
    struct cudnn_engine engine;
};

void cudnn_graph_begin(struct cudnn_graph *graph, struct cudnnContext *handle);
void cudnn_graph_end(struct cudnn_graph *graph); /* destroys descriptors; a plan stays */

/* In memory: `uid` (> 0) names it in cudnn_pack_make. */
struct cudnn_tensor cudnn_memory(struct cudnn_graph *graph, int64_t uid, int type,
                                 const int64_t size[4], const int64_t stride[4]);
/* fp32 memory that cuDNN adds partial results to, in an order of its own. */
struct cudnn_tensor cudnn_accumulator(struct cudnn_graph *graph, int64_t uid,
                                      const int64_t size[4]);
struct cudnn_tensor cudnn_virtual(struct cudnn_graph *graph, int type, const int64_t size[4],
                                  const int64_t stride[4]);
/* A float passed by value; row-major virtual tensors are `cudnn_packed`. */
struct cudnn_tensor cudnn_constant(struct cudnn_graph *graph, int64_t uid);
struct cudnn_tensor cudnn_packed(struct cudnn_graph *graph, int type, int64_t a, int64_t b,
                                 int64_t c, int64_t d);

void cudnn_matmul(struct cudnn_graph *graph, struct cudnn_tensor a, struct cudnn_tensor b,
                  struct cudnn_tensor c);
/* y = x (mode) b; b NULL for modes of one argument. */
void cudnn_pointwise(struct cudnn_graph *graph, int mode, int type, struct cudnn_tensor x,
                     const struct cudnn_tensor *b, struct cudnn_tensor y);
void cudnn_index(struct cudnn_graph *graph, int64_t axis, struct cudnn_tensor x,
                 struct cudnn_tensor y);
void cudnn_select(struct cudnn_graph *graph, struct cudnn_tensor x, struct cudnn_tensor otherwise,
                  struct cudnn_tensor mask, struct cudnn_tensor y);
void cudnn_reduction(struct cudnn_graph *graph, int how, struct cudnn_tensor x,
                     struct cudnn_tensor y);
void cudnn_reshape(struct cudnn_graph *graph, struct cudnn_tensor x, struct cudnn_tensor y);

/* Configurations of the finished graph, each once, as the heuristic names them in its first mode or
 * in all: out[GRAPH_CONFIGS]. How many; 0: graph->status and why. */
int cudnn_graph_configs(struct cudnn_graph *graph, bool all, struct cudnn_config *out);
void cudnn_config_read(void *config, struct cudnn_config *out); /* all but its mode */
bool cudnn_engine_same(const struct cudnn_engine *a, const struct cudnn_engine *b);

/* The first engine that the heuristic names and that finalises; with `fixed_order` the first in any of
 * its modes that has one, and no other. Else graph->status and why. */
int cudnn_graph_plan(struct cudnn_graph *graph, bool fixed_order, struct cudnn_plan *plan);

/* The plan of one configuration; a cudnnStatus_t, *plan zeroed where there is none. */
int cudnn_plan_make(const struct cudnn_graph *graph, const struct cudnn_config *config,
                    struct cudnn_plan *plan);
void cudnn_plan_release(struct cudnn_plan *plan);

/* n tensors by uid and a workspace in the form that a run takes; constants are read at each run.
 * *pack is the holder's, NULL after a failure; release takes NULL. */
int cudnn_pack_make(void **pack, int n, const int64_t *uids, void *const *pointers,
                    void *workspace);
void cudnn_pack_release(void *pack);

/* Launch. */
int cudnn_plan_run(const struct cudnn_plan *plan, struct cudnnContext *handle, void *pack);

#endif
