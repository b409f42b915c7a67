/*
 * compare_say: a comparison as text, CSV or JSON. Fields of the contract that differ come first in
 * all three; `ranking` is NULL where nothing may be ranked.
 */
#ifndef ANALYSIS_COMPARE_SAY_H
#define ANALYSIS_COMPARE_SAY_H

#include "analysis/compare.h"

enum { COMPARE_SCHEMA = 1 }; /* of the JSON form */

struct comparison {
    const struct report *studies;
    int n_studies;
    const struct contract *contract;
    const struct compare *ranking;
    const char *refusal; /* why there is no ranking, "" */
};

/* "A", "B", ... "Z", "27", ...: how text and CSV name a study. */
void compare_letter(int study, char text[16]);

void compare_text(FILE *to, const struct comparison *comparison);
void compare_csv(FILE *to, const struct comparison *comparison);
int compare_json(FILE *to, const struct comparison *comparison); /* FAIL_FILE */

#endif
