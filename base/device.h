/*
 * device: where kernels run, as in-order streams and stamps.
 *
 * A stream runs its tasks in the order in which they were given. A stamp is an event: the same
 * thing times and orders. await() makes a *stream* wait for a stamp, never the host's program: on
 * "cpu" the compute stream is the calling thread (launch runs the kernel, so waiting blocks it),
 * while every communication stream is a queue that one progress thread works off; that thread alone
 * calls MPI between open and drain, tests, backs off, and parks when nothing is outstanding. On
 * "cuda" streams and stamps are the runtime's own.
 *
 * Stamps have generations. A slot is stamped at most once between two syncs; sync() ends the
 * generation: every slot counts as not stamped again, while its time stays readable until it is
 * stamped anew. A stream that awaits a slot not stamped since the last sync waits for it, so an
 * await may be given before its stamp. "cpu" reports a slot stamped twice, and a host and streams
 * that all wait for each other, in words (die).
 *
 * Nothing here allocates after open(), alloc() and reserve(): the timed fence depends on it. Errors
 * inside a stream end the job (die): there is nobody left to ask.
 *
 * A device is used by one thread (the launch thread). struct device is created by device_open and
 * owned by the caller until device_close; all functions go through the const table of its type.
 */
#ifndef BASE_DEVICE_H
#define BASE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum device_class { /* arenas, so that memory can be told apart by what it holds */
                    DEVICE_PARAMETERS,
                    DEVICE_GRADIENTS,
                    DEVICE_OPTIMIZER,
                    DEVICE_ACTIVATIONS,
                    DEVICE_TEMPORARIES,
                    DEVICE_COMMUNICATION,
                    DEVICE_CLASSES
};
const char *device_class_name(int device_class);

/* One piece of queued work: start() once, then done() until it is not 0. */
struct device_task {
    void (*start)(void *arg);
    int (*done)(void *arg); /* 1: finished, 0: not yet. NULL: finished when start() returns */
    void *arg;              /* owned by the giver, alive until the task has finished */
};

struct device_memory {
    int64_t peak_bytes[DEVICE_CLASSES]; /* asked for through alloc() */
    int64_t process_bytes;              /* resident set (cpu) or what the driver reports (cuda) */
    int64_t capacity_bytes;             /* 0: unknown */
};

struct device;

struct device_type {
    const char *name;
    int (*open)(struct device *device, int local_rank, int n_streams);
    void (*close)(struct device *device);
    int (*alloc)(struct device *device, enum device_class which, size_t bytes,
                 void **out); /* zeroed, 64-byte aligned */
    void (*free)(struct device *device, enum device_class which, void *memory, size_t bytes);
    void (*upload)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    void (*download)(struct device *device, int stream, void *to, const void *from,
                     size_t bytes); /* done after sync */
    /* Syncs; then stamps 0..n_stamps-1 exist, and every stream takes n_tasks entries before the
     * first of them has finished: tasks, launches, copies, stamps and awaits all count. */
    int (*reserve)(struct device *device, int n_stamps, int n_tasks);
    void (*launch)(struct device *device, int stream, void (*kernel)(void *arg, void *native),
                   void *arg);
    void (*enqueue)(struct device *device, int stream,
                    const struct device_task *task); /* host devices; not the compute stream */
    void (*stamp)(struct device *device, int stream, int stamp);
    void (*await)(struct device *device, int stream, int stamp);
    void (*sync)(struct device *device); /* host waits until every stream is empty */
    int64_t (*when)(struct device *device,
                    int stamp); /* units_now_ns() when the stream reached it; after sync */
    void *(*native)(struct device *device, int stream); /* cudaStream_t; NULL on cpu */
    void (*memory)(struct device *device, struct device_memory *out);
    bool runs_host_tasks; /* enqueue() exists */
};

struct device {
    const struct device_type *type;
    void *state; /* the type's own */
};

/* Stream 0 is the compute stream on every device. */
enum { DEVICE_COMPUTE = 0 };

extern const struct device_type device_cpu;

/* By name ("cpu", "cuda", "timed"; "auto": the best that this build and machine have). FAIL_ABSENT
 * for a name not built. */
int device_find(const char *name, const struct device_type **out);

/* Open with n_streams streams (1 compute + communication and copy streams). */
int device_open(struct device *device, const struct device_type *type, int local_rank,
                int n_streams);
void device_close(struct device *device); /* safe on a zeroed struct */

#endif
