/*
 * record_publish: whole files, by name.
 *
 * A file appears under its name complete and on disk, or not at all: written as NAME.tmp, fsynced,
 * renamed, its folder fsynced. What fails is FAIL_FILE with the path and the system's words, and
 * the .tmp is removed.
 */
#ifndef ANALYSIS_RECORD_PUBLISH_H
#define ANALYSIS_RECORD_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>

enum { RECORD_PATH = 512 + 64 }; /* a study's path, and what is added to it */

/* Write and publish `size` bytes as `path`, replacing what was there. */
int record_publish(const char *path, const void *bytes, size_t size);

/* Publish `temporary`, written by somebody else, as `path`; a `path` that exists is not replaced.
 */
int record_publish_file(const char *temporary, const char *path);

/* Make the names in the folder of `path` survive a crash. */
int record_sync_folder(const char *path);

/*
 * Become the one writer of a parts folder: a lock that dies with the process. FAIL_FILE "in use"
 * when another has it for more than a second, or when the folder has gone meanwhile. *fd is the
 * lock; close it to give it back.
 */
int record_lock(const char *folder, int *fd);

/* The same, and nothing is made: *fd is -1 where there is no lock and one could be made. */
int record_lock_there(const char *folder, int *fd);

bool record_exists(const char *path);

/* What making a new `path` would fail with, of errno: EEXIST, ENOENT, EROFS ... 0: it could be made, as far as
 * can be seen without making it. */
int record_cannot_make(const char *path);

/* FAIL_FILE: `path` could not be written, for that reason. */
int record_cannot_write(const char *path, int code);

#endif
