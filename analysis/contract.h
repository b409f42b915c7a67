/*
 * contract: what must agree before two figures may be compared, and where it does not.
 *
 * A field is something a point or its study says about itself. Of each study the values of all its
 * points are collected; a field differs when there is more than one value in all. What a layout is
 * differs by purpose (CONTRACT_LAYOUT); work must not; the rest explains.
 */
#ifndef ANALYSIS_CONTRACT_H
#define ANALYSIS_CONTRACT_H

#include "analysis/report.h"

enum contract_kind {
    CONTRACT_WORK,     /* what a step computes */
    CONTRACT_LAYOUT,   /* how it is split */
    CONTRACT_POLICY,   /* how it is computed: recompute, overlap, buckets, input */
    CONTRACT_WINDOW,   /* how it was measured */
    CONTRACT_MACHINE,  /* on what */
    CONTRACT_SOFTWARE, /* with what */
    CONTRACT_KINDS
};
const char *contract_kind_name(int kind);

struct contract_field {
    char name[80];
    enum contract_kind kind;
    char **values; /* [n studies] the distinct values of each, joined by ", "; owned */
    bool differs;
};
struct contract {
    int n, room, n_studies;
    struct contract_field *fields; /* [n], by kind */
};

/* Fields of `n` studies; those that differ are marked. */
void contract_init(struct contract *out, const struct report *studies, int n);
void contract_release(struct contract *contract);

/* How many fields of a kind differ. */
int contract_differs(const struct contract *contract, enum contract_kind kind);

/* Whether two points do equal work on devices of one kind and number: what may be ranked. Else the
 * name of the first field that differs and both values are given. */
struct contract_difference {
    const char *field;
    char left[128], right[128];
};
bool contract_equal_work(const struct record_head *a_head, const struct point_row *a,
                         const struct record_head *b_head, const struct point_row *b,
                         struct contract_difference *out);

#endif
