#include "analysis/record_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/record_child.h"
#include "analysis/record_parts.h"
#include "analysis/record_publish.h"
#include "base/err.h"

struct receiver {
    struct record_child child;
    struct record_file *out;
    int64_t budget_bytes; /* what may still be allocated for this study */
    bool has_head;
    int *named_launch; /* [n_points], -1: not in the name */
};

/* A file cannot hold much more than its bytes; an older schema's rows grow when read. */
static int64_t budget(int64_t file_bytes)
{
    int64_t most = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2;
    int64_t wanted = file_bytes < INT64_MAX / 16 ? 8 * file_bytes + (16 << 20) : INT64_MAX;
    return most > 0 && wanted > most ? most : wanted;
}

static bool spend(struct receiver *receiver, int64_t count, size_t size)
{
    if (count < 0 || count > receiver->budget_bytes / (int64_t)size)
        return false;
    receiver->budget_bytes -= count * (int64_t)size;
    return true;
}

static bool take_head(struct receiver *receiver, const struct stream_message *message)
{
    struct stream_head head;
    struct record_head *to = &receiver->out->head;
    if (receiver->has_head || message->bytes != (int64_t)sizeof head ||
        !record_child_read(&receiver->child, &head, sizeof head))
        return false;
    receiver->has_head = true;
    to->schema = (int)head.schema;
    to->t0_unix_ns = head.t0_unix_ns;
    memcpy(to->study_digest, head.study_digest, sizeof to->study_digest);
    return to->study_digest[sizeof to->study_digest - 1] == '\0';
}

static bool take_attribute(struct receiver *receiver, const struct stream_message *message)
{
    struct stream_attribute attribute;
    int64_t length = message->bytes - (int64_t)sizeof attribute;
    if (length < 0 || !spend(receiver, length + 256, 1) ||
        !record_child_read(&receiver->child, &attribute, sizeof attribute) ||
        memchr(attribute.group, '\0', sizeof attribute.group) == NULL ||
        memchr(attribute.name, '\0', sizeof attribute.name) == NULL)
        return false;
    char *text = must_alloc((size_t)length + 1, 1);
    bool whole = record_child_read(&receiver->child, text, (size_t)length);
    if (whole)
        record_head_set(&receiver->out->head, attribute.group, attribute.name, text);
    free(text);
    return whole;
}

static bool take_point(struct receiver *receiver, const struct stream_message *message)
{
    struct record_file *out = receiver->out;
    if (message->bytes != 0 || !spend(receiver, 1, sizeof *out->points))
        return false;
    size_t n = (size_t)out->n_points;
    if ((n & (n - 1)) == 0) { /* full at every power of two */
        out->points = must_grow(out->points, n > 0 ? 2 * n : 1, sizeof *out->points);
        receiver->named_launch =
            must_grow(receiver->named_launch, n > 0 ? 2 * n : 1, sizeof *receiver->named_launch);
    }
    out->points[n] = (struct record_point){0};
    receiver->named_launch[n] = message->n < 0 ? -1 : (int)message->n;
    out->points[n].point.point = message->table; /* until its row comes */
    out->n_points++;
    return true;
}

static bool take_table(struct receiver *receiver, const struct stream_message *message)
{
    if (message->bytes != 0 || message->table < 0 || message->table >= TABLE_COUNT)
        return false;
    enum record_table_index which = (enum record_table_index)message->table;
    size_t row_size = record_table(which).row_size;
    struct record_file *out = receiver->out;
    bool of_point = which >= TABLE_point;
    if ((of_point && out->n_points == 0) || (which == TABLE_point && message->n != 1) ||
        !spend(receiver, message->n, row_size))
        return false;
    char *rows = must_grow(NULL, (size_t)message->n + 1, row_size);
    bool whole = record_child_read(&receiver->child, rows, (size_t)message->n * row_size);
    struct record_point *point = of_point ? &out->points[out->n_points - 1] : NULL;
    int named = of_point ? point->point.point : 0;
    if (of_point)
        record_point_adopt(point, which, rows, message->n);
    else
        record_head_adopt(&out->head, which, rows, message->n);
    return whole && (which != TABLE_point || point->point.point == named);
}

static int take_failure(struct receiver *receiver, const struct stream_message *message)
{
    char text[1024] = {0};
    if (message->bytes <= 0 || message->bytes >= (int64_t)sizeof text ||
        !record_child_read(&receiver->child, text, (size_t)message->bytes))
        return -1;
    return fail(FAIL_FILE, "%s", text);
}

/* 0: the end was reached; FAIL_FILE: the child said why not; -1: it said nothing sensible. */
static int receive(struct receiver *receiver)
{
    struct stream_message message;
    while (record_child_read(&receiver->child, &message, sizeof message)) {
        bool good = false;
        switch (message.kind) {
        case STREAM_HEAD:
            good = take_head(receiver, &message);
            break;
        case STREAM_ATTRIBUTE:
            good = take_attribute(receiver, &message);
            break;
        case STREAM_POINT:
            good = take_point(receiver, &message);
            break;
        case STREAM_TABLE:
            good = take_table(receiver, &message);
            break;
        case STREAM_FAILURE:
            return take_failure(receiver, &message);
        case STREAM_END:
            return receiver->has_head ? 0 : -1;
        default:
            break;
        }
        if (!good)
            return -1;
    }
    return -1;
}

static int by_point(const void *left, const void *right)
{
    const struct point_row *a = &((const struct record_point *)left)->point;
    const struct point_row *b = &((const struct record_point *)right)->point;
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    return (a->launch > b->launch) - (a->launch < b->launch);
}

/* Pieces of a long run in order; the last, which has no number, behind them. */
static int by_piece(const void *left, const void *right)
{
    const struct point_row *a = &((const struct record_point *)left)->point;
    const struct point_row *b = &((const struct record_point *)right)->point;
    int order = by_point(left, right);
    if (order != 0 || a->part == b->part)
        return order;
    return a->part == 0 || (b->part != 0 && a->part > b->part) ? 1 : -1;
}

/* Pieces of one point become one point, with the row of the last. False: one is there twice. */
static bool join_pieces(struct record_file *out)
{
    int kept = 0;
    if (out->n_points > 0)
        qsort(out->points, (size_t)out->n_points, sizeof *out->points, by_piece);
    for (int i = 0; i < out->n_points; i++) {
        struct record_point *before = kept > 0 ? &out->points[kept - 1] : NULL;
        if (before == NULL || by_point(before, &out->points[i]) != 0) {
            struct record_point moved = out->points[i];
            memset(&out->points[i], 0, sizeof moved);
            out->points[kept++] = moved;
            continue;
        }
        if (before->point.part == out->points[i].point.part)
            return false;
        record_point_join(before, &out->points[i]);
    }
    out->n_points = kept;
    return true;
}

static int check_values(const struct receiver *receiver)
{
    struct record_file *out = receiver->out;
    char why[RECORD_WHY];
    if (!record_head_right(&out->head, why))
        return fail(FAIL_FILE, "record: %s: damaged file: %s", out->path, why);
    for (int i = 0; i < out->n_points; i++) {
        int launch = receiver->named_launch[i], said = out->points[i].point.launch;
        if (launch >= 0 && launch != said)
            return fail(FAIL_FILE, "record: %s: damaged file: point %d: is of another launch",
                        out->path, out->points[i].point.point);
    }
    out->n_parts = out->n_points;
    if (!join_pieces(out))
        return fail(FAIL_FILE, "record: %s: damaged file: a point is there twice", out->path);
    for (int i = 0; i < out->n_points; i++)
        if (!record_point_right(&out->points[i], why))
            return fail(FAIL_FILE, "record: %s: damaged file: point %d: %s", out->path,
                        out->points[i].point.point, why);
    return 0;
}

static int64_t size_of(const char *path, bool is_folder)
{
    char part[RECORD_PATH + 64];
    struct record_parts parts = {0};
    struct stat found;
    int64_t bytes = 0;
    if (!is_folder)
        return stat(path, &found) == 0 ? found.st_size : 0;
    snprintf(part, sizeof part, "%s/head.h5", path);
    bytes += stat(part, &found) == 0 ? found.st_size : 0;
    if (record_parts_list(&parts, path) != 0)
        return bytes;
    for (int i = 0; i < parts.n; i++) {
        snprintf(part, sizeof part, "%s/%s.h5", path, parts.parts[i].name);
        bytes += stat(part, &found) == 0 ? found.st_size : 0;
    }
    record_parts_release(&parts);
    return bytes;
}

int record_stream_read(struct record_file *out, const char *path, bool rows)
{
    struct stat found;
    *out = (struct record_file){0};
    if (strlen(path) >= sizeof out->path)
        return fail(FAIL_FILE, "record: a path of %zu bytes is too long", strlen(path));
    strcpy(out->path, path);
    if (stat(path, &found) != 0)
        return fail(FAIL_FILE, "record: cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode))
        return fail(FAIL_FILE, "record: cannot read %s: neither a file nor a folder", path);
    out->whole = S_ISREG(found.st_mode);
    int64_t bytes = size_of(path, !out->whole);
    struct stream_sender sender = {.path = path, .is_folder = !out->whole, .rows = rows};
    struct record_limits limits = {(size_t)512 << 20, 5 + (unsigned)(bytes / 50000000),
                                   60 + (unsigned)(bytes / 10000000)};
    struct receiver receiver = {.out = out, .budget_bytes = budget(bytes)};
    int rc = record_child_start(&receiver.child, record_stream_send, &sender, &limits);
    if (rc == 0) {
        rc = receive(&receiver);
        int status = record_child_end(&receiver.child, rc != 0);
        if (rc < 0 || (rc == 0 && status != 0))
            rc = fail(FAIL_FILE, "record: %s: damaged file", path);
    }
    if (rc == 0)
        rc = check_values(&receiver);
    free(receiver.named_launch);
    if (rc != 0)
        record_file_release(out);
    return rc;
}

int record_read(struct record_file *out, const char *path)
{
    char parts[RECORD_PATH];
    struct stat found;
    int n = snprintf(parts, sizeof parts, "%s.parts", path);
    if (n > 0 && n < (int)sizeof parts && stat(path, &found) != 0 && errno == ENOENT &&
        stat(parts, &found) == 0)
        return record_stream_read(out, parts, true);
    return record_stream_read(out, path, true);
}

void record_file_release(struct record_file *file)
{
    for (int i = 0; i < file->n_points; i++)
        record_point_release(&file->points[i]);
    free(file->points);
    record_head_release(&file->head);
    *file = (struct record_file){0};
}
