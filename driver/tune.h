/*
 * tune: how communicators are made, chosen by what it does to the step (--comm-tune).
 *
 * Candidates are what the library is told of memory beforehand (nothing, buffers, windows where the
 * version and the environment allow them), then windows without any thread block where copy engines can do
 * a call, then with the best of these few thread blocks as the library thinks fit, limits of them, and
 * streams that take their turn beside the compute stream instead of before it.
 * For each the communicators of the point are made anew, and two blocks run: full
 * steps, in which communication runs beside products, and the same calls alone. The library's own
 * way runs first and again at the end (A/A). A candidate is taken when its full step is shorter than
 * the library's by more than the two runs of that differ, and by half a percent. Times are those of
 * the slowest rank, so all ranks choose alike. All of that is set-up: the state is made again from
 * the generator afterwards by the caller, and nothing of it is in a timed block.
 */
#ifndef DRIVER_TUNE_H
#define DRIVER_TUNE_H

#include "driver/execute.h"

enum { TUNE_ROWS = 10 };

struct tune_row {
    struct comm_setup setup;
    enum comm_enrolment enrolment;
    bool beside;              /* the streams have the priority of the compute stream */
    double step_ms, alone_ms; /* a full step; its calls alone */
    bool refused;
};

struct tune {
    int n;
    struct tune_row row[TUNE_ROWS]; /* the first: the library's own way; the last: again */
    int chosen;
    double seconds; /* that it took */
};

/*
 * Collective over the point. Leaves the executor with the communicators of the choice; an executor
 * of one rank, or whose communicators cannot be set up, as it was (n 0). `config` is that of
 * execute_open, with exportable memory.
 */
int tune_comms(struct tune *out, struct execute *execute, const struct execute_config *config);

/* One line for each row, '\n' between. */
void tune_say(const struct tune *tune, char *text, size_t size);

#endif
