/*
 * record_hdf5: a head and a point, written into an open HDF5 file.
 *
 * Ids are HDF5's hid_t (int64_t since 1.10), so that hdf5.h stays in the .c files. No object
 * carries a time: the same content gives the same bytes. A file to be published is built in memory
 * (core driver): then a full disk meets our own write(), not HDF5's close, which leaves handles
 * behind when it cannot flush. Functions return 0, or -1 with the reason on HDF5's error stack:
 * record_hdf5_words() reads it.
 */
#ifndef ANALYSIS_RECORD_HDF5_H
#define ANALYSIS_RECORD_HDF5_H

#include <stddef.h>
#include <stdint.h>

#include "analysis/record_schema.h"

#define RECORD_FORMAT "scalestudy study"

/* HDF5 prints nothing from here on. */
void record_hdf5_quiet(void);

/* Why the last call failed: the system's words when it was the system, else HDF5's own. */
void record_hdf5_words(char *words, size_t size);

/* The attributes of the root, which every file has; the whole head; a point as points/NAME. */
int record_put_identity(int64_t file, const struct record_head *head);
int record_put_head(int64_t file, const struct record_head *head);
int record_put_point(int64_t file, const struct record_point *point, const char *name);

/* A new group; negative on failure. */
int64_t record_make_group(int64_t parent, const char *name);
void record_close_group(int64_t group);

/* One table and its .columns in `group`. */
int record_put_table(int64_t group, const struct record_table *table, const void *rows, int64_t n);

/* A new file in memory, with room for `bytes`; on disk. */
int record_create_image(int64_t *file, size_t bytes);
int record_create_file(int64_t *file, const char *path);
void record_close(int64_t file);

/* Publish the bytes of a file in memory as `path` (record_publish). FAIL_FILE on any error. */
int record_publish_image(int64_t file, const char *path);

/* The fixed-length type of a column or the compound of a table, in the file's byte order or in
 * this machine's; close with H5Tclose. */
int64_t record_column_type(const struct record_column *column, int in_file);

#endif
