#include "driver/point_row.h"

#include <stdio.h>
#include <string.h>

#include "driver/dataset.h"
#include "workloads/transformer.h"

void point_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%.*s", (int)size - 1, from);
}

void point_event(struct record_point *rows, const char *kind, int64_t at_ns, const char *words)
{
    struct event_row *event = RECORD_ADD(&rows->events, 1);
    event->at_ns = at_ns;
    event->rank = -1;
    point_text(event->kind, sizeof event->kind, kind);
    point_text(event->text, sizeof event->text, words);
}

int point_rank(const struct job *job, const struct point *point, int rank)
{
    int node = rank / job->points.ranks_per_node, local = rank % job->points.ranks_per_node;
    bool member = node < point->nodes * point->copies && local < point->ranks_per_node;
    return member ? node % point->nodes * point->ranks_per_node + local : -1;
}

static bool is_member(const struct job *job, const struct point *point, int rank)
{
    return point_rank(job, point, rank) >= 0;
}

/* Members of the point on the same host with the same affinity as this one. */
static int sharers(const struct job *job, const struct point *point, int rank)
{
    const struct discover_rank *me = &job->found.ranks[rank];
    int n = 0;
    for (int r = 0; r < job->size; r++) {
        const struct discover_rank *other = &job->found.ranks[r];
        n += is_member(job, point, r) && other->host == me->host &&
             strcmp(other->cpus, me->cpus) == 0;
    }
    return n;
}

static int members_on(const struct job *job, const struct point *point, int host)
{
    int n = 0;
    for (int r = 0; r < job->size; r++)
        n += is_member(job, point, r) && job->found.ranks[r].host == host;
    return n;
}

/* With GPUs: fewer cores near a GPU than ranks that launch from there, or several ranks on one GPU.
 * Else: members that share a set of cores, or all members on a host, need more cores than there are. */
static bool oversubscribed(const struct job *job, const struct point *point)
{
    if (job->backend.device->probe != NULL) {
        for (int r = 0; r < job->size; r++)
            if (is_member(job, point, r) &&
                (job->found.ranks[r].oversubscribed || job->found.ranks[r].device_shared))
                return true;
        return false;
    }
    for (int r = 0; r < job->size; r++)
        if (is_member(job, point, r) &&
            sharers(job, point, r) * job->threads > job->found.ranks[r].n_cores)
            return true;
    for (int h = 0; h < job->found.n_hosts; h++)
        if (members_on(job, point, h) * job->threads > job->found.hosts[h].cores)
            return true;
    return false;
}

int point_bound_to_one_core(const struct job *job, const struct point *point)
{
    int n = 0;
    for (int rank = 0; rank < job->size; rank++)
        n += is_member(job, point, rank) && job->found.ranks[rank].n_cores == 1;
    return n;
}

void point_describe(const struct job *job, const struct point *point, const struct plan *plan,
                    const struct model *model, int order, struct point_row *p)
{
    const struct degrees *d = &plan->layout.degrees;
    p->point = point->index;
    p->launch = job->launch;
    p->order = order;
    p->nodes = point->nodes;
    p->ranks = point->ranks;
    p->ranks_per_node = point->ranks_per_node;
    p->copies = point->copies;
    p->tp = d->tp, p->pp = d->pp, p->cp = d->cp, p->ep = d->ep, p->dp = d->dp, p->shard = d->shard;
    layout_text(&plan->layout, p->parallel, sizeof p->parallel);
    point_text(p->scaling, sizeof p->scaling,
               job->study.scaling == SCALING_WEAK ? "weak" : "strong");
    point_text(p->model, sizeof p->model, model->name);
    point_text(p->dtype, sizeof p->dtype,
               job->study.dtype == GATE_TF32 ? "tf32" : dtype_name((int)plan->dtype));
    point_text(p->device, sizeof p->device, job->backend.device->name);
    point_text(p->comm, sizeof p->comm, job->backend.comm->name);
    if (job->backend.kernels->no_numerics)
        point_text(p->topology, sizeof p->topology, job->topology.name);
    dataset_name(point->input, p->input, sizeof p->input);
    p->experts = (int)model->experts;
    if (model->experts > 0)
        snprintf(p->routing, sizeof p->routing, "%s, capacity %s", job->study.routing,
                 job->study.capacity);
    p->global_batch = point->global_batch;
    p->micro_batch = point->micro_batch;
    p->micro_steps = plan->micro_batches;
    static const char *const cp_kinds[] = {
        [CP_RING] = "ring", [CP_ALL_GATHER] = "allgather", [CP_ULYSSES] = "ulysses"};
    if (d->cp > 1)
        point_text(p->cp_kind, sizeof p->cp_kind, cp_kinds[job->study.cp_kind]);
    if (d->pp > 1) {
        point_text(p->schedule, sizeof p->schedule, schedule_name((int)plan->schedule.kind));
        p->virtual_stages = plan->schedule.chunks;
    }
    p->sequence = point->sequence;
    p->positions_per_step = point->global_batch * point->sequence;
    p->parameters = model_parameters(model);
    p->model_flops_per_step = (double)point->global_batch * model_flops_per_sequence(model);
    p->peak_flops_per_rank = job->peak_flops;
    point_text(p->peak_source, sizeof p->peak_source, job->peak_source);
    p->emulated = job->emulated && point->nodes * point->copies > 1;
    p->oversubscribed = plan->layout.rank == 0 && oversubscribed(job, point);
    p->input_entropy = input_path(point->input) == NULL ? input_entropy() : 0;
    p->deterministic = job->study.deterministic;
    point_text(p->gate, sizeof p->gate, "off");
}
