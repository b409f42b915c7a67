/*
 * device_cuda: what the files of the "cuda" device share. Nobody else includes it.
 *
 * Stream 0 computes at the lowest priority of the GPU, all others at the highest: a collective that
 * is ready takes the next multiprocessors that come free, instead of queueing behind the blocks of a
 * matrix product. Events come from two pools that reserve() fills, timed ones for stamps and untimed
 * ones for marks; a slot holds an event for one generation. sync() polls, so that MPI and NCCL's own
 * threads keep their cores, and turns the stamps of the generation into host times at once, which
 * frees the events for the next one.
 *
 * Copies from and to pageable memory go through one pinned ring in pieces: an upload returns when the
 * ring holds its bytes, a download arrives with the next sync. When the ring is full, the host waits
 * for its oldest piece, and that is counted in host_waits like every other wait.
 */
#ifndef BASE_DEVICE_CUDA_H
#define BASE_DEVICE_CUDA_H

#include "base/device.h"

/* cudaStream_t and cudaEvent_t point to these; cudaError_t travels as an int. */
struct CUstream_st;
struct CUevent_st;

struct cuda_slot {
    int64_t generation; /* in which it was stamped last; 0: never */
    int stream;
    struct CUevent_st *event;  /* of that generation */
    int64_t given_ns, when_ns; /* by the host, reached by the stream */
};

struct cuda_pool {
    struct CUevent_st **events;
    int n, used;
};

/* A piece of the ring that a copy has still to empty or to fill. */
struct cuda_piece {
    size_t end; /* in bytes that the ring has ever taken */
    struct CUevent_st *event;
    void *to; /* where a download goes when it has arrived; NULL: an upload */
    const void *from;
    size_t bytes;
};

/* Between capture_begin and capture_end. Ordering inside a graph is by events that no node records:
 * one for each stamp, mark, fork and join, from a pool of their own, since an event that took part in
 * a capture says nothing to anybody outside it. */
struct cuda_capture {
    struct device_graph *graph; /* NULL: nothing is being captured */
    struct CUevent_st **order;  /* [n_slots] of the stamps given so far */
    int *stream;                /* [n_slots] that each was given on */
    struct cuda_pool pool;      /* untimed, kept for the next capture */
    int64_t n;                  /* captures begun */
};

enum { CUDA_RING_BYTES = 64 << 20, CUDA_RING_PIECES = 1024 };

struct cuda_ring {
    unsigned char *memory; /* pinned */
    size_t taken, freed;   /* bytes ever; taken - freed <= CUDA_RING_BYTES */
    struct cuda_piece pieces[CUDA_RING_PIECES];
    int64_t first, next; /* of pieces ever */
};

/* An allocation that a library may map into other processes, and its rounded size. */
struct cuda_export {
    void *memory;
    size_t bytes;
};

struct cuda {
    int index; /* of the GPU, as this process counts */
    int n_streams;
    struct CUstream_st **streams;
    struct cuda_slot *slots;
    int n_slots;
    int64_t generation;
    struct cuda_pool timed, untimed;
    int *stamped; /* [n_slots] slots stamped, not marked, in this generation */
    int n_stamped;
    struct CUevent_st *anchor;
    struct cuda_capture capture;
    struct cuda_ring ring;
    int64_t now_bytes[DEVICE_CLASSES], peak_bytes[DEVICE_CLASSES];
    int64_t all_bytes, peak_all_bytes;
    struct cuda_export *exported; /* [n_exported] */
    int n_exported;
};

/* ends the job in words unless the call went well */
void device_cuda_must(const struct cuda *cuda, unsigned error, const char *call);

int device_cuda_probe(struct device_unit *units, int max, int *n);

int device_cuda_alloc(struct device *device, enum device_class which, size_t bytes, void **out);
void device_cuda_free(struct device *device, enum device_class which, void *memory, size_t bytes);
void device_cuda_memory(struct device *device, struct device_memory *out);

/* Memory that can be exported (device.exportable); false: this driver has none, or none is left. And
 * giving it back; false: it is none of these. Nothing may use it any more. */
bool device_cuda_export_alloc(struct cuda *cuda, size_t bytes, void **out);
bool device_cuda_export_free(struct cuda *cuda, void *memory);

int device_cuda_ring_open(struct cuda *cuda);
void device_cuda_ring_close(struct cuda *cuda);
void device_cuda_ring_settle(struct device *device); /* every stream is empty: downloads arrive */
void device_cuda_upload(struct device *device, int stream, void *to, const void *from,
                        size_t bytes);
void device_cuda_download(struct device *device, int stream, void *to, const void *from,
                          size_t bytes);
void device_cuda_fill(struct device *device, int stream, void *memory, int byte, size_t bytes);

void device_cuda_notify(struct device *device, int stream, void (*call)(void *arg), void *arg);
bool device_cuda_tell(struct device *device, int stream, int32_t *to, int32_t value);
int device_cuda_pin(struct device *device, void *memory, size_t bytes);
void device_cuda_unpin(struct device *device, void *memory);

int device_cuda_reserve(struct device *device, int n_stamps, int n_tasks);
void device_cuda_stamps_close(struct cuda *cuda);
void device_cuda_stamp(struct device *device, int stream, int stamp);
void device_cuda_mark(struct device *device, int stream, int stamp);
void device_cuda_await(struct device *device, int stream, int stamp);
void device_cuda_stamps_settle(
    struct cuda *cuda); /* every stream is empty: stamps get their times */
int64_t device_cuda_when(struct device *device, int stamp);
int64_t device_cuda_given(struct device *device, int stamp);

/* Take an event of the pool, made now where it has no more. */
struct CUevent_st *device_cuda_take_event(struct cuda *cuda, struct cuda_pool *pool,
                                          unsigned flags);
void device_cuda_empty_pool(struct cuda_pool *pool);

/* What the end of one op and the begin of the next take of their stream when nothing is between them
 * and the host is far ahead: given one by one, and as a graph. */
int64_t device_cuda_stamp_cost(struct cuda *cuda, bool as_graph);

int device_cuda_capture_begin(struct device *device);
int device_cuda_capture_end(struct device *device, struct device_graph **out);
void device_cuda_launch_graph(struct device *device, struct device_graph *graph);
void device_cuda_free_graph(struct device *device, struct device_graph *graph);
void device_cuda_capture_stamp(struct cuda *cuda, int stream, int stamp, bool timed);
void device_cuda_capture_await(struct cuda *cuda, int stream, int stamp);
void device_cuda_capture_close(struct cuda *cuda);

int device_cuda_trace_begin(struct device *device);
int device_cuda_trace_end(struct device *device, struct device_record **records, int64_t *n,
                          int64_t *lost);

#endif
