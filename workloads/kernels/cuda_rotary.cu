#include <math.h>
#include <stdlib.h>

#include "workloads/kernels/cuda_kernel.cuh"

/* Cosine and sine of every angle, made in fp64 once: [sequence][head / 2] pairs. */
struct cuda_rotary {
    int64_t sequence;
    int head;
    float theta;
    struct shape_cut cut;
    float2 *table;
    int64_t bytes;
    struct cuda_rotary *next;
};

static bool same_cut(const struct shape_cut *a, const struct shape_cut *b)
{
    return a->runs == b->runs && a->rows == b->rows && a->first[0] == b->first[0] &&
           a->first[1] == b->first[1];
}

static struct cuda_rotary *find(const struct cuda_state *state, const struct shape_attention *s)
{
    for (struct cuda_rotary *t = state->rotary; t != NULL; t = t->next)
        if (t->sequence == s->sequence && t->head == s->head && t->theta == s->theta &&
            same_cut(&t->cut, &s->cut))
            return t;
    return NULL;
}

static void fill(float2 *table, const struct shape_attention *s)
{
    int half = s->head / 2;
    for (int64_t p = 0; p < s->sequence; p++)
        for (int i = 0; i < half; i++) {
            double angle =
                (double)cut_position(&s->cut, p) * pow((double)s->theta, -2.0 * i / s->head);
            table[p * half + i].x = (float)cos(angle);
            table[p * half + i].y = (float)sin(angle);
        }
}

static int make(struct cuda_state *state, const struct shape_attention *s)
{
    int64_t bytes = s->sequence * (s->head / 2) * (int64_t)sizeof(float2);
    float2 *table = (float2 *)malloc((size_t)bytes);
    struct cuda_rotary *t = (struct cuda_rotary *)calloc(1, sizeof *t);
    t->sequence = s->sequence;
    t->head = s->head;
    t->theta = s->theta;
    t->cut = s->cut;
    t->bytes = bytes;
    t->next = state->rotary;
    state->rotary = t;
    fill(table, s);
    int rc = cuda_upload(state, table, bytes, (void **)&t->table);
    free(table);
    return rc;
}

int cuda_rotary_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    for (int i = 0; i < state->plan->n_ops; i++) {
        const struct op *op = &state->plan->ops[i];
        if (op->kind != OP_ROTARY || find(state, &op->shape.attention) != NULL)
            continue;
        int rc = make(state, &op->shape.attention);
        if (rc != 0)
            return rc;
    }
    return 0;
}

void cuda_rotary_close(struct cuda_state *state)
{
    while (state->rotary != NULL) {
        struct cuda_rotary *t = state->rotary;
        state->rotary = t->next;
        cuda_drop(state, t->table, t->bytes);
        free(t);
    }
}

/* Turn elements i and i + half of the first `heads` heads of a row; sign -1 turns back. */
template <typename T, int N>
__global__ void rotate_rows(T *qkv, const float2 *table, int64_t rows, int64_t sequence, int heads,
                            int half, int64_t row_length, float sign)
{
    int packs = half / N, items = heads * packs;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const float2 *angles = table + r % sequence * half;
        T *row = qkv + r * row_length;
        for (int item = (int)threadIdx.x; item < items; item += (int)blockDim.x) {
            int i = item % packs * N;
            T *head = row + item / packs * 2 * half + i;
            float low[N], high[N];
            load(low, head);
            load(high, head + half);
#pragma unroll
            for (int j = 0; j < N; j++) {
                float2 a = angles[i + j];
                float x = low[j], y = high[j], s = a.y * sign;
                low[j] = x * a.x - y * s;
                high[j] = y * a.x + x * s;
            }
            store(head, low);
            store(head + half, high);
        }
    }
}

template <typename T, int N>
static void launch(T *qkv, const struct shape_attention *s, const struct cuda_state *state,
                   void *native)
{
    int heads = s->heads + s->kv_heads, half = s->head / 2;
    int64_t row = (int64_t)(heads + s->kv_heads) * s->head, rows = s->batch * s->sequence;
    int items = heads * (half / N), threads = items < 256 ? round_warp(items) : 256;
    rotate_rows<T, N><<<grid_of(rows, 1, 16, state), threads, 0, NATIVE(native)>>>(
        qkv, find(state, s)->table, rows, s->sequence, heads, half, row, s->inverse ? -1.0f : 1.0f);
}

void cuda_rotary(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *s = &op->shape.attention;
    const struct cuda_state *state = cuda_state(context);
    void *qkv = tensor_at(context, op->t[0]);
    bool wide = aligned(qkv, 16) && s->head % 16 == 0;
    if (op->dtype == DTYPE_BF16)
        wide ? launch<bf16, 8>((bf16 *)qkv, s, state, native)
             : launch<bf16, 1>((bf16 *)qkv, s, state, native);
    else
        wide ? launch<float, 4>((float *)qkv, s, state, native)
             : launch<float, 1>((float *)qkv, s, state, native);
    cuda_launched("rotary");
}
