/* The same choices on all ranks: of those that have a product, the lowest searches and tells. */
#include "workloads/kernels/cuda_gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"

/* What earlier plans of this process found: the same product takes the same algorithm at all points. */
static struct {
    struct gemm_choice *choice;
    int n;
} known;

static struct gemm_choice *find_choice(struct gemm_choice *choice, int n,
                                       const struct gemm_key *key)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&choice[i].key, key, sizeof *key) == 0)
            return &choice[i];
    return NULL;
}

/* Of the products of this rank those that no lower rank has: owns[gemms->n]. */
static int share_out(const struct kernel_context *context, bool *owns)
{
    const struct cuda_gemms *gemms = cuda_state(context)->gemms;
    struct gemm_key *keys = must_alloc((size_t)gemms->n + 1, sizeof *keys);
    for (int i = 0; i < gemms->n; i++)
        keys[i] = gemms->gemm[i].choice.key;
    int rc = cuda_share_out(context->share, keys, sizeof *keys, gemms->n, owns);
    free(keys);
    return rc;
}

/* A product that this process has searched for before keeps what it took. */
static void search_own(struct kernel_context *context, const bool *owns)
{
    struct cuda_gemms *gemms = cuda_state(context)->gemms;
    bool *wanted = must_alloc((size_t)gemms->n + 1, sizeof *wanted);
    for (int i = 0; i < gemms->n; i++) {
        struct gemm *g = &gemms->gemm[i];
        const struct gemm_choice *old = find_choice(known.choice, known.n, &g->choice.key);
        wanted[i] = owns[i] && old == NULL;
        if (owns[i] && old != NULL)
            g->choice = *old;
    }
    gemm_search(context, wanted);
    free(wanted);
}

static void remember(const struct gemm_choice *choice)
{
    struct gemm_choice *old = find_choice(known.choice, known.n, &choice->key);
    if (old == NULL) {
        known.choice = must_grow(known.choice, (size_t)known.n + 1, sizeof *known.choice);
        old = &known.choice[known.n++];
    }
    *old = *choice;
}

/* Take over what was chosen: the pointers of the way are set at each run. */
static int adopt(const struct cuda_state *state, struct gemm *g, const struct gemm_choice *choice)
{
    const struct gemm_key *k = &g->choice.key;
    const void *some = state->scratch; /* aligned as all memory of the device */
    bool fused = choice->way == WAY_FUSED, sums = k->partner == PARTNER_BIAS_GRAD;
    g->choice = *choice;
    return gemm_set_way(g, (enum gemm_way)choice->way,
                        (choice->way != WAY_PLAIN && k->bias) || (fused && sums) ? some : NULL,
                        fused && !sums ? some : NULL);
}

static int adopt_all(struct kernel_context *context, const bool *owns)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_gemms *gemms = state->gemms;
    struct gemm_choice *mine = must_alloc((size_t)gemms->n + 1, sizeof *mine), *all = NULL;
    int n_mine = 0, n = 0, rc = 0;
    for (int i = 0; i < gemms->n; i++)
        if (owns[i])
            mine[n_mine++] = gemms->gemm[i].choice;
    TRY(cuda_share_all(context->share, mine, sizeof *mine, n_mine, (void **)&all, &n));
    for (int i = 0; i < gemms->n; i++) {
        struct gemm_choice *choice = find_choice(all, n, &gemms->gemm[i].choice.key);
        if (choice == NULL)
            BUG("a product that nobody searched for");
        remember(choice);
        TRY(adopt(state, &gemms->gemm[i], choice));
    }
    for (int i = 0; i < state->plan->n_ops; i++)
        if (gemms->of[i] >= 0 && gemms->gemm[gemms->of[i]].choice.way == WAY_FUSED)
            fuse_use(&state->fusion, &state->plan->ops[i]);
out:
    free(mine);
    free(all);
    return rc;
}

int cuda_gemm_search(struct kernel_context *context)
{
    struct cuda_gemms *gemms = cuda_state(context)->gemms;
    bool *owns = must_alloc((size_t)gemms->n + 1, sizeof *owns);
    int64_t begin = units_now_ns();
    int rc = 0;
    if (!context->search || context->deterministic)
        goto out;
    TRY(share_out(context, owns));
    search_own(context, owns);
    gemms->searched = true;
    gemms->search_s = (double)(units_now_ns() - begin) / 1e9;
    TRY(adopt_all(context, owns));
out:
    free(owns);
    return rc;
}
