/*
 * import_lines: a text file of somebody else, line by line, in bounded memory.
 *
 * Line ends may be LF or CR LF and are not part of a line; a byte order mark is skipped. A line
 * longer than IMPORT_LINE bytes is handed out cut, `overlong` set, and its rest skipped, so that a
 * file of one huge line costs no memory. `open_end` says that the line just handed out was the last
 * and had no line end: a file that was cut ends like that. A byte 0 fails: it is no text.
 */
#ifndef ANALYSIS_IMPORT_LINES_H
#define ANALYSIS_IMPORT_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { IMPORT_LINE = 65536 };

struct import_lines {
    FILE *file;
    const char *path; /* borrowed */
    char *text;       /* [IMPORT_LINE + 1] the line */
    size_t length;
    int64_t number; /* of the line, from 1 */
    bool overlong, open_end;
};

/* FAIL_FILE when it cannot be opened, is a folder, is empty, is compressed or is a study file. */
int import_lines_open(struct import_lines *lines, const char *path);

/* 1: there is a line; 0: the end; < 0: -FAIL_FILE, said. */
int import_lines_next(struct import_lines *lines);

void import_lines_close(struct import_lines *lines);

#endif
