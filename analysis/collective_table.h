/*
 * collective_table: measured times of one collective over message sizes.
 *
 * What nccl-tests prints, and what a study of collectives measures: one table per operation, data
 * type and communicator size, rows in the order of the source. Times are of one operation; algbw is
 * S / t with S as PEERS of this kind define it per operation, busbw = algbw times the factor of the
 * operation. A figure that the source does not have is NaN.
 */
#ifndef ANALYSIS_COLLECTIVE_TABLE_H
#define ANALYSIS_COLLECTIVE_TABLE_H

#include <stdint.h>

struct collective_row {
    int line;
    double bytes;   /* S */
    double count;   /* elements; NaN */
    double time_us; /* out of place */
    double algbw_GBps, busbw_GBps;
    double wrong; /* elements; NaN: not checked */
    double in_place_us, in_place_algbw_GBps, in_place_busbw_GBps, in_place_wrong;
};

struct collective_table {
    char source[256];
    char point[96];     /* of a study: "2x8 of set 1, launch 1"; else "" */
    char operation[24]; /* all_reduce all_gather reduce_scatter broadcast reduce alltoall sendrecv
                           gather scatter hypercube */
    char type[16];      /* "float" */
    char reduction[16]; /* "sum", "none" */
    int64_t ranks;      /* -1 unknown */
    int64_t nodes;      /* hosts that the source names; -1 unknown */
    char axis[16];      /* of a study: whose groups called; else "" */
    int64_t at_once;    /* of a study: so many such groups make a call at the same time; else 0 */
    double apart;       /* of them: slowest over fastest, where that is largest; NaN: the file does
                           not tell them apart, and a call has the shortest time of all ranks */
    int n_rows;
    struct collective_row *rows;
};

struct collective_tables {
    int n;
    struct collective_table *tables;
};

struct collective_table *collective_tables_add(struct collective_tables *tables);
struct collective_row *collective_table_add(struct collective_table *table,
                                            const struct collective_row *row);
void collective_tables_release(struct collective_tables *tables);

/* busbw / algbw of an operation on n ranks; NaN for one that is not known or n < 2. */
double collective_busbw_factor(const char *operation, int64_t ranks);

#endif
