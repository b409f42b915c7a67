#include "driver/expert_load.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "driver/agree.h"

enum { LOSS, DROPPED, TIED, EXTRA }; /* behind the experts of a layer, as OP_ROUTE says */

/* What the last step of this rank counted; its words come as floats do. */
static void download(struct execute *e, int64_t n, double *load)
{
    execute_download_tensor(e, e->plan->load, DTYPE_F32, 2 * n, (float *)(void *)load);
}

/* The definition, over all tokens of a step. */
static void define(const struct model *m, const struct policy *p, double *load)
{
    int n = (int)m->experts;
    uint32_t threshold[EXPERTS_MOST];
    int64_t counts[EXPERTS_MOST];
    for (int l = 0; l < (int)m->layers; l++) {
        int64_t rows = p->global_batch * m->sequence;
        struct shape_route route = {.rows = rows,
                                    .all_rows = rows,
                                    .sequence = m->sequence,
                                    .lead = rows,
                                    .parts = 1,
                                    .experts = n,
                                    .top_k = (int)m->top_k,
                                    .kind = p->routing.kind,
                                    .threshold = threshold,
                                    .key = routing_key(&p->routing, l)};
        double *layer = load + (ptrdiff_t)l * (n + EXTRA);
        routing_thresholds(&p->routing, l, n, threshold);
        layer[n + LOSS] = NAN; /* nothing was computed */
        routing_counts(&route, counts);
        for (int e = 0; e < n; e++)
            layer[e] = (double)counts[e];
        route.capacity = routing_capacity(&p->routing, m->sequence, n, (int)m->top_k);
        routing_counts(&route, counts);
        for (int e = 0; e < n; e++)
            layer[n + DROPPED] += layer[e] - (double)counts[e];
    }
}

static void add_layer(const struct model *m, const struct policy *p, int layer, const double *load,
                      struct record_point *out)
{
    int n = (int)m->experts;
    struct load_row *row = RECORD_ADD(&out->experts, 1 + n), *whole = row + n;
    double choices = 0, most = 0;
    for (int e = 0; e < n; e++) {
        choices += load[e];
        most = load[e] > most ? load[e] : most;
    }
    for (int e = 0; e < n; e++)
        row[e] = (struct load_row){.layer = layer,
                                   .expert = e,
                                   .tokens = (int64_t)load[e],
                                   .load = choices > 0 ? load[e] * n / choices : 0};
    *whole = (struct load_row){.layer = layer,
                               .expert = -1,
                               .tokens = (int64_t)choices,
                               .load = choices > 0 ? most * n / choices : 0,
                               .dropped = (int64_t)load[n + DROPPED],
                               .tied = (int64_t)load[n + TIED],
                               .balance = load[n + LOSS] / (double)(p->global_batch * m->sequence)};
}

/* Sums over ranks; each counts its own tokens, in the layers that it has. */
static void add_rows(const struct model *m, const struct policy *p, const double *all, int ranks,
                     struct record_point *out)
{
    int64_t each = m->experts + EXTRA, n = m->layers * each;
    double *sum = must_alloc((size_t)n, sizeof *sum);
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < n; i++)
            sum[i] += all[r * n + i];
    for (int l = 0; l < (int)m->layers; l++)
        add_layer(m, p, l, sum + l * each, out);
    free(sum);
}

int expert_load(struct execute *e, const struct model *model, const struct policy *policy,
                uint64_t seed, const void *parent, struct record_point *out)
{
    const struct layout *layout = &e->plan->layout;
    int64_t n = model->layers * (model->experts + EXTRA), total = 0;
    bool numerics = !e->kernels->no_numerics, defined = policy->routing.kind != ROUTING_LEARNED;
    if (model->experts == 0 || (!numerics && !defined))
        return 0;
    int64_t *counts = must_alloc((size_t)layout->world, sizeof *counts);
    double *load = must_alloc((size_t)n, sizeof *load);
    void *all = NULL;
    if (numerics) {
        execute_block(e, VARIANT_FULL, 0, 1, -1, NULL);
        download(e, n, load);
        execute_reset(e, seed);
    } else if (layout->rank == 0) {
        define(model, policy, load);
    }
    int rc = agree_gather(load, n * (int64_t)sizeof *load, &all, &total, counts, parent);
    if (rc == 0 && layout->rank == 0)
        add_rows(model, policy, all, layout->world, out);
    free(all);
    free(load);
    free(counts);
    return rc;
}
