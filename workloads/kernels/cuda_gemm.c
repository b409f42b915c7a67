#include "workloads/kernels/cuda.h"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

enum { WORKSPACE = 32 << 20, MOST_ALIGNMENT = 256 };

/* What a choice of algorithm depends on. Compared as bytes: made by key_of alone. */
struct gemm_key {
    int64_t m, n, k;
    int dtype, trans_a, trans_b, wide, beta, bias;
    int alignment[3]; /* of A, B, C */
    int pad;
};

struct gemm {
    struct gemm_key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    bool epilogue;             /* adds the bias itself */
    int id, splits, reduction; /* of the algorithm, for the record */
};

struct cuda_gemms {
    cublasLtHandle_t handle;
    int n;
    struct gemm *gemm; /* [n], one per key of the plan */
};

/* Memory of the device begins at a multiple of 256, so an offset tells the alignment. */
static int alignment_of(struct tensor t)
{
    int alignment = MOST_ALIGNMENT;
    while (t.offset % alignment != 0)
        alignment /= 2;
    return alignment;
}

static struct gemm_key key_of(const struct op *op)
{
    const struct shape_gemm *s = &op->shape.gemm;
    struct gemm_key key;
    memset(&key, 0, sizeof key);
    key.m = s->m;
    key.n = s->n;
    key.k = s->k;
    key.dtype = (int)op->dtype;
    key.trans_a = s->trans_a;
    key.trans_b = s->trans_b;
    key.wide = s->wide;
    key.beta = s->beta != 0;
    key.bias = op->t[3].buffer != BUFFER_NONE;
    for (int i = 0; i < 3; i++)
        key.alignment[i] = alignment_of(op->t[i]);
    return key;
}

static struct gemm *find(const struct cuda_gemms *gemms, const struct gemm_key *key)
{
    for (int i = 0; i < gemms->n; i++)
        if (memcmp(&gemms->gemm[i].key, key, sizeof *key) == 0)
            return &gemms->gemm[i];
    return NULL;
}

static int lt(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return fail(FAIL_CUDA, "gemm: cuBLASLt could not make the %s: %s", what,
                cublasLtGetStatusString(status));
}

/* ---- descriptors ---- */

static cudaDataType_t element(const struct gemm_key *key)
{
    return key->dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasComputeType_t compute_type(const struct gemm_key *key, bool tf32)
{
    return key->dtype == DTYPE_F32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static int set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name, const void *value,
               size_t size)
{
    return lt(cublasLtMatmulDescSetAttribute(product, name, value, size), "product");
}

/*
 * cuBLASLt is column-major, where our row-major C = A B reads C^T = B^T A^T: its first matrix is
 * our B, its second our A, and a matrix stored as it stands in the product is "not transposed".
 */
static int make_product(struct gemm *g, bool tf32)
{
    cublasOperation_t first = g->key.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = g->key.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int rc = 0;
    TRY(lt(cublasLtMatmulDescCreate(&g->product, compute_type(&g->key, tf32), CUDA_R_32F),
           "product"));
    TRY(set(g->product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    TRY(set(g->product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
out:
    return rc;
}

/* A matrix of rows x columns as stored row by row. */
static int make_layout(cublasLtMatrixLayout_t *layout, cudaDataType_t type, int64_t rows,
                       int64_t columns)
{
    return lt(cublasLtMatrixLayoutCreate(layout, type, (uint64_t)columns, (uint64_t)rows, columns),
              "layout");
}

static int make_layouts(struct gemm *g)
{
    const struct gemm_key *k = &g->key;
    cudaDataType_t type = element(k), out = k->wide ? CUDA_R_32F : type;
    int rc = 0;
    TRY(make_layout(&g->a, type, k->trans_a ? k->k : k->m, k->trans_a ? k->m : k->k));
    TRY(make_layout(&g->b, type, k->trans_b ? k->n : k->k, k->trans_b ? k->k : k->n));
    TRY(make_layout(&g->c, out, k->m, k->n));
out:
    return rc;
}

static int set_epilogue(struct gemm *g, const void *bias)
{
    cublasLtEpilogue_t epilogue = bias != NULL ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType_t type = element(&g->key);
    int rc = 0;
    TRY(set(g->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (bias != NULL) {
        TRY(set(g->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
        TRY(set(g->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
out:
    return rc;
}

/* ---- the choice ---- */

static int prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
                  const void *value, size_t size)
{
    return lt(cublasLtMatmulPreferenceSetAttribute(preference, name, value, size), "preference");
}

static int make_preference(const struct gemm_key *key, bool deterministic,
                           cublasLtMatmulPreference_t *out)
{
    size_t workspace = WORKSPACE;
    uint32_t a = (uint32_t)key->alignment[0], b = (uint32_t)key->alignment[1];
    uint32_t c = (uint32_t)key->alignment[2];
    uint32_t in_order = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int rc = 0;
    TRY(lt(cublasLtMatmulPreferenceCreate(out), "preference"));
    TRY(prefer(*out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    TRY(prefer(*out, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b));
    TRY(prefer(*out, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a));
    TRY(prefer(*out, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c));
    TRY(prefer(*out, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c));
    if (deterministic)
        TRY(prefer(*out, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &in_order, sizeof in_order));
out:
    return rc;
}

static int config(const struct gemm *g, cublasLtMatmulAlgoConfigAttributes_t name, int *value)
{
    *value = 0;
    return lt(cublasLtMatmulAlgoConfigGetAttribute(&g->algorithm, name, value, sizeof *value, NULL),
              "algorithm");
}

/* *found: whether the heuristic has an algorithm for what g->product says now. */
static int choose(const struct cuda_gemms *gemms, struct gemm *g,
                  cublasLtMatmulPreference_t preference, bool *found)
{
    cublasLtMatmulHeuristicResult_t result;
    int n = 0, rc = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(gemms->handle, g->product, g->b, g->a,
                                                           g->c, g->c, preference, 1, &result, &n);
    *found = status == CUBLAS_STATUS_SUCCESS && n > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    if (!*found)
        return status == CUBLAS_STATUS_NOT_SUPPORTED ? 0 : lt(status, "choice of an algorithm");
    g->algorithm = result.algo;
    g->workspace = result.workspaceSize;
    TRY(config(g, CUBLASLT_ALGO_CONFIG_ID, &g->id));
    TRY(config(g, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &g->splits));
    TRY(config(g, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &g->reduction));
out:
    return rc;
}

static int no_algorithm(const struct gemm_key *k)
{
    return fail(FAIL_USAGE,
                "gemm: cuBLASLt has no algorithm for %lld x %lld x %lld in %s%s: choose another "
                "dtype or sizes that are multiples of 8",
                (long long)k->m, (long long)k->n, (long long)k->k, dtype_name(k->dtype),
                k->wide ? " with an fp32 result" : "");
}

/* With the bias in the epilogue where there is an algorithm for that, else without. */
static int make_gemm(const struct cuda_gemms *gemms, struct gemm *g, const void *bias,
                     const struct kernel_context *context)
{
    cublasLtMatmulPreference_t preference = NULL;
    bool found = false;
    int rc = 0;
    TRY(make_product(g, context->tf32 || cuda_state(context)->plan->tf32));
    TRY(make_layouts(g));
    TRY(make_preference(&g->key, context->deterministic, &preference));
    if (bias != NULL) {
        TRY(set_epilogue(g, bias));
        TRY(choose(gemms, g, preference, &found));
        g->epilogue = found;
    }
    if (!found) {
        TRY(set_epilogue(g, NULL));
        TRY(choose(gemms, g, preference, &found));
    }
    if (!found)
        rc = no_algorithm(&g->key);
out:
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return rc;
}

/* ---- open, close, run ---- */

int cuda_gemm_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_gemms *gemms = state->gemms = must_alloc(1, sizeof *gemms);
    int rc = 0;
    for (int i = 0; i < state->plan->n_ops; i++) {
        const struct op *op = &state->plan->ops[i];
        struct gemm_key key;
        if (op->kind != OP_GEMM)
            continue;
        if (gemms->handle == NULL)
            TRY(lt(cublasLtCreate(&gemms->handle), "handle"));
        key = key_of(op);
        if (find(gemms, &key))
            continue;
        gemms->gemm = must_grow(gemms->gemm, (size_t)gemms->n + 1, sizeof *gemms->gemm);
        gemms->gemm[gemms->n] = (struct gemm){.key = key};
        TRY(make_gemm(gemms, &gemms->gemm[gemms->n++], tensor_at(context, op->t[3]), context));
    }
out:
    return rc;
}

void cuda_gemm_close(struct cuda_state *state)
{
    struct cuda_gemms *gemms = state->gemms;
    if (gemms == NULL)
        return;
    for (int i = 0; i < gemms->n; i++) {
        struct gemm *g = &gemms->gemm[i];
        if (g->product)
            cublasLtMatmulDescDestroy(g->product);
        if (g->a)
            cublasLtMatrixLayoutDestroy(g->a);
        if (g->b)
            cublasLtMatrixLayoutDestroy(g->b);
        if (g->c)
            cublasLtMatrixLayoutDestroy(g->c);
    }
    if (gemms->handle)
        cublasLtDestroy(gemms->handle);
    free(gemms->gemm);
    free(gemms);
    state->gemms = NULL;
}

int64_t cuda_gemm_scratch(const struct op *op, const struct cuda_state *state)
{
    (void)op;
    (void)state;
    return WORKSPACE;
}

/* Splits of k share the sum of an element; some schemes round a part of it to the type of C. */
static size_t describe_algorithm(const struct gemm *g, char *text, size_t size)
{
    const char *parts = g->reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ? "" : "r";
    if (g->splits <= 1)
        return (size_t)snprintf(text, size, " %d", g->id);
    return (size_t)snprintf(text, size, " %d/%d%s", g->id, g->splits, parts);
}

void cuda_gemm_describe(const struct cuda_state *state, char *text, size_t size)
{
    const struct cuda_gemms *gemms = state->gemms;
    size_t version = cublasLtGetVersion(), at = 0;
    int biased = 0, fused = 0;
    for (int i = 0; i < gemms->n; i++) {
        biased += gemms->gemm[i].key.bias;
        fused += gemms->gemm[i].epilogue;
    }
    at = (size_t)snprintf(
        text, size, "gemm cuBLASLt %zu, %d shapes, bias in the epilogue of %d of %d, algorithms",
        version, gemms->n, fused, biased);
    for (int i = 0; i < gemms->n && at < size; i++)
        at += describe_algorithm(&gemms->gemm[i], text + at, size - at);
}

static double least(int64_t valid, int64_t executed)
{
    return (double)(valid < executed ? valid : executed);
}

void cuda_gemm(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_gemm *s = &op->shape.gemm;
    const struct cuda_state *state = cuda_state(context);
    const void *a = tensor_at(context, op->t[0]), *b = tensor_at(context, op->t[1]);
    const void *bias = tensor_at(context, op->t[3]);
    void *c = tensor_at(context, op->t[2]);
    struct gemm_key key = key_of(op);
    struct gemm *g = find(state->gemms, &key);
    float alpha = 1, beta = s->beta;

    if (g == NULL)
        BUG("a product that the plan of open() does not have");
    if (g->epilogue) {
        cublasLtMatmulDescSetAttribute(g->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                       sizeof bias);
    } else if (bias != NULL) { /* before, so that nothing is rounded twice */
        cuda_put_bias(op, context, native);
        beta = 1;
    }
    cublasStatus_t status =
        cublasLtMatmul(state->gemms->handle, g->product, &alpha, b, g->b, a, g->a, &beta, c, g->c,
                       c, g->c, &g->algorithm, state->scratch, g->workspace, native);
    if (status != CUBLAS_STATUS_SUCCESS)
        die(FAIL_CUDA, "gemm: cuBLASLt refused %lld x %lld x %lld: %s", (long long)s->m,
            (long long)s->n, (long long)s->k, cublasLtGetStatusString(status));
    context->work.gemm_flops += 2.0 * (double)s->m * (double)s->n * (double)s->k;
    kernel_flops(context, op,
                 2.0 * least(s->m_valid, s->m) * least(s->n_valid, s->n) * least(s->k_valid, s->k));
}
