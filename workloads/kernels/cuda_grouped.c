/*
 * OP_GROUPED_GEMM: one product of cuBLASLt for each block of rows, by the algorithms of cuda_gemm. Where
 * the rows of blocks are counted in every step (dropless routing), their products are described and
 * their algorithms asked for when they are given out: the library keeps what its heuristic said.
 */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/kernels/cuda_gemm.h"

struct cuda_grouped {
    int n;
    struct gemm *gemm; /* [n], one per key */
    int **of;          /* [n_ops of the plan][blocks] index of the gemm, -1 for no rows; NULL */
    int n_ops;
};

/* The product of block i, whose rows begin at `row`, as an op of its own. */
static struct op product_of(const struct op *op, int i, int64_t row)
{
    const struct shape_grouped *s = &op->shape.grouped;
    int64_t size = (int64_t)dtype_size((int)op->dtype), matrix = s->which[i] * s->n * s->k;
    bool weight = s->form == GROUPED_WEIGHT;
    int64_t a = s->form == GROUPED_FORWARD ? s->k : s->n, b = s->n + s->k - a;
    struct op out = {.kind = OP_GEMM, .dtype = op->dtype};
    for (int t = 0; t < 3; t++)
        out.t[t] = op->t[t];
    out.t[0].offset += row * a * size;
    out.t[1].offset += (weight ? row * s->k : matrix) * size;
    out.t[2].offset += weight ? matrix * (int64_t)sizeof(float) : row * b * size;
    out.shape.gemm = (struct shape_gemm){.m = weight ? s->n : s->rows[i],
                                         .n = weight ? s->k : b,
                                         .k = weight ? s->rows[i] : a,
                                         .trans_a = weight,
                                         .trans_b = s->form == GROUPED_FORWARD,
                                         .wide = weight && op->dtype == DTYPE_BF16,
                                         .beta = weight ? 1 : 0};
    return out;
}

static int find(const struct cuda_grouped *g, const struct gemm_key *key)
{
    for (int i = g->n - 1; i >= 0; i--)
        if (memcmp(&g->gemm[i].choice.key, key, sizeof *key) == 0)
            return i;
    return -1;
}

static int choose(struct kernel_context *context, struct gemm *gemm)
{
    struct gemm_choice *choice = &gemm->choice;
    int n = 0, rc = 0;
    TRY(gemm_make(gemm));
    choice->way = WAY_PLAIN;
    TRY(gemm_set_way(gemm, WAY_PLAIN, NULL, NULL));
    TRY(gemm_candidates(cuda_state(context)->gemms, gemm, context->deterministic,
                        &choice->algorithm, 1, &n));
    if (n == 0)
        rc = fail(FAIL_USAGE,
                  "grouped-gemm: cuBLASLt has no algorithm for %lld x %lld x %lld in %s: choose "
                  "another dtype or sizes that are multiples of 8",
                  (long long)choice->key.m, (long long)choice->key.n, (long long)choice->key.k,
                  dtype_name(choice->key.dtype));
out:
    return rc;
}

static int add_block(struct kernel_context *context, const struct op *op, int *out)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_grouped *g = state->grouped;
    struct gemm_key key = gemm_key(op, NULL, context);
    *out = find(g, &key);
    if (*out >= 0)
        return 0;
    g->gemm = must_grow(g->gemm, (size_t)g->n + 1, sizeof *g->gemm);
    memset(&g->gemm[g->n], 0, sizeof g->gemm[g->n]);
    g->gemm[g->n].choice.key = key;
    *out = g->n++;
    return choose(context, &g->gemm[*out]);
}

static int add_op(struct kernel_context *context, int index)
{
    struct cuda_state *state = cuda_state(context);
    cublasLtHandle_t handle = state->gemms->handle;
    if (handle == NULL && cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS)
        return fail(FAIL_CUDA, "gemm: cuBLASLt could not be opened on this device");
    state->gemms->handle = handle;
    const struct op *op = &state->plan->ops[index];
    const struct shape_grouped *s = &op->shape.grouped;
    int *of = state->grouped->of[index] = must_alloc((size_t)s->blocks + 1, sizeof *of);
    int64_t row = 0;
    for (int i = 0; i < s->blocks; row += s->rows[i++]) {
        struct op product = product_of(op, i, row);
        of[i] = -1;
        int rc = s->rows[i] > 0 ? add_block(context, &product, &of[i]) : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

int cuda_grouped_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_grouped *g = state->grouped = must_alloc(1, sizeof *g);
    int rc = 0;
    g->n_ops = state->plan->n_ops;
    g->of = must_alloc((size_t)g->n_ops + 1, sizeof *g->of);
    for (int i = 0; i < g->n_ops; i++)
        if (state->plan->ops[i].kind == OP_GROUPED_GEMM)
            TRY(add_op(context, i)); /* dropless: those of even routing, whose success is a sign */
out:
    return rc;
}

void cuda_grouped_close(struct cuda_state *state)
{
    struct cuda_grouped *g = state->grouped;
    if (g == NULL)
        return;
    for (int i = 0; i < g->n; i++)
        gemm_release(&g->gemm[i]);
    for (int i = 0; i < g->n_ops; i++)
        free(g->of[i]);
    free(g->of);
    free(g->gemm);
    free(g);
    state->grouped = NULL;
}

int64_t cuda_grouped_scratch(const struct op *op, const struct cuda_state *state)
{
    (void)op;
    (void)state;
    return GEMM_WORKSPACE;
}

/* The product of a block whose size is of this step. */
static int run_counted(const struct op *product, struct kernel_context *context, void *native)
{
    struct gemm gemm = {.choice = {.key = gemm_key(product, NULL, context)}};
    if (choose(context, &gemm) != 0)
        die(FAIL_CUDA, "%s", fail_message());
    int status = gemm_run(&gemm, product, NULL, context, native);
    gemm_release(&gemm);
    return status;
}

void cuda_grouped_gemm(const struct op *op, struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    const struct shape_grouped *s = &op->shape.grouped;
    int index = fuse_index(state->plan, op);
    if (index < 0 || state->grouped->of[index] == NULL)
        BUG("a grouped product that the plan of open() does not have");
    const int *of = state->grouped->of[index];
    int64_t row = 0;
    for (int i = 0; i < s->blocks; row += s->rows[i++]) {
        struct op product = product_of(op, i, row);
        if (s->now != NULL ? s->rows[i] == 0 : of[i] < 0)
            continue;
        int status = s->now != NULL
                         ? run_counted(&product, context, native)
                         : gemm_run(&state->grouped->gemm[of[i]], &product, NULL, context, native);
        if (status != 0)
            die(FAIL_CUDA, "grouped-gemm: cuBLASLt refused a block of %lld rows: status %d",
                (long long)s->rows[i], status);
        context->work.gemm_flops += 2.0 * (double)s->rows[i] * (double)s->n * (double)s->k;
    }
    kernel_flops(context, op, 2.0 * (double)s->rows_valid * (double)s->n * (double)s->k);
}
