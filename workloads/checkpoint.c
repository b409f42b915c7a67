#include "workloads/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

const char *checkpoint_array_name(int array)
{
    static const char *const names[CHECKPOINT_ARRAYS] = {"master", "moment1", "moment2"};
    return names[array];
}

void checkpoint_path(char *out, size_t size, const char *folder, const char *name)
{
    size_t n = strlen(folder);
    while (n > 0 && folder[n - 1] == '/') /* "D/" is D, and "/" is nothing before a slash */
        n--;
    if ((size_t)snprintf(out, size, "%.*s/%s", (int)n, folder, name) >= size)
        BUG("a path of more than %zu bytes", size);
}

/* ---- the shard ---- */

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Do all ranks that hold the same experts have the same part of the rest too? */
static bool hold_the_same(const struct layout *layout)
{
    const struct group *edp = &layout->group[AXIS_EDP], *tp = &layout->group[AXIS_TP];
    for (int i = 0; i < edp->size; i++)
        if (group_rank(edp, i) / tp->stride % tp->size != tp->me)
            return false;
    return true;
}

/* Which of the ranks that hold the same state this one is, and how many they are. */
static int replica(const struct layout *layout, int *n)
{
    if (layout->degrees.ep > 1) { /* sharded: each has experts that no other has */
        bool same = layout->degrees.shard == 1 && hold_the_same(layout);
        *n = same ? layout->group[AXIS_EDP].size : 1;
        return same ? layout->group[AXIS_EDP].me : 0;
    }
    const struct group *dp = &layout->group[AXIS_REPLICATE], *cp = &layout->group[AXIS_CP];
    int copies = dp->size > 0 ? dp->size : 1, me = dp->size > 0 ? dp->me : 0;
    int contexts = cp->size > 0 ? cp->size : 1;
    *n = copies * contexts;
    return me + copies * (cp->size > 0 ? cp->me : 0);
}

static void add_part(struct checkpoint_shard *shard, const struct plan_piece *piece)
{
    int64_t end = shard->begin + shard->n;
    int64_t from = piece->offset > shard->begin ? piece->offset : shard->begin;
    int64_t to = piece->offset + piece->count < end ? piece->offset + piece->count : end;
    if (from >= to)
        return;
    shard->parts[shard->n_parts++] =
        (struct checkpoint_part){.tensor = piece->tensor,
                                 .first = piece->first + (from - piece->offset),
                                 .count = to - from,
                                 .offset = from - shard->begin};
}

/* Pieces of experts lie behind all others. */
static int by_offset(const void *a, const void *b)
{
    const struct checkpoint_part *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

void checkpoint_shard_make(const struct plan *plan, struct checkpoint_shard *out)
{
    int replicas, me = replica(&plan->layout, &replicas);
    int64_t share = round_up((plan->n_state + replicas - 1) / replicas, CHECKPOINT_BLOCK);
    int64_t begin = me * share < plan->n_state ? me * share : plan->n_state;
    int64_t left = plan->n_state - begin;
    *out = (struct checkpoint_shard){.rank = plan->layout.rank,
                                     .world = plan->layout.world,
                                     .n_tensors = plan->n_tensors,
                                     .begin = begin,
                                     .n = left < share ? left : share};
    out->tensors = must_alloc((size_t)plan->n_tensors + 1, sizeof *out->tensors);
    out->parts = must_alloc((size_t)plan->n_pieces + 1, sizeof *out->parts);
    memcpy(out->tensors, plan->tensors, (size_t)plan->n_tensors * sizeof *out->tensors);
    for (int i = 0; i < plan->n_pieces; i++)
        add_part(out, &plan->pieces[i]);
    qsort(out->parts, (size_t)out->n_parts, sizeof *out->parts, by_offset);
}

void checkpoint_shard_release(struct checkpoint_shard *shard)
{
    free(shard->tensors);
    free(shard->parts);
    memset(shard, 0, sizeof *shard);
}

int64_t checkpoint_padded(const struct checkpoint_shard *shard)
{
    return round_up(shard->n > 0 ? shard->n : 1, CHECKPOINT_BLOCK);
}

struct shift {
    void (*run)(void *arg, int64_t whole_first, int64_t image_first, int64_t count);
    void *arg;
    int64_t by;
};

static void shifted(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    const struct shift *shift = arg;
    shift->run(shift->arg, whole_first, local_first + shift->by, count);
}

void checkpoint_part_runs(const struct checkpoint_shard *shard, const struct checkpoint_part *part,
                          void (*run)(void *arg, int64_t whole_first, int64_t image_first,
                                      int64_t count),
                          void *arg)
{
    struct plan of = {.n_tensors = shard->n_tensors, .tensors = shard->tensors};
    struct plan_piece piece = {.tensor = part->tensor, .first = part->first, .count = part->count};
    struct shift shift = {run, arg, part->offset - part->first};
    plan_piece_runs(&of, &piece, shifted, &shift);
}

/* ---- terms ---- */

void checkpoint_terms_add(struct checkpoint_terms *terms, const char *name, const char *value)
{
    if (terms->n == CHECKPOINT_TERMS)
        BUG("more than %d terms of a checkpoint", CHECKPOINT_TERMS);
    struct checkpoint_term *term = &terms->term[terms->n++];
    snprintf(term->name, sizeof term->name, "%s", name);
    snprintf(term->value, sizeof term->value, "%s", value);
}

const char *checkpoint_terms_get(const struct checkpoint_terms *terms, const char *name)
{
    for (int i = 0; i < terms->n; i++)
        if (strcmp(terms->term[i].name, name) == 0)
            return terms->term[i].value;
    return NULL;
}

static bool is_word_of(const char *words, const char *word, size_t length)
{
    for (const char *at = words; *at != '\0'; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

void checkpoint_terms_lines(struct checkpoint_terms *terms, const char *text, const char *without)
{
    char name[40], value[200];
    for (const char *line = text; *line != '\0'; line += *line == '\n') {
        size_t length = strcspn(line, "\n"), key = strcspn(line, ":\n");
        if (key < length && !is_word_of(without, line, key)) {
            const char *from = line + key + 1;
            from += *from == ' ';
            snprintf(name, sizeof name, "%.*s", (int)key, line);
            snprintf(value, sizeof value, "%.*s", (int)(line + length - from), from);
            checkpoint_terms_add(terms, name, value);
        }
        line += length;
    }
}

const struct checkpoint_term *checkpoint_terms_differ(const struct checkpoint_terms *there,
                                                      const struct checkpoint_terms *here)
{
    for (int i = 0; i < here->n; i++) {
        const char *its = checkpoint_terms_get(there, here->term[i].name);
        if (its == NULL || strcmp(its, here->term[i].value) != 0)
            return &here->term[i];
    }
    return NULL;
}

int checkpoint_terms_compare(const struct checkpoint_terms *there,
                             const struct checkpoint_terms *here, const char *where)
{
    const struct checkpoint_term *mine = checkpoint_terms_differ(there, here);
    if (mine == NULL)
        return 0;
    const char *its = checkpoint_terms_get(there, mine->name);
    return fail(FAIL_USAGE,
                "checkpoint: %s: its %s is %s and that of this study is %s: resume what was "
                "saved, or another checkpoint",
                where, mine->name, its && its[0] ? its : "none",
                mine->value[0] ? mine->value : "none");
}
