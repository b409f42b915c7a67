#include "workloads/checkpoint_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static int by_name(const void *a, const void *b)
{
    const struct checkpoint_named *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Earlier first, then longer; equal ones in the order in which they were added. */
static int by_place(const void *a, const void *b)
{
    const struct checkpoint_run *x = a, *y = b;
    if (x->whole != y->whole)
        return x->whole < y->whole ? -1 : 1;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    if (x->entry != y->entry)
        return x->entry < y->entry ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

/* The names of one shard are those of all: found once, then looked up. */
static struct checkpoint_named *named(struct checkpoint_index *index, const struct plan_tensor *t)
{
    for (int i = index->n - 1; i >= 0; i--) /* the last one most often */
        if (strcmp(index->tensor[i].name, t->name) == 0)
            return &index->tensor[i];
    if (index->n == index->capacity) {
        index->capacity = 2 * index->capacity + 64;
        index->tensor = must_grow(index->tensor, (size_t)index->capacity, sizeof *index->tensor);
    }
    struct checkpoint_named *new = &index->tensor[index->n++];
    *new = (struct checkpoint_named){.rows = t->whole_rows, .columns = t->whole_columns};
    snprintf(new->name, sizeof new->name, "%s", t->name);
    return new;
}

struct adding {
    struct checkpoint_named *tensor;
    int entry, part;
};

static void add_run(void *arg, int64_t whole_first, int64_t image_first, int64_t count)
{
    const struct adding *adding = arg;
    struct checkpoint_named *t = adding->tensor;
    if (t->n == t->capacity) {
        t->capacity = 2 * t->capacity + 8;
        t->run = must_grow(t->run, (size_t)t->capacity, sizeof *t->run);
    }
    t->run[t->n++] =
        (struct checkpoint_run){whole_first, count, adding->entry, adding->part, image_first};
}

static void add_entry(struct checkpoint_index *index, const struct checkpoint_manifest *manifest,
                      int entry)
{
    const struct checkpoint_shard *shard = &manifest->entry[entry].shard;
    for (int p = 0; p < shard->n_parts; p++) {
        const struct checkpoint_part *part = &shard->parts[p];
        struct adding adding = {named(index, &shard->tensors[part->tensor]), entry, p};
        checkpoint_part_runs(shard, part, add_run, &adding);
    }
}

/* Leave out what earlier runs hold; with `preferred` first where two begin alike. */
static void settle(struct checkpoint_named *t, int preferred)
{
    int64_t kept = 0;
    qsort(t->run, (size_t)t->n, sizeof *t->run, by_place);
    for (int64_t i = 0; i < t->n; i++) {
        struct checkpoint_run *last = kept > 0 ? &t->run[kept - 1] : NULL;
        const struct checkpoint_run *run = &t->run[i];
        bool covered = last && run->whole + run->count <= last->whole + last->count;
        if (!covered)
            t->run[kept++] = *run;
        else if (run->entry == preferred && run->whole == last->whole && run->count == last->count)
            *last = *run;
    }
    t->n = kept;
}

void checkpoint_index_make(struct checkpoint_index *index,
                           const struct checkpoint_manifest *manifest, int prefer)
{
    int preferred = -1;
    memset(index, 0, sizeof *index);
    for (int i = 0; i < manifest->n; i++) {
        preferred = manifest->entry[i].shard.rank == prefer ? i : preferred;
        add_entry(index, manifest, i);
    }
    for (int i = 0; i < index->n; i++)
        settle(&index->tensor[i], preferred);
    if (index->n > 0)
        qsort(index->tensor, (size_t)index->n, sizeof *index->tensor, by_name);
}

void checkpoint_index_release(struct checkpoint_index *index)
{
    for (int i = 0; i < index->n; i++)
        free(index->tensor[i].run);
    free(index->tensor);
    memset(index, 0, sizeof *index);
}

const struct checkpoint_named *checkpoint_index_find(const struct checkpoint_index *index,
                                                     const char *name)
{
    struct checkpoint_named key;
    snprintf(key.name, sizeof key.name, "%s", name);
    return index->n > 0
               ? bsearch(&key, index->tensor, (size_t)index->n, sizeof *index->tensor, by_name)
               : NULL;
}

const struct checkpoint_run *checkpoint_index_at(const struct checkpoint_named *tensor,
                                                 int64_t element)
{
    int64_t low = 0, high = tensor->n; /* the last run that begins at or before the element */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (tensor->run[middle].whole <= element)
            low = middle;
        else
            high = middle;
    }
    const struct checkpoint_run *run = tensor->n > 0 ? &tensor->run[low] : NULL;
    return run && run->whole <= element && element < run->whole + run->count ? run : NULL;
}
