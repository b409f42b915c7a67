/*
 * checkpoint_save: a rank's part in saving the training state while it trains.
 *
 * A save has a call, between two steps, on the launch thread; copies, on a stream of their own; and
 * writing, on the writer's thread (workloads/checkpoint_write.h). What the call costs the compute
 * stream depends on the mode:
 *
 *   sync      all of it: the call returns when the checkpoint is published
 *   staged    the copy to host memory; the writer drains it
 *   snapshot  a copy within the device; the rest under the next steps, but for the first eighth, which
 *             leaves while the others enter, so that the disk has work. Needs device memory for it
 *   lazy      nothing but small things: the copies run under the next forward and backward, and the
 *             update of each piece waits for the copies of that piece. Refused where the plan writes
 *             the state before the update
 *
 * Slots bound what is under way: each has host memory for a whole image, page-locked where the device
 * wants that, and the files of the next save, whose layout HDF5 has made before the call. So the call
 * does no HDF5 and no MPI work, and allocates nothing. Two slots where memory allows, else one.
 *
 * When a rank's bytes are fsynced its writer leaves a note of them in the folder, shard-NNNNN.json; when
 * all notes are there rank 0's writer makes the manifest of them, removes them and publishes. So no step
 * waits for it, and it waits for no step. Between blocks saver_poll() brings the ranks together: then
 * each has the same view of what was published or lost, and an ended save's numbers are final.
 *
 * A save that fails on any rank is dropped on all; the last published one stays the newest; that is said
 * by the rank that failed. So is it when no slot can be made ready. Behind a failure that was said others are only
 * counted, until a save is published: the next failure is news again.
 *
 * Where ranks do not see one folder (node-local storage), notes travel by MPI at the next poll, as trainers
 * do that finish saves at step boundaries. One rank of each other node then gives its node's part the name of the
 * step, and only when all have, rank 0 publishes: where one cannot, the save is lost on all. What --checkpoint-keep
 * leaves is rank 0's to say: others remove their parts behind it.
 */
#ifndef DRIVER_CHECKPOINT_SAVE_H
#define DRIVER_CHECKPOINT_SAVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/checkpoint_place.h"
#include "driver/execute.h"
#include "workloads/checkpoint_manifest.h"
#include "workloads/checkpoint_write.h"

enum save_mode { SAVE_SYNC, SAVE_STAGED, SAVE_SNAPSHOT, SAVE_LAZY, SAVE_MODES };
const char *save_mode_name(int mode);
int save_mode_of(const char *word, size_t length); /* -1: no such mode */

enum { SAVER_SLOTS = 2 };

struct saver_config {
    struct execute *execute;      /* opened with saver_stamps() and saver_tasks() */
    const void *parent;           /* address of the point's MPI_Comm */
    const char *root;             /* the folder of checkpoints; made when it is not there */
    bool shared;                  /* one file for all ranks */
    bool needs_snapshot;          /* some mode is snapshot: device memory is taken */
    bool crowded;                 /* more threads than cores: the writer is not nice, as on a CPU */
    int64_t keep;                 /* published checkpoints to keep, 0: all */
    int64_t throttle_bytes_per_s; /* tests: a slow disk */
    struct checkpoint_terms terms, about;
    bool continues; /* the folder is its own already, of an earlier launch */
    int64_t
        begin_step; /* else it may hold checkpoints of these terms up to this step, and no others */
};

enum save_state { SAVE_FREE, SAVE_READY, SAVE_CALLED, SAVE_PUBLISHING, SAVE_PUBLISHED, SAVE_LOST };

struct saver_slot {
    enum save_state state;
    int mode;
    int64_t bytes; /* of the image's three arrays and the small state */
    char folder[CHECKPOINT_PATH];
    struct checkpoint_entry entry;
    struct checkpoint_save save;
    struct checkpoint_chunk *chunks;
    struct checkpoint_manifest head; /* rank 0: of this save */
    char **texts;                    /* rank 0: [world] */
    unsigned char *memory;           /* [3][padded] elements, the small block, what has arrived */
    bool pinned;
    bool placed;  /* who leads on another node: its part has the step's name */
    int notified; /* chunks, by the host, since the device would not tell */
    float *staging[CHECKPOINT_ARRAYS];
    unsigned char *small;
    int64_t step, call_begin_ns, call_end_ns,
        complete_ns;                        /* complete: of rank 0's clock, since call */
    int64_t blocked_ns, held_ns, staged_ns; /* known after the block of the call */
    int64_t noted_ns, together_ns;          /* this rank's note is there; rank 0: all are */
    int64_t oldest; /* rank 0, apart: the oldest that it keeps behind this one */
    struct saver *saver;
    atomic_int noted; /* 0 not yet, 1 written and noted, 2 failed, save.code and .why say how */
    atomic_int publishing; /* rank 0: 0 not yet, 1 published, 2 failed */
    atomic_bool given_up;  /* rank 0: notes are no longer waited for */
    char why[CHECKPOINT_PATH + 256];
};

struct saver {
    struct saver_config config;
    const struct plan *plan;
    struct checkpoint_shard shard;
    struct checkpoint_writer *writer;
    int n_slots;
    struct saver_slot slot[SAVER_SLOTS];
    int64_t group; /* elements of an array that are copied together: one chunk */
    int n_groups;
    void *snapshot[CHECKPOINT_ARRAYS];
    int lazy;                        /* slot whose copies updates wait for in this block, -1 */
    struct checkpoint_shard *shards; /* rank 0 of a shared file: of all ranks */
    int gated;                       /* groups that have been waited for */
    bool *waited;                    /* [n_groups] an update has waited for this one */
    int wanted, wanted_mode;         /* step of the block before which to call, and how; -1: none */
    int called;                      /* slot of the call of this block, -1 */
    struct checkpoint_view view;     /* of the folder */
    int held;           /* who leads: the folder, which is nobody else's meanwhile; -1 */
    bool apart;         /* some rank does not see the folder of rank 0 */
    bool said;          /* a failure has been, and no save published since */
    int64_t host_bytes; /* staging memory of all ranks of the host */
    char file_system[16];
    int64_t failures;                /* saves lost, or skipped when due */
    int64_t n_published, *published; /* steps, ascending */
    int64_t n_known,
        *known; /* of a folder that is apart, or continues: steps that rank 0 had there */
};

/* What execute_open() must reserve for a saver of this plan. */
int saver_stamps(const struct plan *plan, const struct device_type *device);
int saver_tasks(const struct plan *plan, const struct device_type *device);

/* FAIL_USAGE, naming the op, where the plan writes what lazy copies before the update. */
int saver_lazy_allowed(const struct plan *plan);

/* Bytes that one save of a rank stages. */
int64_t saver_bytes(const struct plan *plan);

/*
 * Collective over the point. FAIL_FILE when the folder cannot be written, FAIL_USAGE when another study saves there
 * or has, or when host memory does not suffice for one slot on every rank of a host. Old unpublished folders are removed.
 */
int saver_open(struct saver *saver, const struct saver_config *config);
/*
 * Collective, of a saver whose folder `continues`, once what it goes on with is loaded: so the folder is known to be
 * the right one. On every node parts go that no published step of rank 0 has: of a job that was killed between its
 * nodes' parts and the manifest, or between rank 0's removing and theirs. Where a folder's lock is not held, or the
 * system does not say of all what is published, nothing does.
 */
int saver_drop_orphans(struct saver *saver);
/* Collective: waits for what is under way. Safe on a zeroed struct. */
void saver_close(struct saver *saver);

/* Is the last one that was published still in the folder that this rank sees? Of n_published > 0. */
bool saver_keeps_last(const struct saver *saver);

/* Is there a slot whose files are ready? The same answer on every rank. */
bool saver_can_call(const struct saver *saver);

/*
 * Collective, when a save is due, nothing is under way and no slot is ready: their files could not be made, for
 * want of room as a rule. They are tried again; a save that is skipped for it is a failure.
 */
int saver_make_room(struct saver *saver);

/* The next block of full steps calls the save before its step `step`. */
void saver_want(struct saver *saver, int step, enum save_mode mode);

/* After that block: the slot of the call, its times on the device's timeline set. -1: none. */
int saver_collect(struct saver *saver);

/*
 * Collective, between blocks. Moves saves on; prepares free slots. *ended (may be NULL) is the slot of
 * a save that was published or lost by this poll, -1 none: read its numbers before the next poll.
 */
int saver_poll(struct saver *saver, int *ended);

/* Saves under way. */
int saver_under_way(const struct saver *saver);

#endif
