/*
 * record_parts: the names in a parts folder.
 *
 * head.h5, one file per published point, the writer's lock, and what a killed writer left as .tmp.
 * A point is called NNN, here and in the merged file. Only a point that a resumed launch measured
 * again has a longer name, NNN.launchL: what was published before stays as it is. A long run publishes
 * pieces before its last, NNN.launchL.partPPPPPP.
 */
#ifndef ANALYSIS_RECORD_PARTS_H
#define ANALYSIS_RECORD_PARTS_H

#include <stdbool.h>

struct record_part {
    char name[48]; /* NNN, NNN.launchL or NNN.launchL.partPPPPPP */
    int point;
    int launch; /* -1: not in the name */
    int piece;  /* 0: not in the name */
};

struct record_parts {
    int n;
    struct record_part *parts; /* by point, then launch, then piece */
};

void record_part_name(struct record_part *part, int point, int launch);
void record_part_name_piece(struct record_part *part, int point, int launch, int piece);
bool record_part_parse(struct record_part *part, const char *name);

/* Add a name; sort by point and launch. */
void record_parts_add(struct record_parts *parts, const struct record_part *part);
void record_parts_sort(struct record_parts *parts);
void record_parts_release(struct record_parts *parts);

/* The published points of a folder. FAIL_FILE when it cannot be read. */
int record_parts_list(struct record_parts *out, const char *folder);

/* Remove our files, the lock last; the folder itself goes (rmdir) when the lock is closed, because
 * NFS keeps an open file. */
void record_parts_remove(const char *folder);

#endif
