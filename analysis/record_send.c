/* The child's side of reading: which files, whose they are, and what is in them. */
#include "analysis/record_stream.h"

#include <hdf5.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/record_child.h"
#include "analysis/record_hdf5.h"
#include "analysis/record_parts.h"
#include "analysis/record_publish.h"
#include "base/err.h"

int record_stream_message(const struct stream_sender *sender, struct stream_message message,
                          const void *first, size_t first_size, const void *second,
                          size_t second_size)
{
    message.bytes = (int64_t)(first_size + second_size);
    return !(record_child_write(sender->fd, &message, sizeof message) &&
             record_child_write(sender->fd, first, first_size) &&
             record_child_write(sender->fd, second, second_size));
}

int record_stream_fail(const struct stream_sender *sender, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    record_stream_message(sender, (struct stream_message){.kind = STREAM_FAILURE, .n = FAIL_FILE},
                          text, strlen(text), NULL, 0);
    return 1;
}

int record_stream_damaged(const struct stream_sender *sender, const char *what, const char *why)
{
    return record_stream_fail(sender, "record: %s: damaged file: %s %s", sender->file, what, why);
}

int64_t record_open_file(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
    H5Pset_file_locking(access, false, true);
#endif
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return file;
}

static int refuse_unopened(const struct stream_sender *sender)
{
    char words[128];
    struct stat found;
    record_hdf5_words(words, sizeof words);
    if (stat(sender->file, &found) != 0 || H5Fis_hdf5(sender->file) <= 0)
        return record_stream_fail(sender, "record: %s: not an HDF5 file", sender->file);
    return record_stream_damaged(sender, strstr(words, "truncated") ? "it" : "HDF5",
                                 strstr(words, "truncated") ? "is truncated" : "cannot open it");
}

/* Ours, of a schema that we know, and (a part) of the study whose head was read. */
static int check_identity(struct stream_sender *sender, hid_t file, bool is_head)
{
    char format[32], digest[65];
    struct stream_head head = {0};
    if (!record_get_text(file, "format", format, sizeof format) ||
        strcmp(format, RECORD_FORMAT) != 0)
        return record_stream_fail(sender, "record: %s: not a scalestudy study", sender->file);
    if (!record_get_integer(file, "schema", &head.schema) || head.schema < 1)
        return record_stream_damaged(sender, "its schema", "is not a number");
    if (head.schema > RECORD_SCHEMA)
        return record_stream_fail(sender,
                                  "record: %s: has schema %lld, this program reads up to %d: use "
                                  "a newer scalestudy",
                                  sender->file, (long long)head.schema, RECORD_SCHEMA);
    if (!record_get_text(file, "study_digest", digest, sizeof digest) ||
        !record_get_integer(file, "t0_unix_ns", &head.t0_unix_ns))
        return record_stream_damaged(sender, "its root", "lacks an attribute");
    sender->schema = head.schema;
    if (!is_head)
        return strcmp(digest, sender->study_digest) == 0
                   ? 0
                   : record_stream_fail(sender, "record: %s: part of another study", sender->file);
    memcpy(head.study_digest, digest, sizeof digest);
    memcpy(sender->study_digest, digest, sizeof digest);
    return record_stream_message(sender, (struct stream_message){.kind = STREAM_HEAD}, &head,
                                 sizeof head, NULL, 0);
}

static herr_t send_group(hid_t root, const char *name, const H5L_info_t *info, void *arg)
{
    struct stream_sender *sender = arg;
    (void)info;
    if (strcmp(name, "machine") == 0 || strcmp(name, "points") == 0 ||
        strlen(name) >= sizeof((struct stream_attribute *)0)->group || !record_is_group(root, name))
        return 0;
    return record_stream_attributes(sender, root, name);
}

static int send_head(struct stream_sender *sender, hid_t file)
{
    int rc;
    herr_t stopped = H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, send_group, sender);
    if (stopped > 0)
        return 1;
    if (stopped < 0 || !record_is_group(file, "machine"))
        return record_stream_damaged(sender, "its groups", "cannot be read");
    hid_t machine = H5Gopen2(file, "machine", H5P_DEFAULT);
    if (machine < 0)
        return record_stream_damaged(sender, "machine", "cannot be read");
    TRY(record_stream_table(sender, machine, TABLE_hosts));
    TRY(record_stream_table(sender, machine, TABLE_ranks));
    TRY(record_stream_table(sender, machine, TABLE_ceilings));
out:
    H5Gclose(machine);
    return rc;
}

static int send_point(struct stream_sender *sender, hid_t points, const struct record_part *part)
{
    int rc;
    if (!record_is_group(points, part->name))
        return record_stream_damaged(sender, part->name, "is not a point");
    hid_t group = H5Gopen2(points, part->name, H5P_DEFAULT);
    if (group < 0)
        return record_stream_damaged(sender, part->name, "cannot be read");
    TRY(record_stream_message(
        sender,
        (struct stream_message){.kind = STREAM_POINT, .table = part->point, .n = part->launch},
        NULL, 0, NULL, 0));
    for (int which = TABLE_point; which < TABLE_COUNT; which++)
        TRY(record_stream_table(sender, group, (enum record_table_index)which));
out:
    H5Gclose(group);
    return rc;
}

static herr_t send_named_point(hid_t points, const char *name, const H5L_info_t *info, void *arg)
{
    struct record_part part;
    (void)info;
    if (!record_part_parse(&part, name))
        return record_stream_damaged(arg, "a group of points", "is not called as a point");
    return send_point(arg, points, &part);
}

/* The points of a file: the one that a part is named for, or all. */
static int send_points(struct stream_sender *sender, hid_t file, const struct record_part *only)
{
    hid_t points = record_is_group(file, "points") ? H5Gopen2(file, "points", H5P_DEFAULT) : -1;
    if (points < 0)
        return record_stream_damaged(sender, "points", "cannot be read");
    int rc = only != NULL
                 ? send_point(sender, points, only)
                 : H5Literate(points, H5_INDEX_NAME, H5_ITER_INC, NULL, send_named_point, sender);
    H5Gclose(points);
    return rc < 0 ? record_stream_damaged(sender, "points", "cannot be listed") : rc;
}

static int send_file(struct stream_sender *sender, const char *path, const struct record_part *part)
{
    struct stat found;
    int rc;
    sender->file = path;
    sender->file_bytes = stat(path, &found) == 0 ? found.st_size : 0;
    hid_t file = record_open_file(path);
    if (file < 0)
        return refuse_unopened(sender);
    TRY(check_identity(sender, file, part == NULL));
    if (part == NULL)
        TRY(send_head(sender, file));
    TRY(send_points(sender, file, part));
out:
    H5Fclose(file);
    return rc;
}

static int send_folder(struct stream_sender *sender)
{
    char path[RECORD_PATH + 64];
    struct record_parts parts;
    int rc;
    snprintf(path, sizeof path, "%s/head.h5", sender->path);
    if (!record_exists(path))
        return record_stream_fail(sender, "record: %s: holds no study (no head.h5)", sender->path);
    if (record_parts_list(&parts, sender->path) != 0)
        return record_stream_fail(sender, "%s", fail_message());
    TRY(send_file(sender, path, NULL));
    for (int i = 0; i < parts.n; i++) {
        snprintf(path, sizeof path, "%s/%s.h5", sender->path, parts.parts[i].name);
        TRY(send_file(sender, path, &parts.parts[i]));
    }
out:
    record_parts_release(&parts);
    return rc;
}

int record_stream_send(void *arg, int fd)
{
    struct stream_sender *sender = arg;
    record_hdf5_quiet();
    H5PLset_loading_state(0); /* a foreign file shall not choose code to load */
    sender->fd = fd;
    int rc = sender->is_folder ? send_folder(sender) : send_file(sender, sender->path, NULL);
    if (rc != 0)
        return 1;
    return record_stream_message(sender, (struct stream_message){.kind = STREAM_END}, NULL, 0, NULL,
                                 0);
}
