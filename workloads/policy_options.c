#include "workloads/policy_options.h"

#include <string.h>

#include "base/err.h"

bool policy_overlaps(const char *overlap, const char *what)
{
    size_t length = strlen(what);
    for (const char *at = overlap; *at != '\0'; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncmp(at, what, length) == 0)
            return true;
    return false;
}

static int check_overlap(const char *overlap)
{
    const char *at = overlap;
    if (strcmp(overlap, "none") == 0)
        return 0;
    do {
        size_t length = strcspn(at, ",");
        char word[64] = "";
        memcpy(word, at, length < sizeof word ? length : sizeof word - 1);
        if (length == 0 || !policy_overlaps("grad,param,tp,cp,ep,pp", word))
            return fail(FAIL_USAGE,
                        "--overlap: found \"%s\", wanted some of grad,param,tp,cp,ep,pp, or none",
                        overlap);
        at += length;
    } while (*at++ == ',');
    return 0;
}

int policy_choice_of(int index)
{
    return index == 0 ? CHOICE_AUTO : index == 1 ? CHOICE_ON : CHOICE_OFF;
}

int policy_choose(struct policy *policy, const struct policy_choice *choice)
{
    enum { TF32 = 1, BF16 = 2 };
    int rc = check_overlap(choice->overlap);
    if (rc)
        return rc;
    policy->dtype = choice->dtype == BF16 ? DTYPE_BF16 : DTYPE_F32;
    policy->tf32 = choice->dtype == TF32;
    policy->grad_dtype = choice->grad_dtype == 1 ? DTYPE_BF16 : DTYPE_F32;
    policy->recompute = (enum recompute)choice->recompute;
    policy->recompute_every = (int)choice->recompute_every;
    policy->pack = choice->pack ? CHOICE_ON : CHOICE_OFF;
    policy->head_chunks = (int)choice->head_chunks;
    policy->bucket_bytes = choice->bucket;
    policy->overlap_gradients = policy_overlaps(choice->overlap, "grad");
    policy->overlap_parameters = policy_overlaps(choice->overlap, "param");
    policy->overlap_tensor = policy_overlaps(choice->overlap, "tp");
    policy->overlap_context = policy_overlaps(choice->overlap, "cp");
    policy->overlap_expert = policy_overlaps(choice->overlap, "ep");
    policy->overlap_pipeline = policy_overlaps(choice->overlap, "pp");
    policy->cp_kind = (enum cp_kind)choice->cp_kind;
    policy->tp_chunks = (int)choice->tp_chunks;
    policy->sequence_parallel = choice->sequence_parallel;
    policy->shard_stage = (int)choice->shard_stage;
    policy->fsdp_prefetch = (int)choice->fsdp_prefetch;
    policy->fsdp_reshard = policy_choice_of(choice->fsdp_reshard);
    policy->reduce_every = policy_choice_of(choice->reduce);
    policy->schedule = (enum schedule_kind)choice->schedule;
    policy->virtual_stages = (int)choice->virtual_stages;
    return routing_parse(choice->routing, choice->capacity, &policy->routing);
}
