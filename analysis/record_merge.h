/*
 * record_merge: one file out of the parts.
 *
 * Made beside the output as OUT.tmp in a child process (a disk that fills up may take HDF5 down
 * with it), read back, and only then published. Whatever fails, the parts are as they were.
 */
#ifndef ANALYSIS_RECORD_MERGE_H
#define ANALYSIS_RECORD_MERGE_H

#include "analysis/record.h"

/* FAIL_FILE with path and reason; `head` is what head.h5 holds. */
int record_merge(const char *path, const char *parts, const struct record_head *head);

#endif
