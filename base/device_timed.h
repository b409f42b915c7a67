/*
 * device_timed: a device that keeps time and computes nothing. Its rules stand in device.h.
 *
 * A kernel says how long it takes, by device_timed_busy(), and returns. The compute stream has a
 * clock of its own: each kernel starts where the one before it ended, or where what it waited for
 * came about, whichever is later, and never at the moment at which the host happens to give it out.
 * So being woken late delays nothing twice. The host's thread stays behind that clock where somebody
 * can see: at a stamp, a wait and a sync it sleeps to the deadline but for the last SPIN_NS, and
 * passes those looking at the clock and yielding its core in between, which costs nothing alone and
 * gives way to ranks that share the core. How far it came late is counted. Kernels on other streams
 * end where the progress thread finds them ended, some tens of microseconds late.
 *
 * What is real: streams, stamps, waits and their order; everything that communicates, with the
 * memory it reads and writes. What is not: results. Kernels leave memory as it is, and a buffer of
 * more than DEVICE_TIMED_REAL bytes is a window that shows one region of that size (a 4096th of the
 * buffer where that is more) again and again, so that a model of many gigabytes is there to be sent,
 * page by page, on a machine that could not hold it. Values are zero until something is received.
 * Smaller buffers are memory of their own.
 */
#ifndef BASE_DEVICE_TIMED_H
#define BASE_DEVICE_TIMED_H

#include <stdint.h>

#include "base/device.h"

enum { DEVICE_TIMED_REAL = 1 << 25, DEVICE_TIMED_WINDOWS = 4096 };

/* The stream that a kernel was given (its `native`) is busy for that much longer. */
void device_timed_busy(void *native, int64_t ns);

/* By how much the host overran deadlines of kernels where somebody could see, since it was asked
 * last. */
struct device_lateness {
    int64_t deadlines;
    double mean_ns, most_ns;
};
void device_timed_late(struct device *device, struct device_lateness *out);

/* Memory that shows one region again and again; NULL when the system refuses. */
void *device_timed_map(size_t bytes);
void device_timed_unmap(void *memory, size_t bytes);

#endif
