#include "analysis/collective_fit.h"

#include <math.h>
#include <stdlib.h>

#include "analysis/collective_line.h"
#include "base/err.h"

double collective_nic_flat_GBps(double bus_GBps, int64_t ranks, int64_t nodes)
{
    return nodes > 1 && ranks >= nodes ? bus_GBps * (double)nodes / (double)ranks : (double)NAN;
}

double collective_nic_hierarchical_GBps(double bus_GBps, int64_t ranks, int64_t nodes)
{
    return nodes > 1 && ranks >= nodes ? bus_GBps * (double)(nodes - 1) / (double)(ranks - 1)
                                       : (double)NAN;
}

static double time_at(const struct collective_fit *f, double bytes)
{
    for (int i = 0; i < f->n_rows; i++)
        if (fabs(f->bytes[i] / bytes - 1.0) < 1e-9)
            return f->time_us[i];
    return NAN;
}

void collective_hierarchy_release(struct collective_hierarchy *hierarchy)
{
    free(hierarchy->bytes);
    *hierarchy = (struct collective_hierarchy){0};
}

double collective_hierarchy_us(const struct collective_hierarchy *h, int i, bool overlaps)
{
    const struct collective_bracket *b = overlaps ? &h->max : &h->sum;
    double between = b->latency_us + b->us_per_byte * h->bytes[i];
    return overlaps ? fmax(h->inside_us[i], between) : h->inside_us[i] + between;
}

static void describe(struct collective_bracket *out, const struct collective_line *line, int64_t g,
                     int64_t k)
{
    double shard = 1.0 / (double)g, nodes = (double)k;
    double us_per_byte = 1e-3 / line->bus_GBps; /* fitted with factor 1 */
    out->latency_us = line->alpha_us;
    out->us_per_byte = us_per_byte;
    out->hop_ring_us = line->alpha_us / (2.0 * (nodes - 1.0));
    out->hop_tree_us = line->alpha_us / (2.0 * log2(nodes));
    out->nic_ring_GBps = 2.0 * (nodes - 1.0) / nodes * shard / us_per_byte * 1e-3;
    out->nic_tree_GBps = 2.0 * shard / us_per_byte * 1e-3;
}

static void fit_bracket(struct collective_hierarchy *h, bool overlaps)
{
    struct collective_bracket *out = overlaps ? &h->max : &h->sum;
    double *size = must_alloc(2 * (size_t)h->n_rows + 1, sizeof *size), *rest = size + h->n_rows;
    struct collective_line line;
    int used = 0;
    for (int i = 0; i < h->n_rows; i++) {
        double between = overlaps ? h->time_us[i] : h->time_us[i] - h->inside_us[i];
        if (between <= 0.0)
            continue;
        size[used] = h->bytes[i];
        rest[used++] = between;
    }
    *out = (struct collective_bracket){NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    if (used >= COLLECTIVE_PIECE_ROWS) {
        collective_line_fit(size, rest, used, 1.0, &line);
        describe(out, &line, h->ranks / h->nodes, h->nodes);
        out->worst = 0.0;
        for (int i = 0; i < h->n_rows; i++)
            out->worst = fmax(out->worst,
                              fabs(collective_hierarchy_us(h, i, overlaps) / h->time_us[i] - 1.0));
    }
    free(size);
}

static void take_common(struct collective_hierarchy *h, const struct collective_fit *node,
                        const struct collective_fit *all)
{
    h->bytes = must_alloc(3 * (size_t)all->n_rows, sizeof *h->bytes);
    h->inside_us = h->bytes + all->n_rows;
    h->time_us = h->inside_us + all->n_rows;
    for (int i = 0; i < all->n_rows; i++) {
        double within = time_at(node, all->bytes[i]);
        if (isnan(within))
            continue;
        h->bytes[h->n_rows] = all->bytes[i];
        h->inside_us[h->n_rows] = within;
        h->time_us[h->n_rows++] = all->time_us[i];
    }
}

int collective_hierarchy_fit(struct collective_hierarchy *out, const struct collective_fit *node,
                             const struct collective_fit *all, int64_t nodes)
{
    *out = (struct collective_hierarchy){.ranks = all->ranks, .nodes = nodes};
    if (nodes < 2 || node->ranks < 1 || node->ranks * nodes != all->ranks)
        return fail(FAIL_USAGE,
                    "collective: %lld ranks on %lld nodes wanted beside a table of one node, found "
                    "one of %lld ranks",
                    (long long)all->ranks, (long long)nodes, (long long)node->ranks);
    take_common(out, node, all);
    if (out->n_rows < COLLECTIVE_PIECE_ROWS) {
        int shared = out->n_rows;
        collective_hierarchy_release(out);
        return fail(FAIL_USAGE,
                    "collective: the tables of one and of %lld nodes share %d sizes, %d are needed",
                    (long long)nodes, shared, COLLECTIVE_PIECE_ROWS);
    }
    fit_bracket(out, false);
    fit_bracket(out, true);
    return 0;
}
