/*
 * command_check_fit: what check --fit found, as text, CSV or JSON. For command_check_fit*.c alone.
 */
#ifndef ANALYSIS_COMMAND_CHECK_FIT_H
#define ANALYSIS_COMMAND_CHECK_FIT_H

#include <stdbool.h>

struct memory_fit;
struct memory_fit_ask;

struct fit_answer {
    const struct memory_fit_ask *ask;
    const struct memory_fit *fit; /* sorted */
    int n_measured, n_rows;       /* choices with a measured time; rows of the study files */
    const char *differs; /* "--pack off, here on": why rows of the same work are not counted; "" */
    bool csv, json;
};

/* FAIL_FILE when writing fails. */
int fit_say(const struct fit_answer *answer);

#endif
