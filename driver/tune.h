/*
 * tune: how communicators are made: as --comm-setup says, or chosen by what it does to the step
 * (--comm-tune).
 *
 * Candidates are what the library is told of memory beforehand (nothing, buffers, windows where the
 * version and the environment allow them), then windows without any thread block where copy engines can do
 * a call, then with the best of these few thread blocks as the library thinks fit, limits of them, and
 * streams that take their turn beside the compute stream instead of before it.
 * For each the communicators of the point are made anew, and full steps run, in which communication
 * runs beside products, and a block of the same calls alone. Steps are real ones, from the generator's
 * state: of zeros a GPU at its power limit takes a sixth less time (gpt2-1558m, FSDP on two H200: 270 ms
 * by NCCL's own way, 323 of real values), and other choices pay. And they last: full steps run before
 * the first candidate for three times as long as each is timed, and before each for half of that. The
 * first row is the library's own way. At the end the fastest other one, the favourite, has TUNE_TURNS
 * further turns, each between two of the library's own, and is taken when it is shorter than both in
 * each of them, and by half a percent of their mean. What drifts is in all three; where there is no
 * difference at all that happens in 272 of the 5040 orders of seven times, and half a percent makes it
 * rarer. Times are those of the slowest rank, so all ranks choose alike. All of that is set-up: the
 * state is made again from the generator afterwards by the caller, and nothing of it is in a timed block.
 */
#ifndef DRIVER_TUNE_H
#define DRIVER_TUNE_H

#include "driver/execute.h"

enum { TUNE_CANDIDATES = 9, TUNE_TURNS = 3, TUNE_ROWS = TUNE_CANDIDATES + 2 * TUNE_TURNS + 1 };

struct tune_row {
    struct comm_setup setup;
    bool beside;              /* the streams have the priority of the compute stream */
    double step_ms, alone_ms; /* a full step, of so many; its calls alone */
    int steps;
    bool refused;
};

struct tune {
    int n;
    struct tune_row row
        [TUNE_ROWS]; /* the first: the library's own way; behind the candidates: it, the favourite, it ... */
    int chosen;
    double each_s;  /* of timed full steps, each row */
    double pace_ms; /* of a full step before the first row */
    double seconds; /* that all of it took */
};

/*
 * Collective over the point. Leaves the executor with the communicators of the choice; an executor
 * of one rank, or whose communicators cannot be set up, as it was (n 0). `config` is that of
 * execute_open, with exportable memory; state and input are of `seed`. `seconds` of full steps are
 * timed for each candidate, one block at least.
 */
int tune_comms(struct tune *out, struct execute *execute, const struct execute_config *config,
               uint64_t seed, double seconds);

/* What was made as asked for and not measured, to be said as such. */
void tune_asked(struct tune *out, const struct comm_setup *setup);

/* One line for each row, '\n' between. */
void tune_say(const struct tune *tune, char *text, size_t size);

#endif
