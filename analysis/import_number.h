/*
 * import_number: one printed figure, and how exactly it was printed.
 *
 * "12.50" is 12.5 with half a unit of its last digit 0.005; "1.4e3" has 50. Absent figures ("", "-",
 * "n/a", "none", "null") are NaN without an error. Everything else must be one plain finite number
 * from its first to its last character: "1,5" is a decimal comma or a thousands separator, nobody
 * can say which, and is refused like "nan", "12 ms" and "0x1F".
 */
#ifndef ANALYSIS_IMPORT_NUMBER_H
#define ANALYSIS_IMPORT_NUMBER_H

#include <stddef.h>

struct import_number {
    double value, half;
};

/* NULL, or what is wrong with `text`, to follow the quoted text in a message. */
const char *import_number(const char *text, struct import_number *out);

/*
 * A number at the beginning of `text`, as in a log; *end is set behind it. `thousands`: groups of
 * three digits behind commas belong to it ("5,847"), as torchtitan prints them.
 */
const char *import_number_prefix(const char *text, int thousands, struct import_number *out,
                                 const char **end);

/* "32KiB", "8388608": bytes. "1GB" is refused: 10^9 or 2^30. */
const char *import_bytes(const char *text, struct import_number *out);

#endif
