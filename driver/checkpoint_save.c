#define _DEFAULT_SOURCE /* madvise */
#include "driver/checkpoint_save_part.h"

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/checkpoint_place.h"

/* ---- the files of the next save ---- */

static int create_own(struct saver *s, struct saver_slot *slot)
{
    int rc = checkpoint_file_create(slot->save.path, false, &s->shard, 1, &slot->save.place);
    if (rc == 0)
        rc = checkpoint_file_frame(slot->save.path, &slot->save.place, 1, &slot->entry.file_bytes,
                                   &slot->entry.frame);
    return rc;
}

struct shared_file { /* what rank 0 tells of state.h5 */
    int64_t bytes;
    uint64_t frame;
};

static int create_shared(struct saver *s, struct saver_slot *slot)
{
    int world = s->plan->layout.world, rank = s->plan->layout.rank, rc = 0;
    struct checkpoint_place *places = must_alloc((size_t)world, sizeof *places);
    struct shared_file file = {0, 0};
    if (rank == 0)
        rc = checkpoint_file_create(slot->save.path, true, s->shards, world, places);
    if (rank == 0 && rc == 0)
        rc = checkpoint_file_frame(slot->save.path, places, world, &file.bytes, &file.frame);
    TRY(agree_quietly(rc, s->config.parent));
    TRY(agree_broadcast(places, (int64_t)((size_t)world * sizeof *places), 0, s->config.parent));
    TRY(agree_broadcast(&file, sizeof file, 0, s->config.parent));
    slot->save.place = places[rank];
    slot->entry.file_bytes = file.bytes;
    slot->entry.frame = file.frame;
out:
    free(places);
    return rc;
}

static int make_folder(const struct saver_slot *slot)
{
    if (mkdir(slot->folder, 0777) == 0 || errno == EEXIST) /* the first rank makes it */
        return 0;
    return fail(FAIL_FILE, "checkpoint: cannot make %s: %s", slot->folder, strerror(errno));
}

/* Each rank its own. */
static void clear(const struct saver *s, const struct saver_slot *slot)
{
    char note[CHECKPOINT_PATH];
    saver_note_path(s, slot, note, sizeof note);
    unlink(note);
    if (!s->config.shared || s->plan->layout.rank == 0)
        unlink(slot->save.path);
}

int saver_prepare(struct saver *s, struct saver_slot *slot)
{
    int rc = make_folder(slot);
    /* Of a lost save, where the folder was not there when its files were to be dropped. Behind mkdir, which asks the
     * server: a client that remembers the folder as gone would find nothing to remove in it. */
    if (rc == 0)
        clear(s, slot);
    if (s->config.shared) {
        TRY(agree_quietly(rc, s->config.parent));
        rc = create_shared(s, slot);
    } else if (rc == 0) {
        rc = create_own(s, slot);
    }
    TRY(agree_quietly(rc, s->config.parent));
    slot->entry.place = slot->save.place;
    slot->state = SAVE_READY;
out:
    if (rc != 0 && rc != FAIL_COMM) {
        saver_drop_files(s, slot);
        if (agree_barrier(s->config.parent) != 0)
            rc = FAIL_COMM;
    }
    return rc;
}

/* Each rank its own: another may be making its next already. */
void saver_drop_files(const struct saver *s, const struct saver_slot *slot)
{
    clear(s, slot);
    rmdir(slot->folder); /* by the last rank */
}

/* ---- memory ---- */

static int reduce(struct saver *s, int64_t *values, int n, MPI_Op op)
{
    MPI_Request request;
    AGREE_MPI(MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_INT64_T, op,
                             *(const MPI_Comm *)s->config.parent, &request));
    return agree_wait(&request);
}

/* Staging of all ranks of this host for one save. */
static int bytes_of_host(struct saver *s, int64_t *bytes)
{
    int first, world = s->plan->layout.world, rc = 0;
    int64_t *of = must_alloc((size_t)world, sizeof *of);
    TRY(agree_host(&first, s->config.parent));
    of[first] = saver_bytes(s->plan);
    TRY(reduce(s, of, world, MPI_SUM));
    *bytes = of[first];
out:
    free(of);
    return rc;
}

/* Two slots where the host has room for both and 20 % are left, else one. */
static int choose_slots(struct saver *s)
{
    const double gib = 1073741824.0;
    int64_t host, available = checkpoint_place_memory(), slots = SAVER_SLOTS;
    int rc = 0;
    TRY(bytes_of_host(s, &host));
    if (available > 0)
        while (slots > 0 && (double)(slots * host) > 0.8 * (double)available)
            slots--;
    if (slots == 0)
        rc =
            fail(FAIL_USAGE,
                 "checkpoint: the ranks of a host stage %.2f GiB and it has %.2f GiB available, of "
                 "which a fifth is left alone: take a smaller model, or more hosts",
                 (double)host / gib, (double)available / gib);
    TRY(agree_quietly(rc, s->config.parent));
    TRY(reduce(s, &slots, 1, MPI_MIN));
    s->n_slots = (int)slots;
    s->host_bytes = slots * host;
out:
    return rc;
}

static void cut_chunks(struct saver *s, struct saver_slot *slot)
{
    int64_t padded = checkpoint_padded(&s->shard);
    slot->chunks = must_alloc((size_t)(s->n_groups * CHECKPOINT_ARRAYS), sizeof *slot->chunks);
    for (int g = 0, i = 0; g < s->n_groups; g++)
        for (int a = 0; a < CHECKPOINT_ARRAYS; a++, i++) {
            int64_t first = g * s->group, left = padded - first;
            slot->chunks[i] = (struct checkpoint_chunk){a, first, left < s->group ? left : s->group,
                                                        slot->staging[a] + first};
        }
}

/* There, near this rank, and in huge pages where there are some: a request to the disk has room for so
 * many pieces of memory, and is longer when they are. Freed by free(). */
static unsigned char *staging_memory(size_t bytes)
{
    const size_t huge = 2 << 20, unit = bytes < huge ? CHECKPOINT_ALIGN : huge;
    size_t whole = (bytes + unit - 1) / unit * unit;
    unsigned char *memory = aligned_alloc(unit, whole);
    if (memory == NULL)
        return NULL;
    if (unit == huge)
        (void)madvise(memory, whole, MADV_HUGEPAGE);
    memset(memory, 0, whole);
    return memory;
}

static int open_slot(struct saver *s, int index)
{
    struct saver_slot *slot = &s->slot[index];
    const struct device_type *type = s->config.execute->device.type;
    size_t padded = (size_t)checkpoint_padded(&s->shard), array = padded * sizeof(float);
    char name[32];
    slot->saver = s;
    slot->bytes = (int64_t)(CHECKPOINT_ARRAYS * array) + CHECKPOINT_ALIGN;
    size_t whole = (size_t)slot->bytes + CHECKPOINT_ALIGN;
    slot->memory = staging_memory(whole);
    if (slot->memory == NULL)
        return fail(FAIL_USAGE, "checkpoint: %zu bytes of host memory to stage in are not there",
                    whole);
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
        slot->staging[a] = (float *)(void *)(slot->memory + (size_t)a * array);
    slot->small = slot->memory + CHECKPOINT_ARRAYS * array;
    if (type->pin != NULL) {
        int rc = type->pin(&s->config.execute->device, slot->memory, whole);
        if (rc != 0)
            return rc;
        slot->pinned = true;
    }
    cut_chunks(s, slot);
    snprintf(name, sizeof name, "saving-%d.tmp", index);
    checkpoint_path(slot->folder, sizeof slot->folder, s->config.root, name);
    slot->entry.shard = s->shard; /* borrowed */
    slot->entry.hash =
        must_alloc(((size_t)s->shard.n_parts + 1) * CHECKPOINT_ARRAYS, sizeof *slot->entry.hash);
    checkpoint_file_name(slot->entry.file, sizeof slot->entry.file, s->config.shared,
                         s->shard.rank);
    checkpoint_path(slot->save.path, sizeof slot->save.path, slot->folder, slot->entry.file);
    slot->save.shard = &s->shard;
    slot->save.hash = slot->entry.hash;
    slot->save.chunks = slot->chunks;
    slot->save.n_chunks = s->n_groups * CHECKPOINT_ARRAYS;
    slot->save.small = slot->small;
    if (type->tell != NULL)
        slot->save.arrived = (atomic_int *)(void *)(slot->small + CHECKPOINT_ALIGN);
    slot->save.direct = true;
    slot->save.throttle_bytes_per_s = s->config.throttle_bytes_per_s;
    slot->head = (struct checkpoint_manifest){
        .shared = s->config.shared, .terms = s->config.terms, .about = s->config.about};
    return 0;
}

static int take_snapshot_memory(struct saver *s)
{
    int rc = 0;
    for (int a = 0; a < CHECKPOINT_ARRAYS && s->config.needs_snapshot; a++)
        TRY(s->config.execute->device.type->alloc(&s->config.execute->device, DEVICE_OPTIMIZER,
                                                  (size_t)s->shard.n * sizeof(float),
                                                  &s->snapshot[a]));
out:
    return rc;
}

/* ---- rank 0 of a shared file knows all shards ---- */

static void *part_of(const unsigned char **at, size_t bytes)
{
    void *copy = must_alloc(bytes + 1, 1);
    memcpy(copy, *at, bytes);
    *at += bytes;
    return copy;
}

static int gather_shards(struct saver *s)
{
    struct checkpoint_shard *mine = &s->shard;
    int world = s->plan->layout.world;
    size_t tensors = (size_t)mine->n_tensors * sizeof *mine->tensors;
    size_t parts = (size_t)mine->n_parts * sizeof *mine->parts, head = sizeof *mine;
    unsigned char *packed = must_alloc(head + tensors + parts + 1, 1);
    void *all = NULL;
    int64_t total, *counts = must_alloc((size_t)world, sizeof *counts);
    memcpy(packed, mine, head);
    memcpy(packed + head, mine->tensors, tensors);
    memcpy(packed + head + tensors, mine->parts, parts);
    int rc = agree_gather(packed, (int64_t)(head + tensors + parts), &all, &total, counts,
                          s->config.parent);
    if (rc == 0 && mine->rank == 0) {
        const unsigned char *at = all;
        s->shards = must_alloc((size_t)world, sizeof *s->shards);
        for (int r = 0; r < world; r++) {
            struct checkpoint_shard *shard = &s->shards[r];
            memcpy(shard, at, head);
            at += head;
            shard->tensors = part_of(&at, (size_t)shard->n_tensors * sizeof *shard->tensors);
            shard->parts = part_of(&at, (size_t)shard->n_parts * sizeof *shard->parts);
        }
    }
    free(all);
    free(counts);
    free(packed);
    return rc;
}

/* ---- open and close ---- */

/* A launch thread must not wait for the writer. Where cores compute the steps themselves these lose what
 * hashing takes sooner or later, and a writer that is nice only takes longer for it. */
static int niceness(const struct saver *s)
{
    return s->config.crowded || s->config.execute->device.type->runs_host_tasks ? 0 : 10;
}

static int open_place(struct saver *s)
{
    const char *root = s->config.root;
    int rc = 0;
    const void *parent = s->config.parent;
    TRY(checkpoint_place_shared(root, s->plan->layout.rank, parent, &s->view));
    TRY(checkpoint_place_hold(root, s->plan->layout.rank, &s->view, 3, parent, &s->held));
    if (!s->config.continues) /* another study may have saved since it was looked at first */
        TRY(checkpoint_place_check(root, s->plan->layout.rank, &s->view, &s->config.terms,
                                   s->config.begin_step, parent));
    checkpoint_place_type(root, s->file_system, sizeof s->file_system);
    if (s->view.leads)
        checkpoint_place_clean(root);
    int64_t apart = !s->view.sees;
    TRY(reduce(s, &apart, 1, MPI_MAX));
    s->apart = apart != 0;
    if (apart && s->config.shared)
        rc = fail(FAIL_USAGE,
                  "--checkpoint-files: shared: not all ranks see %s of rank 0: take per-rank, or a "
                  "folder that all nodes share",
                  root);
    rc = agree_quietly(rc, s->config.parent);
    if (rc == 0 && apart)
        rc = saver_learn(s);
out:
    return rc;
}

int saver_open(struct saver *s, const struct saver_config *config)
{
    struct execute *e = config->execute;
    int rc = 0;
    memset(s, 0, sizeof *s);
    s->config = *config;
    s->plan = e->plan;
    s->wanted = s->called = s->lazy = s->held = -1;
    checkpoint_shard_make(s->plan, &s->shard);
    s->group = saver_group_elements(e->device.type, checkpoint_padded(&s->shard));
    s->n_groups = saver_groups(s->plan, e->device.type);
    s->waited = must_alloc((size_t)s->n_groups, sizeof *s->waited);
    TRY(open_place(s));
    TRY(choose_slots(s));
    for (int i = 0; i < s->n_slots && rc == 0; i++)
        rc = open_slot(s, i);
    if (rc == 0)
        rc = take_snapshot_memory(s);
    if (rc == 0)
        rc = checkpoint_writer_start(&s->writer, niceness(s));
    TRY(agree_quietly(rc, config->parent));
    if (config->shared)
        TRY(gather_shards(s));
    for (int i = 0; i < s->n_slots; i++) {
        rc = saver_prepare(s, &s->slot[i]);
        if (rc == FAIL_COMM || i == 0 || !s->config.continues)
            TRY(rc);
        fail_clear(); /* one will do where nobody watches: the other is tried again when it is wanted */
        rc = 0;
    }
    e->hook = (struct execute_hook){s, saver_step, saver_update};
out:
    return rc;
}

static void close_slot(struct saver *s, struct saver_slot *slot)
{
    if (slot->pinned)
        s->config.execute->device.type->unpin(&s->config.execute->device, slot->memory);
    if (slot->state != SAVE_PUBLISHED && slot->folder[0])
        saver_drop_files(s, slot);
    for (int r = 0; slot->texts != NULL && r < s->plan->layout.world; r++)
        free(slot->texts[r]);
    free(slot->texts);
    free(slot->entry.hash);
    free(slot->chunks);
    free(slot->memory);
}

void saver_close(struct saver *s)
{
    if (s->plan == NULL)
        return;
    struct execute *e = s->config.execute;
    e->hook = (struct execute_hook){NULL, NULL, NULL};
    checkpoint_writer_stop(s->writer);
    for (int i = 0; i < s->n_slots; i++)
        close_slot(s, &s->slot[i]);
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
        if (s->snapshot[a] != NULL)
            e->device.type->free(&e->device, DEVICE_OPTIMIZER, s->snapshot[a],
                                 (size_t)s->shard.n * sizeof(float));
    for (int r = 0; s->shards != NULL && r < s->plan->layout.world; r++)
        checkpoint_shard_release(&s->shards[r]);
    if (s->held >= 0)
        close(s->held);
    free(s->shards);
    free(s->waited);
    free(s->published);
    free(s->known);
    checkpoint_shard_release(&s->shard);
    memset(s, 0, sizeof *s);
}
