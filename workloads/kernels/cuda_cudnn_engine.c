/* What a configuration is: its engine, what that says of itself, and its settings. */
#include "workloads/kernels/cuda_cudnn.h"

#include <cudnn.h>
#include <string.h>

/* An engine whose notes cannot be read is not known to have an order. */
static bool says_order(cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t said[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n,
                                 said) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (said[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return true;
}

static int64_t engine_number(cudnnBackendDescriptor_t config, bool *fixed_order)
{
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0, index = -1;
    *fixed_order = false;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != 0)
        return -1;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                 &index) == CUDNN_STATUS_SUCCESS)
        *fixed_order = says_order(engine);
    cudnnBackendDestroyDescriptor(engine);
    return index;
}

static void read_knob(cudnnBackendDescriptor_t choice, struct cudnn_engine *out)
{
    cudnnBackendKnobType_t type;
    int64_t n = 0, value = 0;
    if (cudnnBackendGetAttribute(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                                 &n, &type) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &n,
                                 &value) != CUDNN_STATUS_SUCCESS)
        return;
    out->knob[out->n_knobs] = (int)type;
    out->value[out->n_knobs++] = value;
}

/* Knobs that cannot be read are left out: then two configurations may look alike, and one is used. */
static void read_knobs(cudnnBackendDescriptor_t config, struct cudnn_engine *out)
{
    cudnnBackendDescriptor_t choice[ENGINE_KNOBS];
    int64_t n = 0;
    int made = 0;
    while (made < ENGINE_KNOBS &&
           cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice[made]) == 0)
        made++;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &n,
                                 choice) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int64_t i = 0; i < n && i < made; i++)
        read_knob(choice[i], out);
    for (int i = 0; i < made; i++)
        cudnnBackendDestroyDescriptor(choice[i]);
}

void cudnn_config_read(void *config, struct cudnn_config *out)
{
    memset(out, 0, sizeof *out);
    out->config = config;
    out->engine.index = (int)engine_number(config, &out->fixed_order);
    read_knobs(config, &out->engine);
}

bool cudnn_engine_same(const struct cudnn_engine *a, const struct cudnn_engine *b)
{
    return a->index == b->index && a->n_knobs == b->n_knobs &&
           memcmp(a->knob, b->knob, sizeof a->knob) == 0 &&
           memcmp(a->value, b->value, sizeof a->value) == 0;
}
