/*
 * units: numbers with units, as people type and read them.
 *
 * Sizes are binary (1K = 1024, either case, an optional trailing "B" or "iB"); durations take ns,
 * us, ms, s, m, h, d and default to seconds; shares take "%" ("1%" is 0.01; a bare number is the
 * share itself). A parser takes the whole string or fails; formatting then parsing gives the value
 * back. Bandwidths are printed decimal (GB/s = 1e9 B/s).
 */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Each returns 0, or -1 when the whole text is not such a number (overflow included). */
int units_parse_int(const char *text, int64_t *out);
int units_parse_real(const char *text, double *out);    /* finite numbers only */
int units_parse_bytes(const char *text, int64_t *out);  /* bytes, >= 0 */
int units_parse_seconds(const char *text, double *out); /* seconds, >= 0 */
int units_parse_share(const char *text, double *out);   /* a fraction: "1%" -> 0.01 */

/* Each writes a text of at most `size` bytes that the parser above reads back exactly. */
void units_format_real(char *text, size_t size, double value); /* shortest of 15 to 17 digits */
void units_format_bytes(char *text, size_t size, int64_t bytes);
void units_format_seconds(char *text, size_t size, double seconds);
void units_format_share(char *text, size_t size, double share);

/* The decimal unit to print sizes up to `bytes` in, "B", "kB", "MB" or "GB", and the bytes of one. */
const char *units_decimal(double bytes, double *unit);

/* The plural's letter: printf("%d node%s", n, units_s(n)). */
const char *units_s(double n); /* "" for 1, else "s" */

/* Nanoseconds of CLOCK_MONOTONIC: the only clock of the project (see driver/clock for other hosts).
 */
int64_t units_now_ns(void);

/* Sleep; returns late rather than early. */
void units_sleep_ns(int64_t ns);

#endif
