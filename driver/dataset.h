/*
 * dataset: the files behind --input file:PATH, looked at once before anything runs.
 *
 * Every rank opens them: they may be copies on each node. Refused, in one sentence: what
 * input_file_open() refuses, a token that the model does not have among the first
 * INPUT_FILE_CHECKED bytes (later ones are found when they are read), fewer samples in an epoch than
 * a point takes in a step, queues (--prefetch) larger than a host's memory, and ranks that see
 * different files. What they are goes into the study
 * (job.fingerprint): a later launch of the same study must find the same data.
 */
#ifndef DRIVER_DATASET_H
#define DRIVER_DATASET_H

#include "driver/job.h"

/* Local: refusals, and job->fingerprint. */
int dataset_check(struct job *job);

/* Collective over the job: FAIL_FILE when a rank's fingerprint is not rank 0's. */
int dataset_agree(const struct job *job);

/* Local: FAIL_FILE when what a point has opened is not what dataset_check() saw. */
int dataset_same(const struct job *job, const struct point *point, struct input *input);

/* "file:NAME" of "file:DIR/NAME": what a study calls its input wherever the files lie; other kinds
 * as they are. */
void dataset_name(const char *kind, char *text, size_t size);

#endif
