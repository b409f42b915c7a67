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
 * stamped anew. On "cpu" a stream that awaits a slot not stamped since the last sync waits for it,
 * so an await may be given before its stamp; on "cuda", where waiting for an event that nobody has
 * recorded is no wait at all, the stamp must have been given first, and is in the order of a plan.
 * Each reports a slot stamped twice, and what it cannot wait for, in words (die).
 *
 * Times are those of units_now_ns(). A host stamps by its clock. On "cuda" each sync() ties the
 * clock of the GPU to the host's by an event bracketed by two readings, so all stamps of a generation
 * share one offset, known to half the bracket (a few microseconds); between stamps of a generation the
 * error is the resolution of an event, 0.5 microseconds, and 2^-24 of the time to the sync.
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
    int64_t reserved_bytes;             /* peak of all classes together */
    int64_t process_bytes;              /* resident set (cpu); in use on the whole GPU (cuda) */
    int64_t capacity_bytes;             /* 0: unknown */
};

/* A device of this host that this process could open. */
struct device_unit {
    char name[64];
    char bus[16];  /* "0000:1a:00.0": the same for every process of the host */
    char uuid[48]; /* "GPU-..."; the same everywhere */
    int64_t memory_bytes;
    int capability; /* 10 major + minor */
    int multiprocessors;
    int driver, runtime; /* versions, 1000 major + 10 minor */
};

/* What a profiler saw of one piece of work: times of its own clock, which only orders and spaces
 * them. */
struct device_record {
    int64_t begin_ns, end_ns;
    int stream;    /* that it ran on, as the device counts; -1: none of those */
    bool is_copy;  /* else a kernel, or a fill of memory */
    char name[40]; /* of a kernel, its beginning; "copy", "fill" */
};

struct device;
struct device_graph; /* a recorded run; the type's own */

struct device_type {
    const char *name;
    /* How many devices this process could open, and the first `max` of them. FAIL_ABSENT with a
     * sentence when there is none (no driver, one too old, no GPU). NULL: the host itself. */
    int (*probe)(struct device_unit *units, int max, int *n);
    int (*open)(struct device *device, int index, int n_streams); /* index: as in probe() */
    void (*close)(struct device *device);
    int (*alloc)(struct device *device, enum device_class which, size_t bytes,
                 void **out); /* zeroed, 64-byte aligned */
    void (*free)(struct device *device, enum device_class which, void *memory, size_t bytes);
    /* `from` may be device memory, too; on "cuda" (and on the compute stream of "cpu") it may be
     * used again when upload returns. download is done after sync. */
    void (*upload)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    void (*download)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    /* Every byte becomes `byte`, in the order of the stream. NULL where uploads must do (host memory). */
    void (*fill)(struct device *device, int stream, void *memory, int byte, size_t bytes);
    /* Syncs; then stamps 0..n_stamps-1 exist, and every stream takes n_tasks entries before the
     * first of them has finished: tasks, launches, copies, stamps and awaits all count. */
    int (*reserve)(struct device *device, int n_stamps, int n_tasks);
    void (*launch)(struct device *device, int stream, void (*kernel)(void *arg, void *native),
                   void *arg);
    void (*enqueue)(struct device *device, int stream,
                    const struct device_task *task); /* host devices; not the compute stream */
    void (*stamp)(struct device *device, int stream, int stamp);
    /* A stamp that only orders: when() does not know it, and it costs less. NULL: take stamp(). */
    void (*mark)(struct device *device, int stream, int stamp);
    void (*await)(struct device *device, int stream, int stamp);
    bool (*idle)(struct device *device); /* every stream is empty, without waiting. NULL: unknown */
    void (*sync)(struct device *device); /* host waits until every stream is empty */
    int64_t (*when)(struct device *device,
                    int stamp); /* units_now_ns() when the stream reached it; after sync */
    /* units_now_ns() when the host gave the stamp: later than when the stream was done with all before
     * it, if the host was late. A graph's stamps: when the graph was launched. NULL: the host is
     * the compute stream, or nobody knows. */
    int64_t (*given)(struct device *device, int stamp);
    void *(*native)(struct device *device, int stream); /* cudaStream_t; NULL on cpu */
    /* Make an empty stream anew, before or beside the compute stream where both have work; what
     * native() gave for it is gone. NULL: streams have no priorities. */
    int (*prioritise)(struct device *device, int stream, bool before);
    void (*memory)(struct device *device, struct device_memory *out);
    /* call(arg) when the stream gets here; on "cuda" on a thread of the runtime, where it may call
     * nothing of CUDA. NULL: launch() on a stream that is not the compute stream is the same. */
    void (*notify)(struct device *device, int stream, void (*call)(void *arg), void *arg);
    /* *to (made fit by pin, below) becomes `value` when the stream gets here, all that it copied to the host
     * before being there: without a thread of the host, which a stream waits for. False, and nothing
     * done: this device cannot. NULL: the same. */
    bool (*tell)(struct device *device, int stream, int32_t *to, int32_t value);
    /* Make host memory (page-aligned) fit for copies that run beside the host. NULL: all is. */
    int (*pin)(struct device *device, void *memory, size_t bytes);
    void (*unpin)(struct device *device, void *memory);
    /*
     * Between capture_begin and capture_end nothing runs: what is launched, stamped, marked and awaited
     * on any stream becomes a graph. launch_graph gives all of it at once, in the order of the compute
     * stream; each launch gives the graph's stamps anew, once between two syncs like any other. Inside,
     * only stamps of the same capture can be awaited, nothing is uploaded, filled or synced, and memory
     * that kernels were told of stays where it is as long as the graph lives. On failure
     * (FAIL_CUDA) nothing is left to free. free_graph: every stream is empty; before the
     * communicators whose calls are in it are closed. All NULL: no graphs here.
     */
    int (*capture_begin)(struct device *device);
    int (*capture_end)(struct device *device, struct device_graph **out);
    void (*launch_graph)(struct device *device, struct device_graph *graph);
    void (*free_graph)(struct device *device, struct device_graph *graph);
    /* A profiler attaches (with its cost), and goes again; both with every stream empty. The records in
     * between, by begin, to be freed with free(); *lost: that it dropped. FAIL_ABSENT where it is not
     * there. NULL: nothing can attach here. */
    int (*trace_begin)(struct device *device);
    int (*trace_end)(struct device *device, struct device_record **records, int64_t *n,
                     int64_t *lost);
    bool runs_host_tasks; /* enqueue() exists */
};

struct device {
    const struct device_type *type;
    void *state;        /* the type's own */
    int64_t host_waits; /* times that the host waited for a stream since open; "cuda" counts them */
    int64_t stamp_ns; /* what a stamp takes of the time of its stream, measured at open; 0: none */
    int64_t graph_stamp_ns; /* the same inside a graph; 0: none, or no graphs */
    int64_t capture;        /* which capture is on, counted from 1; 0: none */
    /* Set after open: alloc() takes memory that a communication library may map into other processes,
     * where there is such memory. Only "cuda" knows a difference. */
    bool exportable;
};

/* Stream 0 is the compute stream on every device. */
enum { DEVICE_COMPUTE = 0 };

extern const struct device_type device_cpu;
extern const struct device_type device_timed; /* device_timed.h */
extern const struct device_type device_cuda;  /* where the build found a CUDA toolkit */

/* By name ("cpu", "cuda", "timed"; "auto": the best that this build and machine have). FAIL_ABSENT
 * for a name not built. device_find_auto also says why a better one was passed over, or "". */
int device_find(const char *name, const struct device_type **out);
int device_find_auto(const struct device_type **out, char *passed_over, size_t size);

/* Open with n_streams streams (1 compute + communication and copy streams). */
int device_open(struct device *device, const struct device_type *type, int index, int n_streams);
void device_close(struct device *device); /* safe on a zeroed struct */

static inline void device_mark(struct device *device, int stream, int stamp)
{
    (device->type->mark ? device->type->mark : device->type->stamp)(device, stream, stamp);
}

#endif
