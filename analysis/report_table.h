/*
 * report_table: a table of right-aligned columns, as wide as it has to be.
 *
 *   table_open(&t, "nodes ranks tokens/s");  names, separated by spaces
 *   table_int(&t, 4); ...                     cells, row by row
 *   table_close(&t, to);                      prints the header behind '#', the rows; frees
 *
 * The header is a comment line, so that what is left is numbers. NaN is printed "-".
 */
#ifndef ANALYSIS_REPORT_TABLE_H
#define ANALYSIS_REPORT_TABLE_H

#include <stdint.h>
#include <stdio.h>

enum { TABLE_CELL = 96 };

struct table {
    int n_columns;
    int64_t n, room; /* cells, header included */
    char (*cells)[TABLE_CELL];
};

void table_open(struct table *table, const char *names);
void table_text(struct table *table, const char *text); /* "" is printed "-" */
void table_int(struct table *table, int64_t value);
void table_real(struct table *table, double value, int decimals);
void table_marked(struct table *table, double value, int decimals, const char *mark);
void table_digits(struct table *table, double value, int digits); /* significant digits */
void table_close(struct table *table, FILE *to);

/* Words below a table, behind `mark` ("# - "), at most 120 columns a line. */
void table_note(FILE *to, const char *mark, const char *text);

#endif
