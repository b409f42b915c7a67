/* The same plans on all ranks: of those that have a shape, the lowest searches and tells. */
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/kernels/cuda.h"
#include "workloads/kernels/cuda_cudnn_set.h"

/* What earlier plans of this process found: the same shape takes the same plan at all points. */
static struct {
    struct attention_found *found;
    int n;
} known;

static const struct attention_found *find_found(const struct attention_found *found, int n,
                                                const struct attention_key *key)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&found[i].key, key, sizeof *key) == 0)
            return &found[i];
    return NULL;
}

static void remember(const struct attention_found *found)
{
    if (find_found(known.found, known.n, &found->key) != NULL)
        return;
    known.found = must_grow(known.found, (size_t)known.n + 1, sizeof *known.found);
    known.found[known.n++] = *found;
}

/* Searches for those that are this rank's; what it found, for the others. */
static int search_own(struct kernel_context *context, struct cuda_cudnn *c, const bool *owns,
                      struct attention_found *mine)
{
    struct cuda_state *state = cuda_state(context);
    void *native = state->device->type->native(state->device, DEVICE_COMPUTE);
    int n = 0;
    if (c == NULL || cudnnSetStream(c->handle, native) != CUDNN_STATUS_SUCCESS)
        return 0;
    c->stream = native;
    for (int i = 0; i < c->n; i++) {
        struct attention_entry *e = &c->entries[i];
        struct attention_key key = attention_key(e);
        const struct attention_found *old = find_found(known.found, known.n, &key);
        if (!owns[i])
            continue;
        if (old != NULL)
            e->found = *old;
        else
            attention_search(e, c->handle, context, native);
        mine[n++] = e->found;
    }
    return n;
}

static int adopt_all(struct cuda_cudnn *c, const struct attention_found *all, int n)
{
    int rc = 0;
    for (int i = 0; c != NULL && i < c->n; i++) {
        struct attention_key key = attention_key(&c->entries[i]);
        const struct attention_found *found = find_found(all, n, &key);
        if (found == NULL)
            continue; /* its owner could not search: each keeps the first */
        remember(found);
        TRY(attention_adopt(&c->entries[i], c->handle, found));
    }
    if (c != NULL)
        cudnn_size_scratch(c);
out:
    return rc;
}

int cuda_cudnn_search(struct kernel_context *context)
{
    struct cuda_cudnn *c = cuda_state(context)->cudnn;
    int n = c != NULL ? c->n : 0, n_mine = 0, n_all = 0, rc = 0;
    if (!context->search || context->deterministic)
        return 0;
    struct attention_key *keys = must_alloc((size_t)n + 1, sizeof *keys);
    struct attention_found *mine = must_alloc((size_t)n + 1, sizeof *mine), *all = NULL;
    bool *owns = must_alloc((size_t)n + 1, sizeof *owns);
    for (int i = 0; i < n; i++)
        keys[i] = attention_key(&c->entries[i]);
    TRY(cuda_share_out(context->share, keys, sizeof *keys, n, owns));
    n_mine = search_own(context, c, owns, mine);
    TRY(cuda_share_all(context->share, mine, sizeof *mine, n_mine, (void **)&all, &n_all));
    TRY(adopt_all(c, all, n_all));
out:
    free(keys);
    free(mine);
    free(all);
    free(owns);
    return rc;
}

/* ---- words ---- */

static size_t describe_engine(const struct cudnn_engine *e, char *text, size_t size)
{
    static const char *const modes[] = {"instant", "B", "fallback",
                                        "A"}; /* cudnnBackendHeurMode_t */
    size_t at = (size_t)snprintf(text, size, "engine %d", e->index);
    for (int i = 0; i < e->n_knobs && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%d=%lld", i == 0 ? " knobs " : ",",
                               e->knob[i], (long long)e->value[i]);
    if (at < size && e->mode >= 0 && e->mode < 4)
        at += (size_t)snprintf(text + at, size - at, " of mode %s", modes[e->mode]);
    return at < size ? at : size - 1;
}

static size_t describe_found(const struct attention_entry *e, char *text, size_t size)
{
    const struct shape_attention *s = &e->shape;
    const struct attention_found *f = &e->found;
    size_t at = (size_t)snprintf(text, size, "attention %s %lld x %lld heads %d/%d of %d: ",
                                 e->backward ? "backward" : "forward", (long long)s->batch,
                                 (long long)s->sequence, s->heads, s->kv_heads, s->head);
    if (f->own)
        at += (size_t)snprintf(text + at, size - at, "own kernel (wgmma)");
    else
        at += describe_engine(&f->engine, text + at, size - at);
    at +=
        (size_t)snprintf(text + at, size - at, ", %sworkspace %.1f MiB, %d candidates, %d refused",
                         f->ordered && e->backward ? "dq in order, " : "",
                         (double)f->workspace_bytes / 1048576, f->candidates, f->refused);
    if (f->us > 0 && at < size)
        at += (size_t)snprintf(text + at, size - at, ", %.1f us of %.1f the first", (double)f->us,
                               (double)f->first_us);
    return at < size ? at : size - 1;
}

void cuda_cudnn_describe_choices(const struct cuda_state *state, char *text, size_t size)
{
    enum { MOST = 480 }; /* characters of a line */
    const struct cuda_cudnn *c = state->cudnn;
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < c->n && at + MOST + 1 < size; i++) {
        if (c->entries[i].found.candidates == 0)
            continue;
        text[at++] = '\n';
        at += describe_found(&c->entries[i], text + at, MOST);
    }
}
