/*
 * comm: communicators, one per axis and direction, behind one table.
 *
 * A communicator is bound to one stream of one device: post() puts a group of operations on that
 * stream, and the stream's order is the call order. Completion is a stamp on the stream; waiting is
 * device.await(). So the executor, which alone touches device and communicators together, needs
 * nothing else. "mpi" turns each post into non-blocking MPI calls made by the device's progress
 * thread; "nccl" puts each post on the stream as one NCCL group (comm_nccl.h); "check" wraps any
 * other type: it poisons outputs, and compares the call order (kind, dtype, count, peer) of all
 * members.
 *
 * No MPI type appears here: `parent` is the address of an MPI_Comm holding the ranks of the point.
 */
#ifndef COLLECTIVES_COMM_H
#define COLLECTIVES_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/device.h"
#include "collectives/coll.h"
#include "topologies/layout.h"

struct comm_call {
    struct coll coll;
    const void *send; /* device memory; == recv: in place (all-reduce, reduce, broadcast) */
    void *recv;       /* all-gather is in place when send is this rank's share of recv */
};

struct comm;

/* How communicators are going to be used, all of a process. */
struct comm_promise {
    bool deterministic; /* the same bits every time: algorithm, protocol, channels are pinned */
    bool graph; /* some of them post inside captures alone (device.capture_begin), graphs never
                   run beside each other, and nobody else posts on those meanwhile */
};

/*
 * How a communicator may be made: at most how many thread blocks (CTAs) its kernels take, 0: the
 * library's own; whether the library saves blocks (COMM_FEW_BLOCKS) or goes without wherever copy engines
 * can do a call (COMM_NO_BLOCKS; NCCL: of windows alone); and which memory it is told of beforehand.
 */
enum comm_enrolment { ENROL_NOTHING, ENROL_BUFFERS, ENROL_WINDOWS, COMM_ENROLMENTS };
enum { COMM_SETUP_TEXT = 24 };
enum comm_blocks { COMM_BLOCKS_OWN, COMM_FEW_BLOCKS, COMM_NO_BLOCKS, COMM_BLOCKS };
struct comm_setup {
    int max_ctas;
    enum comm_blocks blocks;
    enum comm_enrolment enrolment;
};

/*
 * "MEMORY[,BLOCKS]": nothing, buffers or windows; few, none, or a number of blocks at most, from 1 to 64.
 * "nothing" is the library's own way. FAIL_USAGE in one sentence; comm_setup_for: also of a type that cannot.
 */
struct comm_type;
int comm_setup_parse(struct comm_setup *out, const char *text);
int comm_setup_for(struct comm_setup *out, const struct comm_type *type, const char *text);
void comm_setup_text(const struct comm_setup *setup, char text[static COMM_SETUP_TEXT]);

struct comm_type {
    const char *name;
    bool host_memory; /* moves host memory (device "cpu"), not device memory */
    /* Once in a process, before anything else of the library and before threads are started.
     * `host` names the host that this rank pretends to be on, NULL: where it is. NULL: nothing. */
    int (*prepare)(const char *host);
    /* Before prepare(). FAIL_ABSENT when this version cannot keep it. NULL: nothing to do for it. */
    int (*expect)(const struct comm_promise *promise);
    int (*open)(struct comm *comm, const void *parent, int max_calls);
    void (*close)(struct comm *comm);
    /* Of communicators that are opened from now on. FAIL_ABSENT where the version cannot: of this
     * rank nothing is changed then. NULL: there is nothing to set up. */
    int (*set_up)(const struct comm_setup *setup);
    /* Tell the library of memory that calls will use, until close: as buffers of this rank, or
     * collectively as windows of all members, with equal sizes. `memory` is the start of what
     * alloc() gave on an exportable device. FAIL_ABSENT where the version has no such thing,
     * FAIL_COMM where it refuses. NULL: nothing to tell. */
    int (*enrol)(struct comm *comm, void *memory, size_t bytes, enum comm_enrolment how);
    /* Whether a call of this kind, type and count could be posted; its tables, of all-to-all-v, are
     * not read. FAIL_USAGE where the library cannot count so far. NULL: it always can. */
    int (*takes)(const struct comm *comm, const struct coll *coll);
    void (*post)(struct comm *comm, const struct comm_call *calls, int n_calls);
    int (*check)(struct comm *comm); /* after sync: 0, or FAIL_* kept by fail(); may be NULL */
    /* At any time, without waiting and of this rank alone: 0 while nothing has failed, or FAIL_* kept
     * by fail(). NULL: failures end the job where they happen. */
    int (*alive)(struct comm *comm);
    /* Which algorithm, protocol and channels the library takes for what is posted while watching:
     * outside any fence. One line per call it saw, '\n' between; both may be NULL. */
    void (*watch)(struct comm *comm, bool on);
    void (*describe)(const struct comm *comm, char *text, size_t size);
};

struct comm {
    const struct comm_type *type;
    void *state;
    struct device *device;
    int stream;
    struct group group;
    enum axis axis;
    int max_calls;        /* the most calls that are outstanding at once */
    int64_t posted_calls; /* counted by post() itself, from what it hands to the library */
    double posted_bytes;  /* bytes this rank sends at least: coll.h, last column */
};

extern const struct comm_type comm_mpi;
extern const struct comm_type comm_nccl; /* where the build found NCCL */

/* By name: "mpi", "nccl"; "auto": "mpi". FAIL_ABSENT for one not built, FAIL_USAGE for an unknown
 * one. comm_find_for takes with "auto" what serves the device, and refuses what does not. */
int comm_find(const char *name, const struct comm_type **out);
int comm_find_for(const struct device_type *device, const char *name, const struct comm_type **out);

/* The version of a library behind a communicator: "nccl" as "2.28.9", or "none". Static text. */
const char *comm_nccl_version(void);

/*
 * Collective over `parent`. Every member of the parent calls it, each with its own group of the
 * axis; groups partition the parent. max_calls: the most calls that are outstanding at once.
 * FAIL_COMM on errors.
 */
int comm_open(struct comm *comm, const struct comm_type *type, const void *parent,
              struct device *device, int stream, enum axis axis, const struct group *group,
              int max_calls);
void comm_close(struct comm *comm); /* collective; safe on a zeroed struct */

/* Post a group of calls on the communicator's stream. Counts calls and bytes. */
void comm_post(struct comm *comm, const struct comm_call *calls, int n_calls);

#endif
