#include "analysis/goodput_storage.h"

#include <math.h>
#include <string.h>

#include <gsl/gsl_cdf.h>

struct size { /* the saves of one node count */
    double nodes;
    double seconds, seconds_2; /* a byte: sums, and of squares */
    double sum, squares; /* n and n squares of log rate; and what saves lie beside it, relative */
    int n;
};

static int find(struct size *sizes, int *n, double nodes)
{
    int at = 0;
    while (at < *n && sizes[at].nodes < nodes)
        at++;
    if (at < *n && sizes[at].nodes == nodes)
        return at;
    if (*n == STORAGE_SIZES)
        return -1;
    memmove(&sizes[at + 1], &sizes[at], (size_t)(*n - at) * sizeof *sizes);
    sizes[at] = (struct size){.nodes = nodes};
    ++*n;
    return at;
}

/* The arithmetic mean of seconds is a size's rate. */
static void set_rate(struct size *size)
{
    double n = size->n, mean = size->seconds / n, y = -log(mean);
    size->sum = n * y;
    size->squares = n * y * y + fmax(size->seconds_2 / (mean * mean) - n, 0.0);
}

/* Sorted by nodes; 0: too many of them. */
static int collect(struct size *sizes, const struct goodput_save *saves, int n)
{
    int n_sizes = 0;
    for (int i = 0; i < n; i++) {
        int at = find(sizes, &n_sizes, saves[i].nodes);
        double each = saves[i].seconds / saves[i].bytes;
        if (at < 0)
            return 0;
        sizes[at].seconds += each;
        sizes[at].seconds_2 += each * each;
        sizes[at].n++;
    }
    for (int i = 0; i < n_sizes; i++)
        set_rate(&sizes[i]);
    return n_sizes;
}

/* One split: sizes [0, k) on the slope. */
struct split {
    int k, on_slope, on_plateau; /* saves */
    double node, shared;         /* logs; infinite: not in the model */
    double sse;
};

static double model_log(const struct split *s, double nodes)
{
    return fmin(s->node + log(nodes), s->shared);
}

static struct split try_split(const struct size *sizes, int n, int k)
{
    struct split s = {.k = k};
    double slope = 0, plateau = 0;
    for (int i = 0; i < n; i++) {
        if (i < k)
            slope += sizes[i].sum - sizes[i].n * log(sizes[i].nodes);
        else
            plateau += sizes[i].sum;
        *(i < k ? &s.on_slope : &s.on_plateau) += sizes[i].n;
    }
    s.node = s.on_slope > 0 ? slope / s.on_slope : (double)INFINITY;
    s.shared = s.on_plateau > 0 ? plateau / s.on_plateau : (double)INFINITY;
    for (int i = 0; i < n; i++) {
        double m = model_log(&s, sizes[i].nodes);
        s.sse += fmax(sizes[i].squares - 2.0 * m * sizes[i].sum + sizes[i].n * m * m, 0.0);
    }
    return s;
}

/* Whether two parameters beat one beyond chance. */
static bool beats(const struct split *two, const struct split *one, int n)
{
    double free_n = n - 2;
    if (free_n < 1 || !(one->sse > two->sse))
        return false;
    double f = (one->sse - two->sse) / (fmax(two->sse, 1e-30) / free_n);
    return gsl_cdf_fdist_Q(f, 1.0, free_n) < 0.05;
}

static struct split choose(const struct size *sizes, int n, int saves)
{
    struct split slope = try_split(sizes, n, n), flat = try_split(sizes, n, 0), best = slope;
    for (int k = 1; k < n; k++) {
        struct split s = try_split(sizes, n, k);
        best = s.sse < best.sse ? s : best;
    }
    const struct split *simple = flat.sse < slope.sse ? &flat : &slope;
    return best.k > 0 && best.k < n && beats(&best, simple, saves) ? best : *simple;
}

static struct stats_interval rate_of(double log_rate, int n, const struct split *s, int saves)
{
    int free_n = saves - (s->on_slope > 0) - (s->on_plateau > 0);
    double half = (double)NAN;
    if (free_n > 0)
        half = gsl_cdf_tdist_Pinv(0.975, free_n) * sqrt(s->sse / free_n / n);
    return (struct stats_interval){exp(log_rate), exp(log_rate - half), exp(log_rate + half), n};
}

bool goodput_storage_fit(struct goodput_storage *out, const struct goodput_save *saves, int n)
{
    struct size sizes[STORAGE_SIZES + 1] = {{0}};
    int n_sizes = collect(sizes, saves, n);
    *out = (struct goodput_storage){.n_sizes = n_sizes, .n_saves = n};
    if (n_sizes < 2)
        return false;
    struct split s = choose(sizes, n_sizes, n);
    double fastest = -INFINITY;
    out->fewest = sizes[0].nodes;
    out->most = sizes[n_sizes - 1].nodes;
    for (int i = 0; i < n_sizes; i++) {
        double mean = sizes[i].sum / sizes[i].n;
        fastest = fmax(fastest, mean);
        out->worst = fmax(out->worst, fabs(exp(mean - model_log(&s, sizes[i].nodes)) - 1.0));
    }
    out->node_seen = s.on_slope > 0;
    out->shared_seen = s.on_plateau > 0;
    out->node_per_s = (struct stats_interval){NAN, exp(s.shared) / out->fewest, NAN, n};
    out->shared_per_s = (struct stats_interval){NAN, exp(fastest), NAN, n};
    if (out->node_seen)
        out->node_per_s = rate_of(s.node, s.on_slope, &s, n);
    if (out->shared_seen)
        out->shared_per_s = rate_of(s.shared, s.on_plateau, &s, n);
    return true;
}

void goodput_storage_assume(struct goodput_storage *out, double node_per_s, double shared_per_s)
{
    *out = (struct goodput_storage){.assumed = true, .node_seen = true, .most = INFINITY};
    out->node_per_s = (struct stats_interval){node_per_s, NAN, NAN, 0};
    out->shared_per_s = (struct stats_interval){NAN, NAN, NAN, 0};
    if (shared_per_s > 0.0) {
        out->shared_seen = true;
        out->shared_per_s.value = shared_per_s;
    }
}

/* Of two rates the lower one; NaN is none. */
static double rate(double node, double shared, double nodes)
{
    return fmin(node * nodes, shared); /* fmin takes the number where one is NaN */
}

struct stats_interval goodput_storage_seconds(const struct goodput_storage *s, double nodes,
                                              double bytes)
{
    struct stats_interval t = {NAN, NAN, NAN, s->n_saves};
    if (!s->node_seen && nodes < s->fewest)
        return t;
    t.value = bytes / rate(s->node_per_s.value, s->shared_per_s.value, nodes);
    t.low = bytes / rate(s->node_per_s.high, s->shared_per_s.high, nodes);
    t.high =
        bytes / rate(s->node_per_s.low, s->shared_seen ? s->shared_per_s.low : (double)NAN, nodes);
    if (!s->shared_seen && nodes > s->most)
        t.high = fmax(t.high, bytes / s->shared_per_s.low);
    return t;
}
