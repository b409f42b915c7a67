#include "workloads/kernels/cuda_cudnn_trial.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <math.h>
#include <string.h>

static const double alike = 0.02; /* RMS over RMS: roundings of bf16 leave 0.003 */

/* fp32 for every query, with room for rows that fill up the last tile. */
int64_t trial_sum_bytes(const struct shape_attention *s)
{
    int64_t rows = ((s->q_rows > 0 ? s->q_rows : s->sequence) + 127) / 128 * 128;
    return (s->batch * s->heads * rows * s->head * (int64_t)sizeof(float) + 255) / 256 * 256;
}

/* ---- memory ---- */

static int64_t cut(int64_t *used, int64_t bytes)
{
    int64_t at = *used;
    *used += (bytes + 255) / 256 * 256;
    return at;
}

static void add(struct attention_trial *s, int64_t uid, void *at)
{
    s->uid[s->n_uids] = uid;
    s->at[s->n_uids++] = at;
}

/* Places from the start of memory until that is known. */
static void add_place(struct attention_trial *s, int64_t uid, int64_t place)
{
    add(s, uid, s->memory != NULL ? s->memory + place : NULL);
}

/* `rows` of it are written, each `row` bytes long with what lies between. */
static void add_out(struct attention_trial *s, int64_t place, int64_t bytes, int64_t rows,
                    int64_t row)
{
    s->out[s->n_out++] = (struct trial_out){place, bytes, rows / 2 * row, false};
}

/* Of q, k and v in one matrix, or of q in it and keys apart. */
struct matrices {
    int64_t q, k, v, q_bytes, kv_bytes, q_row, kv_row; /* places; bytes of the whole, of a row */
    bool apart;
};

static struct matrices cut_matrices(const struct shape_attention *a, int64_t *used)
{
    const int64_t bf16 = 2, q = (int64_t)a->heads * a->head * bf16;
    const int64_t kv = (int64_t)a->kv_heads * a->head * bf16;
    struct matrices m = {.apart = a->q_rows > 0};
    m.q_row = q + 2 * kv;
    m.kv_row = 2 * kv;
    m.q_bytes = a->batch * a->sequence * m.q_row;
    m.kv_bytes = m.apart ? a->batch * a->kv_sequence * m.kv_row : 0;
    m.q = cut(used, m.q_bytes);
    m.k = m.apart ? cut(used, m.kv_bytes) : m.q + q;
    m.v = m.k + kv;
    return m;
}

static struct tensor placed(int64_t place)
{
    return (struct tensor){.buffer = BUFFER_ACTIVATION, .offset = place};
}

static void add_gradients(struct attention_trial *s, int64_t out_bytes, int64_t rows, int64_t *used)
{
    const struct shape_attention *a = &s->entry->shape;
    bool dense = a->q_rows > 0 && a->add_q; /* by cuDNN, then added to another */
    int64_t dense_bytes = a->batch * a->q_rows * a->heads * a->head * 2;
    s->dense = dense ? cut(used, dense_bytes) : 0;
    struct matrices d = cut_matrices(a, used);
    int64_t dout = cut(used, out_bytes);
    add_place(s, ATTENTION_DOUT, dout);
    s->op.t[0] = placed(dout);
    s->op.t[d.apart ? 5 : 4] = placed(d.q);
    if (d.apart)
        s->op.t[6] = placed(d.k);
    add_place(s, ATTENTION_DQ, dense ? s->dense : d.q), add_place(s, ATTENTION_DK, d.k);
    add_place(s, ATTENTION_DV, d.v), add(s, ATTENTION_ONE, &s->entry->constants[1]);
    int64_t keys = d.apart ? d.kv_bytes : d.q_bytes - (d.k - d.q), values = keys - (d.v - d.k);
    add_out(s, d.q, d.q_bytes, rows, d.q_row);
    s->out[s->n_out - 1].added = dense;
    add_out(s, d.k, keys, d.apart ? a->kv_rows : rows, d.apart ? d.kv_row : d.q_row);
    add_out(s, d.v, values, d.apart ? a->kv_rows : rows, d.apart ? d.kv_row : d.q_row);
}

/* Tensors as OP_ATTENTION and its kin take them, but for what only backward has. */
static void lay_out_op(struct attention_trial *s, const struct matrices *m, int64_t out,
                       int64_t lse)
{
    struct op *op = &s->op;
    bool backward = s->entry->backward;
    int n = 0;
    memset(op, 0, sizeof *op);
    op->kind = m->apart ? (backward ? OP_ATTENTION_BLOCK_GRAD : OP_ATTENTION_BLOCK)
                        : (backward ? OP_ATTENTION_GRAD : OP_ATTENTION);
    op->dtype = DTYPE_BF16;
    op->shape.attention = s->entry->shape;
    op->shape.attention.q_first = op->shape.attention.kv_first = 0;
    if (backward)
        n++; /* dout comes first */
    op->t[n++] = placed(m->q);
    if (m->apart)
        op->t[n++] = placed(m->k);
    op->t[n++] = placed(out);
    op->t[n++] = placed(lse);
}

int64_t trial_lay_out(struct attention_trial *s, int64_t workspace_bytes)
{
    struct attention_entry *e = s->entry;
    const struct shape_attention *a = &e->shape;
    int64_t row = (int64_t)a->heads * a->head * 2, bytes = a->batch * a->sequence * row, used = 0;
    int64_t rows = a->q_rows > 0 ? a->q_rows : a->sequence;
    s->n_uids = s->n_out = 0;
    struct matrices m = cut_matrices(a, &used);
    int64_t out = cut(&used, bytes);
    add_place(s, ATTENTION_Q, m.q), add_place(s, ATTENTION_K, m.k), add_place(s, ATTENTION_V, m.v);
    int64_t lse = cut(&used, a->batch * a->heads * a->sequence * 4);
    add_place(s, ATTENTION_OUT, out), add_place(s, ATTENTION_LSE, lse);
    lay_out_op(s, &m, out, lse);
    if (e->backward)
        add_gradients(s, bytes, rows, &used);
    else
        add_out(s, out, bytes, rows, row);
    add(s, ATTENTION_SCALE, &e->constants[0]);
    if (a->q_rows == 0 || a->causal)
        add(s, ATTENTION_LEAST, &e->constants[2]);
    s->sum = cut(&used, e->backward ? trial_sum_bytes(a) : 0);
    s->workspace = cut(&used, workspace_bytes);
    return used;
}

/* ---- runs ---- */

void *trial_pack(struct attention_trial *s, bool ordered)
{
    void *pack = NULL;
    int plain = s->n_uids;
    if (s->entry->backward && !ordered)
        add_place(s, ATTENTION_DQ_SUM, s->sum);
    cudnn_pack_make(&pack, s->n_uids, s->uid, s->at, s->memory + s->workspace);
    s->n_uids = plain;
    return pack;
}

bool trial_run(const struct attention_trial *s, const struct trial_way *way)
{
    struct cuda_state state = {
        .scratch = s->memory + s->workspace, .multiprocessors = s->multiprocessors, .wgmma = true};
    struct kernel_context context = {.state = &state};
    context.base[BUFFER_ACTIVATION] = s->memory;
    if (way->plan == NULL) {
        (s->entry->backward ? cuda_wgmma_backward : cuda_wgmma_forward)(&s->op, &context,
                                                                        s->stream);
        return true;
    }
    if (s->entry->backward && !way->ordered &&
        cudaMemsetAsync(s->memory + s->sum, 0, (size_t)trial_sum_bytes(&s->entry->shape),
                        s->stream) != cudaSuccess)
        return false;
    if (cudnn_plan_run(way->plan, s->handle, way->pack) != CUDNN_STATUS_SUCCESS)
        return false;
    if (s->dense > 0)
        cuda_add_queries(&s->op, &context, s->memory + s->dense, s->stream);
    return true;
}

/* ---- results ---- */

static int64_t sample_place(const struct trial_out *out)
{
    return out->place + out->middle / 256 * 256;
}

static size_t sample_bytes(const struct trial_out *out)
{
    int64_t left = out->bytes - out->middle / 256 * 256, most = TRIAL_SAMPLE * 2;
    return (size_t)(left < most ? left : most);
}

bool trial_sample(const struct attention_trial *s, const struct trial_way *way, uint16_t *sample)
{
    memset(sample, 0, TRIAL_OUTS * TRIAL_SAMPLE * sizeof *sample);
    for (int w = 0; w < s->n_out; w++)
        cudaMemsetAsync(s->memory + sample_place(&s->out[w]), s->out[w].added ? 0 : 0xff,
                        sample_bytes(&s->out[w]), s->stream);
    if (!trial_run(s, way))
        return false;
    for (int w = 0; w < s->n_out; w++)
        cudaMemcpyAsync(sample + w * TRIAL_SAMPLE, s->memory + sample_place(&s->out[w]),
                        sample_bytes(&s->out[w]), cudaMemcpyDeviceToHost, s->stream);
    return cudaStreamSynchronize(s->stream) == cudaSuccess;
}

static double value_of(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

/* NaN in both is what no plan writes: keys between the rows of dq. */
static bool same_out(const uint16_t *a, const uint16_t *b)
{
    double square = 0, off = 0;
    for (int i = 0; i < TRIAL_SAMPLE; i++) {
        double x = value_of(a[i]), y = value_of(b[i]);
        if (isnan(x) && isnan(y))
            continue;
        square += x * x;
        off += (x - y) * (x - y);
    }
    return square > 0 && off <= alike * alike * square;
}

/* Each by itself: they are not of one size. */
bool trial_same(const struct attention_trial *s, const uint16_t *a, const uint16_t *b)
{
    bool same = s->n_out > 0;
    for (int w = 0; w < s->n_out; w++)
        same = same && same_out(a + w * TRIAL_SAMPLE, b + w * TRIAL_SAMPLE);
    return same;
}
