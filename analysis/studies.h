/*
 * studies: files read and sorted into studies, each with its curve.
 *
 * Files of one study digest, of machines of one kind and one fabric, are launches of one study and are joined; studies stand in the order in
 * which they were first named. Step rows are dropped once they are accounted for.
 */
#ifndef ANALYSIS_STUDIES_H
#define ANALYSIS_STUDIES_H

#include "analysis/report.h"

struct studies {
    int n_files, n;
    struct record_file *files;          /* [n_files] */
    struct scaling *scalings;           /* [n] */
    struct report *reports;             /* [n] */
    const struct record_file **grouped; /* [n][n paths] files of each */
};

/* Machines of one kind, and one fabric; true where a file does not say. */
bool studies_same_machine(const struct record_head *a, const struct record_head *b);
/* Launches of one study: one digest, and the machine. */
bool studies_same(const struct record_file *a, const struct record_file *b);
/* FAIL_USAGE when files[i] holds a launch that one before it holds. */
int studies_refuse_twice(const struct record_file *files, int i);

/* FAIL_USAGE when two files hold the same launch; what record_read and scaling_add fail with. Safe to
 * release whatever is returned. */
int studies_read(struct studies *out, char **paths, int n, uint64_t seed);
void studies_release(struct studies *studies); /* safe on a zeroed struct */

#endif
