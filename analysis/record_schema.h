/*
 * record_schema: the column lists of record.h as data.
 *
 * What the macros say once is here an array that a loop can walk: the HDF5 types, the
 * `<table>.columns` tables, the checks of foreign rows, CSV headers and JSON keys all come from it.
 * Tables are numbered; the tables of a point follow TABLE_point in the order of the file.
 */
#ifndef ANALYSIS_RECORD_SCHEMA_H
#define ANALYSIS_RECORD_SCHEMA_H

#include <stddef.h>
#include <stdint.h>

#include "analysis/record.h"

#define RECORD_TABLES_ALL(X)                                                                       \
    X(hosts, struct host_row, HOST_COLUMNS)                                                        \
    X(ranks, struct rank_row, RANK_COLUMNS)                                                        \
    X(ceilings, struct ceiling_row, CEILING_COLUMNS)                                               \
    X(point, struct point_row, POINT_COLUMNS)                                                      \
    POINT_TABLES(X)

enum record_table_index {
#define RECORD_TABLE_ENUM(name, row, columns) TABLE_##name,
    RECORD_TABLES_ALL(RECORD_TABLE_ENUM)
#undef RECORD_TABLE_ENUM
        TABLE_COUNT
};

enum record_kind { RECORD_I32, RECORD_I64, RECORD_F64, RECORD_TEXT };

struct record_column {
    const char *name, *unit, *meaning;
    enum record_kind kind;
    size_t offset, size; /* bytes in the row struct */
};

struct record_table {
    const char *name;
    size_t row_size;
    int n_columns;
    const struct record_column *columns; /* [n_columns], static */
};

struct record_table record_table(enum record_table_index which);

/* The rows of a table of a point (TABLE_point: its one row) or of the head; *n is their number. */
const void *record_point_rows(const struct record_point *point, enum record_table_index which,
                              int64_t *n);
const void *record_head_rows(const struct record_head *head, enum record_table_index which,
                             int64_t *n);

/* Take ownership of malloc'd rows as the whole table (TABLE_point: copied, then freed). */
void record_point_adopt(struct record_point *point, enum record_table_index which, void *rows,
                        int64_t n);
/* Rows of `more` behind those of `point`, whose row becomes that of `more`; `more` is emptied. */
void record_point_join(struct record_point *point, struct record_point *more);
void record_head_adopt(struct record_head *head, enum record_table_index which, void *rows,
                       int64_t n);

/*
 * Whether the values may be used as they are: texts end; ranks, variants and steps are indices of
 * what they name. If not, `why` says the first that is wrong. Writing refuses what reading would.
 */
enum { RECORD_WHY = 160 };
bool record_point_right(const struct record_point *point, char why[RECORD_WHY]);
/* The same of a piece of a point, whose steps are indices among those of all its pieces. */
bool record_piece_right(const struct record_point *point, char why[RECORD_WHY]);
bool record_head_right(const struct record_head *head, char why[RECORD_WHY]);

#endif
