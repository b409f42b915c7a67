#include "driver/checkpoint_load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/watchdog.h"

/* ---- which one ---- */

/* What rank 0 tells the others. */
struct found {
    char name[64]; /* of the step's folder below what was given, "" when it is that itself */
    char previous[CHECKPOINT_PATH];
    int64_t bytes; /* of the manifest's text, its end counted */
};

static int find(struct checkpoint_source *source, const char *given, struct found *found,
                char **text)
{
    int rc = 0;
    TRY(checkpoint_find(given, source->folder, sizeof source->folder, found->previous,
                        sizeof found->previous));
    if (strcmp(source->folder, given) != 0)
        snprintf(found->name, sizeof found->name, "%s", strrchr(source->folder, '/') + 1);
    TRY(checkpoint_manifest_text(source->folder, text));
    found->bytes = (int64_t)strlen(*text) + 1;
out:
    return rc;
}

int checkpoint_source_offer(int rc, const struct checkpoint_source *source)
{
    char why[800];
    if (rc != FAIL_FILE || source->previous[0] == '\0')
        return rc;
    snprintf(why, sizeof why, "%.799s", fail_message());
    fail_clear();
    return fail(rc, "%s; the one before is there: --resume-from %s", why, source->previous);
}

/* "D/" is D in every sentence. */
static void trim(const char *given, char *out, size_t size)
{
    snprintf(out, size, "%s", given);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--)
        out[n - 1] = '\0';
}

int checkpoint_source_open(struct checkpoint_source *source, const char *from,
                           const struct checkpoint_terms *terms, int rank, const void *comm)
{
    struct found found;
    char *text = NULL, given[CHECKPOINT_PATH];
    int rc = 0;
    trim(from, given, sizeof given);
    memset(source, 0, sizeof *source);
    memset(&found, 0, sizeof found);
    if (rank == 0)
        rc = find(source, given, &found, &text);
    TRY(agree_quietly(rc, comm));
    TRY(agree_broadcast(&found, sizeof found, 0, comm));
    snprintf(source->previous, sizeof source->previous, "%s", found.previous);
    if (found.name[0] != '\0')
        checkpoint_path(source->folder, sizeof source->folder, given, found.name);
    else
        snprintf(source->folder, sizeof source->folder, "%s", given);
    if (rank != 0)
        text = must_alloc((size_t)found.bytes, 1);
    TRY(agree_broadcast(text, found.bytes, 0, comm));
    rc = checkpoint_manifest_parse(&source->manifest, text, source->folder);
    TRY(agree_quietly(rc, comm));
    rc = agree_quietly(checkpoint_terms_compare(&source->manifest.terms, terms, source->folder),
                       comm);
out:
    free(text);
    return rc;
}

int checkpoint_source_verify(const struct checkpoint_source *source, int rank, int size,
                             const void *comm)
{
    int rc = checkpoint_verify(source->folder, &source->manifest, rank, size);
    return agree_named(rc, comm);
}

void checkpoint_source_close(struct checkpoint_source *source)
{
    checkpoint_manifest_release(&source->manifest);
    memset(source, 0, sizeof *source);
}

/* ---- the state ---- */

struct loading {
    struct execute *execute;
    struct checkpoint_reader *reader;
    int64_t upload_ns;
};

static void upload(struct loading *l, struct tensor to, enum dtype dtype, float *values, int64_t n)
{
    int64_t begin = units_now_ns();
    if (to.buffer != BUFFER_NONE)
        execute_upload_tensor(l->execute, to, dtype, values, n);
    l->upload_ns += units_now_ns() - begin;
}

/* Rounding is in place, so what is uploaded twice is copied first. */
static int load_piece(struct loading *l, const struct op *adamw, const struct plan_piece *piece,
                      float *values, float *copy)
{
    const struct plan *plan = l->execute->plan;
    size_t bytes = (size_t)piece->count * sizeof *values;
    int rc = 0;
    TRY(checkpoint_reader_piece(l->reader, CHECKPOINT_MASTER, plan, piece, values));
    memcpy(copy, values, bytes);
    upload(l, adamw->t[0], DTYPE_F32, values, piece->count);
    upload(l, adamw->t[5], plan->dtype, copy, piece->count);
    TRY(checkpoint_reader_piece(l->reader, CHECKPOINT_MOMENT1, plan, piece, values));
    upload(l, adamw->t[2], DTYPE_F32, values, piece->count);
    TRY(checkpoint_reader_piece(l->reader, CHECKPOINT_MOMENT2, plan, piece, values));
    upload(l, adamw->t[3], DTYPE_F32, values, piece->count);
out:
    return rc;
}

static int64_t largest(const struct plan *plan)
{
    int64_t most = 1;
    for (int i = 0; i < plan->n_tensors; i++) {
        int64_t n = plan->tensors[i].rows * plan->tensors[i].columns;
        most = n > most ? n : most;
    }
    return most;
}

/* The update has one AdamW for each piece, in their order. */
static int load_pieces(struct loading *l, float *values, float *copy)
{
    const struct plan *plan = l->execute->plan;
    int rc = 0;
    for (int i = 0, piece = 0; i < plan->n_ops; i++) {
        if (plan->ops[i].kind != OP_ADAMW)
            continue;
        watchdog_at("load checkpoint", piece, "piece");
        TRY(load_piece(l, &plan->ops[i], &plan->pieces[piece++], values, copy));
    }
out:
    return rc;
}

/* Parameters that this rank has whole, whoever owns their masters. */
static int load_whole(struct loading *l, float *values)
{
    const struct plan *plan = l->execute->plan;
    int64_t size = (int64_t)dtype_size((int)plan->dtype);
    bool whole = plan->bytes[BUFFER_PARAMETER] >= plan->n_parameters * size;
    int rc = 0;
    for (int i = 0; i < plan->n_tensors && whole && plan->master != BUFFER_PARAMETER; i++) {
        const struct plan_tensor *t = &plan->tensors[i];
        struct plan_piece all = {.tensor = i, .count = t->rows * t->columns};
        watchdog_at("load checkpoint", i, "whole tensor");
        TRY(checkpoint_reader_piece(l->reader, CHECKPOINT_MASTER, plan, &all, values));
        upload(l, (struct tensor){BUFFER_PARAMETER, t->offset * size}, plan->dtype, values,
               all.count);
    }
out:
    return rc;
}

static void load_small(struct execute *e, const struct checkpoint_small *small)
{
    double scalars[SCALARS];
    memcpy(scalars, small->scalars, sizeof scalars);
    e->device.type->upload(&e->device, DEVICE_COMPUTE, e->memory[BUFFER_SCALAR], scalars,
                           sizeof scalars);
    e->device.type->sync(&e->device);
    e->consumed = small->consumed;
    e->global_steps = small->step;
    e->micro_steps = small->step * e->plan->micro_batches;
}

int checkpoint_load(struct execute *e, const struct checkpoint_source *source,
                    struct checkpoint_loaded *loaded)
{
    struct loading l = {.execute = e};
    size_t most = (size_t)largest(e->plan);
    float *values = must_alloc(most, sizeof *values), *copy = must_alloc(most, sizeof *copy);
    int64_t begin = units_now_ns();
    int rc = 0;
    checkpoint_reader_open(&l.reader, source->folder, &source->manifest, e->plan->layout.rank,
                           true);
    TRY(load_pieces(&l, values, copy));
    TRY(load_whole(&l, values));
    load_small(e, &source->manifest.small);
out:;
    const struct checkpoint_times *times = checkpoint_reader_times(l.reader);
    *loaded = (struct checkpoint_loaded){.read_ns = times->read_ns,
                                         .verify_ns = times->verify_ns,
                                         .recut_ns = times->recut_ns,
                                         .upload_ns = l.upload_ns,
                                         .total_ns = units_now_ns() - begin,
                                         .bytes = times->bytes,
                                         .direct = checkpoint_reader_is_direct(l.reader),
                                         .damaged = checkpoint_reader_damaged(l.reader)};
    checkpoint_reader_close(l.reader);
    free(values);
    free(copy);
    return rc;
}
