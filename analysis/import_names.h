/*
 * import_names: what the columns of other people's tables are called.
 *
 * A name is compared without regard to case, blanks, punctuation and plural: "Step time (s)" and
 * step_time_s are the same. A name gives a figure and its factor to our unit, or a word. Bandwidths
 * are the exception in which case means something: GBps, GB/s are bytes, Gbps, Gbit/s bits, and
 * "gbps" may be either and is refused.
 */
#ifndef ANALYSIS_IMPORT_NAMES_H
#define ANALYSIS_IMPORT_NAMES_H

#include <stddef.h>

enum import_target { IMPORT_NOTHING, IMPORT_A_FIGURE, IMPORT_A_WORD };

struct import_name {
    enum import_target target;
    int index;    /* enum import_figure or enum import_word */
    double scale; /* of the printed figure to our unit */
};

/* NULL, or why a column of this name cannot be understood; one that is not known is no error. */
const char *import_name(const char *column, struct import_name *out);

/* "Tokens/s/GPU (median)" -> "tokens_per_s_per_gpu_median". */
void import_plain_name(char *plain, size_t size, const char *column);

/* Our first name of a figure or word, for messages. */
const char *import_name_of(enum import_target target, int index);

#endif
