/*
 * telemetry: what the GPU of this rank says of itself beside the steps, as rows.
 *
 * Nothing is asked inside the fence of the blocks that capacity comes from. Counters (energy, time
 * held down by the power limit or by heat) are read before and after every block, and their
 * difference belongs to the block; ECC and NVLink errors before and after the timed section.
 * Moments (clocks, power, temperature, reasons) are read in warm-up and in instrumented blocks, whose
 * steps are the same, by a thread that sleeps, asks the scheduler for idle time only, and so never
 * takes the core from the thread that launches.
 *
 * No library, no GPU: telemetry is off, rank 0 says why in one line of chatter, and the rest works.
 */
#ifndef DRIVER_TELEMETRY_H
#define DRIVER_TELEMETRY_H

#include <stdbool.h>

#include "analysis/record.h"

struct telemetry;

enum { TELEMETRY_MOMENTS = 4096 };            /* of a block, at most */
#define TELEMETRY_PERIOD_NS INT64_C(50000000) /* between two of them */

/* As nvml_open() (library NULL: the system's); FAIL_ABSENT in words. Rows name `rank`. */
int telemetry_open(struct telemetry **out, const char *library, const char *bus, int rank);
void telemetry_close(struct telemetry *telemetry); /* NULL is fine */

/* The timed section, and one block in it. Rows are appended to `rows` in local time; a NULL telemetry
 * does nothing. `moments`: the thread may ask meanwhile. */
void telemetry_section(struct telemetry *telemetry);
void telemetry_section_end(struct telemetry *telemetry, struct record_point *rows);
void telemetry_block(struct telemetry *telemetry, bool moments);
void telemetry_block_end(struct telemetry *telemetry, int block, struct record_point *rows);

/* The same end in two: the block is over; later, what it is called. */
void telemetry_block_stop(struct telemetry *telemetry);
void telemetry_block_rows(struct telemetry *telemetry, int block, struct record_point *rows);

#endif
