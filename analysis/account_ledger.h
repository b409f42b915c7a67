/*
 * account_ledger: the rows of a point, summed over ranks once. Private to account*.c.
 *
 * One cell per variant and step; every row is visited a fixed number of times, whatever the order
 * of rows, so a point costs time in proportion to its rows. Indices from the file are checked when
 * the ledger is opened: later passes over `steps` may trust them.
 */
#ifndef ANALYSIS_ACCOUNT_LEDGER_H
#define ANALYSIS_ACCOUNT_LEDGER_H

#include "analysis/account.h"

struct cell {
    int64_t end_ns;             /* last rank's */
    int64_t tokens;             /* valid tokens of the step */
    double longest_ns;          /* max over ranks of end - start */
    double term_ns[TERMS];      /* sums over ranks */
    int32_t block, flags, seen; /* seen: rows */
    bool has_exposed, measured;
};

struct ledger {
    const struct record_point *point;
    int32_t ranks;
    int64_t n[VARIANTS];
    struct cell *cells[VARIANTS]; /* [n] by step */
    int64_t n_incomplete, n_contradicting;
};

int ledger_open(struct ledger *out, const struct record_point *point);
void ledger_release(struct ledger *ledger);

/* Kind of a cell. */
enum account_kind ledger_kind(int variant, int flags);

/* The cell of (variant, step), or NULL when there is none or it was not measured. */
const struct cell *ledger_measured(const struct ledger *ledger, int variant, int step);

/* Mark the measured cells and collect the series of all kinds. */
void ledger_series(struct ledger *ledger, struct account_series series[ACCOUNT_KINDS]);

/* Fill account->shift from the series and account->straggler from the instrumented rows. */
void ledger_pace(const struct ledger *ledger, struct account *account);

/* Fill account->pop from the instrumented rows and their stalls. */
void ledger_pop(const struct ledger *ledger, struct account *account);

/* Fill account->axes from the tables stalls and collectives. */
int ledger_axes(struct ledger *ledger, struct account *account);

#endif
