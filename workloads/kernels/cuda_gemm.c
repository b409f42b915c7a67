#include "workloads/kernels/cuda_gemm.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/beside.h"

enum { MOST_ALIGNMENT = 256 };

/* ---- keys ---- */

/* Memory of the device begins at a multiple of 256, so an offset tells the alignment. */
static int alignment_of(struct tensor t)
{
    int alignment = MOST_ALIGNMENT;
    while (t.offset % alignment != 0)
        alignment /= 2;
    return alignment;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Of C, and of where an epilogue puts the result instead; of what it has beside it. */
static void align_partner(struct gemm_key *key, const struct op *partner)
{
    bool elementwise = key->partner == PARTNER_GELU || key->partner == PARTNER_GELU_GRAD;
    key->alignment[3] = MOST_ALIGNMENT;
    for (int i = 0; elementwise && i < 3; i++)
        if (partner->t[i].buffer != BUFFER_NONE)
            key->alignment[3] = smaller(key->alignment[3], alignment_of(partner->t[i]));
    key->alignment[2] = smaller(key->alignment[2], key->alignment[3]);
}

/* C is zero when it begins: beta may be 0, and whoever zeroes leaves C as it is. */
static bool writes_first(const struct op *op, const struct kernel_context *context)
{
    const struct overwrite *overwrite = &cuda_state(context)->overwrite;
    int index = overwrite->plan != NULL ? fuse_index(overwrite->plan, op) : -1;
    return index >= 0 && overwrite->first[index];
}

struct gemm_key gemm_key(const struct op *op, const struct op *partner,
                         const struct kernel_context *context)
{
    const struct shape_gemm *s = &op->shape.gemm;
    struct gemm_key key;
    memset(&key, 0, sizeof key);
    key.m = s->m;
    key.n = s->n;
    key.k = s->k;
    key.dtype = (int)op->dtype;
    key.tf32 = op->dtype == DTYPE_F32 && (context->tf32 || cuda_state(context)->plan->tf32);
    key.fuse_all = context->fuse_all;
    key.trans_a = s->trans_a;
    key.trans_b = s->trans_b;
    key.wide = s->wide;
    key.beta = s->beta != 0 && !writes_first(op, context);
    key.bias = op->t[3].buffer != BUFFER_NONE;
    key.partner = (int)fuse_kind(partner);
    for (int i = 0; i < 3; i++)
        key.alignment[i] = alignment_of(op->t[i]);
    if (partner != NULL)
        align_partner(&key, partner);
    return key;
}

static int find(const struct cuda_gemms *gemms, const struct gemm_key *key)
{
    for (int i = 0; i < gemms->n; i++)
        if (memcmp(&gemms->gemm[i].choice.key, key, sizeof *key) == 0)
            return i;
    return -1;
}

/* ---- without a search ---- */

static int no_algorithm(const struct gemm_key *k)
{
    return fail(FAIL_USAGE,
                "gemm: cuBLASLt has no algorithm for %lld x %lld x %lld in %s%s: choose another "
                "dtype or sizes that are multiples of 8",
                (long long)k->m, (long long)k->n, (long long)k->k, dtype_name(k->dtype),
                k->wide ? " with an fp32 result" : "");
}

/* With the bias in the epilogue where there is an algorithm for that, else without. */
static int choose_first(const struct cuda_gemms *gemms, struct gemm *g, const void *bias,
                        bool deterministic)
{
    int n = 0, rc = 0;
    TRY(gemm_make(g));
    for (int way = bias != NULL ? WAY_BIAS : WAY_PLAIN; n == 0 && way >= WAY_PLAIN; way--) {
        g->choice.way = way;
        TRY(gemm_set_way(g, (enum gemm_way)way, way == WAY_BIAS ? bias : NULL, NULL));
        TRY(gemm_candidates(gemms, g, deterministic, &g->choice.algorithm, 1, &n));
    }
    if (n == 0)
        rc = no_algorithm(&g->choice.key);
out:
    return rc;
}

/* ---- open, close, run ---- */

/* What a product may take while calls may run beside it; 0: all. */
static int multiprocessors(const struct kernel_context *context)
{
    int gpu = 0, all = 0;
    if (context->margin == 0 || cudaGetDevice(&gpu) != cudaSuccess ||
        cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, gpu) != cudaSuccess)
        return 0;
    return all > context->margin ? all - context->margin : 0;
}

static int add_product(struct kernel_context *context, int index, int most)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_gemms *gemms = state->gemms;
    const struct op *op = &state->plan->ops[index];
    struct gemm_key key = gemm_key(op, fuse_partner(&state->fusion, op), context);
    key.multiprocessors = most;
    int at = find(gemms, &key);
    if (at < 0) {
        at = gemms->n++;
        gemms->gemm = must_grow(gemms->gemm, (size_t)gemms->n, sizeof *gemms->gemm);
        memset(&gemms->gemm[at], 0, sizeof gemms->gemm[at]);
        gemms->gemm[at].choice.key = key;
        int rc = choose_first(gemms, &gemms->gemm[at], tensor_at(context, op->t[3]),
                              context->deterministic);
        if (rc != 0)
            return rc;
    }
    gemms->of[index] = at;
    return 0;
}

int cuda_gemm_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_gemms *gemms = state->gemms = must_alloc(1, sizeof *gemms);
    cublasLtHandle_t handle = NULL;
    int rc = 0, fewer = multiprocessors(context);
    bool *beside = must_alloc((size_t)state->plan->n_ops + 1, sizeof *beside);
    beside_calls(state->plan, beside);
    gemms->of = must_alloc((size_t)state->plan->n_ops + 1, sizeof *gemms->of);
    for (int i = 0; i < state->plan->n_ops; i++) {
        gemms->of[i] = -1;
        if (state->plan->ops[i].kind != OP_GEMM)
            continue;
        if (handle == NULL && cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS)
            rc = fail(FAIL_CUDA, "gemm: cuBLASLt could not be opened on this device");
        gemms->handle = handle;
        TRY(rc);
        TRY(add_product(context, i, beside[i] ? fewer : 0));
    }
out:
    free(beside);
    return rc;
}

void cuda_gemm_close(struct cuda_state *state)
{
    struct cuda_gemms *gemms = state->gemms;
    if (gemms == NULL)
        return;
    for (int i = 0; i < gemms->n; i++)
        gemm_release(&gemms->gemm[i]);
    if (gemms->handle)
        cublasLtDestroy(gemms->handle);
    free(gemms->gemm);
    free(gemms->of);
    free(gemms);
    state->gemms = NULL;
}

/* The sums of a bias gradient lie behind the workspace. */
int64_t cuda_gemm_scratch(const struct op *op, const struct cuda_state *state)
{
    bool sums = fuse_kind(fuse_partner(&state->fusion, op)) == PARTNER_BIAS_GRAD;
    return GEMM_WORKSPACE + (sums ? op->shape.gemm.m * (int64_t)sizeof(float) : 0);
}

static double least(int64_t valid, int64_t executed)
{
    return (double)(valid < executed ? valid : executed);
}

void cuda_gemm(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_gemm *s = &op->shape.gemm;
    const struct cuda_state *state = cuda_state(context);
    int index = fuse_index(state->plan, op);
    if (index < 0 || state->gemms->of[index] < 0)
        BUG("a product that the plan of open() does not have");
    struct gemm *g = &state->gemms->gemm[state->gemms->of[index]];
    int status = gemm_run(g, op, fuse_partner(&state->fusion, op), context, native);
    if (status != 0)
        die(FAIL_CUDA,
            "gemm: cuBLASLt refused %lld x %lld x %lld by algorithm %d: %s (chosen on one rank for "
            "all: --gemm-search off lets each take its own)",
            (long long)s->m, (long long)s->n, (long long)s->k, g->choice.algorithm.id,
            cublasLtGetStatusString((cublasStatus_t)status));
    context->work.gemm_flops += 2.0 * (double)s->m * (double)s->n * (double)s->k;
    kernel_flops(context, op,
                 2.0 * least(s->m_valid, s->m) * least(s->n_valid, s->n) * least(s->k_valid, s->k));
}

/* ---- words ---- */

/* Splits of k share the sum of an element; some schemes round a part of it to the type of C. */
static size_t describe_algorithm(const struct gemm_algorithm *a, char *text, size_t size)
{
    const char *parts = a->reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ? "" : "r";
    if (a->splits <= 1)
        return (size_t)snprintf(text, size, " %d", a->id);
    return (size_t)snprintf(text, size, " %d/%d%s", a->id, a->splits, parts);
}

void cuda_gemm_describe(const struct cuda_state *state, char *text, size_t size)
{
    const struct cuda_gemms *gemms = state->gemms;
    size_t version = cublasLtGetVersion(), at = 0;
    int biased = 0, in_epilogue = 0, fused = 0, fewer = 0;
    for (int i = 0; i < gemms->n; i++) {
        const struct gemm_choice *c = &gemms->gemm[i].choice;
        biased += c->key.bias;
        in_epilogue += c->key.bias && c->way != WAY_PLAIN;
        fused += c->way == WAY_FUSED;
        fewer += c->key.multiprocessors > 0;
    }
    at = (size_t)snprintf(text, size,
                          "gemm cuBLASLt %zu, %d shapes, bias in the epilogue of %d of %d, %d with "
                          "their partner, ",
                          version, gemms->n, in_epilogue, biased, fused);
    if (fewer > 0 && at < size)
        at += (size_t)snprintf(text + at, size - at, "%d leave multiprocessors to calls, ", fewer);
    if (gemms->searched && at < size)
        at += (size_t)snprintf(text + at, size - at, "searched in %.1f s, ", gemms->search_s);
    if (at < size)
        at += (size_t)snprintf(text + at, size - at, "algorithms");
    for (int i = 0; i < gemms->n && at < size; i++)
        at += describe_algorithm(&gemms->gemm[i].choice.algorithm, text + at, size - at);
}

static size_t describe_key(const struct gemm_key *k, char *text, size_t size)
{
    static const char *const partners[] = {"", " gelu", " gelu-grad", " bias-grad"};
    return (size_t)snprintf(text, size, "gemm %lld x %lld x %lld %c%c %s%s%s%s%s", (long long)k->m,
                            (long long)k->n, (long long)k->k, k->trans_a ? 't' : 'n',
                            k->trans_b ? 't' : 'n', k->tf32 ? "tf32" : dtype_name(k->dtype),
                            k->wide ? " to fp32" : "", k->beta ? " adding" : "",
                            k->bias ? " bias" : "", partners[k->partner]);
}

static size_t describe_choice(const struct gemm_choice *c, char *text, size_t size)
{
    static const char *const ways[GEMM_WAYS] = {"plain", "bias", "fused"};
    const struct gemm_algorithm *a = &c->algorithm;
    size_t at = describe_key(&c->key, text, size);
    at += (size_t)snprintf(
        text + at, size - at,
        ": %s, algorithm %d tile %d stages %d cluster %d split %d, %.1f us of %.1f the "
        "first, %d candidates",
        ways[c->way], a->id, a->tile, a->stages, a->cluster, a->splits > 1 ? a->splits : 1,
        (double)a->us, (double)c->first_us, c->candidates);
    for (int w = 0; w < GEMM_WAYS; w++)
        if (c->way_us[w] > 0)
            at += (size_t)snprintf(text + at, size - at, ", %s %.1f us", ways[w],
                                   (double)c->way_us[w]);
    return at;
}

void cuda_gemm_describe_choices(const struct cuda_state *state, char *text, size_t size)
{
    enum { MOST = 400 }; /* characters of a line */
    const struct cuda_gemms *gemms = state->gemms;
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < gemms->n && gemms->searched && at + MOST < size; i++) {
        text[at++] = '\n';
        at += describe_choice(&gemms->gemm[i].choice, text + at, MOST);
    }
}
