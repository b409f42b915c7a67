/*
 * point_steps: steps of a point as graphs, and the digest of what its steps have trained.
 *
 * The digest says whether two studies did the same to the last bit: a number over the training
 * state of all ranks, noted in the file with the steps that led to it. It is made with
 * --deterministic alone, since without it nobody promises that it comes again; studies that are to be
 * compared take --min-steps and --max-steps alike, so that they make as many steps.
 */
#ifndef DRIVER_POINT_STEPS_H
#define DRIVER_POINT_STEPS_H

#include "driver/execute.h"
#include "driver/job.h"

/* Collective over the point: with --graph capture its steps; fills capture_s and what stamps cost. */
int point_capture(const struct job *job, struct execute *execute, const void *comm,
                  struct point_row *row);

/* Collective over the point: with --deterministic one event (on its rank 0). */
int point_digest(const struct job *job, struct execute *execute, const void *comm,
                 struct record_point *rows);

#endif
