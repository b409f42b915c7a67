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
    double norm = sqrt(scalars[SCALAR_SUMSQ]) / valid;
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
    float *p, *m, *v;
    const void *gradient;
    void *copy;
    const double *scalars;
    int64_t n;
    float beta1, beta2, epsilon, weight_decay;
};

/* What every element of this update shares. */
struct rates {
    float scale, rate, correction2, decay;
};

__device__ static rates rates_of(const adamw &a)
{
    double lr = a.scalars[SCALAR_LR];
    double updates = a.scalars[SCALAR_STEP] - a.scalars[SCALAR_SKIPPED];
    rates r;
    r.scale = (float)a.scalars[SCALAR_SCALE];
    r.rate = (float)(lr / (1 - pow((double)a.beta1, updates)));
    r.correction2 = (float)(1 / (1 - pow((double)a.beta2, updates)));
    r.decay = (float)(lr * (double)a.weight_decay);
    return r;
}

template <typename G, typename C, int N>
__device__ static void update(const adamw &a, const rates &r, int64_t at)
{
    float rest1 = (float)(1 - (double)a.beta1), rest2 = (float)(1 - (double)a.beta2);
    float g[N], p[N], m[N], v[N];
    load(g, (const G *)a.gradient + at);
    load(p, a.p + at);
    load(m, a.m + at);
    load(v, a.v + at);
#pragma unroll
    for (int i = 0; i < N; i++) {
        g[i] *= r.scale;
        m[i] = a.beta1 * m[i] + rest1 * g[i];
        v[i] = a.beta2 * v[i] + rest2 * g[i] * g[i];
        p[i] -= p[i] * r.decay + r.rate * m[i] / (sqrtf(v[i] * r.correction2) + a.epsilon);
    }
    store(a.p + at, p);
    store(a.m + at, m);
    store(a.v + at, v);
    if (a.copy != NULL)
        store((C *)a.copy + at, p);
}

template <typename G, typename C, int N> __global__ void adamw_update(adamw a)
{
    __shared__ rates shared;
    if (a.scalars[SCALAR_SCALE] == 0)
        return;
    if (threadIdx.x == 0)
        shared = rates_of(a);
    __syncthreads();
    rates r = shared;
    int64_t whole = a.n / N, rest = a.n - whole * N;
    for (int64_t i = thread_index(); i < whole; i += thread_count())
        update<G, C, N>(a, r, i * N);
    if (thread_index() < rest)
        update<G, C, 1>(a, r, whole * N + thread_index());
}

enum { THREADS = 256, PER_SM = 8 };

template <typename G, typename C>
static void launch(const adamw *a, const struct cuda_state *state, void *native)
{
    bool wide = aligned(a->p, 16) && aligned(a->m, 16) && aligned(a->v, 16) &&
                aligned(a->gradient, 16) && aligned(a->copy, 16);
    if (wide)
        adamw_update<G, C, 4>
            <<<grid_of(a->n / 4 + 1, THREADS, PER_SM, state), THREADS, 0, NATIVE(native)>>>(*a);
    else
        adamw_update<G, C, 1>
            <<<grid_of(a->n, THREADS, PER_SM, state), THREADS, 0, NATIVE(native)>>>(*a);
}

void cuda_adamw(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_optimizer *s = &op->shape.optimizer;
    const struct cuda_state *state = cuda_state(context);
    adamw a;
    a.p = (float *)tensor_at(context, op->t[0]);
    a.gradient = tensor_at(context, op->t[1]);
    a.m = (float *)tensor_at(context, op->t[2]);
    a.v = (float *)tensor_at(context, op->t[3]);
    a.scalars = (const double *)tensor_at(context, op->t[4]);
    a.copy = tensor_at(context, op->t[5]);
    a.n = s->n;
    a.beta1 = s->beta1, a.beta2 = s->beta2, a.epsilon = s->epsilon;
    a.weight_decay = s->weight_decay;
    bool copy16 = op->dtype == DTYPE_BF16;
    if (s->gradient == DTYPE_BF16)
        copy16 ? launch<bf16, bf16>(&a, state, native) : launch<bf16, float>(&a, state, native);
    else
        copy16 ? launch<float, bf16>(&a, state, native) : launch<float, float>(&a, state, native);
    cuda_launched("adamw");
}
