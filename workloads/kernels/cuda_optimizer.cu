#include "workloads/kernels/cuda_kernel.cuh"

/* As the CPU's learning rate: linear rise, then half a cosine to lr_min. */
__device__ static double learning_rate(const shape_optimizer &s, double step)
{
    const double pi = 3.14159265358979323846;
    double lr = (double)s.lr, lr_min = (double)s.lr_min;
    double warm_up = (double)s.warm_up, end = (double)s.decay_steps;

    if (step <= warm_up)
        return lr * step / warm_up;
    if (step >= end)
        return lr_min;
    return lr_min + (lr - lr_min) * (1 + cos(pi * (step - warm_up) / (end - warm_up))) / 2;
}

__global__ void clip_scalars(shape_optimizer s, double *scalars, double *row)
{
    double valid = scalars[SCALAR_VALID];
    double norm = sqrt(scalars[SCALAR_SUMSQ] + scalars[SCALAR_EXPERT_SUMSQ]) / valid;
    double step = scalars[SCALAR_STEP] + 1;

    scalars[SCALAR_STEP] = step;
    scalars[SCALAR_NORM] = norm;
    scalars[SCALAR_LR] = learning_rate(s, step);
    if (isfinite(norm) && isfinite(scalars[SCALAR_LOSS_SUM]) && valid > 0) {
        scalars[SCALAR_SCALE] = fmin(1.0, (double)s.clip / (norm + 1e-6)) / valid;
    } else {
        scalars[SCALAR_SCALE] = 0;
        scalars[SCALAR_SKIPPED] += 1;
    }
    if (row != NULL)
        for (int i = 0; i < SCALARS; i++)
            row[i] = scalars[i];
}

/* context->log is memory of the device here. */
void cuda_clip(const struct op *op, struct kernel_context *context, void *native)
{
    double *scalars = (double *)tensor_at(context, op->t[0]), *row = NULL;
    if (context->log != NULL)
        row = context->log + context->log_next++ % context->log_rows * SCALARS;
    clip_scalars<<<1, 1, 0, NATIVE(native)>>>(op->shape.optimizer, scalars, row);
    cuda_launched("clip");
}

struct adamw {
    unsigned char *p, *m, *v, *copy; /* starts of the buffers; copy NULL: there is none */
    const unsigned char *gradient;
    const double *scalars;
    const struct cuda_update *updates; /* [n] */
    int n;
    int64_t chunks;
    float beta1, beta2, epsilon;
};

/* What every element of a step's updates shares. */
struct rates {
    float scale, rate, correction2, lr;
};

__device__ static rates rates_of(const adamw &a)
{
    double lr = a.scalars[SCALAR_LR];
    double updates = a.scalars[SCALAR_STEP] - a.scalars[SCALAR_SKIPPED];
    rates r;
    r.scale = (float)a.scalars[SCALAR_SCALE];
    r.rate = (float)(lr / (1 - pow((double)a.beta1, updates)));
    r.correction2 = (float)(1 / (1 - pow((double)a.beta2, updates)));
    r.lr = (float)lr;
    return r;
}

/* One tensor: where its elements lie. */
template <typename G, typename C> struct tensors {
    float *p, *m, *v;
    const G *gradient;
    C *copy;
    float decay;
};

template <typename G, typename C, int N>
__device__ static void update(const adamw &a, const rates &r, const tensors<G, C> &t, int64_t at)
{
    float rest1 = (float)(1 - (double)a.beta1), rest2 = (float)(1 - (double)a.beta2);
    float g[N], p[N], m[N], v[N];
    load(g, t.gradient + at);
    load(p, t.p + at);
    load(m, t.m + at);
    load(v, t.v + at);
#pragma unroll
    for (int i = 0; i < N; i++) {
        g[i] *= r.scale;
        m[i] = a.beta1 * m[i] + rest1 * g[i];
        v[i] = a.beta2 * v[i] + rest2 * g[i] * g[i];
        p[i] -= p[i] * t.decay + r.rate * m[i] / (sqrtf(v[i] * r.correction2) + a.epsilon);
    }
    store(t.p + at, p);
    store(t.m + at, m);
    store(t.v + at, v);
    if (t.copy != NULL)
        store(t.copy + at, p);
}

/* The last tensor whose chunks begin at or before `chunk`. */
__device__ static int find_update(const adamw &a, int64_t chunk)
{
    int low = 0, high = a.n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (a.updates[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

template <typename G, typename C>
__device__ static tensors<G, C> tensors_of(const adamw &a, const struct cuda_update &u, float lr)
{
    tensors<G, C> t;
    t.p = (float *)(a.p + u.offset[0]);
    t.gradient = (const G *)(a.gradient + u.offset[1]);
    t.m = (float *)(a.m + u.offset[2]);
    t.v = (float *)(a.v + u.offset[3]);
    t.copy = a.copy == NULL ? (C *)NULL : (C *)(a.copy + u.offset[5]);
    t.decay = lr * u.weight_decay;
    return t;
}

template <typename G, typename C> __device__ static bool is_wide(const tensors<G, C> &t)
{
    uintptr_t all = (uintptr_t)t.p | (uintptr_t)t.m | (uintptr_t)t.v;
    return all % 16 == 0 && (uintptr_t)t.gradient % (4 * sizeof(G)) == 0 &&
           (uintptr_t)t.copy % (4 * sizeof(C)) == 0;
}

enum { THREADS = 256, PER_SM = 8, WIDE = 4 };

/* Blocks walk over chunks of all tensors; a chunk lies in one. */
template <typename G, typename C> __global__ void __launch_bounds__(THREADS) adamw_update(adamw a)
{
    __shared__ rates shared;
    if (a.scalars[SCALAR_SCALE] == 0)
        return;
    if (threadIdx.x == 0)
        shared = rates_of(a);
    __syncthreads();
    rates r = shared;
    for (int64_t chunk = blockIdx.x; chunk < a.chunks; chunk += gridDim.x) {
        const struct cuda_update &u = a.updates[find_update(a, chunk)];
        tensors<G, C> t = tensors_of<G, C>(a, u, r.lr);
        int64_t begin = (chunk - u.first_chunk) * CUDA_UPDATE_CHUNK;
        int64_t end = begin + CUDA_UPDATE_CHUNK < u.n ? begin + CUDA_UPDATE_CHUNK : u.n;
        int64_t whole = is_wide(t) ? begin + (end - begin) / WIDE * WIDE : begin;
#pragma unroll 2
        for (int64_t i = begin + (int64_t)threadIdx.x * WIDE; i < whole; i += THREADS * WIDE)
            update<G, C, WIDE>(a, r, t, i);
        for (int64_t i = whole + threadIdx.x; i < end; i += THREADS)
            update<G, C, 1>(a, r, t, i);
    }
}

template <typename G, typename C>
static void launch(const adamw *a, const struct cuda_state *state, void *native)
{
    adamw_update<G, C><<<grid_of(a->chunks, 1, PER_SM, state), THREADS, 0, NATIVE(native)>>>(*a);
}

void cuda_update_all(const struct op *op, const struct cuda_update *updates, int n, int64_t chunks,
                     struct kernel_context *context, void *native)
{
    const struct shape_optimizer *s = &op->shape.optimizer;
    const struct cuda_state *state = cuda_state(context);
    adamw a;
    a.p = context->base[op->t[0].buffer];
    a.gradient = context->base[op->t[1].buffer];
    a.m = context->base[op->t[2].buffer];
    a.v = context->base[op->t[3].buffer];
    a.scalars = (const double *)tensor_at(context, op->t[4]);
    a.copy = op->t[5].buffer == BUFFER_NONE ? NULL : context->base[op->t[5].buffer];
    a.updates = updates, a.n = n, a.chunks = chunks;
    a.beta1 = s->beta1, a.beta2 = s->beta2, a.epsilon = s->epsilon;
    bool copy16 = op->dtype == DTYPE_BF16;
    if (s->gradient == DTYPE_BF16)
        copy16 ? launch<bf16, bf16>(&a, state, native) : launch<bf16, float>(&a, state, native);
    else
        copy16 ? launch<float, bf16>(&a, state, native) : launch<float, float>(&a, state, native);
    cuda_launched("adamw");
}
