#define _GNU_SOURCE /* fallocate */
#include "workloads/checkpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/err.h"

/* `path` belongs to the calling function. */
#define H5(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) < 0) {                                                                          \
            rc = fail(FAIL_FILE, "checkpoint: %s: HDF5 could not do %s", path, #expr);             \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

void checkpoint_file_name(char *name, size_t size, bool shared, int rank)
{
    if (shared)
        snprintf(name, size, "state.h5");
    else
        snprintf(name, size, "rank-%05d.h5", rank);
}

static void group_name(char *name, size_t size, bool shared, int rank)
{
    snprintf(name, size, shared ? "/rank-%05d" : "/", rank);
}

static void dataset_name(char *name, size_t size, bool shared, int rank, const char *dataset)
{
    char group[32];
    group_name(group, sizeof group, shared, rank);
    snprintf(name, size, "%s%s%s", group, shared ? "/" : "", dataset);
}

/* ---- types ---- */

static hid_t text_type(size_t size)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, size);
    H5Tset_strpad(type, H5T_STR_NULLTERM);
    return type;
}

static hid_t tensor_type(void)
{
    hsize_t spans = PLAN_SPANS;
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct plan_tensor)), name = text_type(64);
    hid_t span = H5Tcreate(H5T_COMPOUND, sizeof(struct plan_span));
    H5Tinsert(span, "first", HOFFSET(struct plan_span, first), H5T_NATIVE_INT64);
    H5Tinsert(span, "count", HOFFSET(struct plan_span, count), H5T_NATIVE_INT64);
    hid_t list = H5Tarray_create2(span, 1, &spans);
    H5Tinsert(type, "name", HOFFSET(struct plan_tensor, name), name);
    H5Tinsert(type, "rows", HOFFSET(struct plan_tensor, rows), H5T_NATIVE_INT64);
    H5Tinsert(type, "columns", HOFFSET(struct plan_tensor, columns), H5T_NATIVE_INT64);
    H5Tinsert(type, "whole_rows", HOFFSET(struct plan_tensor, whole_rows), H5T_NATIVE_INT64);
    H5Tinsert(type, "whole_columns", HOFFSET(struct plan_tensor, whole_columns), H5T_NATIVE_INT64);
    H5Tinsert(type, "first_column", HOFFSET(struct plan_tensor, first_column), H5T_NATIVE_INT64);
    H5Tinsert(type, "n_spans", HOFFSET(struct plan_tensor, n_spans), H5T_NATIVE_INT);
    H5Tinsert(type, "span", HOFFSET(struct plan_tensor, span), list);
    H5Tclose(name);
    H5Tclose(span);
    H5Tclose(list);
    return type;
}

static hid_t part_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct checkpoint_part));
    H5Tinsert(type, "tensor", HOFFSET(struct checkpoint_part, tensor), H5T_NATIVE_INT);
    H5Tinsert(type, "first", HOFFSET(struct checkpoint_part, first), H5T_NATIVE_INT64);
    H5Tinsert(type, "count", HOFFSET(struct checkpoint_part, count), H5T_NATIVE_INT64);
    H5Tinsert(type, "offset", HOFFSET(struct checkpoint_part, offset), H5T_NATIVE_INT64);
    return type;
}

static hid_t small_type(void)
{
    hsize_t scalars = SCALARS;
    hid_t type = H5Tcreate(H5T_COMPOUND, CHECKPOINT_ALIGN);
    hid_t list = H5Tarray_create2(H5T_NATIVE_DOUBLE, 1, &scalars);
#define INSERT(name, meaning)                                                                      \
    H5Tinsert(type, #name, HOFFSET(struct checkpoint_small, name), H5T_NATIVE_INT64);
    CHECKPOINT_SMALL(INSERT)
#undef INSERT
    H5Tinsert(type, "scalars", HOFFSET(struct checkpoint_small, scalars), list);
    H5Tclose(list);
    return type;
}

void checkpoint_file_small(const struct checkpoint_small *small, void *block)
{
    memset(block, 0, CHECKPOINT_ALIGN);
    memcpy(block, small, sizeof *small);
}

void checkpoint_file_small_read(const void *block, struct checkpoint_small *small)
{
    memcpy(small, block, sizeof *small);
}

/* ---- create ---- */

/* A contiguous dataset that has its place in the file at once. *at: bytes from the file's start. */
static int make_dataset(const char *path, hid_t where, const char *name, hid_t type, int64_t n,
                        const void *rows, int64_t *at)
{
    hsize_t size = (hsize_t)n;
    hid_t space = H5Screate_simple(1, &size, NULL), set = -1, how = H5Pcreate(H5P_DATASET_CREATE);
    int rc = 0;
    H5(H5Pset_layout(how, H5D_CONTIGUOUS));
    H5(H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY));
    H5(H5Pset_fill_time(how, H5D_FILL_TIME_NEVER));
    H5(set = H5Dcreate2(where, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT));
    if (rows != NULL)
        H5(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows));
    if (at != NULL) {
        haddr_t offset = H5Dget_offset(set);
        *at = (int64_t)offset;
        if (offset == HADDR_UNDEF || offset % CHECKPOINT_ALIGN != 0)
            rc = fail(FAIL_FILE, "checkpoint: %s: HDF5 gave %s no aligned place", path, name);
    }
out:
    if (set >= 0)
        H5Dclose(set);
    H5Pclose(how);
    H5Sclose(space);
    return rc;
}

static int make_tables(const char *path, hid_t group, const struct checkpoint_shard *shard)
{
    hid_t tensors = tensor_type(), parts = part_type();
    int rc = 0;
    if (shard->n_tensors > 0)
        TRY(make_dataset(path, group, "tensors", tensors, shard->n_tensors, shard->tensors, NULL));
    if (shard->n_parts > 0)
        TRY(make_dataset(path, group, "parts", parts, shard->n_parts, shard->parts, NULL));
out:
    H5Tclose(tensors);
    H5Tclose(parts);
    return rc;
}

static int make_shard(const char *path, hid_t file, bool shared,
                      const struct checkpoint_shard *shard, struct checkpoint_place *place)
{
    char name[32];
    hid_t group = -1, small = small_type();
    int rc = 0;
    group_name(name, sizeof name, shared, shard->rank);
    if (shared)
        H5(group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    else
        H5(group = H5Gopen2(file, name, H5P_DEFAULT));
    place->padded = checkpoint_padded(shard);
    TRY(make_tables(path, group, shard));
    TRY(make_dataset(path, group, "small", small, 1, NULL, &place->small));
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
        TRY(make_dataset(path, group, checkpoint_array_name(a), H5T_NATIVE_FLOAT, place->padded,
                         NULL, &place->array[a]));
out:
    if (group >= 0)
        H5Gclose(group);
    H5Tclose(small);
    return rc;
}

/* Space is asked for now: a full disk is then found here, and the writer meets no allocation. A file
 * system that cannot reserve finds out later. */
static int reserve(const char *path)
{
    struct stat found;
    int fd = open(path, O_RDWR | O_CLOEXEC), code = 0;
    if (fd < 0)
        return fail(FAIL_FILE, "checkpoint: cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &found) != 0)
        code = errno;
    else if (fallocate(fd, 0, 0, found.st_size) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        code = errno;
    close(fd);
    if (code != 0)
        return fail(FAIL_FILE, "checkpoint: %s: %lld bytes cannot be kept: %s", path,
                    (long long)found.st_size, strerror(code));
    return 0;
}

void checkpoint_file_library(void)
{
    H5dont_atexit();
}

int checkpoint_file_create(const char *path, bool shared, const struct checkpoint_shard *shards,
                           int n, struct checkpoint_place *places)
{
    hid_t file = -1, how = H5Pcreate(H5P_FILE_ACCESS);
    int rc = 0;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5(H5Pset_alignment(how, CHECKPOINT_ALIGN, CHECKPOINT_ALIGN));
    errno = 0;
    file = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, how);
    if (file < 0) {
        rc = fail(FAIL_FILE, "checkpoint: cannot create %s: %s", path,
                  errno != 0 ? strerror(errno) : "HDF5 gave no reason");
        goto out;
    }
    for (int i = 0; i < n; i++)
        TRY(make_shard(path, file, shared, &shards[i], &places[i]));
    H5(H5Fflush(file, H5F_SCOPE_GLOBAL));
out:
    if (file >= 0 && H5Fclose(file) < 0 && rc == 0)
        rc = fail(FAIL_FILE, "checkpoint: %s: HDF5 could not finish it (disk full?)", path);
    H5Pclose(how);
    return rc ? rc : reserve(path);
}

/* ---- the frame ---- */

struct hole {
    int64_t begin, end;
};

static int by_begin(const void *a, const void *b)
{
    const struct hole *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int hash_run(int fd, XXH3_state_t *state, int64_t begin, int64_t end)
{
    enum { PIECE = 1 << 16 };
    char piece[PIECE];
    while (begin < end) {
        size_t want = (size_t)(end - begin < PIECE ? end - begin : PIECE);
        ssize_t got = pread(fd, piece, want, (off_t)begin);
        if (got <= 0)
            return got < 0 ? errno : EIO;
        XXH3_64bits_update(state, piece, (size_t)got);
        begin += got;
    }
    return 0;
}

static int hash_outside(int fd, struct hole *holes, int n, int64_t bytes, XXH3_state_t *state)
{
    int64_t at = 0;
    int code = 0;
    qsort(holes, (size_t)n, sizeof *holes, by_begin);
    for (int i = 0; i <= n && code == 0; i++) {
        int64_t end = i < n ? holes[i].begin : bytes;
        code = hash_run(fd, state, at, end < bytes ? end : bytes);
        at = i < n && holes[i].end > at ? holes[i].end : at;
    }
    return code;
}

int checkpoint_file_frame(const char *path, const struct checkpoint_place *places, int n,
                          int64_t *bytes, uint64_t *hash)
{
    struct stat found;
    int fd = open(path, O_RDONLY | O_CLOEXEC), n_holes = 0;
    if (fd < 0)
        return fail(FAIL_FILE, "checkpoint: cannot open %s: %s", path, strerror(errno));
    int code = fstat(fd, &found) == 0 ? 0 : errno;
    struct hole *holes = must_alloc((size_t)n * (CHECKPOINT_ARRAYS + 1), sizeof *holes);
    for (int i = 0; i < n; i++) {
        const struct checkpoint_place *p = &places[i];
        holes[n_holes++] = (struct hole){p->small, p->small + CHECKPOINT_ALIGN};
        for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
            holes[n_holes++] =
                (struct hole){p->array[a], p->array[a] + p->padded * (int64_t)sizeof(float)};
    }
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    if (code == 0)
        code = hash_outside(fd, holes, n_holes, found.st_size, state);
    *bytes = code == 0 ? found.st_size : 0;
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(holes);
    close(fd);
    return code == 0 ? 0 : fail(FAIL_FILE, "checkpoint: cannot read %s: %s", path, strerror(code));
}

/* ---- through HDF5 ---- */

static int read_rows(const char *path, const char *name, hid_t type, int64_t first, int64_t n,
                     void *out)
{
    hsize_t begin = (hsize_t)first, count = (hsize_t)n;
    hid_t file = -1, set = -1, space = -1, memory = H5Screate_simple(1, &count, NULL);
    int rc = 0;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    set = file >= 0 ? H5Dopen2(file, name, H5P_DEFAULT) : -1;
    space = set >= 0 ? H5Dget_space(set) : -1;
    if (space < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, &begin, NULL, &count, NULL) < 0 ||
        H5Dread(set, type, memory, space, H5P_DEFAULT, out) < 0)
        rc = fail(FAIL_FILE, "checkpoint: %s: HDF5 cannot read elements %lld to %lld of %s", path,
                  (long long)first, (long long)(first + n), name);
    if (space >= 0)
        H5Sclose(space);
    if (set >= 0)
        H5Dclose(set);
    if (file >= 0)
        H5Fclose(file);
    H5Sclose(memory);
    return rc;
}

int checkpoint_file_read(const char *path, bool shared, int rank, int array, int64_t first,
                         int64_t n, float *out)
{
    char name[64];
    dataset_name(name, sizeof name, shared, rank, checkpoint_array_name(array));
    return read_rows(path, name, H5T_NATIVE_FLOAT, first, n, out);
}

int checkpoint_file_read_small(const char *path, bool shared, int rank,
                               struct checkpoint_small *out)
{
    char name[64], block[CHECKPOINT_ALIGN];
    hid_t type = small_type();
    dataset_name(name, sizeof name, shared, rank, "small");
    int rc = read_rows(path, name, type, 0, 1, block);
    H5Tclose(type);
    if (rc == 0)
        checkpoint_file_small_read(block, out);
    return rc;
}
