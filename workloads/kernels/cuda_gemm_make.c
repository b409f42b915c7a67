/* Descriptors of products, algorithms for them, and the launch. */
#include "workloads/kernels/cuda_gemm.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((struct gemm_algorithm *)0)->opaque),
               "an algorithm of cuBLASLt is eight words");

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

static cublasComputeType_t compute_type(const struct gemm_key *key)
{
    return key->dtype == DTYPE_F32 && key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static int set(void *product, cublasLtMatmulDescAttributes_t name, const void *value, size_t size)
{
    return lt(cublasLtMatmulDescSetAttribute(product, name, value, size), "product");
}

/*
 * cuBLASLt is column-major, where our row-major C = A B reads C^T = B^T A^T: its first matrix is
 * our B, its second our A, and a matrix stored as it stands in the product is "not transposed".
 */
static int make_product(struct gemm *g)
{
    const struct gemm_key *key = &g->choice.key;
    cublasOperation_t first = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDesc_t product = NULL;
    int rc = 0;
    if (g->product)
        cublasLtMatmulDescDestroy(g->product);
    g->product = NULL;
    TRY(lt(cublasLtMatmulDescCreate(&product, compute_type(key), CUDA_R_32F), "product"));
    g->product = product;
    TRY(set(product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    TRY(set(product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (key->multiprocessors > 0) {
        int32_t most = key->multiprocessors;
        TRY(set(product, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &most, sizeof most));
    }
out:
    return rc;
}

/* A matrix of rows x columns as stored row by row. */
static int make_layout(void **out, cudaDataType_t type, int64_t rows, int64_t columns)
{
    cublasLtMatrixLayout_t layout = NULL;
    int rc =
        lt(cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)columns, (uint64_t)rows, columns),
           "layout");
    *out = layout;
    return rc;
}

int gemm_make(struct gemm *g)
{
    const struct gemm_key *k = &g->choice.key;
    cudaDataType_t type = element(k), out = k->wide ? CUDA_R_32F : type;
    int rc = 0;
    TRY(make_layout(&g->a, type, k->trans_a ? k->k : k->m, k->trans_a ? k->m : k->k));
    TRY(make_layout(&g->b, type, k->trans_b ? k->n : k->k, k->trans_b ? k->k : k->n));
    TRY(make_layout(&g->c, out, k->m, k->n));
out:
    return rc;
}

void gemm_release(struct gemm *g)
{
    if (g->product)
        cublasLtMatmulDescDestroy(g->product);
    if (g->a)
        cublasLtMatrixLayoutDestroy(g->a);
    if (g->b)
        cublasLtMatrixLayoutDestroy(g->b);
    if (g->c)
        cublasLtMatrixLayoutDestroy(g->c);
}

/* ---- epilogues ---- */

static cublasLtEpilogue_t epilogue_of(const struct gemm_key *key, enum gemm_way way)
{
    if (way != WAY_FUSED)
        return way == WAY_BIAS ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (key->partner == PARTNER_GELU)
        return key->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (key->partner == PARTNER_GELU_GRAD)
        return CUBLASLT_EPILOGUE_DGELU;
    return CUBLASLT_EPILOGUE_BGRADB; /* our A is its second matrix */
}

static int set_pointers(struct gemm *g, const void *bias, const void *aux)
{
    int rc = 0;
    if (bias != NULL)
        TRY(set(g->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (aux != NULL)
        TRY(set(g->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
out:
    return rc;
}

/* A bias is of the type of the inputs; sums of a bias gradient are fp32, as what they go to. */
int gemm_set_way(struct gemm *g, enum gemm_way way, const void *bias, const void *aux)
{
    const struct gemm_key *key = &g->choice.key;
    cublasLtEpilogue_t epilogue = epilogue_of(key, way);
    cudaDataType_t type = epilogue == CUBLASLT_EPILOGUE_BGRADB ? CUDA_R_32F : element(key);
    int64_t row = key->n;
    int rc = 0;
    TRY(make_product(g)); /* nothing of another way stays in it */
    TRY(set(g->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (bias != NULL)
        TRY(set(g->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    if (aux != NULL)
        TRY(set(g->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &row, sizeof row));
    TRY(set_pointers(g, bias, aux));
out:
    return rc;
}

/* ---- algorithms ---- */

static int prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
                  const void *value, size_t size)
{
    return lt(cublasLtMatmulPreferenceSetAttribute(preference, name, value, size), "preference");
}

static int make_preference(const struct gemm_key *key, bool deterministic,
                           cublasLtMatmulPreference_t *out)
{
    size_t workspace = GEMM_WORKSPACE;
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

static int config(const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t name)
{
    int value = 0;
    cublasLtMatmulAlgoConfigGetAttribute(algorithm, name, &value, sizeof value, NULL);
    return value;
}

/* Of the attributes that have 16 bits. */
static int small_config(const cublasLtMatmulAlgo_t *algorithm,
                        cublasLtMatmulAlgoConfigAttributes_t name)
{
    uint16_t value = 0;
    cublasLtMatmulAlgoConfigGetAttribute(algorithm, name, &value, sizeof value, NULL);
    return value;
}

static void keep(const cublasLtMatmulHeuristicResult_t *result, struct gemm_algorithm *out)
{
    const cublasLtMatmulAlgo_t *algorithm = &result->algo;
    memset(out, 0, sizeof *out);
    memcpy(out->opaque, algorithm, sizeof out->opaque);
    out->workspace = (int64_t)result->workspaceSize;
    out->id = config(algorithm, CUBLASLT_ALGO_CONFIG_ID);
    out->tile = config(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID);
    out->stages = config(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID);
    out->splits = config(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    out->reduction = config(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    out->cluster = small_config(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
}

int gemm_candidates(const struct cuda_gemms *gemms, const struct gemm *g, bool deterministic,
                    struct gemm_algorithm *out, int most, int *n)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t *result = must_alloc((size_t)most, sizeof *result);
    int found = 0, rc = 0;
    *n = 0;
    TRY(make_preference(&g->choice.key, deterministic, &preference));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        gemms->handle, g->product, g->b, g->a, g->c, g->c, preference, most, result, &found);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED)
        TRY(lt(status, "choice of an algorithm"));
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < found; i++)
        if (result[i].state == CUBLAS_STATUS_SUCCESS)
            keep(&result[i], &out[(*n)++]);
out:
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    free(result);
    return rc;
}

void gemm_neighbours(const struct cuda_gemms *gemms, const struct gemm *g,
                     const struct gemm_algorithm *like, struct gemm_algorithm *out, int most,
                     int *n)
{
    static const uint16_t shapes[] = {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                      CUBLASLT_CLUSTER_SHAPE_1x2x1, CUBLASLT_CLUSTER_SHAPE_2x2x1,
                                      CUBLASLT_CLUSTER_SHAPE_4x1x1, CUBLASLT_CLUSTER_SHAPE_1x4x1,
                                      CUBLASLT_CLUSTER_SHAPE_4x2x1, CUBLASLT_CLUSTER_SHAPE_2x4x1};
    *n = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && *n < most; i++) {
        cublasLtMatmulHeuristicResult_t result = {0};
        cublasLtMatmulAlgo_t algo;
        memcpy(&algo, like->opaque, sizeof algo);
        if (shapes[i] == like->cluster ||
            cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
                                                 &shapes[i],
                                                 sizeof shapes[i]) != CUBLAS_STATUS_SUCCESS ||
            cublasLtMatmulAlgoCheck(gemms->handle, g->product, g->b, g->a, g->c, g->c, &algo,
                                    &result) != CUBLAS_STATUS_SUCCESS ||
            result.workspaceSize > GEMM_WORKSPACE)
            continue;
        result.algo = algo;
        keep(&result, &out[(*n)++]);
    }
}

/* ---- the launch ---- */

struct places {
    const void *a, *b, *bias; /* bias: of the epilogue, or where it leaves the sums of one */
    void *c, *d, *aux;
};

static struct places places_of(const struct gemm *g, const struct op *op, const struct op *partner,
                               const struct kernel_context *context)
{
    struct places p = {.a = tensor_at(context, op->t[0]),
                       .b = tensor_at(context, op->t[1]),
                       .bias = tensor_at(context, op->t[3]),
                       .c = tensor_at(context, op->t[2])};
    bool fused = g->choice.way == WAY_FUSED;
    p.d = p.c;
    if (fused && g->choice.key.partner == PARTNER_GELU) {
        p.aux = p.c;
        p.d = tensor_at(context, partner->t[1]);
    } else if (fused && g->choice.key.partner == PARTNER_GELU_GRAD) {
        p.aux = tensor_at(context, partner->t[1]);
        p.d = tensor_at(context, partner->t[2]);
    } else if (fused) {
        p.bias = cuda_state(context)->scratch + GEMM_WORKSPACE;
    }
    return p;
}

int gemm_run(struct gemm *g, const struct op *op, const struct op *partner,
             struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    const struct gemm_choice *choice = &g->choice;
    struct places p = places_of(g, op, partner, context);
    float alpha = 1, beta = choice->key.beta ? 1 : 0;
    cublasLtMatmulAlgo_t algo;

    memcpy(&algo, choice->algorithm.opaque, sizeof algo);
    if (choice->way == WAY_PLAIN && p.bias != NULL) { /* before, so that nothing is rounded twice */
        cuda_put_bias(op, context, native);
        beta = 1;
    } else if (set_pointers(g, p.bias, p.aux) != 0) {
        die(FAIL_CUDA, "%s", fail_message());
    }
    cublasStatus_t status = cublasLtMatmul(state->gemms->handle, g->product, &alpha, p.b, g->b, p.a,
                                           g->a, &beta, p.c, g->c, p.d, g->c, &algo, state->scratch,
                                           (size_t)choice->algorithm.workspace, native);
    if (status != CUBLAS_STATUS_SUCCESS)
        return (int)status;
    if (choice->way == WAY_FUSED && choice->key.partner == PARTNER_BIAS_GRAD)
        cuda_add_floats(tensor_at(context, partner->t[1]), p.bias, choice->key.m, state, native);
    return 0;
}
