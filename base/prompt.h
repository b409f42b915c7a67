/*
 * prompt: a thread that sleeps often and works little, and wants to be woken in time.
 *
 * Linux rounds sleeps up by 50 us, and its fair scheduler lets whoever computes finish a slice of
 * some milliseconds before a thread that wakes on the same core gets its turn. Asking for a slice
 * of a tenth of a millisecond (Linux 6.12 and later; ignored before) makes the short thread
 * preempt: without it, arithmetic on the core of a progress thread hides a quarter of a 1 MiB
 * all-reduce, with it nine tenths. No privilege is needed, share and priority stay as they are,
 * and a refusal changes nothing but timing.
 */
#ifndef BASE_PROMPT_H
#define BASE_PROMPT_H

/* For the calling thread. */
void prompt_wakeups(void);

#endif
