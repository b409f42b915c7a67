#include <cub/device/device_radix_sort.cuh>

#include "workloads/kernels/cuda_kernel.cuh"

struct embed {
    const int32_t *tokens;
    int64_t rows, width, sequence, first_row; /* sequence: rows of a sample here */
    int64_t first_column, valid;
    struct shape_cut cut;
};

/* The position of row `row` of a sample, as cut_position says. */
__device__ inline int64_t position_of(const embed &a, int64_t row)
{
    return a.cut.runs == 0 ? row : a.cut.first[row / a.cut.rows] + row % a.cut.rows;
}

/* Row of wte on this rank; -1: another rank holds it. */
__device__ inline int64_t local_row(const embed &a, int64_t r)
{
    int64_t row = a.tokens[r] - a.first_column;
    return row >= 0 && row < a.valid ? row : -1;
}

template <typename T, int N> __global__ void embed_rows(embed a, const T *wte, const T *wpe, T *x)
{
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        int64_t token = local_row(a, r);
        const T *position = wpe + position_of(a, (a.first_row + r) % a.sequence) * a.width;
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.width; j += (int64_t)blockDim.x * N) {
            float v[N] = {0};
            if (token >= 0)
                load(v, wte + token * a.width + j);
            if (wpe != NULL && a.first_column == 0) {
                float p[N];
                load(p, position + j);
#pragma unroll
                for (int i = 0; i < N; i++)
                    v[i] += p[i];
            }
            store(x + r * a.width + j, v);
        }
    }
}

static int threads_of(int64_t packs)
{
    return packs < 256 ? round_warp(packs) : 256;
}

static embed embed_of(const struct op *op, struct kernel_context *context)
{
    const struct shape_rows *s = &op->shape.rows;
    embed a;
    a.tokens = (const int32_t *)tensor_at(context, op->t[0]);
    a.rows = s->rows, a.width = s->width, a.first_row = s->first_row;
    a.sequence = cut_rows(&s->cut, s->sequence), a.cut = s->cut;
    a.first_column = s->first_column, a.valid = s->valid;
    return a;
}

template <typename T, int N>
static void launch_embed(const struct op *op, struct kernel_context *context, void *native)
{
    embed a = embed_of(op, context);
    embed_rows<T, N><<<grid_of(a.rows, 1, 32, cuda_state(context)), threads_of(a.width / N), 0,
                       NATIVE(native)>>>(a, (const T *)tensor_at(context, op->t[1]),
                                         (const T *)tensor_at(context, op->t[2]),
                                         (T *)tensor_at(context, op->t[3]));
}

static bool fits(const struct op *op, struct kernel_context *context, int first, int last)
{
    bool wide = op->shape.rows.width % 8 == 0;
    for (int i = first; i <= last; i++)
        wide = wide && aligned(tensor_at(context, op->t[i]), 16);
    return wide;
}

void cuda_embed(const struct op *op, struct kernel_context *context, void *native)
{
    bool wide = fits(op, context, 1, 3);
    if (op->dtype == DTYPE_BF16)
        wide ? launch_embed<bf16, 8>(op, context, native)
             : launch_embed<bf16, 1>(op, context, native);
    else
        wide ? launch_embed<float, 4>(op, context, native)
             : launch_embed<float, 1>(op, context, native);
    cuda_launched("embed");
    if (op->shape.rows.first_column == 0)
        context->work.tokens += op->shape.rows.rows;
}

/*
 * Gradient. Positions are sorted by token (a stable sort: one result). A block walks over CHUNK
 * sorted positions and holds a running sum of rows with the same token. It adds what starts within
 * its chunk to dwte; the part that goes on from the chunk before goes to `carry`, and a second pass
 * lets the chunk in which such a run started collect those, in order. Tokens that many positions
 * share so spread over many blocks.
 */
enum { CHUNK = 32 };

__global__ void embed_keys(embed a, uint32_t *keys, int32_t *positions)
{
    for (int64_t r = thread_index(); r < a.rows; r += thread_count()) {
        int64_t row = local_row(a, r);
        keys[r] = row < 0 ? (uint32_t)a.valid : (uint32_t)row;
        positions[r] = (int32_t)r;
    }
}

template <int N> __device__ inline void add_to(float *out, const float (&sum)[N])
{
    float old[N];
    load(old, out);
#pragma unroll
    for (int i = 0; i < N; i++)
        old[i] += sum[i];
    store(out, old);
}

template <typename T, int N>
__global__ void embed_grad_chunks(embed a, const uint32_t *keys, const int32_t *positions,
                                  const T *dx, float *dwte, float *carry)
{
    int64_t first = (int64_t)blockIdx.x * CHUNK;
    int64_t end = first + CHUNK < a.rows ? first + CHUNK : a.rows;
    for (int64_t j = (int64_t)threadIdx.x * N; j < a.width; j += (int64_t)blockDim.x * N) {
        bool carried = first > 0 && keys[first - 1] == keys[first];
        float sum[N] = {0};
        for (int64_t i = first; i < end; i++) {
            uint32_t key = keys[i];
            float x[N];
            if (key >= a.valid)
                break; /* sorted: those of other ranks come last */
            load(x, dx + (int64_t)positions[i] * a.width + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += x[k];
            if (i + 1 < end && keys[i + 1] == key)
                continue;
            if (carried)
                store(carry + (int64_t)blockIdx.x * a.width + j, sum);
            else
                add_to(dwte + (int64_t)key * a.width + j, sum);
            carried = false;
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] = 0;
        }
    }
}

template <int N>
__global__ void embed_grad_carries(embed a, const uint32_t *keys, const float *carry, float *dwte)
{
    int64_t first = (int64_t)blockIdx.x * CHUNK, next = first + CHUNK;
    if (next >= a.rows)
        return;
    uint32_t key = keys[next - 1];
    bool started_before = first > 0 && keys[first] == key && keys[first - 1] == key;
    if (key >= a.valid || keys[next] != key || started_before)
        return;
    for (int64_t j = (int64_t)threadIdx.x * N; j < a.width; j += (int64_t)blockDim.x * N) {
        float sum[N] = {0};
        for (int64_t at = next; at < a.rows && keys[at] == key; at += CHUNK) {
            float x[N];
            load(x, carry + at / CHUNK * a.width + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += x[k];
        }
        add_to(dwte + (int64_t)key * a.width + j, sum);
    }
}

/* dwpe at the position of row p of a sample += the rows there, first to last. */
template <typename T, int N> __global__ void position_grad(embed a, const T *dx, float *dwpe)
{
    int64_t p = blockIdx.x, first = p - a.first_row % a.sequence;
    if (first < 0)
        first += a.sequence;
    if (first >= a.rows)
        return;
    for (int64_t j = (int64_t)threadIdx.x * N; j < a.width; j += (int64_t)blockDim.x * N) {
        float sum[N] = {0};
#pragma unroll 4
        for (int64_t r = first; r < a.rows; r += a.sequence) {
            float x[N];
            load(x, dx + r * a.width + j);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += x[k];
        }
        add_to(dwpe + position_of(a, p) * a.width + j, sum);
    }
}

/* Where the pieces of scratch lie. */
struct embed_scratch {
    uint32_t *keys, *sorted_keys;
    int32_t *positions, *sorted_positions;
    float *carry;
    void *sort;
    size_t sort_bytes;
    int64_t bytes;
};

static int key_bits(int64_t valid)
{
    int bits = 1;
    while (valid >> bits != 0)
        bits++;
    return bits;
}

static cudaError_t sort(embed_scratch *s, int64_t rows, int64_t valid, void *native)
{
    return cub::DeviceRadixSort::SortPairs(s->sort, s->sort_bytes, s->keys, s->sorted_keys,
                                           s->positions, s->sorted_positions, (int)rows, 0,
                                           key_bits(valid), NATIVE(native));
}

static embed_scratch scratch_of(const struct op *op, unsigned char *base)
{
    const struct shape_rows *shape = &op->shape.rows;
    int64_t line = ceil_div(shape->rows * 4, 256) * 256, at = 4 * line;
    embed_scratch s = {};
    cuda_must((int)sort(&s, shape->rows, shape->valid, NULL), "embed-grad"); /* asks for the size */
    s.keys = (uint32_t *)base;
    s.sorted_keys = (uint32_t *)(base + line);
    s.positions = (int32_t *)(base + 2 * line);
    s.sorted_positions = (int32_t *)(base + 3 * line);
    s.carry = (float *)(base + at);
    at += ceil_div(ceil_div(shape->rows, CHUNK) * shape->width * 4, 256) * 256;
    s.sort = base + at;
    s.bytes = at + (int64_t)s.sort_bytes;
    return s;
}

int64_t cuda_embed_grad_scratch(const struct op *op, const struct cuda_state *state)
{
    (void)state;
    return scratch_of(op, NULL).bytes;
}

template <typename T, int N>
static void launch_grad(const struct op *op, struct kernel_context *context, void *native)
{
    embed a = embed_of(op, context);
    const struct cuda_state *state = cuda_state(context);
    embed_scratch s = scratch_of(op, state->scratch);
    const T *dx = (const T *)tensor_at(context, op->t[1]);
    float *dwte = (float *)tensor_at(context, op->t[2]),
          *dwpe = (float *)tensor_at(context, op->t[3]);
    int threads = threads_of(a.width / N);
    unsigned chunks = (unsigned)ceil_div(a.rows, CHUNK);
    cudaStream_t stream = NATIVE(native);

    embed_keys<<<grid_of(a.rows, 256, 8, state), 256, 0, stream>>>(a, s.keys, s.positions);
    cuda_must((int)sort(&s, a.rows, a.valid, native), "embed-grad");
    embed_grad_chunks<T, N>
        <<<chunks, threads, 0, stream>>>(a, s.sorted_keys, s.sorted_positions, dx, dwte, s.carry);
    embed_grad_carries<(N > 1 ? 4 : 1)>
        <<<chunks, threads_of(a.width / (N > 1 ? 4 : 1)), 0, stream>>>(a, s.sorted_keys, s.carry,
                                                                       dwte);
    if (dwpe != NULL)
        position_grad<T, N><<<(unsigned)a.sequence, threads, 0, stream>>>(a, dx, dwpe);
}

void cuda_embed_grad(const struct op *op, struct kernel_context *context, void *native)
{
    bool wide = fits(op, context, 1, 3);
    if (op->dtype == DTYPE_BF16)
        wide ? launch_grad<bf16, 8>(op, context, native)
             : launch_grad<bf16, 1>(op, context, native);
    else
        wide ? launch_grad<float, 4>(op, context, native)
             : launch_grad<float, 1>(op, context, native);
    cuda_launched("embed-grad");
}
