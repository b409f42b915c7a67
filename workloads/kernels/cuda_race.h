/*
 * cuda_race: what of several things to run is the fastest, under conditions like those of a step.
 *
 * The runs of a round go out in an order of its own, drawn from a generator, and those of all rounds
 * before the first is waited for: nothing rests between them, launches are no part of a time, what lies
 * in the caches is what another competitor left there, and slow drift of clocks falls on all alike. A
 * first round leads in. Times are between two events on the stream. Read by cuda_*_search.c.
 */
#ifndef WORKLOADS_KERNELS_CUDA_RACE_H
#define WORKLOADS_KERNELS_CUDA_RACE_H

#include <stdbool.h>

enum { RACE_RUNS = 64 }; /* competitors x (rounds + 1), at most */

/* Launch one run of a competitor on the stream; `run` counts all of a race. False: refused. */
typedef bool race_run(void *arg, int competitor, int run);

struct cuda_race {
    void *stream;
    void *begin[RACE_RUNS], *end[RACE_RUNS]; /* events */
};

void cuda_race_open(struct cuda_race *race, void *stream);
void cuda_race_close(struct cuda_race *race);

/* One competitor: the second of two runs, in us; negative: refused. */
float cuda_race_alone(struct cuda_race *race, race_run *run, void *arg, int competitor);

/* Median of `rounds` runs of each of n, in us; negative: refused once. */
void cuda_race_all(struct cuda_race *race, race_run *run, void *arg, int n, int rounds,
                   float *median_us);

#endif
