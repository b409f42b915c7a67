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

/* ---- transfers ---- */

static double *moves_of(const struct schedule *s, double *moves, int direction, int end)
{
    return moves + (ptrdiff_t)(direction * PIPELINE_ENDS + end) * s->micro_batches * s->chunks;
}

void pipeline_list_moves(const struct plan *plan, const double *op_s, double *moves)
{
    int n[2][PIPELINE_ENDS] = {{0}};
    for (int i = 0; i < pipeline_moves(&plan->schedule); i++)
        moves[i] = -1;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        enum coll_kind kind = op->shape.coll.coll.kind;
        if (op->kind != OP_COLLECTIVE || op->shape.coll.axis != AXIS_PP ||
            (kind != COLL_SEND && kind != COLL_RECV))
            continue;
        int direction = op->shape.coll.direction, end = kind == COLL_RECV;
        bool alone = !op->with_next && (i == 0 || !plan->ops[i - 1].with_next);
        moves_of(&plan->schedule, moves, direction, end)[n[direction][end]++] =
            alone ? op_s[i] : -1;
    }
}

static bool waits_for(const struct op *op, int earlier)
{
    for (int i = 0; i < op->n_waits; i++)
        if (op->wait[i] == earlier)
            return true;
    return false;
}

bool pipeline_blocks(const struct plan *plan)
{
    for (int i = 0, sent = -1; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        bool sends = op->kind == OP_COLLECTIVE && op->shape.coll.coll.kind == COLL_SEND;
        if (sent < 0 && sends && op->shape.coll.axis == AXIS_PP)
            sent = i;
        else if (sent >= 0 && op->stream == 0)
            return waits_for(op, sent);
    }
    return false;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The n-th that a stage sends meets the n-th that the next one receives. */
double pipeline_transfer(const struct schedule *s, const double *moves)
{
    int each = s->micro_batches * s->chunks, all = pipeline_moves(s), n = 0;
    double *found = must_alloc((size_t)s->stages * 2 * (size_t)each, sizeof *found), median = 0;
    for (int stage = 0; stage < s->stages; stage++)
        for (int i = 0; i < 2 * each; i++) {
            int direction = i / each;
            int to = (stage + (direction == SCHEDULE_DOWN ? 1 : s->stages - 1)) % s->stages;
            const double *here = moves + (ptrdiff_t)stage * all,
                         *there = moves + (ptrdiff_t)to * all;
            double sent = here[(direction * PIPELINE_ENDS + PIPELINE_SENT) * each + i % each];
            double came = there[(direction * PIPELINE_ENDS + PIPELINE_RECEIVED) * each + i % each];
            if (sent >= 0 && came >= 0)
                found[n++] = sent < came ? sent : came;
        }
    qsort(found, (size_t)n, sizeof *found, ascending);
    if (n > 0)
        median = found[n / 2];
    free(found);
    return median;
}

/* ---- replay ---- */

static double sum_of(const double *times, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += times[i];
    return sum;
}

/* Slots as the schedule plays them, behind what each stage does before. */
static void play(const struct schedule *schedule, const double *times,
                 struct schedule_transfer transfer, double *finish)
{
    int slots = schedule_slots(schedule), n = pipeline_times(schedule), stages = schedule->stages;
    double *seconds = must_alloc((size_t)stages * (size_t)slots, sizeof *seconds);
    double *begin = must_alloc((size_t)stages, sizeof *begin);
    for (int s = 0; s < stages; s++) {
        memcpy(seconds + (ptrdiff_t)s * slots, times + (ptrdiff_t)s * n + PIPELINE_SLOTS,
               (size_t)slots * sizeof *seconds);
        begin[s] = times[(ptrdiff_t)s * n + PIPELINE_BEFORE];
    }
    schedule_play(schedule, begin, seconds, transfer, finish);
    free(seconds);
    free(begin);
}

void pipeline_replay(const struct schedule *schedule, const double *times,
                     struct schedule_transfer transfer, struct pipeline_stage *stage,
                     struct pipeline_bubble *out)
{
    int slots = schedule_slots(schedule), n = pipeline_times(schedule);
    double norm = 0, *finish = must_alloc((size_t)schedule->stages * (size_t)slots, sizeof *finish);
    memset(out, 0, sizeof *out);
    play(schedule, times, transfer, finish);
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
