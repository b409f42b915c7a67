/* What a saver will need of a plan, and whether lazy can be: before anything is open. */
#include "driver/checkpoint_save_part.h"

#include <string.h>

#include "base/err.h"
#include "workloads/touch.h"

static const char *const mode_names[SAVE_MODES] = {"sync", "staged", "snapshot", "lazy"};

const char *save_mode_name(int mode)
{
    return mode_names[mode];
}

int save_mode_of(const char *word, size_t length)
{
    for (int i = 0; i < SAVE_MODES; i++)
        if (strlen(mode_names[i]) == length && strncmp(mode_names[i], word, length) == 0)
            return i;
    return -1;
}

/* ---- sizes, before anything is open ---- */

/* On a GPU at most 64: each costs the launch thread some calls, and a stream takes about a thousand before
 * it makes that thread wait. */
int64_t saver_group_elements(const struct device_type *device, int64_t padded)
{
    const int64_t unit = (1 << 20) / (int64_t)sizeof(float);
    int64_t least = 16 * unit, share = (padded + 63) / 64;
    if (device->runs_host_tasks)
        return 4 * unit;
    return share > least ? (share + unit - 1) / unit * unit : least;
}

int saver_groups(const struct plan *plan, const struct device_type *device)
{
    struct checkpoint_shard shard;
    checkpoint_shard_make(plan, &shard);
    int64_t padded = checkpoint_padded(&shard), group = saver_group_elements(device, padded);
    checkpoint_shard_release(&shard);
    return (int)((padded + group - 1) / group);
}

/* So few that their copies to the host cost the snapshot an eighth of its time where both kinds of copy
 * are as fast; enough that the disk has work from the start. */
int saver_groups_ahead(const struct saver *s)
{
    return (s->n_groups + 7) / 8;
}

int saver_stamps(const struct plan *plan, const struct device_type *device)
{
    return SAVER_STAMPS + SAVER_GROUP_STAMPS * saver_groups(plan, device);
}

int saver_tasks(const struct plan *plan, const struct device_type *device)
{
    return 16 + saver_groups(plan, device) * (2 * CHECKPOINT_ARRAYS + 1);
}

int64_t saver_bytes(const struct plan *plan)
{
    struct checkpoint_shard shard;
    checkpoint_shard_make(plan, &shard);
    int64_t padded = checkpoint_padded(&shard);
    checkpoint_shard_release(&shard);
    return CHECKPOINT_ARRAYS * padded * (int64_t)sizeof(float) + 2 * CHECKPOINT_ALIGN;
}

int saver_lazy_allowed(const struct plan *plan)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        struct touch touch[TOUCHES];
        int n = op->kind == OP_ADAMW ? 0 : touch_op(plan, op, touch);
        for (int t = 0; t < n; t++) {
            int buffer = touch[t].t.buffer;
            if (touch[t].writes &&
                (buffer == plan->master || buffer == BUFFER_MOMENT1 || buffer == BUFFER_MOMENT2))
                return fail(FAIL_USAGE,
                            "--checkpoint-mode: lazy: op %d (%s) of this plan writes the state "
                            "outside the update, so its copies could not run under the step: take "
                            "staged or snapshot",
                            i, op_name((int)op->kind));
        }
    }
    return 0;
}
