/*
 * checkpoint_manifest: what makes files a checkpoint.
 *
 *   D/step-0000000120/   manifest.json  rank-00000.h5 ... (or state.h5)     published
 *   D/saving-0.tmp/      the same while it is being written                 not a checkpoint
 *   D/removing-120.tmp/  the same while it is being removed                 not a checkpoint
 *   D/damaged-0000000120/  could not be read by the run that went on        not a checkpoint
 *
 * The manifest names every file with its size, and every part of a tensor in it with its hash
 * (XXH3, 64 bits), the small state, and the terms that must be the same to go on. It is written last:
 * files fsynced, manifest fsynced, folder fsynced, folder renamed, its parent fsynced. So a checkpoint
 * is there whole, or not at all. A folder step-N without a manifest is none. The manifest carries a
 * hash of its own content.
 *
 * Each rank describes its shard as a text (checkpoint_shard_text), rank 0 joins them.
 * Errors are FAIL_FILE with path and the system's words.
 */
#ifndef WORKLOADS_CHECKPOINT_MANIFEST_H
#define WORKLOADS_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/checkpoint_file.h"
#include "workloads/checkpoint_write.h"

/* One shard as a manifest has it. */
struct checkpoint_entry {
    char file[32];
    int64_t file_bytes;
    uint64_t frame; /* hash of the file's frame; of a shared file all shards together have one */
    struct checkpoint_shard shard;
    struct checkpoint_place place;
    uint64_t small_hash, *hash; /* [n_parts][CHECKPOINT_ARRAYS], owned */
};

struct checkpoint_manifest {
    int64_t step;
    bool shared; /* one file for all */
    int n;       /* shards = ranks that saved */
    struct checkpoint_entry *entry;
    struct checkpoint_small small; /* of rank 0 */
    struct checkpoint_terms terms; /* must be the same */
    struct checkpoint_terms about; /* need not be: layout, dtype, device, mode, ... */
    bool damaged;                  /* could not be read, and its own bytes say so */
};
void checkpoint_manifest_release(struct checkpoint_manifest *manifest); /* safe on zeroed */

/* malloc'd text of what this rank has saved. */
char *checkpoint_shard_text(const struct checkpoint_entry *entry);

/*
 * Write the manifest of n shards (their texts in the order of ranks) into `folder`, then publish it as
 * D/step-N. An existing D/step-N is refused. Where the last step fails, the fsync of D, it is taken back: what is said
 * to be lost is no checkpoint. Called on the writer's thread: the failure is in *why.
 */
int checkpoint_publish(const char *root, const char *folder, const struct checkpoint_manifest *head,
                       const char *const *texts, int n, char *why, size_t why_size);

/*
 * Read and check D/step-N/manifest.json. Names what is missing or damaged: FAIL_FILE, with out->damaged where
 * the content proves it and not where the system would not give it. FAIL_ABSENT: of a newer version.
 */
int checkpoint_manifest_read(struct checkpoint_manifest *out, const char *folder);
/* The same from a text; `folder` is for sentences. */
int checkpoint_manifest_parse(struct checkpoint_manifest *out, const char *text,
                              const char *folder);
/* malloc'd content of the manifest file, so that one rank can read it for all; empty or cut off as it may be. What
 * the system would not give is tried again. */
int checkpoint_manifest_text(const char *folder, char **text);

/* ---- folders ---- */

/*
 * The published steps in `root`, ascending; malloc'd. 0 of them when there are none or no such
 * folder. A folder without a manifest is not counted.
 */
int checkpoint_steps(const char *root, int64_t **steps);
/* The same, -1 where the system would not say of all: what is not in it is not published. */
int checkpoint_steps_known(const char *root, int64_t **steps);
/* Of all folders step-N, with a manifest or without, as another node's part is. */
int checkpoint_parts(const char *root, int64_t **steps);
/* The largest N of these; -1: none. */
int64_t checkpoint_newest_part(const char *root);
void checkpoint_step_folder(const char *root, int64_t step, char *out, size_t size);

/*
 * What --resume-from means: a folder of a step itself, or the newest step in it. FAIL_FILE "no
 * checkpoint". `previous` (may be NULL) gets the folder of the one before, or "".
 */
int checkpoint_find(const char *given, char *folder, size_t size, char *previous,
                    size_t previous_size);

/* Remove a folder that holds a checkpoint's files: it is renamed, then its manifest goes first. Best
 * effort. */
void checkpoint_remove(const char *folder);

/* A published step that cannot be read becomes D/damaged-N: no checkpoint, and not in the way of the next save
 * of that step. By any rank that sees it, any number of them at once; false: it is still there. */
bool checkpoint_set_aside(const char *root, int64_t step);
bool checkpoint_is_aside(const char *root, int64_t step); /* it was */

/* Remove all but the newest `keep` published steps (0: keep all). In two parts: they lose their names, which costs
 * nothing, and the oldest that stays is returned (-1: none, or all are kept); and what has lost its name goes. */
void checkpoint_prune(const char *root, int64_t keep);
int64_t checkpoint_retire_old(const char *root, int64_t keep);
void checkpoint_retire(const char *root, int64_t step); /* one, with a manifest or without */
void checkpoint_sweep(const char *root);

/* fsync of a folder: 0, or an errno. */
int checkpoint_sync_folder(const char *folder);

#endif
