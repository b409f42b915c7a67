/*
 * comm_nccl: what the files of the "nccl" communicator share, and what a test asks of it.
 *
 * One NCCL communicator per axis and direction, on the stream that the device gave it; one post is one
 * group. The host's program is the order of launches: NCCL 2.26 and later keep it by themselves over
 * all communicators of a GPU when NCCL_LAUNCH_ORDER_IMPLICIT=1, which prepare() sets; on older ones
 * each group waits for the one before it, on whatever communicator that was ("serialised"); and so it
 * is where steps become graphs (comm_nccl_expect.c says why).
 *
 * Opening never hangs: ncclCommInitRankConfig runs in a thread of its own, and the members tell each
 * other by MPI how it went, within a deadline. It is not opened with blocking = 0, since then NCCL
 * starts a thread for every group that is posted later, inside the fence, and the stamp behind the
 * post could come before its kernels.
 *
 * Algorithm, protocol and channels come from NCCL's own profiler interface, version 4 (NCCL 2.27 and
 * later), compiled into the program and called by NCCL through NCCL_PROFILER_PLUGIN=STATIC_PLUGIN;
 * nothing is active in it but between watch(on) and watch(off).
 */
#ifndef COLLECTIVES_COMM_NCCL_H
#define COLLECTIVES_COMM_NCCL_H

#include "collectives/comm.h"

enum { NCCL_OLDEST = 21800, NCCL_ORDERED = 22600, NCCL_TELLS = 22700 }; /* as NCCL_VERSION_CODE */

/* What a version cannot do is refused in a sentence: FAIL_ABSENT. */
int comm_nccl_check_version(int version);

/* Environment of a process whose ranks pretend to be on `host`: variables that are set already stay,
 * but for NCCL_HOSTID. */
void comm_nccl_environment(int version, const char *host);

/* What is promised of all communicators, as environment; variables that are set already stay.
 * FAIL_ABSENT when the version cannot keep it. expect: of the version that is loaded. */
int comm_nccl_promise(const struct comm_promise *promise, int version);
int comm_nccl_expect(const struct comm_promise *promise);

/* Whether the environment lets NCCL order launches on several communicators by itself. */
bool comm_nccl_orders_itself(void);

/* Collective over `parent` (an MPI_Comm): the library's communicator of this rank's group, NULL for a
 * group of one. FAIL_COMM on all members when one fails; a deadline that passes ends the job. */
struct ncclComm;
int comm_nccl_open(struct ncclComm **out, const void *parent, const struct comm *comm,
                   const char *name, int gpu);

/* comm_type.set_up and enrol. */
int comm_nccl_set_up(const struct comm_setup *setup);
int comm_nccl_enrol(struct ncclComm *comm, const char *axis, void *memory, size_t bytes,
                    enum comm_enrolment how);

/* The calls of one communicator that NCCL spoke of while it was watched, by name. */
void nccl_told_watch(bool on);
void nccl_told_open(const char *name); /* the next communicator that NCCL makes is this one */
void nccl_told_write(const char *name, char *text, size_t size);
void nccl_told_close(const char *name);

#endif
