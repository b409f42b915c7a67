#include "workloads/checkpoint_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/units.h"
#include "workloads/checkpoint_index.h"
#include "workloads/checkpoint_pipe.h"

enum { WINDOWS = 8, WINDOW_BYTES = 4 << 20, READ_BYTES = 4 << 20 };
enum { TRIES = 3, PAUSE_NS = 100000000 }; /* of a file that is missing */

/* Bytes [begin, begin + bytes) of an array of an entry, both aligned. */
struct window {
    int entry, array; /* entry -1: empty */
    int64_t begin, bytes, used;
    size_t capacity;
    unsigned char *memory;
};

struct open_file {
    struct checkpoint_pipe pipe;
    bool is_open;
    bool *verified; /* [n_parts][CHECKPOINT_ARRAYS] */
};

/* Elements of a part's image that belong to a piece. */
struct segment {
    int entry, part;
    int64_t image, to, count;
};

struct checkpoint_reader {
    char folder[CHECKPOINT_PATH];
    const struct checkpoint_manifest *manifest;
    struct checkpoint_index index;
    struct open_file *file; /* [manifest->n] */
    struct window window[WINDOWS];
    struct segment *segment;
    int64_t n_segments, capacity, uses;
    struct checkpoint_times times;
    unsigned long aio;
    bool direct, damaged;
};

/* ---- files ---- */

static void path_of(const struct checkpoint_reader *r, int entry, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", r->folder, r->manifest->entry[entry].file);
}

static int check_frame(struct checkpoint_reader *r, int entry, const char *path)
{
    const struct checkpoint_manifest *m = r->manifest;
    const struct checkpoint_entry *e = &m->entry[entry];
    int n = m->shared ? m->n : 1;
    struct checkpoint_place *places = must_alloc((size_t)n, sizeof *places);
    int64_t bytes = 0;
    uint64_t frame = 0;
    for (int i = 0; i < n; i++)
        places[i] = m->shared ? m->entry[i].place : e->place;
    int rc = checkpoint_file_frame(path, places, n, &bytes, &frame);
    free(places);
    if (rc != 0)
        return rc;
    r->damaged = bytes != e->file_bytes || frame != e->frame;
    if (bytes != e->file_bytes)
        return fail(FAIL_FILE, "checkpoint: %s has %lld bytes, and %lld were saved", path,
                    (long long)bytes, (long long)e->file_bytes);
    if (frame != e->frame)
        return fail(FAIL_FILE,
                    "checkpoint: %s is damaged or of another save: its HDF5 tables have hash "
                    "%016" PRIx64 ", saved was %016" PRIx64,
                    path, frame, e->frame);
    return 0;
}

/* There, and as long as it was. A folder that is not there is a disk that is away, not damage. */
static int check_size(struct checkpoint_reader *r, int entry, const char *path)
{
    int64_t bytes = r->manifest->entry[entry].file_bytes;
    struct stat found, folder;
    int code = stat(path, &found) == 0 ? 0 : errno;
    for (int i = 1; i < TRIES && code != 0; i++) {
        units_sleep_ns(PAUSE_NS);
        code = stat(path, &found) == 0 ? 0 : errno;
    }
    if (code != 0) {
        r->damaged = code == ENOENT && stat(r->folder, &folder) == 0;
        return fail(FAIL_FILE, "checkpoint: %s %s: %s", path,
                    code == ENOENT ? "is missing" : "cannot be looked at", strerror(code));
    }
    r->damaged = found.st_size != bytes;
    if (found.st_size != bytes)
        return fail(FAIL_FILE, "checkpoint: %s has %lld bytes, and %lld were saved", path,
                    (long long)found.st_size, (long long)bytes);
    return 0;
}

static int open_entry(struct checkpoint_reader *r, int entry)
{
    struct open_file *file = &r->file[entry];
    char path[CHECKPOINT_PATH + 64];
    if (file->is_open)
        return 0;
    path_of(r, entry, path, sizeof path);
    int rc = check_size(r, entry, path);
    if (rc == 0)
        rc = check_frame(r, entry, path);
    if (rc != 0)
        return rc;
    int code = checkpoint_pipe_open(&file->pipe, path, false, r->direct, &r->aio);
    if (code != 0)
        return fail(FAIL_FILE, "checkpoint: cannot open %s: %s", path, strerror(code));
    size_t parts = (size_t)r->manifest->entry[entry].shard.n_parts + 1;
    file->verified = must_alloc(parts * CHECKPOINT_ARRAYS, sizeof *file->verified);
    file->is_open = true;
    r->direct &= file->pipe.direct;
    return 0;
}

/* ---- windows ---- */

static struct window *window_of(struct checkpoint_reader *r, int entry, int array)
{
    struct window *oldest = &r->window[0];
    for (int i = 0; i < WINDOWS; i++) {
        if (r->window[i].entry == entry && r->window[i].array == array)
            return &r->window[i];
        if (r->window[i].used < oldest->used)
            oldest = &r->window[i];
    }
    *oldest = (struct window){
        .entry = entry, .array = array, .capacity = oldest->capacity, .memory = oldest->memory};
    return oldest;
}

static void make_room(struct window *w, int64_t bytes)
{
    if ((size_t)bytes <= w->capacity)
        return;
    free(w->memory);
    w->capacity = (size_t)bytes;
    w->memory = aligned_alloc(CHECKPOINT_ALIGN, w->capacity);
    if (w->memory == NULL)
        die(FAIL_INTERNAL, "checkpoint: no memory for %lld bytes to read into", (long long)bytes);
}

static int fill_window(struct checkpoint_reader *r, struct window *w)
{
    struct checkpoint_pipe *pipe = &r->file[w->entry].pipe;
    int64_t at = r->manifest->entry[w->entry].place.array[w->array] + w->begin;
    int64_t begin = units_now_ns();
    int code = 0;
    for (int64_t done = 0; done < w->bytes && code == 0; done += READ_BYTES) {
        int64_t n = w->bytes - done < READ_BYTES ? w->bytes - done : READ_BYTES;
        code = checkpoint_pipe_post(pipe, w->memory + done, (size_t)n, at + done);
    }
    if (code == 0)
        code = checkpoint_pipe_wait(pipe, pipe->posted);
    r->times.read_ns += units_now_ns() - begin;
    r->times.bytes += w->bytes;
    return code;
}

/* The elements of a part, in memory until the next call. */
static int fetch(struct checkpoint_reader *r, int entry, int array, int part, const float **out)
{
    const struct checkpoint_entry *e = &r->manifest->entry[entry];
    const struct checkpoint_part *p = &e->shard.parts[part];
    struct window *w = window_of(r, entry, array);
    int64_t begin = p->offset * 4 / CHECKPOINT_ALIGN * CHECKPOINT_ALIGN;
    int64_t end =
        ((p->offset + p->count) * 4 + CHECKPOINT_ALIGN - 1) / CHECKPOINT_ALIGN * CHECKPOINT_ALIGN;
    w->used = ++r->uses;
    if (begin < w->begin || end > w->begin + w->bytes) {
        int64_t all = e->place.padded * 4,
                most = begin + WINDOW_BYTES < all ? begin + WINDOW_BYTES : all;
        w->begin = begin;
        w->bytes = (end > most ? end : most) - begin; /* small parts come with their neighbours */
        make_room(w, w->bytes);
        int code = fill_window(r, w);
        if (code != 0) {
            w->bytes = 0;
            return fail(FAIL_FILE, "checkpoint: cannot read %s of %s in %s/%s: %s",
                        checkpoint_array_name(array), e->shard.tensors[p->tensor].name, r->folder,
                        e->file, strerror(code));
        }
    }
    *out = (const float *)(const void *)(w->memory + (p->offset * 4 - w->begin));
    return 0;
}

static int verify(struct checkpoint_reader *r, int entry, int array, int part, const float *values)
{
    const struct checkpoint_entry *e = &r->manifest->entry[entry];
    const struct checkpoint_part *p = &e->shard.parts[part];
    int64_t begin = units_now_ns(), at = (int64_t)part * CHECKPOINT_ARRAYS + array;
    if (r->file[entry].verified[at])
        return 0;
    uint64_t hash = XXH3_64bits(values, (size_t)p->count * sizeof *values);
    r->times.verify_ns += units_now_ns() - begin;
    r->file[entry].verified[at] = hash == e->hash[at];
    if (hash == e->hash[at])
        return 0;
    r->damaged = true;
    return fail(FAIL_FILE,
                "checkpoint: %s/%s: %s of %s is corrupt: its hash is %016" PRIx64
                ", saved was %016" PRIx64,
                r->folder, e->file, checkpoint_array_name(array), e->shard.tensors[p->tensor].name,
                hash, e->hash[at]);
}

/* ---- pieces ---- */

struct wanted {
    struct checkpoint_reader *reader;
    const struct checkpoint_named *tensor;
    int64_t first;   /* of the piece */
    int64_t missing; /* first element that no shard holds, -1 */
};

static void add_segments(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    struct wanted *wanted = arg;
    struct checkpoint_reader *r = wanted->reader;
    for (int64_t at = whole_first, end = whole_first + count; at < end && wanted->missing < 0;) {
        const struct checkpoint_run *run = checkpoint_index_at(wanted->tensor, at);
        if (run == NULL) {
            wanted->missing = at;
            return;
        }
        int64_t until = run->whole + run->count < end ? run->whole + run->count : end;
        if (r->n_segments == r->capacity) {
            r->capacity = 2 * r->capacity + 64;
            r->segment = must_grow(r->segment, (size_t)r->capacity, sizeof *r->segment);
        }
        r->segment[r->n_segments++] =
            (struct segment){run->entry, run->part, run->image + (at - run->whole),
                             local_first - wanted->first + (at - whole_first), until - at};
        at = until;
    }
}

static int by_part(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;
    if (x->entry != y->entry)
        return x->entry < y->entry ? -1 : 1;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return (x->image > y->image) - (x->image < y->image);
}

static int find_segments(struct checkpoint_reader *r, const struct plan *plan,
                         const struct plan_piece *piece)
{
    const struct plan_tensor *t = &plan->tensors[piece->tensor];
    const struct checkpoint_named *named = checkpoint_index_find(&r->index, t->name);
    struct wanted wanted = {r, named, piece->first, -1};
    if (named == NULL)
        return fail(FAIL_FILE, "checkpoint: %s has no tensor %s", r->folder, t->name);
    if (named->rows != t->whole_rows || named->columns != t->whole_columns)
        return fail(FAIL_USAGE, "checkpoint: %s: %s is %lld x %lld there and %lld x %lld here",
                    r->folder, t->name, (long long)named->rows, (long long)named->columns,
                    (long long)t->whole_rows, (long long)t->whole_columns);
    r->n_segments = 0;
    plan_piece_runs(plan, piece, add_segments, &wanted);
    if (wanted.missing >= 0)
        return fail(FAIL_FILE, "checkpoint: %s: no file holds element %lld of %s", r->folder,
                    (long long)wanted.missing, t->name);
    qsort(r->segment, (size_t)r->n_segments, sizeof *r->segment, by_part);
    return 0;
}

int checkpoint_reader_piece(struct checkpoint_reader *r, int array, const struct plan *plan,
                            const struct plan_piece *piece, float *out)
{
    int rc = 0;
    TRY(find_segments(r, plan, piece));
    for (int64_t i = 0, end; i < r->n_segments; i = end) {
        const struct segment *s = &r->segment[i];
        const float *values;
        int64_t image = r->manifest->entry[s->entry].shard.parts[s->part].offset;
        TRY(open_entry(r, s->entry));
        TRY(fetch(r, s->entry, array, s->part, &values));
        TRY(verify(r, s->entry, array, s->part, values));
        int64_t begin = units_now_ns();
        for (end = i; end < r->n_segments && r->segment[end].entry == s->entry &&
                      r->segment[end].part == s->part;
             end++)
            memcpy(out + r->segment[end].to, values + (r->segment[end].image - image),
                   (size_t)r->segment[end].count * sizeof *out);
        r->times.recut_ns += units_now_ns() - begin;
    }
out:
    return rc;
}

/* ---- open and close ---- */

void checkpoint_reader_open(struct checkpoint_reader **out, const char *folder,
                            const struct checkpoint_manifest *manifest, int rank, bool direct)
{
    struct checkpoint_reader *r = must_alloc(1, sizeof *r);
    int64_t begin = units_now_ns();
    snprintf(r->folder, sizeof r->folder, "%s", folder);
    r->manifest = manifest;
    r->file = must_alloc((size_t)manifest->n + 1, sizeof *r->file);
    for (int i = 0; i < WINDOWS; i++)
        r->window[i].entry = -1;
    r->direct = direct;
    checkpoint_index_make(&r->index, manifest, rank);
    r->times.recut_ns += units_now_ns() - begin;
    *out = r;
}

void checkpoint_reader_close(struct checkpoint_reader *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < r->manifest->n; i++) {
        checkpoint_pipe_close(&r->file[i].pipe);
        free(r->file[i].verified);
    }
    for (int i = 0; i < WINDOWS; i++)
        free(r->window[i].memory);
    checkpoint_aio_close(r->aio);
    checkpoint_index_release(&r->index);
    free(r->segment);
    free(r->file);
    free(r);
}

const struct checkpoint_times *checkpoint_reader_times(const struct checkpoint_reader *r)
{
    return &r->times;
}

bool checkpoint_reader_damaged(const struct checkpoint_reader *r)
{
    return r->damaged;
}

bool checkpoint_reader_is_direct(const struct checkpoint_reader *r)
{
    return r->direct;
}

/* ---- all of it ---- */

static int verify_small(struct checkpoint_reader *r, int entry)
{
    const struct checkpoint_entry *e = &r->manifest->entry[entry];
    struct checkpoint_pipe *pipe = &r->file[entry].pipe;
    unsigned char *block = aligned_alloc(CHECKPOINT_ALIGN, CHECKPOINT_ALIGN);
    if (block == NULL)
        die(FAIL_INTERNAL, "checkpoint: no memory for %d bytes", CHECKPOINT_ALIGN);
    int code = checkpoint_pipe_post(pipe, block, CHECKPOINT_ALIGN, e->place.small);
    if (code == 0)
        code = checkpoint_pipe_wait(pipe, pipe->posted);
    bool good = code == 0 && XXH3_64bits(block, CHECKPOINT_ALIGN) == e->small_hash;
    free(block);
    return good ? 0
                : fail(FAIL_FILE, "checkpoint: %s/%s: the small state is corrupt", r->folder,
                       e->file);
}

int checkpoint_verify(const char *folder, const struct checkpoint_manifest *manifest, int first,
                      int stride)
{
    struct checkpoint_reader *r;
    int rc = 0;
    checkpoint_reader_open(&r, folder, manifest, 0, true);
    for (int i = first; i < manifest->n; i += stride) {
        TRY(open_entry(r, i));
        TRY(verify_small(r, i));
        for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
            for (int p = 0; p < manifest->entry[i].shard.n_parts; p++) {
                const float *values;
                TRY(fetch(r, i, a, p, &values));
                TRY(verify(r, i, a, p, values));
            }
    }
out:
    checkpoint_reader_close(r);
    return rc;
}
