#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/record_hdf5.h"
#include "analysis/record_head.h"
#include "analysis/record_merge.h"
#include "analysis/record_parts.h"
#include "analysis/record_publish.h"
#include "analysis/record_stream.h"
#include "base/err.h"

struct record {
    char path[RECORD_PATH], parts[RECORD_PATH];
    struct record_head head; /* of all launches */
    int launch;
    int lock;   /* file descriptor */
    int pieces; /* index of the point of which pieces have been published, -1 */
};

static int check_path(const char *path)
{
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof((struct record_file *)0)->path - 8)
        return fail(FAIL_FILE, "record: a study's path has 1 to %zu bytes, this one has %zu",
                    sizeof((struct record_file *)0)->path - 9, length);
    return 0;
}

static int refuse_existing(const char *path, const char *parts, bool resume)
{
    bool has_parts = record_exists(parts);
    if (record_exists(path) && resume)
        return fail(FAIL_FILE, "record: %s is whole, there is nothing to resume%s%s", path,
                    has_parts ? ": a killed run left its copy in " : "", has_parts ? parts : "");
    if (record_exists(path))
        return fail(FAIL_FILE, "record: %s exists: choose another --out", path);
    if (has_parts && !resume)
        return fail(FAIL_FILE,
                    "record: %s exists, an unfinished study: --resume goes on with it, or choose "
                    "another --out",
                    parts);
    if (!has_parts && resume)
        return fail(FAIL_FILE, "record: there is no %s to resume: start without --resume", parts);
    return 0;
}

static int cannot_create(const char *folder, int code)
{
    return fail(FAIL_FILE, "record: cannot create %s: %s", folder, strerror(code));
}

static int make_folder(const char *folder)
{
    if (mkdir(folder, 0777) != 0)
        return cannot_create(folder, errno);
    return record_sync_folder(folder);
}

static int publish_head(const struct record *record)
{
    char path[RECORD_PATH + 16];
    int64_t file;
    size_t bytes = (size_t)record->head.n_hosts * sizeof(struct host_row) +
                   (size_t)record->head.n_ranks * sizeof(struct rank_row) +
                   (size_t)record->head.n_ceilings * sizeof(struct ceiling_row);
    snprintf(path, sizeof path, "%s/head.h5", record->parts);
    int rc = record_create_image(&file, bytes);
    if (rc == 0)
        rc = record_put_head(file, &record->head);
    rc = rc == 0 ? record_publish_image(file, path)
                 : fail(FAIL_FILE, "record: cannot write %s: HDF5 cannot build it", path);
    record_close(file);
    return rc;
}

/* What is there: the head, which must be of the same study, and the points. */
static int read_old(struct record *record, const struct record_head *head, int **done, int *n_done)
{
    struct record_file old = {0};
    int rc;
    TRY(record_stream_read(&old, record->parts, false));
    TRY(record_head_compare(&old.head, head));
    record->head = old.head;
    old.head = (struct record_head){0};
    record->launch = record_head_launches(&record->head);
    if (n_done != NULL)
        *n_done = 0;
    if (done != NULL && n_done != NULL) {
        *done = must_alloc((size_t)old.n_points + 1, sizeof **done);
        for (int i = 0; i < old.n_points; i++) { /* sorted; a point measured twice is one */
            const struct point_row *point = &old.points[i].point;
            if (point->part == 0 && (*n_done == 0 || (*done)[*n_done - 1] != point->point))
                (*done)[(*n_done)++] = point->point;
        }
    }
out:
    record_file_release(&old);
    return rc;
}

static int join_head(struct record *record, const struct record_head *head, bool resume, int **done,
                     int *n_done)
{
    char path[RECORD_PATH + 16], why[RECORD_WHY];
    int rc = 0;
    if (!record_head_right(head, why))
        return fail(FAIL_INTERNAL, "record: %s", why);
    snprintf(path, sizeof path, "%s/head.h5", record->parts);
    /* A launch killed before it published a head leaves nothing to go on with: begin afresh. */
    if (resume && record_exists(path))
        TRY(read_old(record, head, done, n_done));
    record_head_join(&record->head, head, record->launch);
out:
    return rc;
}

/* Its names, if nothing that is there refuses them. */
static int name_record(struct record *record, const char *path, bool resume)
{
    int rc;
    record->lock = record->pieces = -1;
    TRY(check_path(path));
    snprintf(record->path, sizeof record->path, "%s", path);
    snprintf(record->parts, sizeof record->parts, "%s.parts", path);
    rc = refuse_existing(record->path, record->parts, resume);
out:
    return rc;
}

/* ---- looked at ---- */

static int look_where(struct record *record, bool resume)
{
    if (resume)
        return record_lock_there(record->parts, &record->lock);
    int code = record_cannot_make(record->parts);
    if (code != 0)
        return cannot_create(record->parts, code);
    return record_sync_folder(record->parts); /* which changes nothing, and may be refused too */
}

/* A head is published as another file that then takes its name. */
static int look_at_head(const struct record *record)
{
    char path[RECORD_PATH + 16], temporary[RECORD_PATH + 24];
    snprintf(path, sizeof path, "%s/head.h5", record->parts);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    int code = record_cannot_make(temporary);
    return code == 0 || code == EEXIST ? 0 : record_cannot_write(path, code);
}

int record_look(const char *path, const struct record_head *head, bool resume)
{
    struct record *record = must_alloc(1, sizeof *record);
    int rc;
    TRY(name_record(record, path, resume));
    TRY(look_where(record, resume));
    TRY(join_head(record, head, resume, NULL, NULL));
    if (resume)
        rc = look_at_head(record);
out:
    record_abandon(record);
    return rc;
}

/* ---- begun ---- */

static void drop_parts(struct record *record)
{
    record_parts_remove(record->parts);
    if (record->lock >= 0)
        close(record->lock);
    record->lock = -1;
    rmdir(record->parts); /* stays when somebody put a file of his own there */
}

int record_begin(struct record **out, const char *path, const struct record_head *head, bool resume,
                 int *launch, int **done, int *n_done)
{
    struct record *record = must_alloc(1, sizeof *record);
    bool made = false;
    int rc;
    *out = NULL;
    if (done != NULL)
        *done = NULL;
    if (n_done != NULL)
        *n_done = 0;
    TRY(name_record(record, path, resume));
    if (!resume) {
        TRY(make_folder(record->parts));
        made = true;
    }
    TRY(record_lock(record->parts, &record->lock));
    TRY(join_head(record, head, resume, done, n_done));
    TRY(publish_head(record));
    if (launch != NULL)
        *launch = record->launch;
    *out = record;
    return 0;
out:
    if (made)
        drop_parts(record);
    if (done != NULL) {
        free(*done);
        *done = NULL;
    }
    record_abandon(record);
    return rc;
}

/* The first free name of a point; what is published never changes. */
static int part_path(const struct record *record, int point, struct record_part *part, char *path,
                     size_t size)
{
    for (int again = 0; again < 2; again++) {
        record_part_name(part, point, again ? record->launch : -1);
        snprintf(path, size, "%s/%s.h5", record->parts, part->name);
        if (!record_exists(path))
            return 0;
        if (record->launch == 0)
            break;
    }
    return fail(FAIL_INTERNAL, "record: point %d is published already, as %s", point, path);
}

static size_t point_bytes(const struct record_point *point)
{
    size_t bytes = 0;
    for (int which = TABLE_point; which < TABLE_COUNT; which++) {
        int64_t n;
        record_point_rows(point, (enum record_table_index)which, &n);
        bytes += (size_t)n * record_table((enum record_table_index)which).row_size;
    }
    return bytes;
}

static int publish_point(const struct record *record, const struct record_point *point,
                         const char *name, const char *path)
{
    int64_t file;
    int rc = record_create_image(&file, point_bytes(point));
    if (rc == 0)
        rc = record_put_identity(file, &record->head);
    if (rc == 0)
        rc = record_put_point(file, point, name);
    rc = rc == 0 ? record_publish_image(file, path)
                 : fail(FAIL_FILE, "record: cannot write %s: HDF5 cannot build it", path);
    record_close(file);
    return rc;
}

int record_append(struct record *record, const struct record_point *given)
{
    struct record_point point = *given; /* rows are shared, only launch and part are ours to say */
    struct record_part part;
    char path[RECORD_PATH + 56], why[RECORD_WHY];
    int rc;
    point.point.launch = record->launch;
    point.point.part = 0;
    bool last = record->pieces == point.point.point;
    if (!(last ? record_piece_right : record_point_right)(&point, why))
        return fail(FAIL_INTERNAL, "record: point %d: %s", point.point.point, why);
    TRY(part_path(record, point.point.point, &part, path, sizeof path));
    rc = publish_point(record, &point, part.name, path);
out:
    return rc;
}

int record_append_piece(struct record *record, const struct record_point *given, int piece)
{
    struct record_point point = *given;
    struct record_part part;
    char path[RECORD_PATH + 56], why[RECORD_WHY];
    point.point.launch = record->launch;
    point.point.part = piece;
    if (piece < 1 || !record_piece_right(&point, why))
        return fail(FAIL_INTERNAL, "record: point %d, piece %d: %s", point.point.point, piece,
                    piece < 1 ? "pieces count from 1" : why);
    record_part_name_piece(&part, point.point.point, record->launch, piece);
    snprintf(path, sizeof path, "%s/%s.h5", record->parts, part.name);
    if (record_exists(path))
        return fail(FAIL_INTERNAL, "record: piece %d is published already, as %s", piece, path);
    record->pieces = point.point.point;
    return publish_point(record, &point, part.name, path);
}

int record_finish(struct record *record)
{
    int rc = record_merge(record->path, record->parts, &record->head);
    if (rc == 0)
        drop_parts(record);
    record_abandon(record);
    return rc;
}

void record_abandon(struct record *record)
{
    if (record == NULL)
        return;
    if (record->lock >= 0)
        close(record->lock);
    record_head_release(&record->head);
    free(record);
}
