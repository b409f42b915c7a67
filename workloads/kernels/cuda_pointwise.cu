#include "workloads/kernels/cuda_kernel.cuh"

/* ---- y = f(a), y = f(a, b) over n elements; y may be an input ---- */

template <typename A, typename Y, int N, typename F>
__global__ void map_one(const A *a, Y *y, int64_t n, F f)
{
    int64_t whole = n / N, rest = n - whole * N;
    for (int64_t i = thread_index(); i < whole; i += thread_count()) {
        float x[N];
        load(x, a + i * N);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = f(x[j]);
        store(y + i * N, x);
    }
    if (thread_index() < rest) {
        int64_t i = whole * N + thread_index();
        from_float(&y[i], f(to_float(a[i])));
    }
}

template <typename T, int N, typename F>
__global__ void map_two(const T *a, const T *b, T *y, int64_t n, F f)
{
    int64_t whole = n / N, rest = n - whole * N;
    for (int64_t i = thread_index(); i < whole; i += thread_count()) {
        float x[N], z[N];
        load(x, a + i * N);
        load(z, b + i * N);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = f(x[j], z[j]);
        store(y + i * N, x);
    }
    if (thread_index() < rest) {
        int64_t i = whole * N + thread_index();
        from_float(&y[i], f(to_float(a[i]), to_float(b[i])));
    }
}

enum { THREADS = 256, PER_SM = 16 };

template <typename A, typename Y, int WIDE, typename F>
static void launch_one(const void *a, void *y, int64_t n, F f, const struct cuda_state *state,
                       void *native)
{
    const A *from = (const A *)a;
    Y *to = (Y *)y;
    if (aligned(a, 16) && aligned(y, 16))
        map_one<A, Y, WIDE, F>
            <<<grid_of(n / WIDE + 1, THREADS, PER_SM, state), THREADS, 0, NATIVE(native)>>>(
                from, to, n, f);
    else
        map_one<A, Y, 1, F>
            <<<grid_of(n, THREADS, PER_SM, state), THREADS, 0, NATIVE(native)>>>(from, to, n, f);
}

template <typename T, typename F>
static void launch_two(const void *a, const void *b, void *y, int64_t n, F f,
                       const struct cuda_state *state, void *native)
{
    const int WIDE = 16 / (int)sizeof(T);
    const T *left = (const T *)a, *right = (const T *)b;
    T *to = (T *)y;
    if (aligned(a, 16) && aligned(b, 16) && aligned(y, 16))
        map_two<T, WIDE, F>
            <<<grid_of(n / WIDE + 1, THREADS, PER_SM, state), THREADS, 0, NATIVE(native)>>>(
                left, right, to, n, f);
    else
        map_two<T, 1, F><<<grid_of(n, THREADS, PER_SM, state), THREADS, 0, NATIVE(native)>>>(
            left, right, to, n, f);
}

template <template <typename> class F>
static void one(const struct op *op, struct kernel_context *context, void *native)
{
    const void *a = tensor_at(context, op->t[0]);
    void *y = tensor_at(context, op->t[1]);
    if (op->dtype == DTYPE_BF16)
        launch_one<bf16, bf16, 8>(a, y, op->shape.vector.n, F<bf16>(), cuda_state(context), native);
    else
        launch_one<float, float, 4>(a, y, op->shape.vector.n, F<float>(), cuda_state(context),
                                    native);
    cuda_launched(op_name(op->kind));
}

template <template <typename> class F>
static void two(const struct op *op, struct kernel_context *context, void *native)
{
    const void *a = tensor_at(context, op->t[0]), *b = tensor_at(context, op->t[1]);
    void *y = tensor_at(context, op->t[2]);
    if (op->dtype == DTYPE_BF16)
        launch_two<bf16>(a, b, y, op->shape.vector.n, F<bf16>(), cuda_state(context), native);
    else
        launch_two<float>(a, b, y, op->shape.vector.n, F<float>(), cuda_state(context), native);
    cuda_launched(op_name(op->kind));
}

/* ---- GELU, tanh form: x s with s = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3) ---- */

#define TWICE_ROOT 1.5957691216057308f           /* 2 sqrt(2 / pi) */
#define TWICE_CUBE (TWICE_ROOT * 0.044715f)      /* of x^3 in 2u */
#define TWICE_SLOPE (TWICE_ROOT * 3 * 0.044715f) /* of x^2 in d 2u / dx */

template <typename T> struct gelu_of {
    __device__ float operator()(float x) const
    {
        return x / (1 + exponential<T>(-x * (TWICE_ROOT + TWICE_CUBE * x * x)));
    }
};

/* dy/dx = s + x s (1 - s) d2u/dx; s (1 - s) = e / (1 + e)^2 with e = e^-|2u|. */
template <typename T> struct gelu_grad_of {
    __device__ float operator()(float dy, float x) const
    {
        float square = x * x;
        float e = exponential<T>(-fabsf(x * (TWICE_ROOT + TWICE_CUBE * square)));
        float inverse = 1 / (1 + e);
        float s = (x < 0 ? e : 1) * inverse;
        return dy * (s + x * (TWICE_ROOT + TWICE_SLOPE * square) * (e * inverse * inverse));
    }
};

template <typename T> struct sum_of {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};
struct same {
    __device__ float operator()(float a) const
    {
        return a;
    }
};

void cuda_gelu(const struct op *op, struct kernel_context *context, void *native)
{
    one<gelu_of>(op, context, native);
}

void cuda_gelu_grad(const struct op *op, struct kernel_context *context, void *native)
{
    two<gelu_grad_of>(op, context, native);
}

void cuda_add(const struct op *op, struct kernel_context *context, void *native)
{
    two<sum_of>(op, context, native);
}

void cuda_add_floats(float *to, const float *from, int64_t n, const struct cuda_state *state,
                     void *native)
{
    launch_two<float>(to, from, to, n, sum_of<float>(), state, native);
    cuda_launched("add");
}

void cuda_cast(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_cast *shape = &op->shape.cast;
    const struct cuda_state *state = cuda_state(context);
    const void *a = tensor_at(context, op->t[0]);
    void *y = tensor_at(context, op->t[1]);
    bool from16 = shape->from == DTYPE_BF16, to16 = shape->to == DTYPE_BF16;

    if (from16 && to16)
        launch_one<bf16, bf16, 8>(a, y, shape->n, same(), state, native);
    else if (from16)
        launch_one<bf16, float, 8>(a, y, shape->n, same(), state, native);
    else if (to16)
        launch_one<float, bf16, 8>(a, y, shape->n, same(), state, native);
    else
        launch_one<float, float, 4>(a, y, shape->n, same(), state, native);
    cuda_launched("cast");
}

/* ---- zeros in short runs: a row of blocks for each ---- */

__global__ void zero_runs(unsigned char *base, const struct overwrite_run *runs)
{
    const struct overwrite_run run = runs[blockIdx.y];
    int64_t words = (run.end - run.begin) / (int64_t)sizeof(float);
    float *to = (float *)(base + run.begin);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = 0;
}

void cuda_zero_runs(unsigned char *base, const struct overwrite_run *runs, int n, void *native)
{
    enum { BLOCKS = 4 };
    zero_runs<<<dim3(BLOCKS, (unsigned)n), THREADS, 0, NATIVE(native)>>>(base, runs);
    cuda_launched("zero");
}

/* ---- y [m][n] = bias [n], or += ---- */

template <typename T, typename B, int N>
__global__ void bias_rows(T *y, const B *bias, int64_t m, int64_t n, bool add)
{
    for (int64_t r = blockIdx.x; r < m; r += gridDim.x)
        for (int64_t j = (int64_t)threadIdx.x * N; j < n; j += (int64_t)blockDim.x * N) {
            float x[N] = {0}, b[N];
            if (add)
                load(x, y + r * n + j);
            load(b, bias + j);
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] += b[i];
            store(y + r * n + j, x);
        }
}

template <typename T, typename B>
static void launch_bias(void *y, const void *bias, const struct shape_gemm *s,
                        const struct cuda_state *state, void *native)
{
    unsigned grid = grid_of(s->m, 1, PER_SM, state);
    T *to = (T *)y;
    const B *from = (const B *)bias;
    bool add = s->beta != 0;
    if (aligned(y, 16) && aligned(bias, 16) && s->n % 8 == 0)
        bias_rows<T, B, 8><<<grid, THREADS, 0, NATIVE(native)>>>(to, from, s->m, s->n, add);
    else
        bias_rows<T, B, 1><<<grid, THREADS, 0, NATIVE(native)>>>(to, from, s->m, s->n, add);
}

void cuda_put_bias(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_gemm *s = &op->shape.gemm;
    const struct cuda_state *state = cuda_state(context);
    void *y = tensor_at(context, op->t[2]);
    const void *bias = tensor_at(context, op->t[3]);
    if (op->dtype != DTYPE_BF16)
        launch_bias<float, float>(y, bias, s, state, native);
    else if (s->wide)
        launch_bias<float, bf16>(y, bias, s, state, native);
    else
        launch_bias<bf16, bf16>(y, bias, s, state, native);
    cuda_launched("bias");
}
