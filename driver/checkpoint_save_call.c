/* The call of a save, between two steps: no HDF5, no MPI but in mode sync, no allocation. */
#include "driver/checkpoint_save_part.h"

#include <stddef.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/watchdog.h"

static const int buffer_of[CHECKPOINT_ARRAYS] = {BUFFER_MASTER, BUFFER_MOMENT1, BUFFER_MOMENT2};

static const unsigned char *state_of(const struct saver *s, int array)
{
    int buffer = array == CHECKPOINT_MASTER ? s->plan->master : buffer_of[array];
    return s->config.execute->memory[buffer] + s->shard.begin * (int64_t)sizeof(float);
}

/* Values of the host as they are before step `step` of the block, and the scalars of the device. */
static void take_small(struct saver *s, struct saver_slot *slot, int step)
{
    struct execute *e = s->config.execute;
    int64_t batch = s->plan->global_batch;
    struct checkpoint_small small = {.step = e->global_steps + step,
                                     .consumed = e->consumed + step * batch,
                                     .micro_steps = e->micro_steps,
                                     .global_batch = batch};
    small.batches = small.consumed / batch;
    checkpoint_file_small(&small, slot->small);
    slot->head.step = slot->step = small.step;
    slot->head.small = small;
    e->device.type->download(&e->device, DEVICE_COMPUTE,
                             slot->small + offsetof(struct checkpoint_small, scalars),
                             e->memory[BUFFER_SCALAR], sizeof small.scalars);
}

/* ---- copies ---- */

static void chunk_arrived(void *arg)
{
    struct saver_slot *slot = arg;
    checkpoint_writer_ready(slot->saver->writer, &slot->save);
}

static void chunk_arrived_as_kernel(void *arg, void *native)
{
    (void)native;
    chunk_arrived(arg);
}

static void notify(struct execute *e, struct saver_slot *slot)
{
    const struct device_type *type = e->device.type;
    if (type->notify != NULL)
        type->notify(&e->device, e->save_stream, chunk_arrived, slot);
    else
        type->launch(&e->device, e->save_stream, chunk_arrived_as_kernel, slot);
}

/* Of the first `n` chunks. */
static void tell(struct execute *e, struct saver_slot *slot, int n)
{
    int32_t *to = (int32_t *)(void *)slot->save.arrived;
    if (slot->notified == 0 && e->device.type->tell(&e->device, e->save_stream, to, n))
        return;
    for (; slot->notified < n; slot->notified++)
        notify(e, slot);
}

/* Elements of a shard in [first, first + n) of its image, which is padded. */
static int64_t elements(const struct saver *s, int64_t first, int64_t n)
{
    int64_t left = s->shard.n - first;
    return left < 0 ? 0 : left < n ? left : n;
}

/* Chunks are in the order of groups, and of arrays in a group. */
static void copy_groups(struct saver *s, struct saver_slot *slot, int from_group, int to_group)
{
    struct execute *e = s->config.execute;
    for (int g = from_group, i = g * CHECKPOINT_ARRAYS; g < to_group; g++) {
        for (int a = 0; a < CHECKPOINT_ARRAYS; a++, i++) {
            const struct checkpoint_chunk *chunk = &slot->chunks[i];
            int64_t n = elements(s, chunk->first, chunk->n);
            const unsigned char *from =
                slot->mode == SAVE_SNAPSHOT ? s->snapshot[a] : state_of(s, a);
            if (n > 0)
                e->device.type->download(
                    &e->device, e->save_stream, slot->staging[a] + chunk->first,
                    from + chunk->first * (int64_t)sizeof(float), (size_t)n * sizeof(float));
            if (slot->save.arrived == NULL)
                notify(e, slot);
        }
        if (slot->save.arrived != NULL)
            tell(e, slot, i);
        if (slot->mode == SAVE_LAZY)
            device_mark(&e->device, e->save_stream, saver_group_stamp(s, g, SAVER_COPIED));
    }
}

static void take_snapshot(struct saver *s, int from_group, int to_group)
{
    struct execute *e = s->config.execute;
    int64_t first = from_group * s->group, n = elements(s, first, to_group * s->group - first);
    for (int a = 0; a < CHECKPOINT_ARRAYS && n > 0; a++)
        e->device.type->upload(&e->device, DEVICE_COMPUTE, (float *)s->snapshot[a] + first,
                               state_of(s, a) + first * (int64_t)sizeof(float),
                               (size_t)n * sizeof(float));
}

/* Groups to the host once what is queued on the compute stream so far is done. */
static void copy_after(struct saver *s, struct saver_slot *slot, enum saver_stamp stamp,
                       int from_group, int to_group)
{
    struct execute *e = s->config.execute;
    int mark = e->save_stamp + (int)stamp;
    device_mark(&e->device, DEVICE_COMPUTE, mark);
    e->device.type->await(&e->device, e->save_stream, mark);
    copy_groups(s, slot, from_group, to_group);
}

/* A snapshot's first groups leave it while the others enter, or the disk would wait for all of it. */
static void copy_state(struct saver *s, struct saver_slot *slot)
{
    int ahead = slot->mode == SAVE_SNAPSHOT ? saver_groups_ahead(s) : 0;
    if (slot->mode == SAVE_SNAPSHOT) {
        take_snapshot(s, 0, ahead);
        copy_after(s, slot, SAVER_AHEAD, 0, ahead);
        take_snapshot(s, ahead, s->n_groups);
    }
    copy_after(s, slot, SAVER_STATE, ahead, s->n_groups);
}

/* ---- sync: everything, now ---- */

static void finish_now(struct saver *s, struct saver_slot *slot)
{
    struct execute *e = s->config.execute;
    int64_t waits = e->device.host_waits;
    e->device.type->sync(&e->device);
    e->waits_before += e->device.host_waits - waits; /* this wait is the save's, not the fence's */
    checkpoint_save_wait(s->writer, &slot->save);
    while (slot->state == SAVE_CALLED || slot->state == SAVE_PUBLISHING) {
        if (saver_advance(s, false, NULL) != 0)
            die(FAIL_COMM, "%s", fail_message());
        if (slot->state == SAVE_CALLED || slot->state == SAVE_PUBLISHING)
            units_sleep_ns(50000);
    }
}

/* ---- the call ---- */

static struct saver_slot *ready_slot(struct saver *s)
{
    for (int i = 0; i < s->n_slots; i++)
        if (s->slot[i].state == SAVE_READY)
            return &s->slot[i];
    BUG("a save was wanted while no slot is ready");
}

static void call(struct saver *s, struct saver_slot *slot, int step)
{
    struct execute *e = s->config.execute;
    const struct device_type *type = e->device.type;
    int base = e->save_stamp;
    slot->state = SAVE_CALLED;
    slot->notified = 0;
    slot->head.about = s->config.about;
    checkpoint_terms_add(&slot->head.about, "mode", save_mode_name(slot->mode));
    checkpoint_writer_give(s->writer, &slot->save);
    saver_queue_publishing(s, slot);
    type->stamp(&e->device, DEVICE_COMPUTE, base + SAVER_BEGIN);
    take_small(s, slot, step);
    copy_state(s, slot);
    type->stamp(&e->device, e->save_stream, base + SAVER_STAGED);
    if (slot->mode == SAVE_STAGED || slot->mode == SAVE_SYNC)
        type->await(&e->device, DEVICE_COMPUTE, base + SAVER_STAGED);
    if (slot->mode == SAVE_SYNC)
        finish_now(s, slot);
    type->stamp(&e->device, DEVICE_COMPUTE, base + SAVER_END);
}

void saver_step(void *arg, int step)
{
    struct saver *s = arg;
    if (step != s->wanted)
        return;
    struct saver_slot *slot = ready_slot(s);
    watchdog_at("checkpoint", step, save_mode_name(s->wanted_mode));
    slot->mode = s->wanted_mode;
    s->wanted = -1;
    s->called = (int)(slot - s->slot);
    s->lazy = slot->mode == SAVE_LAZY ? s->called : -1;
    s->gated = 0;
    memset(s->waited, 0, (size_t)s->n_groups * sizeof *s->waited);
    slot->call_begin_ns = units_now_ns();
    call(s, slot, step);
    slot->call_end_ns = units_now_ns();
}

/* The update of a piece waits for the copies of the last group that it touches. */
void saver_update(void *arg, int index)
{
    struct saver *s = arg;
    struct execute *e = s->config.execute;
    const struct device_type *type = e->device.type;
    const struct plan_piece *piece = &s->plan->pieces[index];
    int64_t last = piece->offset + piece->count - 1 - s->shard.begin;
    if (s->lazy < 0 || s->gated == s->n_groups || last < 0 ||
        piece->offset >= s->shard.begin + s->shard.n)
        return;
    last = last < s->shard.n ? last : s->shard.n - 1;
    int group = (int)(last / s->group);
    if (group < s->gated)
        return;
    type->stamp(&e->device, DEVICE_COMPUTE, saver_group_stamp(s, group, SAVER_HELD));
    type->await(&e->device, DEVICE_COMPUTE, saver_group_stamp(s, group, SAVER_COPIED));
    type->stamp(&e->device, DEVICE_COMPUTE, saver_group_stamp(s, group, SAVER_FREED));
    s->waited[group] = true;
    s->gated = group + 1;
}

int saver_collect(struct saver *s)
{
    struct execute *e = s->config.execute;
    const struct device_type *type = e->device.type;
    int called = s->called, base = e->save_stamp;
    s->called = s->lazy = s->wanted = -1;
    if (called < 0)
        return -1;
    struct saver_slot *slot = &s->slot[called];
    int64_t begin = type->when(&e->device, base + SAVER_BEGIN);
    slot->held_ns = 0;
    for (int g = 0; g < s->n_groups; g++)
        if (s->waited[g])
            slot->held_ns += type->when(&e->device, saver_group_stamp(s, g, SAVER_FREED)) -
                             type->when(&e->device, saver_group_stamp(s, g, SAVER_HELD));
    slot->blocked_ns = type->when(&e->device, base + SAVER_END) - begin + slot->held_ns;
    slot->staged_ns = type->when(&e->device, base + SAVER_STAGED) - begin;
    return called;
}
