/* What one layout has saved any other reads, element by element; files are HDF5's to read; damage of
 * any kind is named with file and tensor; a checkpoint is there whole or not at all. */
#include "tests/unit/workloads/checkpoint_rig.h"

#include <fcntl.h>

static char root[CHECKPOINT_PATH];
static struct model model;

static const struct rig_layout layouts[] = {{1, "", 0, DTYPE_F32, 0},
                                            {2, "", 0, DTYPE_F32, 0},
                                            {4, "", 0, DTYPE_F32, 0},
                                            {2, "shard=2", 1, DTYPE_F32, 0},
                                            {4, "shard=4", 1, DTYPE_F32, 0},
                                            {2, "shard=2", 3, DTYPE_BF16, 0},
                                            {4, "shard=2", 3, DTYPE_F32, 0},
                                            {4, "shard=4", 2, DTYPE_BF16, 0},
                                            {2, "tp=2", 0, DTYPE_F32, 0},
                                            {4, "tp=4", 0, DTYPE_F32, 0},
                                            {4, "tp=2", 0, DTYPE_F32, 0},
                                            {4, "tp=2,shard=2", 3, DTYPE_F32, 0},
                                            {4, "tp=2,shard=2", 1, DTYPE_BF16, 0},
                                            {4, "cp=2,shard=2", 3, DTYPE_F32, 0},
                                            {2, "pp=2", 0, DTYPE_F32, 0},
                                            {4, "tp=2,pp=2", 0, DTYPE_F32, 2}}; /* four layers */
static const struct rig_layout experts[] = {
    {1, "", 0, DTYPE_F32, 0},          {2, "ep=2", 0, DTYPE_F32, 0},
    {4, "ep=4", 0, DTYPE_BF16, 0},     {4, "ep=2", 0, DTYPE_F32, 0},
    {4, "tp=2,ep=2", 0, DTYPE_F32, 0}, {4, "ep=2,cp=2", 0, DTYPE_F32, 0},
    {4, "ep=2,pp=2", 0, DTYPE_F32, 0}, {4, "ep=2,shard=4", 2, DTYPE_F32, 0},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], EXPERTS = sizeof experts / sizeof experts[0] };

static void any_to_any(const char *name, const struct rig_layout *list, int n, int64_t layers)
{
    struct model full;
    CHECK_EQ(model_load(&full, name), 0);
    model_reduce_for(&full, 4, &model);
    model_reduce_layers(&full, layers, &model);
    for (int from = 0; from < n; from++) {
        char folder[CHECKPOINT_PATH];
        bool shared = from % 2 == 1;
        CHECK_EQ(rig_save(root, &model, &list[from], shared, 10 + from, 7, 3 * CHECKPOINT_BLOCK, 0),
                 0);
        checkpoint_step_folder(root, 10 + from, folder, sizeof folder);
        for (int to = 0; to < n; to++)
            if (!CHECK_EQ(rig_load(folder, &model, &list[to], 7), 0))
                printf("%s: %d ranks %s -> %d ranks %s: %s\n", name, list[from].ranks,
                       list[from].parallel, list[to].ranks, list[to].parallel, fail_message());
        checkpoint_remove(folder);
    }
}

static void together_they_save_once(void)
{
    for (int l = 0; l < LAYOUTS; l++) {
        int64_t saved = 0, most = 0;
        bool even = strstr(layouts[l].parallel, "pp=") == NULL; /* else stages are not alike */
        struct plan plan;
        for (int r = 0; r < layouts[l].ranks; r++) {
            struct checkpoint_shard shard;
            rig_plan(&plan, &model, &layouts[l], r);
            checkpoint_shard_make(&plan, &shard);
            for (int p = 0; p < shard.n_parts; p++) {
                const struct plan_tensor *t = &shard.tensors[shard.parts[p].tensor];
                saved += t->counted ? shard.parts[p].count : 0;
            }
            most = shard.n > most ? shard.n : most;
            checkpoint_shard_release(&shard);
            plan_release(&plan);
        }
        rig_plan(&plan, &model, &layouts[0], 0);
        CHECK_EQ(saved, plan.n_parameters); /* every element by one rank, whatever the layout */
        CHECK(!even ||
              most < plan.n_parameters * 13 / (10 * layouts[l].ranks) + 4 * CHECKPOINT_BLOCK);
        plan_release(&plan);
    }
}

/* What was written at offsets is what HDF5 reads. */
static void hdf5_reads_it(bool shared)
{
    const struct rig_layout *how = &layouts[1];
    char folder[CHECKPOINT_PATH], path[CHECKPOINT_PATH + 64], file[32];
    struct checkpoint_small small;
    CHECK_EQ(rig_save(root, &model, how, shared, 3, 9, CHECKPOINT_BLOCK, 0), 0);
    checkpoint_step_folder(root, 3, folder, sizeof folder);
    for (int r = 0; r < how->ranks; r++) {
        struct rig_rank rank;
        rig_prepare(&rank, &model, how, r, 3, 9);
        checkpoint_file_name(file, sizeof file, shared, r);
        checkpoint_path(path, sizeof path, folder, file);
        int64_t n = rank.entry.shard.n, padded = checkpoint_padded(&rank.entry.shard);
        float *read = must_alloc((size_t)n, sizeof *read);
        for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
            CHECK_EQ(checkpoint_file_read(path, shared, r, a, 0, n, read), 0);
            CHECK_EQ(memcmp(read, rank.image + a * padded, (size_t)n * sizeof *read), 0);
        }
        CHECK_EQ(checkpoint_file_read_small(path, shared, r, &small), 0);
        CHECK_EQ(small.consumed, 24);
        CHECK_NEAR(small.scalars[SCALAR_STEP], 3, 0);
        free(read);
        rig_release(&rank);
    }
    checkpoint_remove(folder);
}

/* ---- damage ---- */

static void flip(const char *path, int64_t at)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static int verify(const char *folder)
{
    struct checkpoint_manifest manifest;
    fail_clear();
    int rc = checkpoint_manifest_read(&manifest, folder);
    if (rc == 0)
        rc = checkpoint_verify(folder, &manifest, 0, 1);
    checkpoint_manifest_release(&manifest);
    return rc;
}

/* Any bit of any file: either it is of no part (padding) and all reads well, or the file is named. */
static void flips_are_found(bool shared)
{
    char folder[CHECKPOINT_PATH], path[CHECKPOINT_PATH + 64], file[32];
    struct checkpoint_manifest m;
    checkpoint_step_folder(root, 5, folder, sizeof folder);
    CHECK_EQ(rig_save(root, &model, &layouts[3], shared, 5, 1, 2 * CHECKPOINT_BLOCK, 0), 0);
    CHECK_EQ(verify(folder), 0);
    CHECK_EQ(checkpoint_manifest_read(&m, folder), 0);
    for (int i = 0; i < 60; i++) {
        const struct checkpoint_entry *e = &m.entry[i % m.n];
        const struct checkpoint_place *p = &e->place;
        int64_t at = (int64_t)(rng_bits(3, (uint64_t)i) % (uint64_t)e->file_bytes);
        if (i < 8) /* certainly a value; certainly the frame; the small state */
            at = i < 4 ? p->array[i % 3] + 4 * e->shard.parts[i].offset : i < 6 ? i : p->small + i;
        int64_t in = -1;
        for (int k = 0; k < m.n && (shared || k == 0); k++)
            for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
                const struct checkpoint_entry *of = shared ? &m.entry[k] : e;
                int64_t from = (at - of->place.array[a]) / 4;
                if (at >= of->place.array[a] && from < of->place.padded)
                    for (int q = -1; q < of->shard.n_parts; q++)
                        in = q < 0 ? -2
                             : from >= of->shard.parts[q].offset &&
                                     from < of->shard.parts[q].offset + of->shard.parts[q].count
                                 ? q
                                 : in;
            }
        checkpoint_file_name(file, sizeof file, shared, e->shard.rank);
        checkpoint_path(path, sizeof path, folder, file);
        flip(path, at);
        int rc = verify(folder);
        CHECK_EQ(rc, in == -2 ? 0 : FAIL_FILE);
        if (rc != 0) {
            CHECK_HAS(fail_message(), file);
            CHECK(in < 0 || strstr(fail_message(), "corrupt: its hash is") != NULL);
        }
        flip(path, at);
    }
    CHECK_EQ(verify(folder), 0);
    checkpoint_manifest_release(&m);
    checkpoint_remove(folder);
}

static void manifest_flips_are_found(void)
{
    char folder[CHECKPOINT_PATH], path[CHECKPOINT_PATH + 64], *text, *other;
    struct checkpoint_manifest m;
    checkpoint_step_folder(root, 6, folder, sizeof folder);
    checkpoint_path(path, sizeof path, folder, "manifest.json");
    CHECK_EQ(rig_save(root, &model, &layouts[0], false, 6, 1, 2 * CHECKPOINT_BLOCK, 0), 0);
    CHECK_EQ(checkpoint_manifest_text(folder, &text), 0);
    size_t n = strlen(text);
    other = must_alloc(n + 1, 1);
    for (int i = 0; i < 150;
         i++) { /* a character is another: content changes, or only white space */
        size_t at = (size_t)(rng_bits(4, (uint64_t)i) % n);
        bool white = text[at] == ' ' || text[at] == '\n';
        memcpy(other, text, n + 1);
        other[at] = (char)(text[at] ^ 1);
        fail_clear();
        int rc = checkpoint_manifest_parse(&m, other, folder);
        CHECK(rc == FAIL_FILE || (rc == 0 && white));
        CHECK_EQ(m.damaged, rc == FAIL_FILE);
        if (rc != 0)
            CHECK_HAS(fail_message(), "manifest.json is damaged");
        checkpoint_manifest_release(&m);
    }
    for (size_t cut = 0; cut < n - 1; cut += n / 20) {
        memcpy(other, text, n + 1);
        other[cut] = '\0';
        fail_clear();
        CHECK_EQ(checkpoint_manifest_parse(&m, other, folder), FAIL_FILE);
    }
    snprintf(other, n + 1, "{\"format\": \"scalestudy checkpoint\", \"version\": 2}");
    fail_clear();
    CHECK_EQ(checkpoint_manifest_parse(&m, other, folder), FAIL_ABSENT); /* a newer program's */
    CHECK_HAS(fail_message(), "is of version 2 and this program reads 1");
    CHECK(!m.damaged);
    free(other);
    free(text);
    CHECK_EQ(truncate(path, 0), 0);
    CHECK_EQ(verify(folder), FAIL_FILE);
    CHECK_HAS(fail_message(), "manifest.json is damaged");
    CHECK_EQ(checkpoint_manifest_read(&m, folder), FAIL_FILE);
    CHECK(m.damaged);
    unlink(path);
    CHECK_EQ(verify(folder), FAIL_FILE);
    CHECK_HAS(fail_message(), "manifest.json");
    checkpoint_remove(folder);
}

/* Is there proof of damage, to who reads one tensor of rank 1? */
static bool proved(const char *folder, bool no_files)
{
    struct checkpoint_manifest manifest;
    struct checkpoint_reader *reader;
    struct plan plan;
    fail_clear();
    CHECK_EQ(checkpoint_manifest_read(&manifest, folder), 0);
    rig_plan(&plan, &model, &layouts[1], 1);
    checkpoint_reader_open(&reader, folder, &manifest, 1, false);
    const struct plan_piece *piece = &plan.pieces[plan.n_pieces - 1];
    float *values = must_alloc((size_t)piece->count, sizeof *values);
    if (no_files)
        rig_opening(false);
    int rc = checkpoint_reader_piece(reader, CHECKPOINT_MASTER, &plan, piece, values);
    if (no_files)
        rig_opening(true);
    bool damaged = checkpoint_reader_damaged(reader);
    CHECK(rc == FAIL_FILE || (rc == 0 && !damaged));
    checkpoint_reader_close(reader);
    free(values);
    plan_release(&plan);
    checkpoint_manifest_release(&manifest);
    return damaged;
}

/* Without files to open, all is there and nothing can be read. */
static void not_given_is_not_damaged(const char *folder)
{
    struct checkpoint_manifest m;
    CHECK(!proved(folder, false));
    CHECK(!proved(folder, true));
    CHECK_HAS(fail_message(), "rank-00001.h5: Too many open files");
    fail_clear();
    rig_opening(false);
    CHECK_EQ(checkpoint_manifest_read(&m, folder), FAIL_FILE);
    rig_opening(true);
    CHECK_HAS(fail_message(), "manifest.json: Too many open files");
    CHECK(!m.damaged);
}

static void missing_short_and_foreign(void)
{
    char folder[CHECKPOINT_PATH], other[CHECKPOINT_PATH], path[CHECKPOINT_PATH + 64],
        from[CHECKPOINT_PATH + 64];
    CHECK_EQ(rig_save(root, &model, &layouts[1], false, 7, 1, 2 * CHECKPOINT_BLOCK, 0), 0);
    CHECK_EQ(rig_save(root, &model, &layouts[1], false, 8, 2, 2 * CHECKPOINT_BLOCK, 0), 0);
    checkpoint_step_folder(root, 7, other, sizeof other);
    checkpoint_step_folder(root, 8, folder, sizeof folder);
    checkpoint_path(path, sizeof path, folder, "rank-00001.h5");
    checkpoint_path(from, sizeof from, other, "rank-00001.h5");
    not_given_is_not_damaged(folder);
    CHECK_EQ(rename(from, path), 0); /* of the save before: same form, other values */
    CHECK_EQ(verify(folder), FAIL_FILE);
    CHECK_HAS(fail_message(), "rank-00001.h5");
    CHECK(proved(folder, false));
    CHECK_EQ(truncate(path, 20000), 0);
    CHECK_EQ(verify(folder), FAIL_FILE);
    CHECK_HAS(fail_message(), "rank-00001.h5 has 20000 bytes, and");
    CHECK(proved(folder, false));
    unlink(path);
    CHECK(proved(folder, false));
    CHECK_EQ(symlink("rank-00001.h5", path), 0); /* ELOOP: the system would not say */
    CHECK(!proved(folder, false));
    unlink(path);
    CHECK_EQ(verify(folder), FAIL_FILE);
    CHECK_HAS(fail_message(), "rank-00001.h5 is missing");
    CHECK_EQ(rig_load(folder, &model, &layouts[1], 2), -1);
    checkpoint_remove(folder);
    checkpoint_remove(other);
}

/* ---- folders ---- */

static void folders(void)
{
    char found[CHECKPOINT_PATH], previous[CHECKPOINT_PATH], expected[CHECKPOINT_PATH];
    int64_t *steps;
    CHECK_EQ(checkpoint_steps(root, &steps), 0);
    fail_clear();
    CHECK_EQ(checkpoint_find(root, found, sizeof found, NULL, 0), FAIL_FILE);
    CHECK_HAS(fail_message(), "no checkpoint");
    for (int64_t step = 2; step <= 11; step += 3)
        CHECK_EQ(rig_save(root, &model, &layouts[0], false, step, 1, 8 * CHECKPOINT_BLOCK, 0), 0);
    CHECK_EQ(rig_save(root, &model, &layouts[0], false, 11, 1, 8 * CHECKPOINT_BLOCK, 0), FAIL_FILE);
    CHECK_HAS(fail_message(), "no checkpoint"); /* the first message stays */
    checkpoint_path(expected, sizeof expected, root, "step-0000000099");
    CHECK_EQ(mkdir(expected, 0777), 0); /* no manifest: no checkpoint */
    CHECK_EQ(checkpoint_find(root, found, sizeof found, previous, sizeof previous), 0);
    CHECK_HAS(found, "step-0000000011");
    CHECK_HAS(previous, "step-0000000008");
    CHECK_EQ(checkpoint_find(previous, found, sizeof found, previous, sizeof previous), 0);
    CHECK_HAS(found, "step-0000000008");
    CHECK_HAS(previous, "step-0000000005");
    checkpoint_prune(root, 2);
    CHECK_EQ(checkpoint_steps(root, &steps), 2);
    CHECK_EQ(steps[0], 8);
    free(steps);
    checkpoint_prune(root, 0);
    CHECK_EQ(checkpoint_steps(root, &steps), 2);
    free(steps);
}

/* What cannot be read is set aside, any number of times, and is then no step; a link to a step, and a slash too
 * many, are that step. Behind folders(): steps 8 and 11. */
static void set_aside_and_other_names(void)
{
    char found[CHECKPOINT_PATH], previous[CHECKPOINT_PATH], link[CHECKPOINT_PATH];
    char slash[CHECKPOINT_PATH + 4], aside[CHECKPOINT_PATH];
    int64_t *steps;
    CHECK_EQ(rig_save(root, &model, &layouts[0], false, 14, 1, 8 * CHECKPOINT_BLOCK, 0), 0);
    checkpoint_path(link, sizeof link, root, "latest");
    CHECK_EQ(symlink("step-0000000014", link), 0);
    CHECK_EQ(checkpoint_find(link, found, sizeof found, previous, sizeof previous), 0);
    CHECK_HAS(previous, "step-0000000011");
    CHECK_EQ(unlink(link), 0);
    snprintf(slash, sizeof slash, "%s//", root);
    CHECK_EQ(checkpoint_find(slash, found, sizeof found, previous, sizeof previous), 0);
    CHECK_HAS(found, "/step-0000000014");
    CHECK(strstr(found, "//") == NULL);
    CHECK(checkpoint_set_aside(root, 14));
    CHECK(checkpoint_set_aside(root, 14)); /* by another rank already */
    CHECK_EQ(rig_save(root, &model, &layouts[0], false, 14, 1, 8 * CHECKPOINT_BLOCK, 0), 0);
    CHECK(checkpoint_is_aside(root, 14) && !checkpoint_is_aside(root, 11));
    rig_opening(false);
    CHECK(checkpoint_set_aside(root, 14)); /* once more; renamed, though not synced */
    rig_opening(true);
    CHECK_EQ(checkpoint_steps(root, &steps), 2);
    free(steps);
    checkpoint_path(aside, sizeof aside, root, "damaged-0000000014/manifest.json");
    CHECK_EQ(access(aside, R_OK), 0);
    checkpoint_path(aside, sizeof aside, root, "damaged-0000000014.1/manifest.json");
    CHECK_EQ(access(aside, R_OK), 0);
}

static void terms(void)
{
    struct checkpoint_terms a = {0}, b = {0};
    checkpoint_terms_lines(&a, "name: tiny\nlayers: 2\nsource: here: there\n", "source micro");
    checkpoint_terms_lines(&b, "name: tiny\nlayers: 3\n", "");
    CHECK_EQ(a.n, 2);
    CHECK_HAS(checkpoint_terms_get(&a, "layers"), "2");
    CHECK_EQ(checkpoint_terms_compare(&a, &a, "D"), 0);
    fail_clear();
    CHECK_EQ(checkpoint_terms_compare(&a, &b, "D"), FAIL_USAGE);
    CHECK_HAS(fail_message(), "D: its layers is 2 and that of this study is 3");
    CHECK(checkpoint_terms_differ(&a, &b) == &b.term[1]);
    CHECK(checkpoint_terms_differ(&b, &b) == NULL);
}

int main(void)
{
    rig_folder(root, sizeof root, "/dev/shm");
    rig_direct = false; /* closing an asynchronous context takes the kernel 30 ms */
    any_to_any("tiny-moe", experts, EXPERTS, 2);
    any_to_any("tiny-llama", layouts, LAYOUTS - 1, 2);
    any_to_any("tiny", layouts, LAYOUTS, 4);
    rig_remove(root);
    rig_direct = true;
    rig_folder(root, sizeof root, NULL);
    together_they_save_once();
    hdf5_reads_it(false);
    hdf5_reads_it(true);
    flips_are_found(false);
    flips_are_found(true);
    manifest_flips_are_found();
    missing_short_and_foreign();
    folders();
    set_aside_and_other_names();
    terms();
    rig_remove(root);
    return test_end();
}
