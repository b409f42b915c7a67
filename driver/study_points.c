#include "driver/study.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "workloads/transformer.h"

static const int64_t BATCH_MAX = INT64_C(1) << 30; /* samples of a step */
static const int64_t GATE_MAX = 65536; /* samples that one rank takes alone, as reference */

/* The next word of a list, or false at its end. *at starts at the list. */
static bool next_word(const char **at, char separator, char *word, size_t size)
{
    if (*at == NULL)
        return false;
    const char *end = strchr(*at, separator);
    size_t length = end != NULL ? (size_t)(end - *at) : strlen(*at);
    snprintf(word, size, "%.*s", (int)length, *at);
    *at = end != NULL ? end + 1 : NULL;
    return true;
}

/* ---- nodes x ranks ---- */

static int add_size(struct points *points, const char *option, int nodes, int ranks_per_node)
{
    if (nodes > points->nodes || ranks_per_node > points->ranks_per_node)
        return fail(FAIL_USAGE, "%s: %dx%d does not fit into the %dx%d of --layout", option, nodes,
                    ranks_per_node, points->nodes, points->ranks_per_node);
    for (int i = 0; i < points->n; i++)
        if (points->point[i].nodes == nodes && points->point[i].ranks_per_node == ranks_per_node)
            return fail(FAIL_USAGE, "%s: %dx%d is said twice", option, nodes, ranks_per_node);
    if (points->n == STUDY_POINTS_MAX)
        return fail(FAIL_USAGE, "%s: more than %d points", option, STUDY_POINTS_MAX);
    points->point[points->n++] = (struct point){.nodes = nodes,
                                                .ranks_per_node = ranks_per_node,
                                                .ranks = nodes * ranks_per_node,
                                                .copies = 1};
    return 0;
}

static int add_named_nodes(struct points *points, const char *list)
{
    char word[STUDY_TEXT];
    int rc = 0;
    for (const char *at = list; rc == 0 && next_word(&at, ',', word, sizeof word);) {
        int64_t nodes;
        if (units_parse_int(word, &nodes) != 0 || nodes < 1)
            return fail(FAIL_USAGE, "--nodes: found \"%s\", wanted numbers of nodes such as 1,2,4",
                        list);
        if (nodes > points->nodes)
            return fail(FAIL_USAGE, "--nodes: %lld is more than the %d nodes of --layout",
                        (long long)nodes, points->nodes);
        rc = add_size(points, "--nodes", (int)nodes, points->ranks_per_node);
    }
    return rc;
}

static int add_named_points(struct points *points, const char *list)
{
    char word[STUDY_TEXT];
    int rc = 0, nodes, ranks_per_node;
    for (const char *at = list; rc == 0 && next_word(&at, ',', word, sizeof word);) {
        if (study_parse_pair(word, strlen(word), &nodes, &ranks_per_node) != 0)
            return fail(FAIL_USAGE,
                        "--points: found \"%s\", wanted nodes x ranks such as 1x1,1x2,2x8", word);
        rc = add_size(points, "--points", nodes, ranks_per_node);
    }
    return rc;
}

static int add_sizes(struct points *points, const struct study *study)
{
    int rc = 0;
    if (study->points[0] != '\0')
        return add_named_points(points, study->points);
    if (study->nodes[0] != '\0')
        return add_named_nodes(points, study->nodes);
    for (int64_t nodes = 1; rc == 0 && nodes < points->nodes; nodes *= 2)
        rc = add_size(points, "--layout", (int)nodes, points->ranks_per_node);
    return rc == 0 ? add_size(points, "--layout", points->nodes, points->ranks_per_node) : rc;
}

/* ---- times the lists ---- */

struct list {
    const char *option, *text;
    char separator;
    int (*set)(struct point *point, const char *word, const struct study *study,
               const struct model *model);
};

static int set_parallel(struct point *point, const char *word, const struct study *study,
                        const struct model *model)
{
    struct layout layout;
    struct degrees degrees = {0};
    int rc = 0;
    (void)model;
    if (strlen(word) >= sizeof point->parallel)
        return fail(FAIL_USAGE, "--parallel: \"%s\" is longer than %zu bytes", word,
                    sizeof point->parallel - 1);
    memcpy(degrees.order, study->order, sizeof degrees.order);
    TRY(layout_parse(word, &degrees));
    TRY(layout_init(&layout, point->nodes, point->ranks_per_node, 0, &degrees));
    point->degrees = layout.degrees;
    snprintf(point->parallel, sizeof point->parallel, "%s", word);
out:
    return rc;
}

static int set_micro_batch(struct point *point, const char *word, const struct study *study,
                           const struct model *model)
{
    (void)model;
    if (units_parse_int(word, &point->micro_batch) != 0 || point->micro_batch < 1 ||
        point->micro_batch > BATCH_MAX)
        return fail(FAIL_USAGE, "--micro-batch: found \"%s\", wanted samples such as 4 or 1,2,4",
                    study->micro_batch);
    return 0;
}

static int set_sequence(struct point *point, const char *word, const struct study *study,
                        const struct model *model)
{
    if (units_parse_int(word, &point->sequence) != 0 || point->sequence < 2)
        return fail(FAIL_USAGE, "--sequence: found \"%s\", wanted tokens such as 64 or 32,64",
                    study->sequence);
    if (point->sequence > model->sequence)
        return fail(FAIL_USAGE, "--sequence: %lld is more than the %lld positions of model %s",
                    (long long)point->sequence, (long long)model->sequence, model->name);
    return 0;
}

static int set_input(struct point *point, const char *word, const struct study *study,
                     const struct model *model)
{
    (void)study;
    (void)model;
    snprintf(point->input, sizeof point->input, "%s", word);
    return 0;
}

/* Of one size: what it measures, however that was written. */
static bool is_same(const struct point *a, const struct point *b)
{
    return memcmp(&a->degrees, &b->degrees, sizeof a->degrees) == 0 &&
           a->micro_batch == b->micro_batch && a->sequence == b->sequence &&
           strcmp(a->input, b->input) == 0;
}

/* Every point so far, times every word of a list: the list varies fastest. */
static int multiply(struct points *points, const struct study *study, const struct model *model,
                    const struct list *list)
{
    int n_words = 0, n = 0, rc = 0;
    char word[STUDY_PATH];
    for (const char *at = list->text; next_word(&at, list->separator, word, sizeof word);)
        n_words++;
    if ((int64_t)points->n * n_words > STUDY_POINTS_MAX)
        return fail(FAIL_USAGE, "--%s: makes %d * %d points, more than %d", list->option, points->n,
                    n_words, STUDY_POINTS_MAX);
    struct point *grown = must_alloc((size_t)points->n * (size_t)n_words, sizeof *grown);
    for (int i = 0; i < points->n; i++)
        for (const char *at = list->text;
             rc == 0 && next_word(&at, list->separator, word, sizeof word);) {
            grown[n] = points->point[i];
            rc = list->set(&grown[n], word, study, model);
            for (int k = n - n % n_words; k < n && rc == 0; k++)
                if (is_same(&grown[k], &grown[n]))
                    rc = fail(FAIL_USAGE, "--%s: \"%s\" says a value twice", list->option,
                              list->text);
            n++;
        }
    free(points->point);
    points->point = grown;
    points->n = n;
    return rc;
}

static int multiply_lists(struct points *points, const struct study *study,
                          const struct model *model)
{
    char micro_batch[32], sequence[32]; /* what the model proposes */
    snprintf(micro_batch, sizeof micro_batch, "%lld",
             (long long)(model->micro_batch > 0 ? model->micro_batch : 1));
    snprintf(sequence, sizeof sequence, "%lld", (long long)model->sequence);
    const struct list lists[] = {
        {"parallel", study->parallel, ';', set_parallel},
        {"micro-batch", study->micro_batch[0] != '\0' ? study->micro_batch : micro_batch, ',',
         set_micro_batch},
        {"sequence", study->sequence[0] != '\0' ? study->sequence : sequence, ',', set_sequence},
        {"input", study->input, ',', set_input},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof lists / sizeof lists[0]; i++)
        rc = multiply(points, study, model, &lists[i]);
    for (int i = 0; i < points->n; i++)
        points->point[i].index = i;
    return rc;
}

/* ---- batches ---- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The least common multiple, or `limit` + 1 when it is more than `limit` (both below 2^62). */
static int64_t common_multiple(int64_t a, int64_t b, int64_t limit)
{
    int64_t factor = b / common_divisor(a, b);
    return a > limit || factor > limit / a ? limit + 1 : a * factor;
}

static int smallest_ranks(const struct points *points)
{
    int ranks = points->point[0].ranks;
    for (int i = 1; i < points->n; i++)
        ranks = points->point[i].ranks < ranks ? points->point[i].ranks : ranks;
    return ranks;
}

/* The batch of a point is `of` / `per` times the batch of the study. */
struct growth {
    int64_t of, per;
};

static struct growth growth_of(const struct points *points, const struct point *point, int scaling)
{
    if (scaling == SCALING_STRONG)
        return (struct growth){1, 1};
    int64_t base = smallest_ranks(points), shared = common_divisor(point->ranks, base);
    return (struct growth){point->ranks / shared, base / shared};
}

/* Samples that all replicas of a point take with one micro-batch each. */
static int64_t round_of(const struct point *point)
{
    return point->degrees.dp * point->micro_batch;
}

/* The study's batch must be a multiple of this for every point to get a whole number of rounds. */
static int64_t batch_unit(const struct points *points, int scaling)
{
    int64_t unit = 1;
    for (int i = 0; i < points->n && unit <= BATCH_MAX; i++) {
        struct growth growth = growth_of(points, &points->point[i], scaling);
        int64_t round = round_of(&points->point[i]);
        if (round > BATCH_MAX)
            return BATCH_MAX + 1;
        /* unit * of / per is a multiple of round: of and per share no factor */
        int64_t needed = growth.per * (round / common_divisor(round, growth.of));
        unit = common_multiple(unit, needed, BATCH_MAX);
    }
    return unit;
}

/* The smallest batch of the study with at least 2 pp micro-batches for each replica; 0: too large. */
static int64_t smallest_batch(const struct points *points, int scaling)
{
    int64_t unit = batch_unit(points, scaling), batch = unit;
    if (unit > BATCH_MAX)
        return 0;
    for (int i = 0; i < points->n; i++) {
        const struct point *point = &points->point[i];
        struct growth growth = growth_of(points, point, scaling);
        double least = 2.0 * point->degrees.pp * (double)round_of(point) * (double)growth.per /
                       (double)growth.of;
        if (least > (double)BATCH_MAX)
            return 0;
        if ((double)batch < least)
            batch = ((int64_t)ceil(least) + unit - 1) / unit * unit;
    }
    return batch <= BATCH_MAX ? batch : 0;
}

static int set_batch(struct point *point, struct growth growth, int64_t batch, const char *origin)
{
    int64_t round = round_of(point);
    if (batch % growth.per != 0 || batch / growth.per > BATCH_MAX / growth.of)
        return fail(FAIL_USAGE,
                    "%s: %lld samples at the smallest point do not grow to a whole number below "
                    "%lld at the %d ranks of %dx%d (times %lld/%lld)",
                    origin, (long long)batch, (long long)BATCH_MAX, point->ranks, point->nodes,
                    point->ranks_per_node, (long long)growth.of, (long long)growth.per);
    point->global_batch = batch / growth.per * growth.of;
    if (point->global_batch % round != 0)
        return fail(FAIL_USAGE,
                    "%s: %lld samples do not split over point %dx%d: dp=%d * micro-batch %lld is "
                    "%lld, wanted a multiple of it",
                    origin, (long long)point->global_batch, point->nodes, point->ranks_per_node,
                    point->degrees.dp, (long long)point->micro_batch, (long long)round);
    return 0;
}

static int set_batches(struct points *points, const struct study *study, const struct model *model)
{
    char origin[sizeof model->path + 32];
    int64_t batch = study->global_batch > 0 ? study->global_batch : model->global_batch;
    int rc = 0;
    snprintf(origin, sizeof origin, "%s%s", study->global_batch > 0 ? "--" : model->path,
             study->global_batch > 0 ? "global-batch" : ": global-batch");
    if (batch == 0)
        batch = smallest_batch(points, study->scaling);
    if (batch == 0)
        return fail(FAIL_USAGE,
                    "--global-batch: no batch up to %lld samples splits over all %d points; name "
                    "fewer points, or ones that divide each other",
                    (long long)BATCH_MAX, points->n);
    for (int i = 0; rc == 0 && i < points->n; i++) {
        struct point *point = &points->point[i];
        rc = set_batch(point, growth_of(points, point, study->scaling), batch, origin);
    }
    return rc;
}

static int set_gate_batch(struct points *points, const struct study *study)
{
    int64_t unit = 1, most = 1;
    if (!study->check)
        return 0;
    points->gate = (struct gate_shape){1, 1, 1};
    for (int i = 0; i < points->n; i++) {
        int dp = points->point[i].degrees.dp;
        int tp = points->point[i].degrees.tp, cp = points->point[i].degrees.cp;
        int heads = study->cp_kind == CP_ULYSSES ? cp : 1, cut = cp > 1 ? 2 * cp : 1;
        int pp = points->point[i].degrees.pp;
        bool chunks = pp > 1 && study->schedule == SCHEDULE_INTERLEAVED;
        int64_t parts = chunks ? pp * study->virtual_stages : pp;
        points->gate.tp = common_multiple(points->gate.tp, tp * heads, GATE_MAX);
        points->gate.rows = common_multiple(points->gate.rows, tp * cut, GATE_MAX);
        points->gate.layers = common_multiple(points->gate.layers, parts, GATE_MAX);
        unit = common_multiple(unit, (int64_t)dp * pp, GATE_MAX);
        most = dp * pp > most ? dp * pp : most;
    }
    points->gate_batch = (2 * most + unit - 1) / unit * unit;
    if (unit > GATE_MAX || points->gate_batch > GATE_MAX)
        return fail(FAIL_USAGE,
                    "--check: no batch up to %lld samples splits over the replicas of all %d "
                    "points; name fewer points, or ones that divide each other, or --check off",
                    (long long)GATE_MAX, points->n);
    return 0;
}

int study_points(const struct study *study, const struct model *model, struct points *out)
{
    struct points points = {0};
    int rc = 0;
    memset(out, 0, sizeof *out);
    points.point = must_alloc(STUDY_POINTS_MAX, sizeof *points.point);
    if (study_parse_pair(study->layout, strlen(study->layout), &points.nodes,
                         &points.ranks_per_node) != 0)
        BUG("layout \"%s\" was not parsed", study->layout);
    TRY(add_sizes(&points, study));
    TRY(multiply_lists(&points, study, model));
    TRY(set_batches(&points, study, model));
    TRY(set_gate_batch(&points, study));
    *out = points;
    return 0;
out:
    points_release(&points);
    return rc;
}

int study_add_loaded(struct points *points, const struct study *study, bool emulated)
{
    bool wanted = study->base == BASE_LOADED || (study->base == BASE_AUTO && emulated);
    int n = points->n;
    if (!wanted || points->nodes < 2 || study->run_steps > 0) /* a run has no copies */
        return 0;
    for (int i = 0; i < n; i++) {
        struct point loaded = points->point[i];
        if (loaded.nodes != 1 || loaded.ranks_per_node != points->ranks_per_node)
            continue;
        if (points->n == STUDY_POINTS_MAX)
            return fail(FAIL_USAGE, "--base: more than %d points; take --base alone",
                        STUDY_POINTS_MAX);
        loaded.copies = points->nodes;
        loaded.index = points->n;
        points->point = must_grow(points->point, (size_t)points->n + 1, sizeof *points->point);
        points->point[points->n++] = loaded;
    }
    return 0;
}

void points_release(struct points *points)
{
    free(points->point);
    memset(points, 0, sizeof *points);
}
