#include "analysis/import_group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "analysis/flops.h"
#include "analysis/import_check.h"
#include "analysis/import_names.h"
#include "base/err.h"

double import_n(const struct import_row *row)
{
    double devices = import_devices(row);
    return isnan(devices) ? row->value[IMPORT_NODES] : devices;
}

static bool differ(double a, double b)
{
    return isnan(a) != isnan(b) || a < b || a > b;
}

double import_shape(const struct import_row *row)
{
    double nodes = row->value[IMPORT_NODES], each = row->value[IMPORT_DEVICES_PER_NODE];
    return isnan(each) ? import_devices(row) / nodes : each;
}

/* Parts of one node go with every shape that contains them. */
static bool other_shape(const struct import_row *a, const struct import_row *b)
{
    double x = import_shape(a), y = import_shape(b);
    if (isnan(x) || isnan(y) || !differ(x, y))
        return false;
    const struct import_row *smaller = x < y ? a : b;
    return !(smaller->value[IMPORT_NODES] <= 1.0);
}

bool import_is_moe(const struct import_row *row)
{
    const char *word = row->word[WORD_MOE];
    return row->value[IMPORT_EXPERTS] > 1.0 || row->value[IMPORT_EP] > 1.0 ||
           strcasecmp(word, "yes") == 0 || strcasecmp(word, "true") == 0 ||
           strcmp(word, "1") == 0 || strcasecmp(word, "moe") == 0;
}

/* What keeps two rows out of one curve, by its name; NULL: nothing. */
static const char *difference(const struct import_row *a, const struct import_row *b)
{
    static const int words[] = {WORD_DEVICE, WORD_PRECISION,  WORD_FABRIC,
                                WORD_MODE,   WORD_CONVENTION, WORD_SPARSE};
    static const int figures[] = {IMPORT_SEQUENCE, IMPORT_PEAK_TFLOPS, IMPORT_TOKENS_TOTAL};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(a->word[words[i]], b->word[words[i]]) != 0)
            return import_name_of(IMPORT_A_WORD, words[i]);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (differ(a->value[figures[i]], b->value[figures[i]]))
            return import_name_of(IMPORT_A_FIGURE, figures[i]);
    if (import_is_moe(a) != import_is_moe(b))
        return "dense or MoE";
    if (other_shape(a, b))
        return "devices per node";
    if (isnan(import_devices(a)) != isnan(import_devices(b)))
        return "gpus (given in one row, not in the other)";
    return NULL;
}

/* Rows of one curve, and the rest of the work on them. */
struct group {
    int n;
    struct import_row **rows; /* [n] */
};

struct groups {
    int n;
    struct group *all;
};

static void groups_release(struct groups *groups)
{
    for (int i = 0; i < groups->n; i++)
        free(groups->all[i].rows);
    free(groups->all);
    *groups = (struct groups){0};
}

static void group_add(struct group *group, struct import_row *row)
{
    if ((group->n & (group->n - 1)) == 0)
        group->rows =
            must_grow(group->rows, group->n > 0 ? 2 * (size_t)group->n : 1, sizeof *group->rows);
    group->rows[group->n++] = row;
}

static struct group *groups_add(struct groups *groups)
{
    groups->all = must_grow(groups->all, (size_t)groups->n + 1, sizeof *groups->all);
    groups->all[groups->n] = (struct group){0};
    return &groups->all[groups->n++];
}

static int refuse_mixture(const struct import *import, const struct import_row *a,
                          const struct import_row *b, const char *field)
{
    bool mfu = strcmp(field, "peak_tflops_per_s_gpu") == 0 || strcmp(field, "sparse_peak") == 0 ||
               strcmp(field, "flop_convention") == 0;
    return fail(FAIL_USAGE,
                "%s:%d: not the same work as line %d of series \"%s\": %s differs%s; give it a "
                "series of its own",
                import->paths[b->file], b->line, a->line, a->word[WORD_SERIES], field,
                mfu ? ", so that MFU means two things" : "");
}

static int place_row(struct import *import, struct groups *groups, struct import_row *row)
{
    const struct import_row *other = NULL;
    const char *differs = NULL;
    for (int i = groups->n - 1; i >= 0; i--) {
        struct import_row *head = groups->all[i].rows[0];
        const char *field = difference(head, row);
        if (strcmp(head->word[WORD_SERIES], row->word[WORD_SERIES]) != 0)
            continue;
        if (field == NULL && row->word[WORD_SERIES][0] == '\0' &&
            strcmp(head->word[WORD_MODEL], row->word[WORD_MODEL]) != 0)
            continue;
        if (field != NULL && row->word[WORD_SERIES][0] != '\0')
            return refuse_mixture(import, head, row, field);
        if (field != NULL) {
            other = head;
            differs = field;
            continue;
        }
        group_add(&groups->all[i], row);
        return 0;
    }
    if (differs != NULL)
        series_set_note(&import->set, import->paths[row->file], row->line,
                        "not the same work as line %d: %s differs, so a curve of its own begins",
                        other->line, differs);
    group_add(groups_add(groups), row);
    return 0;
}

static double parameters_of(const struct import_row *row)
{
    struct flops_gpt shape = {.layers = row->value[IMPORT_LAYERS],
                              .hidden = row->value[IMPORT_HIDDEN],
                              .vocabulary = row->value[IMPORT_VOCABULARY],
                              .sequence = row->value[IMPORT_SEQUENCE]};
    double given = row->value[IMPORT_PARAMETERS];
    return isnan(given) ? flops_gpt_parameters(&shape) : given;
}

/* Work of a step, in sequences or else tokens. */
static double batch_of(const struct import_row *row)
{
    double batch = import_batch(row);
    return isnan(batch) ? row->value[IMPORT_TOKENS_PER_STEP] : batch;
}

static bool changes(const struct group *g, double (*figure)(const struct import_row *row))
{
    for (int i = 1; i < g->n; i++)
        if (differ(figure(g->rows[0]), figure(g->rows[i])))
            return true;
    return false;
}

static double layers_of(const struct import_row *row)
{
    return row->value[IMPORT_LAYERS];
}

static double batch_per_n(const struct import_row *row)
{
    return batch_of(row) / import_n(row);
}

static bool grows_with_n(const struct group *g)
{
    double low = INFINITY, high = 0.0;
    for (int i = 0; i < g->n; i++) {
        double each = batch_per_n(g->rows[i]);
        if (isnan(each))
            return false;
        low = fmin(low, each);
        high = fmax(high, each);
    }
    return high <= low * (1.0 + 1e-9);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static const char *name_of(const struct import *import, const struct group *g)
{
    const struct import_row *row = g->rows[0];
    return row->word[WORD_SERIES][0] != '\0'  ? row->word[WORD_SERIES]
           : row->word[WORD_MODEL][0] != '\0' ? row->word[WORD_MODEL]
                                              : base_name(import->paths[row->file]);
}

static int refuse_growth(const struct import *import, const struct group *g, const char *why)
{
    const struct import_row *first = g->rows[0], *last = g->rows[g->n - 1];
    bool layers = changes(g, layers_of);
    return fail(FAIL_USAGE,
                "%s:%d: series \"%s\": %s with N (%.6g at N = %.0f, %.6g at N = %.0f): %s",
                import->paths[last->file], last->line, name_of(import, g),
                layers ? "layers change" : "parameters change",
                layers ? layers_of(first) : parameters_of(first), import_n(first),
                layers ? layers_of(last) : parameters_of(last), import_n(last), why);
}

static int refuse_batch(const struct import *import, const struct group *g, const char *why)
{
    int i = 1;
    while (i < g->n - 1 && !differ(batch_of(g->rows[0]), batch_of(g->rows[i])))
        i++;
    return fail(FAIL_USAGE,
                "%s:%d: series \"%s\": global_batch is %.6g at N = %.0f and %.6g at N = %.0f: %s",
                import->paths[g->rows[i]->file], g->rows[i]->line, name_of(import, g),
                batch_of(g->rows[0]), import_n(g->rows[0]), batch_of(g->rows[i]),
                import_n(g->rows[i]), why);
}

/* By layers or parameters the model is another one at another N. */
static bool model_grows(const struct group *g)
{
    return changes(g, parameters_of) || changes(g, layers_of);
}

static int decide_growing(const struct import *import, const struct group *g, bool strong,
                          enum series_mode *mode)
{
    *mode = SERIES_WORK;
    if (strong)
        return refuse_growth(import, g, "that is no strong curve");
    for (int i = 0; i < g->n; i++)
        if (isnan(parameters_of(g->rows[i])) || isnan(import_batch(g->rows[i])))
            return refuse_growth(import, g,
                                 "no scaling series; only W = parameters x sequences a step could "
                                 "compare them, which needs both columns");
    return 0;
}

/* The mode; `split`: rows of equal batch form curves of their own. */
static int decide(const struct import *import, const struct group *g, const char *asked,
                  enum series_mode *mode, bool *split)
{
    const char *said = g->rows[0]->word[WORD_MODE];
    bool strong = false, weak = false;
    *split = false;
    if (said[0] == '\0')
        said = asked;
    strong = strncasecmp(said, "strong", 6) == 0;
    weak = strncasecmp(said, "weak", 4) == 0;
    if (!strong && !weak && strcasecmp(said, "auto") != 0 && strncasecmp(said, "work", 4) != 0)
        return fail(FAIL_USAGE, "%s:%d: mode \"%s\" is neither strong nor weak",
                    import->paths[g->rows[0]->file], g->rows[0]->line, said);
    if (model_grows(g))
        return decide_growing(import, g, strong, mode);
    *mode = weak ? SERIES_WEAK : SERIES_STRONG;
    if (strong && changes(g, batch_of))
        return refuse_batch(import, g, "a changed batch is no strong scaling");
    if (weak && !isnan(batch_of(g->rows[0])) && !grows_with_n(g))
        return refuse_batch(import, g, "it does not follow N, so this is no weak scaling");
    if (strong || weak || g->n == 1 || (!isnan(batch_of(g->rows[0])) && !changes(g, batch_of)))
        return 0;
    if (grows_with_n(g))
        *mode = SERIES_WEAK;
    else if (isnan(batch_of(g->rows[0])))
        return fail(FAIL_USAGE,
                    "%s:%d: series \"%s\" has neither a global batch nor a column mode: say "
                    "--scaling strong or --scaling weak",
                    import->paths[g->rows[0]->file], g->rows[0]->line, name_of(import, g));
    else
        *split = true;
    return 0;
}

static int row_order(const void *left, const void *right)
{
    const struct import_row *a = *(struct import_row *const *)left;
    const struct import_row *b = *(struct import_row *const *)right;
    double n = import_n(a), m = import_n(b);
    if (n < m || n > m)
        return n < m ? -1 : 1;
    return a < b ? -1 : a > b; /* as they were read */
}

/* Within a file N must increase, and equal N must be told apart. */
static int check_order(const struct import *import, const struct group *g)
{
    for (int i = 1; i < g->n; i++) {
        const struct import_row *a = g->rows[i - 1], *b = g->rows[i];
        if (a->file != b->file)
            continue;
        if (import_n(b) < import_n(a))
            return fail(FAIL_USAGE,
                        "%s:%d: series \"%s\": N = %.0f follows N = %.0f: N must increase; rows of "
                        "another curve need a column series",
                        import->paths[b->file], b->line, name_of(import, g), import_n(b),
                        import_n(a));
        if (import_n(b) <= import_n(a) && strcmp(a->word[WORD_RUN], b->word[WORD_RUN]) == 0)
            return fail(FAIL_USAGE,
                        "%s:%d: series \"%s\": N = %.0f is there twice (line %d): give launches a "
                        "column run, other curves a column series",
                        import->paths[b->file], b->line, name_of(import, g), import_n(b), a->line);
    }
    return 0;
}

static int finish_group(struct import *import, struct group *g, enum series_mode mode)
{
    int rc = check_order(import, g);
    if (rc != 0)
        return rc;
    qsort(g->rows, (size_t)g->n, sizeof *g->rows, row_order);
    return import_make_series(import, g->rows, g->n, mode, name_of(import, g));
}

/* One strong curve for each batch. A batch that never repeats leaves no curve at all. */
static int split_by_batch(struct import *import, const struct group *g)
{
    struct groups parts = {0};
    int rc = 0;
    for (int i = 0; i < g->n; i++) {
        int j = 0;
        while (j < parts.n && differ(batch_of(parts.all[j].rows[0]), batch_of(g->rows[i])))
            j++;
        group_add(j < parts.n ? &parts.all[j] : groups_add(&parts), g->rows[i]);
    }
    if (parts.n == g->n)
        rc = refuse_batch(import, g,
                          "it is neither constant (strong) nor in step with N (weak), and no two "
                          "rows share it");
    for (int i = 0; i < parts.n && rc == 0; i++)
        rc = finish_group(import, &parts.all[i], SERIES_STRONG);
    groups_release(&parts);
    return rc;
}

static int group_series(struct import *import, struct group *g, const char *asked)
{
    enum series_mode mode = SERIES_STRONG;
    bool split;
    int rc = decide(import, g, asked, &mode, &split);
    if (rc != 0)
        return rc;
    return split ? split_by_batch(import, g) : finish_group(import, g, mode);
}

int import_group(struct import *import, const char *mode)
{
    struct groups groups = {0};
    int rc = 0;
    for (int i = 0; i < import->n_rows; i++) {
        struct import_row *row = &import->rows[i];
        if (isnan(import_n(row))) {
            rc = fail(FAIL_USAGE,
                      "%s:%d: nothing says how many devices or nodes this is: a column gpus or "
                      "nodes, or --devices for a log",
                      import->paths[row->file], row->line);
            goto out;
        }
        import_check_row(import, row);
        TRY(place_row(import, &groups, row));
    }
    for (int i = 0; i < groups.n; i++)
        TRY(group_series(import, &groups.all[i], mode));
out:
    groups_release(&groups);
    return rc;
}
