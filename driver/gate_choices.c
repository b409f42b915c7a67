#include "driver/gate_choices.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/agree.h"
#include "workloads/routing.h"

static bool chooses(const struct op *op)
{
    return op->kind == OP_ROUTE && !op->again;
}

/* Behind an OP_ROUTE, whose memory others use later: a copy, done when the stream is. */
static void keep(void *arg, const struct op *op)
{
    struct gate_choices *choices = arg;
    struct execute *e = choices->execute;
    if (!chooses(op) || choices->n == choices->most)
        return;
    struct gate_choice *to = &choices->list[choices->n++];
    size_t bytes =
        (size_t)op->shape.route.rows * (size_t)op->shape.route.top_k * sizeof *to->experts;
    to->op = op;
    to->experts = must_alloc(bytes + 1, 1);
    e->device.type->download(&e->device, DEVICE_COMPUTE, to->experts,
                             tensor_at(&e->context, op->t[1]), bytes);
}

void gate_choices_keep(struct gate_choices *choices, struct execute *execute)
{
    const struct plan *plan = execute->plan;
    *choices = (struct gate_choices){.execute = execute};
    for (int i = 0; i < plan->n_ops; i++)
        choices->most += chooses(&plan->ops[i]);
    choices->list = must_alloc((size_t)choices->most + 1, sizeof *choices->list);
    execute->routed = (struct execute_routed){choices, keep};
}

void gate_choices_release(struct gate_choices *choices)
{
    for (int i = 0; i < choices->n; i++)
        free(choices->list[i].experts);
    free(choices->list);
    memset(choices, 0, sizeof *choices);
}

/* ---- of all ranks ---- */

enum { LAYER, TOKEN, EXPERTS }; /* words of a row: layer, token, top_k experts */

/* What this rank has, as rows; returns their bytes. */
static int64_t list_rows(const struct gate_choices *choices, int64_t top_k, int32_t **rows)
{
    int64_t width = EXPERTS + top_k, most = 0, n = 0;
    for (int i = 0; i < choices->n; i++)
        most += choices->list[i].op->shape.route.rows;
    *rows = must_alloc((size_t)(most * width) + 1, sizeof **rows);
    for (int i = 0; i < choices->n; i++) {
        const struct shape_route *s = &choices->list[i].op->shape.route;
        for (int64_t row = 0; row < s->all_rows; row++) {
            int64_t own = routing_own(s, row);
            if (own < 0)
                continue;
            int32_t *to = *rows + n++ * width;
            to[LAYER] = choices->list[i].op->layer;
            to[TOKEN] = (int32_t)(s->first_token + row);
            memcpy(to + EXPERTS, choices->list[i].experts + own * top_k,
                   (size_t)top_k * sizeof *to);
        }
    }
    return n * width * (int64_t)sizeof **rows;
}

int gate_choices_gather(const struct gate_choices *choices, int64_t layers, int64_t tokens,
                        int64_t top_k, const void *parent, int32_t **table, int64_t *known)
{
    int32_t *rows = NULL;
    int64_t total = 0, width = EXPERTS + top_k, bytes = list_rows(choices, top_k, &rows);
    int ranks = choices->execute->plan->layout.world;
    int64_t *counts = must_alloc((size_t)ranks, sizeof *counts);
    void *all = NULL;
    *table = NULL;
    *known = 0;
    int rc = agree_gather(rows, bytes, &all, &total, counts, parent);
    free(counts);
    free(rows);
    if (rc != 0 || all == NULL)
        return rc;
    int64_t n = layers * tokens;
    *table = must_alloc((size_t)(n * top_k) + 1, sizeof **table);
    for (int64_t i = 0; i < n * top_k; i++)
        (*table)[i] = -1;
    const int32_t *from = all;
    for (int64_t i = 0; i < total / (width * (int64_t)sizeof *from); i++, from += width) {
        int32_t *to = *table + (from[LAYER] * tokens + from[TOKEN]) * top_k;
        *known += to[0] < 0;
        memcpy(to, from + EXPERTS, (size_t)top_k * sizeof *to);
    }
    free(all);
    return 0;
}
