/*
 * record_stream: a study read in a child process and passed to the parent through a pipe.
 *
 * The child (record_tables.c) opens the foreign files and says, in messages, what it finds: the
 * head, attributes, tables, points. It refuses what is not ours and what cannot be true of a file
 * of this size. The parent (record_read.c) believes no length, no index and no text; when the child
 * dies, or says something that makes no sense, the file is damaged.
 */
#ifndef ANALYSIS_RECORD_STREAM_H
#define ANALYSIS_RECORD_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/record_schema.h"

enum stream_kind {
    STREAM_HEAD,      /* struct stream_head */
    STREAM_ATTRIBUTE, /* struct stream_attribute, then `bytes` more of text */
    STREAM_POINT,     /* a point begins; n: its launch when its name has one, else -1 */
    STREAM_TABLE,     /* n rows of a table begin; all of them follow */
    STREAM_FAILURE,   /* the sentence to say; n: its code */
    STREAM_END,
    STREAM_KINDS
};

struct stream_message {
    int32_t kind, table;
    int64_t n, bytes;
};

struct stream_head {
    int64_t schema, t0_unix_ns;
    char study_digest[65];
};

struct stream_attribute {
    char group[32], name[64];
};

/* The child's work: what it is to read, and what it knows meanwhile. */
struct stream_sender {
    const char *path; /* file or folder */
    bool is_folder;
    bool rows; /* without: the head and each point's one row are sent, all tables checked */
    int fd;
    const char *file;   /* the one being read */
    int64_t file_bytes; /* its size: no table is larger */
    int64_t schema;
    char study_digest[65];
};

/* The child's body, for record_child_start: 0, or 1 after a STREAM_FAILURE. */
int record_stream_send(void *sender, int fd);

/* In the child: check a table of an open group and send it. 0 or 1, as above. */
int record_stream_table(struct stream_sender *sender, int64_t group, enum record_table_index which);

/* In the child: the attributes of one group of the root, and its long texts. */
int record_stream_attributes(struct stream_sender *sender, int64_t file, const char *group);

/* In the child: a text or integer attribute of an open object; false: not there or something else.
 */
bool record_get_text(int64_t object, const char *name, char *text, size_t size);
bool record_get_integer(int64_t object, const char *name, int64_t *value);

/* In the child: whether the link is hard and leads to an object of this HDF5 class. */
bool record_is_dataset(int64_t group, const char *name);
bool record_is_group(int64_t group, const char *name);

/* In the child: send a message with two pieces of payload; send a sentence; "damaged file". Each
 * returns 0 or 1 as the body does. */
int record_stream_message(const struct stream_sender *sender, struct stream_message message,
                          const void *first, size_t first_size, const void *second,
                          size_t second_size);
int record_stream_fail(const struct stream_sender *sender, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int record_stream_damaged(const struct stream_sender *sender, const char *what, const char *why);

/* Read `path` (a file or a parts folder, exactly as named). */
int record_stream_read(struct record_file *out, const char *path, bool rows);

/* H5Fopen to read, without locks (published files never change; Lustre may have none). */
int64_t record_open_file(const char *path);

#endif
