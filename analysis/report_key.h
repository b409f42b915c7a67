/*
 * report_key: who a row of a report is about: nodes, ranks and, where a study has points that may not
 * be compared (several inputs, layouts, lengths), the number of their set, as the curves count it.
 * Where a point was also measured on all nodes at once, how many did the same: 1 is the point alone.
 */
#ifndef ANALYSIS_REPORT_KEY_H
#define ANALYSIS_REPORT_KEY_H

#include "analysis/report_table.h"
#include "analysis/scaling.h"

enum { REPORT_KEY = 64 };

/* A table whose first columns are the key, then `names`. */
void report_key_open(struct table *table, const struct scaling *scaling, const char *names);

/* The cells of it; `point` is that of a row or of a run of `scaling`. */
void report_key_cells(struct table *table, const struct scaling *scaling,
                      const struct point_row *point);

/* "2x8", "2x8 loaded", "2x8 of set 1". */
void report_key_text(char text[REPORT_KEY], const struct scaling *scaling,
                     const struct point_row *point);

#endif
