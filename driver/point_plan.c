#include "driver/point_plan.h"

#include <string.h>

#include "base/err.h"
#include "workloads/policy_options.h"

/* study_parse() has found the words right. */
void point_routing(const struct study *study, struct routing *routing)
{
    routing_defaults(routing);
    if (routing_parse(study->routing, study->capacity, routing) != 0)
        BUG("--routing %s was not refused", study->routing);
    routing->seed = (uint64_t)study->seed;
}

void point_policy(const struct job *job, const struct point *point, struct model *model,
                  struct policy *policy)
{
    *model = job->model;
    model->sequence = point->sequence;
    policy_defaults(policy, model);
    policy->global_batch = point->global_batch;
    policy->micro_batch = point->micro_batch;
    policy->dtype = job->study.dtype == GATE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    policy->tf32 = job->study.dtype == GATE_TF32;
    policy->grad_dtype = job->study.grad_dtype == 1 ? DTYPE_BF16 : DTYPE_F32;
    policy->recompute = (enum recompute)job->study.recompute;
    policy->copy_stream = !job->backend.device->runs_host_tasks;
    policy->pack = job->study.pack ? CHOICE_ON : CHOICE_OFF;
    bool whole = point->degrees.tp == 1 && point->degrees.pp == 1;
    policy->head_chunks = whole ? (int)job->study.head_chunks : 1;
    policy->bucket_bytes = job->study.bucket;
    policy->overlap_gradients = study_overlaps_gradients(&job->study);
    policy->overlap_parameters = study_overlaps(&job->study, "param");
    policy->overlap_tensor = study_overlaps(&job->study, "tp");
    policy->overlap_context = study_overlaps(&job->study, "cp");
    policy->overlap_expert = study_overlaps(&job->study, "ep");
    policy->overlap_pipeline = study_overlaps(&job->study, "pp");
    policy->cp_kind = (enum cp_kind)job->study.cp_kind;
    policy->tp_chunks = point->degrees.tp > 1 ? (int)job->study.tp_chunks : 1;
    policy->sequence_parallel = job->study.sequence_parallel;
    policy->recompute_every = (int)job->study.recompute_every;
    policy->shard_stage = (int)job->study.shard_stage;
    policy->fsdp_prefetch = (int)job->study.fsdp_prefetch;
    policy->fsdp_reshard = policy_choice_of(job->study.fsdp_reshard);
    policy->reduce_every = policy_choice_of(job->study.reduce);
    policy->schedule = (enum schedule_kind)job->study.schedule;
    policy->virtual_stages = (int)job->study.virtual_stages;
    point_routing(&job->study, &policy->routing);
}

int point_plan(const struct job *job, const struct point *point, int rank, struct plan *plan)
{
    struct model model;
    struct policy policy;
    struct layout layout;
    int rc = 0;
    memset(plan, 0, sizeof *plan);
    point_policy(job, point, &model, &policy);
    TRY(layout_init(&layout, point->nodes, point->ranks_per_node, rank, &point->degrees));
    TRY(transformer_plan(plan, &model, &layout, &policy));
out:
    return rc;
}
