#include "analysis/regime.h"

#include <math.h>
#include <stdlib.h>

#include "analysis/launches.h"
#include "base/err.h"

void regime_release(struct regime *r)
{
    free(r->points);
    free(r->n);
    free(r->rate);
    free(r->spread);
    *r = (struct regime){0};
}

const char *regime_name(enum regime_kind kind)
{
    static const char *const names[] = {"inside a node", "across nodes", "as declared"};
    return names[kind];
}

static bool usable(const struct series_point *p)
{
    return p->valid && !p->oversubscribed && p->rate.value > 0.0;
}

static bool nodes_known(const struct series *s)
{
    for (int i = 0; i < s->n_points; i++)
        if (s->points[i].nodes < 1)
            return false;
    return s->n_points > 0;
}

/* From launches where there are two or more; else from the interval within one. */
static struct forecast_spread spread_of(const struct series_point *p)
{
    struct launches_levels levels;
    struct forecast_spread out = {0.0, 0.0, 1.0};
    launches_find_levels(p->launches, p->n_launches, 0.95, &levels);
    if (levels.n_launches >= 2) {
        out.launch = levels.spread;
        out.error = levels.spread / sqrt(levels.n_launches);
        out.freedom = levels.n_launches - 1;
    } else if (p->rate.high > p->rate.low && p->rate.low > 0.0) {
        out.error = log(p->rate.high / p->rate.low) / (2.0 * 1.96);
        out.freedom = 1000.0;
    }
    return out;
}

static void add(struct regime *r, const struct series_point *p, double n)
{
    r->points[r->n_points] = p;
    r->n[r->n_points] = n;
    r->rate[r->n_points] = p->rate.value;
    r->spread[r->n_points++] = spread_of(p);
}

static double size_of(const struct series_point *p, bool in_nodes)
{
    int64_t known = in_nodes ? p->nodes : p->devices;
    return known > 0 ? (double)known : p->n;
}

static void open_regime(struct regime *r, enum regime_kind kind, int room)
{
    *r = (struct regime){.kind = kind, .most = INFINITY};
    r->points = must_alloc((size_t)room, sizeof *r->points);
    r->n = must_alloc((size_t)room, sizeof *r->n);
    r->rate = must_alloc((size_t)room, sizeof *r->rate);
    r->spread = must_alloc((size_t)room, sizeof *r->spread);
}

static bool is_full_node(const struct series *s, const struct series_point *p)
{
    return p->nodes == 1 && (s->devices_per_node < 1 || p->devices == s->devices_per_node);
}

static int count_beyond_one(const struct series *s)
{
    int n = 0;
    for (int i = 0; i < s->n_points; i++)
        n += usable(&s->points[i]) && s->points[i].nodes > 1;
    return n;
}

static bool belongs(const struct series *s, const struct series_point *p, const struct regime *r)
{
    if (r->kind == REGIME_DECLARED)
        return true;
    if (r->kind == REGIME_NODE)
        return p->nodes == 1;
    return p->nodes > 1 || (r->takes_one_node && is_full_node(s, p));
}

static void fill(struct regime *r, const struct series *s, enum regime_kind kind, bool in_nodes)
{
    int beyond = count_beyond_one(s);
    open_regime(r, kind, s->n_points);
    r->in_nodes = in_nodes;
    r->takes_one_node = kind == REGIME_NODES && beyond < FORECAST_POINTS;
    if (kind == REGIME_NODE && s->devices_per_node > 0)
        r->most = (double)s->devices_per_node;
    for (int i = 0; i < s->n_points; i++) {
        const struct series_point *p = &s->points[i];
        if (!belongs(s, p, r)) {
            r->n_one_node += kind == REGIME_NODES && p->nodes == 1;
            continue;
        }
        if (usable(p))
            add(r, p, size_of(p, in_nodes));
        else
            r->n_left_out++;
    }
    if (kind == REGIME_NODE && r->n_points > 0 && !(r->most < INFINITY))
        r->most = r->n[r->n_points - 1];
}

static int check_unit(const struct series *s, enum regime_unit unit)
{
    for (int i = 0; i < s->n_points; i++) {
        const struct series_point *p = &s->points[i];
        bool lacks =
            (unit == REGIME_BY_NODE && p->nodes < 1) || (unit == REGIME_DEVICES && p->devices < 1);
        if (lacks)
            return fail(FAIL_USAGE,
                        "%s: --unit %s: series \"%s\" does not say how many %s N = %g had",
                        s->source, unit == REGIME_BY_NODE ? "nodes" : "devices", s->name,
                        unit == REGIME_BY_NODE ? "nodes" : "devices", p->n);
    }
    return 0;
}

static bool starts_inside(const struct series *s)
{
    int inside = 0;
    for (int i = 0; i < s->n_points; i++)
        inside += s->points[i].nodes == 1 && s->points[i].devices > 0;
    return inside > 1;
}

int regime_find(struct regime out[REGIMES], int *n, const struct series *s, enum regime_unit unit)
{
    bool in_nodes =
        unit == REGIME_BY_NODE || (unit == REGIME_AS_SERIES && s->counts == SERIES_NODES);
    int rc = check_unit(s, unit);
    *n = 0;
    if (rc != 0)
        return rc;
    if (!nodes_known(s)) {
        fill(&out[(*n)++], s, REGIME_DECLARED, in_nodes);
        return 0;
    }
    if (starts_inside(s) && unit != REGIME_BY_NODE)
        fill(&out[(*n)++], s, REGIME_NODE, false);
    if (count_beyond_one(s) > 0 || *n == 0)
        fill(&out[(*n)++], s, REGIME_NODES, in_nodes);
    return 0;
}
