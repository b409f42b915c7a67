/*
 * record_folder.h: a test's own folder of studies, and the few steps that tests of the record share.
 */
#ifndef TESTS_RECORD_FOLDER_H
#define TESTS_RECORD_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/record_fill.h"
#include "tests/test.h"

static char folder[] = "/tmp/test_record.XXXXXX";

static inline const char *at(const char *name)
{
    static char paths[4][320];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline bool exists(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0;
}

/* record_begin(), of which a look says before what it will answer, and makes nothing. */
static inline int begin_with(struct record **record, const char *path,
                             const struct record_head *head, bool resume, int *launch, int **done,
                             int *n_done)
{
    char parts[600], seen[1024];
    snprintf(parts, sizeof parts, "%s.parts", path);
    bool was = exists(parts);
    int look = record_look(path, head, resume);
    snprintf(seen, sizeof seen, "%s", fail_message());
    fail_clear();
    CHECK_EQ(exists(parts), was);
    int rc = record_begin(record, path, head, resume, launch, done, n_done);
    CHECK_EQ(look, rc);
    CHECK(rc == 0 || strcmp(seen, fail_message()) == 0);
    return rc;
}

static inline int begin(struct record **record, const char *path, bool resume, int *launch,
                        int **done, int *n_done)
{
    struct record_head head;
    fill_head(&head, 4, 1);
    int rc = begin_with(record, path, &head, resume, launch, done, n_done);
    record_head_release(&head);
    return rc;
}

static inline int append(struct record *record, int point, int64_t n)
{
    struct record_point rows;
    fill_point(&rows, point, n, 7);
    int rc = record_append(record, &rows);
    record_point_release(&rows);
    return rc;
}

static inline bool holds(const struct record_file *file, int index, int point, int64_t n)
{
    struct record_point rows;
    fill_point(&rows, point, n, 7);
    bool same = index < file->n_points && same_point(&rows, &file->points[index]);
    record_point_release(&rows);
    return same;
}

static inline bool folder_make(void)
{
    return CHECK(mkdtemp(folder) != NULL);
}

static inline void folder_remove(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQ(system(command), 0);
}

#endif
