/*
 * same: whether all ranks of a job mean the same job.
 *
 * A job is as many processes, each with its own words: two programs under one mpirun, a study or model file that is
 * another one on another host, a host without a driver among hosts that have one. Ranks that go on with other terms make
 * other calls, or none, and hang; or make the same calls with other numbers, and a curve of them is nobody's.
 */
#ifndef DRIVER_SAME_H
#define DRIVER_SAME_H

struct job;

/* The options that a job stands or falls with and the model, line by line, against those of rank 0. FAIL_USAGE on ranks
 * that differ, with the first line that does. Collective. */
int same_study(const struct job *job);

/* And the device that was found. Likewise. */
int same_device(const struct job *job);

#endif
