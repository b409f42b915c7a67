/*
 * import_collectives: rows that are about a message size become tables of collectives.
 *
 * busbw is algbw times the factor of the operation, algbw is size / time: where a table has more than
 * it needs these must agree. A constant ratio of 8, 1/8, 2^30/10^9 or its inverse in all rows is a
 * unit mixed up and fails with FAIL_WRONG; anything else is a note with both numbers.
 */
#ifndef ANALYSIS_IMPORT_COLLECTIVES_H
#define ANALYSIS_IMPORT_COLLECTIVES_H

#include "analysis/import.h"

/* Takes the rows from index `first` on that have BYTES out of import->rows. */
int import_collect(struct import *import, int first);

/* Fills what follows from the rest, and checks the table. */
int import_check_collective(struct import *import, struct collective_table *table);

struct collective_row collective_row_unknown(void);

#endif
