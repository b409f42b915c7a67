/*
 * preempt: signals that ask a study to stop.
 *
 * A study of timed blocks has no state to save, and finished points are whole files already. SIGUSR1 is noted:
 * between two blocks, and between points, one rank's signal becomes all ranks' word and all leave with
 * FAIL_STOPPED; half a point is no point, so the one under way is measured again by --resume. SIGTERM ends the
 * process at once, with one sentence and that same code, and so does SIGINT, with 128 + 2: launchers send them when they
 * kill a moment later.
 *
 * In a run (driver/full_run.h) SIGTERM and SIGUSR1 are noted and nothing else. The run looks between
 * blocks, where one rank's signal becomes all ranks' word, saves its state if a folder of checkpoints was
 * asked for, publishes what it has and ends with FAIL_STOPPED on all ranks; --resume goes on. SIGUSR1 is what
 * job managers can send ahead of the end (Slurm's --signal) and what Open MPI's mpirun hands on to ranks;
 * SIGTERM to that mpirun kills its ranks a second later.
 *
 * A launcher also sends SIGTERM to the ranks that are left when one has failed, and nothing tells the two apart. So
 * the sentence says what is left of the work, which holds behind a failure's own sentence too, and not what to do.
 */
#ifndef DRIVER_PREEMPT_H
#define DRIVER_PREEMPT_H

#include <stdbool.h>

/*
 * From the first moment of the process, before MPI: SIGTERM and SIGINT end it at once, and who `speaks` (one rank)
 * says that nothing was lost. SIGUSR1 is noted for a study that is about to begin; a calibration, which
 * keeps nothing of itself, ends by it too.
 */
void preempt_begin(bool study, bool speaks);

/* From now on points are published, beside `out`, which is what is said when a signal ends the process at
 * once; NULL: this rank says nothing. */
void preempt_watch(bool run, const char *out);

/* From now on nothing is said when leaving at once: the study is being merged. */
void preempt_say_nothing(void);

/* How the job ends is said: a signal now adds nothing to it and leaves with `code`. Before MPI_Finalize, which no rank
 * leaves before all are there: a launcher that sees one rank fail kills those that are still in it. And before MPI_Abort. */
void preempt_end(int code);

/* The first signal noted in this process, 0: none. */
int preempt_seen(void);

/* Of a study of timed blocks that writes `out`: FAIL_STOPPED when one was, for the others to agree. */
int preempt_check(const char *out);

/* "SIGTERM", "SIGUSR1", or "a signal". */
const char *preempt_name(int signal_number);

#endif
