#include "workloads/pipeline_replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void pipeline_add_up(const struct plan *plan, const double *op_s, double *times)
{
    int at = PIPELINE_BEFORE;
    memset(times, 0, (size_t)pipeline_times(&plan->schedule) * sizeof *times);
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->stream != 0)
            continue;
        if (op->slot > 0)
            at = PIPELINE_NORM; /* what comes behind slots */
        if (op->kind == OP_CLIP)
            at = PIPELINE_UPDATE;
        times[op->slot > 0 ? PIPELINE_SLOTS + op->slot - 1 : at] += op_s[i];
    }
}

static double sum_of(const double *times, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += times[i];
    return sum;
}

/* Slots as the schedule plays them, behind what each stage does before. */
static void play(const struct schedule *schedule, const double *times, double *finish)
{
    int slots = schedule_slots(schedule), n = pipeline_times(schedule), stages = schedule->stages;
    double *seconds = must_alloc((size_t)stages * (size_t)slots, sizeof *seconds);
    double *begin = must_alloc((size_t)stages, sizeof *begin);
    for (int s = 0; s < stages; s++) {
        memcpy(seconds + (ptrdiff_t)s * slots, times + (ptrdiff_t)s * n + PIPELINE_SLOTS,
               (size_t)slots * sizeof *seconds);
        begin[s] = times[(ptrdiff_t)s * n + PIPELINE_BEFORE];
    }
    schedule_play(schedule, begin, seconds, finish);
    free(seconds);
    free(begin);
}

void pipeline_replay(const struct schedule *schedule, const double *times,
                     struct pipeline_stage *stage, struct pipeline_bubble *out)
{
    int slots = schedule_slots(schedule), n = pipeline_times(schedule);
    double norm = 0, *finish = must_alloc((size_t)schedule->stages * (size_t)slots, sizeof *finish);
    memset(out, 0, sizeof *out);
    play(schedule, times, finish);
    for (int s = 0; s < schedule->stages; s++) {
        double at =
            finish[(ptrdiff_t)(s + 1) * slots - 1] + times[(ptrdiff_t)s * n + PIPELINE_NORM];
        norm = at > norm ? at : norm;
        out->compute_s += sum_of(times + (ptrdiff_t)s * n, n) / schedule->stages;
    }
    for (int s = 0; s < schedule->stages; s++) {
        double end = norm + times[(ptrdiff_t)s * n + PIPELINE_UPDATE];
        out->step_s = end > out->step_s ? end : out->step_s;
    }
    out->bubble_s = out->step_s - out->compute_s;
    for (int s = 0; s < schedule->stages && stage != NULL; s++) {
        stage[s].compute_s = sum_of(times + (ptrdiff_t)s * n, n);
        stage[s].bubble_s = out->step_s - stage[s].compute_s;
    }
    free(finish);
}
