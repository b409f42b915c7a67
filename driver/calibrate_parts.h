/*
 * calibrate_parts: what the files of calibrate share. Private to them.
 *
 * Times of a device are between two of its stamps, around many launches that were all given out
 * before the first one ran (a call on the stream holds it back, where the device has such calls): the
 * host's launching is in none of them.
 */
#ifndef DRIVER_CALIBRATE_PARTS_H
#define DRIVER_CALIBRATE_PARTS_H

#include <stdatomic.h>

#include "analysis/record.h"
#include "driver/execute.h"
#include "driver/job.h"

struct calibration {
    struct job *job;
    const struct point *point;
    struct model model;
    struct policy policy;
    struct plan plan;
    struct input input;
    struct execute execute;
    struct ceiling_row *ceilings; /* [n] owned */
    int64_t n, capacity;
    double *op_s;             /* [plan.n_ops] seconds of each op, alone; 0: not a kernel */
    double launch_s;          /* between kernels that do nothing */
    double step_s;            /* measured, longest rank */
    struct topology topology; /* facts as they are found */
};

/* A zeroed row, its kind and shape set. */
struct ceiling_row *calibrate_row(struct calibration *c, const char *kind, const char *shape);

/* Samples (seconds of one) into a row: median, least, n, and the rate of `work` by the median. */
void calibrate_times(struct ceiling_row *row, double *seconds, int n, double work,
                     const char *unit);

/* Hold a stream back until released; on a device without calls on streams, nothing. */
struct calibrate_hold {
    atomic_int released; /* written once, by the thread that launches */
};
void calibrate_hold(struct device *device, int stream, struct calibrate_hold *hold);

/* Once without holding anything back: what loads or connects at first use may wait for the device. */
void calibrate_warm(struct device *device, void (*give)(void *arg), void *arg);

/* Seconds between stamps 0 and 1 of a stream, which `give` is called between. Syncs. */
double calibrate_time(struct device *device, int stream, void (*give)(void *arg), void *arg);

/* Each adds rows and facts; collective over the job. */
int calibrate_kernels(struct calibration *c); /* execute is open and has run steps */
int calibrate_copies(struct calibration *c);  /* the same */
int calibrate_peaks(struct calibration *c);   /* execute is closed */
int calibrate_disk(struct calibration *c);
int calibrate_collectives(struct calibration *c); /* execute is closed */

/* "512 x 1024, +=": the shape of an op, which with its kind and dtype says what it is like. */
void calibrate_shape(const struct op *op, char *text, size_t size);

void calibrate_fact(struct fact *fact, double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Rank 0: facts of kernels by what the plan's ops took; then all that the topology needs. */
int calibrate_facts(struct calibration *c);

#endif
