#include "driver/pipeline_bubble.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/agree.h"
#include "workloads/cost.h"
#include "workloads/pipeline_replay.h"

/* What a rank tells rank 0, before its times. */
struct share {
    double timed; /* steps that were timed */
    double layers, parameters, activation_bytes, in_flight;
};
enum { SHARE = sizeof(struct share) / sizeof(double) };

/* Mean seconds of each op over the kept steps, and those in the last of them; returns how many there
 * were. */
static int mean_ops(const struct plan *plan, const struct record_point *local, double *op_s,
                    double *last_s)
{
    int *n = must_alloc((size_t)plan->n_ops + 1, sizeof *n), most = 0;
    for (int64_t i = 0; i < local->ops.n; i++) {
        const struct op_row *row = &local->ops.rows[i];
        if (row->variant != VARIANT_FULL)
            continue;
        op_s[row->op] += (double)row->duration_ns / 1e9;
        last_s[row->op] = (double)row->duration_ns / 1e9;
        most = ++n[row->op] > most ? n[row->op] : most;
    }
    for (int i = 0; i < plan->n_ops; i++)
        op_s[i] = n[i] > 0 ? op_s[i] / n[i] : 0;
    free(n);
    return most;
}

static void model_ops(const struct execute *e, double *op_s)
{
    struct cost cost = {.topology = e->context.topology,
                        .ranks_per_node = e->plan->layout.ranks_per_node,
                        .tf32 = e->plan->tf32};
    for (int i = 0; i < e->plan->n_ops; i++)
        if (e->plan->ops[i].kind != OP_COLLECTIVE)
            op_s[i] = cost_op_s(&cost, &e->plan->ops[i]);
}

static double layers_of(const struct plan *plan)
{
    int64_t layers = 0;
    int before = -1;
    for (int i = 0; i < plan->n_tensors; i++) {
        if (plan->tensors[i].unit != before && plan->tensors[i].decay &&
            plan->tensors[i].name[0] == 'h' && plan->tensors[i].name[1] == '.')
            layers++;
        before = plan->tensors[i].unit;
    }
    return (double)layers;
}

/* What all ranks send, read on rank 0. */
struct pipelines {
    const struct plan *plan;
    const double *all; /* [world][SHARE + times of ops, times of the model, transfers] */
    int times, moves, width;
    bool modelled, blocks;
};

static const struct share *share_of(const struct pipelines *p, int rank)
{
    return (const struct share *)(const void *)(p->all + (ptrdiff_t)rank * p->width);
}

/* What a transfer takes in the pipeline of which `rank` is the first stage. */
static double transfer_of(const struct pipelines *p, int rank)
{
    const struct group *pp = &p->plan->layout.group[AXIS_PP];
    double *moves = must_alloc((size_t)pp->size * (size_t)p->moves, sizeof *moves);
    for (int s = 0; s < pp->size; s++)
        memcpy(moves + (ptrdiff_t)s * p->moves,
               p->all + (ptrdiff_t)(rank + s * pp->stride) * p->width + SHARE + 2 * p->times,
               (size_t)p->moves * sizeof *moves);
    double seconds = pipeline_transfer(&p->plan->schedule, moves);
    free(moves);
    return seconds;
}

/* Replay that pipeline, with transfers that take so long. */
static void replay(const struct pipelines *p, int rank, int which, double transfer_s,
                   struct pipeline_stage *stage, struct pipeline_bubble *out)
{
    const struct group *pp = &p->plan->layout.group[AXIS_PP];
    struct schedule_transfer transfer = {transfer_s, p->blocks};
    double *times = must_alloc((size_t)pp->size * (size_t)p->times, sizeof *times);
    for (int s = 0; s < pp->size; s++) {
        const double *of = p->all + (ptrdiff_t)(rank + s * pp->stride) * p->width + SHARE;
        for (int i = 0; i < p->times; i++)
            times[(ptrdiff_t)s * p->times + i] = of[which * p->times + i];
    }
    pipeline_replay(&p->plan->schedule, times, transfer, stage, out);
    free(times);
}

static void add_stage(struct stage_row *row, const struct pipelines *p, int rank,
                      const struct pipeline_stage *stage)
{
    const struct share *share = share_of(p, rank);
    row->ranks++;
    row->layers = (i32)share->layers;
    row->in_flight = (i32)share->in_flight;
    row->parameters = (i64)share->parameters;
    if ((double)row->activation_bytes < share->activation_bytes)
        row->activation_bytes = (i64)share->activation_bytes;
    row->compute_ms += stage->compute_s * 1e3;
    row->bubble_ms += stage->bubble_s * 1e3;
}

/* With the mean times of the parts over all slots of all ranks. */
static double closed_form(const struct pipelines *p)
{
    const struct schedule *s = &p->plan->schedule;
    int slots = schedule_slots(s);
    struct schedule_slot *list = must_alloc((size_t)slots, sizeof *list);
    double part[SCHEDULE_PARTS] = {0};
    for (int rank = 0; rank < p->plan->layout.world; rank++) {
        const double *times = p->all + (ptrdiff_t)rank * p->width + SHARE + PIPELINE_SLOTS;
        schedule_list(s, rank / p->plan->layout.group[AXIS_PP].stride % s->stages, list);
        for (int i = 0; i < slots; i++)
            part[list[i].part] += times[i];
    }
    free(list);
    return schedule_bubble(s, part);
}

static void record(const struct pipelines *p, struct record_point *rows)
{
    const struct layout *layout = &p->plan->layout;
    const struct group *pp = &layout->group[AXIS_PP];
    struct pipeline_stage *stage = must_alloc((size_t)pp->size, sizeof *stage);
    struct stage_row *to = RECORD_ADD(&rows->stages, pp->size);
    double n = 0, step = 0, bubble = 0, compute = 0, critical = 0, transfer = 0, moved = 0;
    for (int s = 0; s < pp->size; s++)
        to[s] = (struct stage_row){.stage = s};
    for (int rank = 0; rank < layout->world; rank++) {
        struct pipeline_bubble out;
        if (rank / pp->stride % pp->size != 0)
            continue;
        replay(p, rank, 0, 0, stage, &out);
        n++;
        step += out.step_s, bubble += out.bubble_s, compute += out.compute_s;
        for (int s = 0; s < pp->size; s++)
            add_stage(&to[s], p, rank + s * pp->stride, &stage[s]);
        double takes = transfer_of(p, rank);
        replay(p, rank, 0, takes + rows->point.late_ms / 1e3, NULL, &out);
        transfer += takes, moved += out.step_s;
        if (!p->modelled)
            continue;
        replay(p, rank, 1, 0, NULL, &out);
        critical = fmax(critical, out.step_s * 1e3);
    }
    for (int s = 0; s < pp->size; s++) {
        to[s].compute_ms /= to[s].ranks;
        to[s].bubble_ms /= to[s].ranks;
    }
    rows->point.replay_ms = step / n * 1e3;
    rows->point.replay_moved_ms = moved / n * 1e3;
    rows->point.transfer_ms = transfer / n * 1e3;
    rows->point.bubble_ms = bubble / n * 1e3;
    rows->point.bubble_ideal = bubble / compute;
    rows->point.bubble_closed = closed_form(p);
    if (p->modelled)
        rows->point.critical_ms = critical;
    free(stage);
}

static void fill(const struct execute *e, const struct record_point *local, double *mine, int times)
{
    const struct plan *plan = e->plan;
    double *op_s = must_alloc((size_t)plan->n_ops + 1, sizeof *op_s);
    double *last_s = must_alloc((size_t)plan->n_ops + 1, sizeof *last_s);
    struct share share = {.timed = mean_ops(plan, local, op_s, last_s),
                          .layers = layers_of(plan),
                          .parameters = (double)plan->n_parameters,
                          .activation_bytes = (double)plan->bytes[BUFFER_ACTIVATION],
                          .in_flight =
                              schedule_in_flight(&plan->schedule, plan->layout.group[AXIS_PP].me)};
    *(struct share *)(void *)mine = share;
    pipeline_add_up(plan, op_s, mine + SHARE);
    pipeline_list_moves(plan, last_s, mine + SHARE + 2 * times);
    if (e->kernels->no_numerics) {
        model_ops(e, op_s);
        pipeline_add_up(plan, op_s, mine + SHARE + times);
    }
    free(op_s);
    free(last_s);
}

int pipeline_bubble(const struct execute *e, const struct record_point *local, const void *parent,
                    struct record_point *rows)
{
    const struct plan *plan = e->plan;
    if (plan->schedule.stages == 1)
        return 0;
    struct pipelines p = {.plan = plan,
                          .times = pipeline_times(&plan->schedule),
                          .moves = pipeline_moves(&plan->schedule),
                          .modelled = e->kernels->no_numerics,
                          .blocks = pipeline_blocks(plan)};
    p.width = SHARE + 2 * p.times + p.moves;
    double *mine = must_alloc((size_t)p.width, sizeof *mine);
    int64_t *counts = must_alloc((size_t)plan->layout.world, sizeof *counts), total = 0;
    void *all = NULL;
    fill(e, local, mine, p.times);
    int rc = agree_gather(mine, p.width * (int64_t)sizeof *mine, &all, &total, counts, parent);
    p.all = all;
    if (rc == 0 && plan->layout.rank == 0 && share_of(&p, 0)->timed > 0)
        record(&p, rows);
    free(all);
    free(counts);
    free(mine);
    return rc;
}
