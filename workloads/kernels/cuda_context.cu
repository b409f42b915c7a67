/* What sequences cut over ranks need beside attention: rows and heads moved, blocks merged. */
#include "workloads/kernels/cuda_kernel.cuh"

enum { THREADS = 256, PER_SM = 16 };

/* Strides and width in words of the kernel. */
struct runs {
    int64_t n, inner, width; /* runs in all, of the inner level, words of one */
    int64_t from[2], to[2];
    bool reversed;
};

template <typename W> __global__ void move_runs(const W *from, W *to, runs s)
{
    for (int64_t i = thread_index(); i < s.n * s.width; i += thread_count()) {
        int64_t run = i / s.width, word = i % s.width;
        int64_t outer = run / s.inner, inner = run % s.inner;
        int64_t source = s.reversed ? s.n / s.inner - 1 - outer : outer;
        to[outer * s.to[0] + inner * s.to[1] + word] =
            from[source * s.from[0] + inner * s.from[1] + word];
    }
}

/* Words of `each` elements; false where something does not divide. */
static bool in_words(const struct shape_move *s, int64_t each, runs *out)
{
    bool whole = s->width % each == 0;
    *out = {};
    out->n = s->n[0] * s->n[1], out->inner = s->n[1], out->width = s->width / each;
    out->reversed = s->reversed;
    for (int i = 0; i < 2; i++) {
        whole = whole && s->from[i] % each == 0 && s->to[i] % each == 0;
        out->from[i] = s->from[i] / each;
        out->to[i] = s->to[i] / each;
    }
    return whole;
}

template <typename W>
static void launch_move(const void *from, void *to, const runs &s, const struct cuda_state *state,
                        void *native)
{
    move_runs<W><<<grid_of(s.n * s.width, THREADS, PER_SM, state), THREADS, 0, NATIVE(native)>>>(
        (const W *)from, (W *)to, s);
}

void cuda_move(const struct op *op, struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    const void *from = tensor_at(context, op->t[0]);
    void *to = tensor_at(context, op->t[1]);
    int64_t size = (int64_t)dtype_size((int)op->dtype);
    runs s;
    if (aligned(from, 16) && aligned(to, 16) && in_words(&op->shape.move, 16 / size, &s)) {
        launch_move<uint4>(from, to, s, state, native);
    } else {
        in_words(&op->shape.move, 1, &s);
        size == 2 ? launch_move<unsigned short>(from, to, s, state, native)
                  : launch_move<unsigned>(from, to, s, state, native);
    }
    cuda_launched("move");
}

struct merging {
    const float *more_lse;
    float *lse;
    int64_t items, q_first, q_rows, sequence;
    int heads, head;
};

/* A warp for each query of each head. The larger lse is taken out first. */
template <typename T> __global__ void merge_rows(const T *more, T *out, merging m)
{
    int lane = (int)threadIdx.x % WARP;
    for (int64_t i = thread_index() / WARP; i < m.items; i += thread_count() / WARP) {
        int64_t head = i % m.heads, row = m.q_first + i / m.heads % m.q_rows;
        int64_t sample = i / m.heads / m.q_rows;
        int64_t at = (sample * m.heads + head) * m.sequence + row;
        int64_t first = ((sample * m.sequence + row) * m.heads + head) * m.head;
        float a = m.lse[at], b = m.more_lse[at];
        float sum = fmaxf(a, b) + log1pf(expf(-fabsf(a - b)));
        float keep = expf(a - sum), add = expf(b - sum);
        for (int c = lane; c < m.head; c += WARP)
            from_float(&out[first + c],
                       to_float(out[first + c]) * keep + to_float(more[first + c]) * add);
        __syncwarp();
        if (lane == 0)
            m.lse[at] = sum;
    }
}

void cuda_attention_merge(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *s = &op->shape.attention;
    const void *more = tensor_at(context, op->t[0]);
    void *out = tensor_at(context, op->t[2]);
    merging m = {};
    m.more_lse = (const float *)tensor_at(context, op->t[1]);
    m.lse = (float *)tensor_at(context, op->t[3]);
    m.items = s->batch * s->q_rows * s->heads;
    m.q_first = s->q_first, m.q_rows = s->q_rows, m.sequence = s->sequence;
    m.heads = s->heads, m.head = s->head;
    unsigned grid = grid_of(m.items, THREADS / WARP, PER_SM, cuda_state(context));
    if (op->dtype == DTYPE_BF16)
        merge_rows<bf16><<<grid, THREADS, 0, NATIVE(native)>>>((const bf16 *)more, (bf16 *)out, m);
    else
        merge_rows<float>
            <<<grid, THREADS, 0, NATIVE(native)>>>((const float *)more, (float *)out, m);
    cuda_launched("attention-merge");
}

/* Two elements at a time: heads are even where cuDNN takes them, and rows begin at whole pairs. */
__global__ void add_rows(const __nv_bfloat162 *from, __nv_bfloat162 *to, int64_t rows,
                         int64_t width, int64_t sequence, int64_t row, int64_t n)
{
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t r = i / width, sample = r / rows;
        __nv_bfloat162 *at = to + (sample * sequence + r % rows) * row + i % width;
        float2 a = __bfloat1622float2(*at), b = __bfloat1622float2(from[i]);
        *at = __floats2bfloat162_rn(a.x + b.x, a.y + b.y);
    }
}

void cuda_add_queries(const struct op *op, struct kernel_context *context, const void *dq,
                      void *native)
{
    const struct shape_attention *s = &op->shape.attention;
    int64_t width = (int64_t)s->heads * s->head / 2;
    int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->head / 2;
    int64_t n = s->batch * s->q_rows * width;
    __nv_bfloat162 *to = (__nv_bfloat162 *)tensor_at(context, op->t[5]) + s->q_first * row;
    add_rows<<<grid_of(n, THREADS, PER_SM, cuda_state(context)), THREADS, 0, NATIVE(native)>>>(
        (const __nv_bfloat162 *)dq, to, s->q_rows, width, s->sequence, row, n);
    cuda_launched("attention-block-grad");
}
