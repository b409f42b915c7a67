/*
 * checkpoint_save_part: what the files of checkpoint_save share. Nobody else includes it.
 *
 * Stamps of a saver, from execute.save_stamp on: five, then three of each group.
 */
#ifndef DRIVER_CHECKPOINT_SAVE_PART_H
#define DRIVER_CHECKPOINT_SAVE_PART_H

#include "driver/checkpoint_save.h"

enum saver_stamp {
    SAVER_BEGIN,  /* compute: the call begins */
    SAVER_END,    /* compute: it goes on */
    SAVER_AHEAD,  /* compute: the first groups may be copied to the host (orders only) */
    SAVER_STATE,  /* compute: all of them may (orders only) */
    SAVER_STAGED, /* saver's stream: all copies have arrived */
    SAVER_STAMPS
};
enum saver_group_stamp {
    SAVER_COPIED, /* saver's stream: the group has arrived (orders only) */
    SAVER_HELD,   /* compute: an update begins to wait for it, */
    SAVER_FREED,  /* and goes on */
    SAVER_GROUP_STAMPS
};

static inline int saver_group_stamp(const struct saver *s, int group, enum saver_group_stamp which)
{
    return s->config.execute->save_stamp + SAVER_STAMPS + SAVER_GROUP_STAMPS * group + (int)which;
}

/* Elements of an array of `padded` that are copied together on this device. */
int64_t saver_group_elements(const struct device_type *device, int64_t padded);
int saver_groups(const struct plan *plan, const struct device_type *device);
/* Groups of a snapshot that go on to the host while the rest of it is still being taken. */
int saver_groups_ahead(const struct saver *s);

/* Files and folder of the next save in this slot, unless it is in use. Collective. */
int saver_prepare(struct saver *s, struct saver_slot *slot);

void saver_drop_files(const struct saver *s, const struct saver_slot *slot);

/* Behind the save of a rank: is its file where it wrote it? False, and save.code and .why say so. */
bool saver_check_file(struct saver_slot *slot);

/* A rank's note of what it has written; and the jobs of the writer, behind the save, that leave it and on
 * rank 0 publish. */
void saver_note_path(const struct saver *s, const struct saver_slot *slot, char *out, size_t size);
void saver_queue_publishing(struct saver *s, struct saver_slot *slot);

/* On the writer's thread of rank 0, slot->texts being there. */
void saver_publish(struct saver_slot *slot);

/*
 * Of node-local folders. The part of each other node, written by all its ranks, gets the name of the step, or FAIL_FILE on
 * the rank that could not; and takes it off again, when the save is lost elsewhere. Behind a published save those below
 * the oldest step that rank 0 keeps go, of this launch and of those before. Collective: the steps that rank 0's folder
 * has, into s->known; n_known is -1 where the system would not say of all.
 */
int saver_place_part(struct saver *s, struct saver_slot *slot);
void saver_take_part_back(struct saver *s, struct saver_slot *slot);
void saver_prune_parts(struct saver *s, int64_t oldest);
int saver_learn(struct saver *s);

/* Collective: bring saves on by one step of what they wait for. */
int saver_advance(struct saver *s, bool prepare, int *ended);

/* The hooks of the executor. */
void saver_step(void *arg, int step);
void saver_update(void *arg, int piece);

#endif
