/*
 * calibrate: what this machine can do, measured: "scalestudy calibrate --layout NxG --model NAME".
 *
 *   kernels      each distinct op and shape of the plan of one rank, over all its places in the plan
 *                (so that no more lies in a cache than in a step), all ranks at once, rank 0 recorded
 *   peaks        large matrix products, one rank alone (driver/ceiling.h)
 *   copies       within the device, from the host and to it, pinned
 *   disk         where the study file goes (--checkpoint-dir, if given): written past the page cache
 *                and fsynced, read back; one rank of each node, all nodes at once
 *   collectives  all-reduce, all-gather, reduce-scatter by size, inside a node and between nodes;
 *                alpha and B of each level are the weighted line through all of them
 *
 * They are rows of machine/ceilings of the study file, and with --topology-out a machine that
 * --topology takes: each fact has source "measured" and says what it was measured with. Then the plan
 * is replayed (workloads/cost.h) with the times of its own ops, and with the facts alone; both stand
 * beside the measured step as ratios: what is not 1 the numbers do not explain.
 */
#ifndef DRIVER_CALIBRATE_H
#define DRIVER_CALIBRATE_H

#include "driver/job.h"

/* FAIL_USAGE, FAIL_FILE, FAIL_ABSENT: what the options ask of it and it does not do; of a study that
 * is no calibration: options that only a calibration has. */
int calibrate_check(const struct job *job);

/* Collective over the job, after everything has been prepared. */
int calibrate(struct job *job, int argc, char **argv);

#endif
