/*
 * watchdog: names whatever hangs, and ends the job within its deadline.
 *
 * One thread; it makes no MPI call. The launch thread says what it is about to do (watchdog_at: a
 * pointer, a number and a peer group, no formatting, no lock); when nothing new is said for the
 * deadline, the thread prints "scalestudy: timeout: host H rank R: <what> <n> (<peer>) for S s,
 * deadline D s" once on stderr and ends the process with exit code 4 (_exit), which makes the
 * launcher end the job. It looks eight times a deadline, at least four times a second, so it speaks
 * at most 1/8 late; time in which the process was stopped (SIGSTOP, a debugger) does not count.
 *
 * It sees what holds up this process. One that stands still itself is named by the ranks of its
 * point that wait for it; where a point has no other rank, nobody does.
 *
 * One per process; only one thread says things.
 */
#ifndef DRIVER_WATCHDOG_H
#define DRIVER_WATCHDOG_H

#include <stdint.h>

/* Starts paused. 0 seconds: off, and the calls below change nothing. FAIL_INTERNAL: no thread. */
int watchdog_start(double seconds, int rank, const char *host);
void watchdog_stop(void);

/* `what` and `peer` (NULL: none) must be string literals or live until the next call. Cheap enough
 * for the fence (a few stores). */
void watchdog_at(const char *what, int64_t number, const char *peer);
void watchdog_pause(void); /* idle ranks wait without a deadline */

#endif
