/* checkpoint_rig: save and check a whole layout in one process, without devices: values are a function
 * of tensor, element and array, so that a wrong element is seen wherever it lands. */
#ifndef TESTS_CHECKPOINT_RIG_H
#define TESTS_CHECKPOINT_RIG_H

#include "tests/test.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "workloads/checkpoint_manifest.h"
#include "workloads/checkpoint_read.h"
#include "workloads/transformer.h"

static bool rig_direct = true; /* O_DIRECT and asynchronous I/O */

struct rig_layout {
    int ranks;
    const char *parallel;
    int stage;
    enum dtype dtype;
    int virtual_stages;
};

static inline void rig_plan(struct plan *plan, const struct model *model,
                            const struct rig_layout *how, int rank)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    policy_defaults(&policy, model);
    policy.global_batch = 8;
    policy.micro_batch = 1;
    policy.dtype = how->dtype;
    policy.shard_stage = how->stage > 0 ? how->stage : 3;
    if (how->virtual_stages > 1) {
        policy.schedule = SCHEDULE_INTERLEAVED;
        policy.virtual_stages = how->virtual_stages;
    }
    CHECK_EQ(layout_parse(how->parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, how->ranks, 1, rank, &degrees), 0);
    if (!CHECK_EQ(transformer_plan(plan, model, &layout, &policy), 0))
        printf("%s\n", fail_message());
}

static inline float rig_value(uint64_t key, int64_t element)
{
    return (float)(rng_bits(key, (uint64_t)element) >> 40);
}

struct rig_fill {
    float *image;
    uint64_t key;
};

static inline void rig_fill_run(void *arg, int64_t whole, int64_t image, int64_t count)
{
    const struct rig_fill *fill = arg;
    for (int64_t i = 0; i < count; i++)
        fill->image[image + i] = rig_value(fill->key, whole + i);
}

static inline uint64_t rig_key(const char *tensor, int array, uint64_t seed)
{
    return rng_key(rng_key(seed, checkpoint_array_name(array)), tensor);
}

/* One rank's arrays, one after the other. */
static inline float *rig_image(const struct checkpoint_shard *shard, uint64_t seed)
{
    size_t padded = (size_t)checkpoint_padded(shard);
    float *image = aligned_alloc(CHECKPOINT_ALIGN, CHECKPOINT_ARRAYS * padded * sizeof *image);
    if (image == NULL)
        abort();
    memset(image, 0, CHECKPOINT_ARRAYS * padded * sizeof *image);
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
        for (int p = 0; p < shard->n_parts; p++) {
            const char *name = shard->tensors[shard->parts[p].tensor].name;
            struct rig_fill fill = {image + (size_t)a * padded, rig_key(name, a, seed)};
            checkpoint_part_runs(shard, &shard->parts[p], rig_fill_run, &fill);
        }
    return image;
}

/* Everything that a rank keeps for a save. */
struct rig_rank {
    struct checkpoint_entry entry;
    struct checkpoint_save save;
    struct checkpoint_chunk *chunks;
    float *image;
    unsigned char *small;
    atomic_int arrived;
};

static inline void rig_cut(struct rig_rank *rank, int64_t chunk)
{
    int64_t padded = rank->entry.place.padded;
    int n = 0, most = (int)(CHECKPOINT_ARRAYS * (padded / chunk + 1));
    rank->chunks = must_alloc((size_t)most, sizeof *rank->chunks);
    for (int64_t at = 0; at < padded; at += chunk)
        for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
            rank->chunks[n++] = (struct checkpoint_chunk){
                a, at, padded - at < chunk ? padded - at : chunk, rank->image + a * padded + at};
    rank->save.chunks = rank->chunks;
    rank->save.n_chunks = n;
}

static inline void rig_release(struct rig_rank *rank)
{
    checkpoint_shard_release(&rank->entry.shard);
    free(rank->entry.hash);
    free(rank->chunks);
    free(rank->image);
    free(rank->small);
    memset(rank, 0, sizeof *rank);
}

/* Of every second rank a device says how many chunks have arrived; the last comes late. */
static inline void rig_tell(struct rig_rank *rank)
{
    int n = rank->save.n_chunks;
    float *late = rank->image + (rank->chunks[n - 1].data - rank->image), value = *late;
    *late = value + 1;
    for (int i = 1; i < n; i++)
        atomic_store(&rank->arrived, i);
    units_sleep_ns(2000000);
    *late = value;
    atomic_store(&rank->arrived, n);
}

/* Write one rank's bytes with a writer of its own. */
static inline int rig_write(struct rig_rank *rank, int64_t throttle)
{
    struct checkpoint_writer *writer;
    int rc = checkpoint_writer_start(&writer, 0);
    if (rc != 0)
        return rc;
    rank->save.throttle_bytes_per_s = throttle;
    bool told = rank->entry.shard.rank % 2 == 1;
    rank->save.arrived = told ? &rank->arrived : NULL;
    checkpoint_writer_give(writer, &rank->save);
    if (told)
        rig_tell(rank);
    for (int i = 0; i < rank->save.n_chunks && !told; i++)
        checkpoint_writer_ready(writer, &rank->save);
    checkpoint_save_wait(writer, &rank->save);
    checkpoint_writer_stop(writer);
    if (rank->save.code != 0)
        return fail(rank->save.code, "%s", rank->save.why);
    rank->entry.small_hash = rank->save.small_hash;
    return 0;
}

static inline void rig_prepare(struct rig_rank *rank, const struct model *model,
                               const struct rig_layout *how, int r, int64_t step, uint64_t seed)
{
    struct plan plan;
    struct checkpoint_small small = {.step = step, .consumed = 8 * step, .batches = step};
    memset(rank, 0, sizeof *rank);
    rig_plan(&plan, model, how, r);
    checkpoint_shard_make(&plan, &rank->entry.shard);
    plan_release(&plan);
    small.scalars[SCALAR_STEP] = (double)step;
    rank->image = rig_image(&rank->entry.shard, seed);
    rank->small = aligned_alloc(CHECKPOINT_ALIGN, CHECKPOINT_ALIGN);
    checkpoint_file_small(&small, rank->small);
    size_t parts = (size_t)rank->entry.shard.n_parts + 1;
    rank->entry.hash = must_alloc(parts * CHECKPOINT_ARRAYS, sizeof *rank->entry.hash);
    rank->save.hash = rank->entry.hash;
    rank->save.shard = &rank->entry.shard;
    rank->save.small = rank->small;
    rank->save.direct = rig_direct;
}

/* The files of all ranks in `folder`, their layouts made. */
static inline int rig_create(struct rig_rank *ranks, int n, bool shared, const char *folder)
{
    struct checkpoint_shard *shards = must_alloc((size_t)n, sizeof *shards);
    struct checkpoint_place *places = must_alloc((size_t)n, sizeof *places);
    int rc = mkdir(folder, 0777) == 0 ? 0 : fail(FAIL_FILE, "rig: mkdir %s", folder);
    for (int r = 0; r < n; r++) {
        shards[r] = ranks[r].entry.shard;
        checkpoint_file_name(ranks[r].entry.file, sizeof ranks[r].entry.file, shared, r);
        checkpoint_path(ranks[r].save.path, sizeof ranks[r].save.path, folder, ranks[r].entry.file);
    }
    for (int r = 0; r < (shared ? 1 : n) && rc == 0; r++) {
        int of = shared ? n : 1;
        rc = checkpoint_file_create(ranks[r].save.path, shared, &shards[r], of, &places[r]);
        if (rc == 0)
            rc = checkpoint_file_frame(ranks[r].save.path, &places[r], of,
                                       &ranks[r].entry.file_bytes, &ranks[r].entry.frame);
    }
    for (int r = 0; r < n; r++) {
        ranks[r].entry.place = ranks[r].save.place = places[r];
        ranks[r].entry.file_bytes = ranks[shared ? 0 : r].entry.file_bytes;
        ranks[r].entry.frame = ranks[shared ? 0 : r].entry.frame;
    }
    free(shards);
    free(places);
    return rc;
}

/* Save a layout as root/step-N, all of it. */
static inline int rig_save(const char *root, const struct model *model,
                           const struct rig_layout *how, bool shared, int64_t step, uint64_t seed,
                           int64_t chunk, int64_t throttle)
{
    struct rig_rank *ranks = must_alloc((size_t)how->ranks, sizeof *ranks);
    char **texts = must_alloc((size_t)how->ranks, sizeof *texts);
    char folder[CHECKPOINT_PATH], why[512];
    struct checkpoint_manifest head = {
        .step = step, .shared = shared, .small = {.step = step, .consumed = 8 * step}};
    int rc = 0;
    checkpoint_terms_add(&head.terms, "model", model->name);
    checkpoint_path(folder, sizeof folder, root, "saving-0.tmp");
    checkpoint_remove(folder);
    for (int r = 0; r < how->ranks; r++)
        rig_prepare(&ranks[r], model, how, r, step, seed);
    TRY(rig_create(ranks, how->ranks, shared, folder));
    for (int r = 0; r < how->ranks; r++) {
        rig_cut(&ranks[r], chunk);
        TRY(rig_write(&ranks[r], throttle));
        texts[r] = checkpoint_shard_text(&ranks[r].entry);
    }
    rc = checkpoint_publish(root, folder, &head, (const char *const *)texts, how->ranks, why,
                            sizeof why);
    if (rc != 0)
        fail(rc, "%s", why);
out:
    for (int r = 0; r < how->ranks; r++) {
        rig_release(&ranks[r]);
        free(texts[r]);
    }
    free(texts);
    free(ranks);
    return rc;
}

struct rig_compare {
    const float *values;
    int64_t first, wrong;
    uint64_t key;
};

static inline void rig_compare_run(void *arg, int64_t whole, int64_t local, int64_t count)
{
    struct rig_compare *c = arg;
    for (int64_t i = 0; i < count; i++)
        c->wrong += c->values[local - c->first + i] != rig_value(c->key, whole + i);
}

/* Read every piece of every rank of a layout; how many elements are wrong, -1: reading failed. */
static inline int64_t rig_load(const char *folder, const struct model *model,
                               const struct rig_layout *how, uint64_t seed)
{
    struct checkpoint_manifest manifest;
    int64_t wrong = 0;
    if (checkpoint_manifest_read(&manifest, folder) != 0)
        return -1;
    for (int r = 0; r < how->ranks && wrong >= 0; r++) {
        struct plan plan;
        struct checkpoint_reader *reader;
        rig_plan(&plan, model, how, r);
        checkpoint_reader_open(&reader, folder, &manifest, r, rig_direct);
        for (int i = 0; i < plan.n_pieces && wrong >= 0; i++)
            for (int a = 0; a < CHECKPOINT_ARRAYS && wrong >= 0; a++) {
                const struct plan_piece *piece = &plan.pieces[i];
                float *values = must_alloc((size_t)piece->count, sizeof *values);
                struct rig_compare compare = {values, piece->first, 0,
                                              rig_key(plan.tensors[piece->tensor].name, a, seed)};
                if (checkpoint_reader_piece(reader, a, &plan, piece, values) != 0)
                    wrong = -1;
                else
                    plan_piece_runs(&plan, piece, rig_compare_run, &compare);
                wrong += wrong >= 0 ? compare.wrong : 0;
                free(values);
            }
        checkpoint_reader_close(reader);
        plan_release(&plan);
    }
    checkpoint_manifest_release(&manifest);
    return wrong;
}

/* From here on no file can be opened, though all are there; and again. */
static inline void rig_opening(bool may)
{
    static rlim_t before;
    struct rlimit now;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
    before = may ? before : now.rlim_cur;
    now.rlim_cur = may ? before : 0;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
}

/* A fresh folder, in memory when `base` is there and can be written, and removing it. */
static inline void rig_folder(char *path, size_t size, const char *base)
{
    if (base == NULL || access(base, W_OK) != 0)
        base = getenv("TMPDIR");
    snprintf(path, size, "%s/scalestudy-checkpoint.XXXXXX", base ? base : "/tmp");
    if (mkdtemp(path) == NULL)
        abort();
}

static inline void rig_remove(const char *path)
{
    DIR *list = opendir(path);
    for (struct dirent *e; list != NULL && (e = readdir(list)) != NULL;) {
        char name[CHECKPOINT_PATH + 300];
        checkpoint_path(name, sizeof name, path, e->d_name);
        if (e->d_name[0] != '.' && unlink(name) != 0)
            rig_remove(name);
    }
    if (list != NULL)
        closedir(list);
    rmdir(path);
}

#endif
