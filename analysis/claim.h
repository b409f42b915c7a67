/*
 * claim: a ratio against a bound, beside the ratio of a thing with itself.
 *
 * A claim "A is at least 1.05 times as fast as B" holds when the whole interval of the ratio
 * satisfies the bound, and fails when none of it does. When the A/A interval of the same
 * alternation is wider than the margin (the distance of the bound from 1), or when the interval
 * contains the bound, it is undecided; undecided is not a pass.
 */
#ifndef ANALYSIS_CLAIM_H
#define ANALYSIS_CLAIM_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/stats.h"

enum claim_verdict { CLAIM_UNDECIDED, CLAIM_HOLDS, CLAIM_FAILS };

struct claim {
    struct stats_interval ratio, aa;
    double bound;
    bool at_least; /* ratio >= bound; else ratio <= bound */
};

enum claim_verdict claim_judge(const struct claim *claim);

/* Whether the ratio differs from 1: its interval excludes 1, and A/A does not reach as far. Holds
 * or undecided: no measurement shows that two things are equal. */
enum claim_verdict claim_differs(const struct stats_interval *ratio,
                                 const struct stats_interval *aa);

/* `widest`, {1, NAN, NAN, 0} at first, becomes the widest of all A/A that it was given; n counts them. An
 * end that one of them does not know is unknown: such a point may be as noisy as it likes, and a claim
 * about it is undecided. */
void claim_widen(struct stats_interval *widest, const struct stats_interval *aa);

/* "1.062 [1.051, 1.073] >= 1.05 holds; A/A 1.001 [0.997, 1.004]", with the reason when undecided.
 * */
void claim_text(const struct claim *claim, char *text, size_t size);

#endif
