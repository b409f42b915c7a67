#include "driver/device_ask.h"

#include "base/err.h"
#include "driver/gate.h"
#include "driver/point_plan.h"
#include "workloads/kernels/kernels.h"

/* What computes in the host's own memory has one way of doing things. */
static int ask_host(const struct study *study, const struct device_type *device)
{
    if (device->probe != NULL)
        return 0;
    if (study->dtype == GATE_TF32)
        return fail(FAIL_USAGE,
                    "--dtype: device \"%s\" has no tf32: take fp32 or bf16, or --device cuda",
                    device->name);
    if (study->attention != ATTENTION_AUTO)
        return fail(FAIL_USAGE,
                    "--attention: device \"%s\" has one attention, its own: take auto, or --device "
                    "cuda",
                    device->name);
    return 0;
}

/* A graph is what a device runs by itself: nothing of the host can be in it. */
static int ask_graph(const struct study *study, const struct device_type *device)
{
    if (!study->graph)
        return 0;
    if (device->capture_begin == NULL)
        return fail(FAIL_USAGE,
                    "--graph: device \"%s\" has no graphs: leave it out, or --device cuda",
                    device->name);
    if (study->test_delay > 0)
        return fail(FAIL_USAGE,
                    "--graph: --test-delay is a task of the host, which no graph holds: "
                    "leave one of the two out");
    if (study->run_steps > 0)
        return fail(FAIL_USAGE,
                    "--graph: the steps of --run-steps are given out op by op: leave one "
                    "of the two out");
    if (!study->pinned)
        return fail(FAIL_USAGE, "--graph: batches of a graph are copied from page-locked memory, "
                                "found --pinned off: leave one of the two out");
    if (study->block + 1 > DEVICE_ASK_GRAPHS)
        return fail(FAIL_USAGE,
                    "--graph: each step of a block is a graph of its own, found --block %lld, "
                    "wanted at most %d",
                    (long long)study->block, DEVICE_ASK_GRAPHS - 1);
    return 0;
}

int device_ask_model(const struct study *study, const struct model *model)
{
    struct routing routing;
    point_routing(study, &routing);
    if (study->graph && model->experts > 0 && routing_is_dropless(&routing))
        return fail(FAIL_USAGE,
                    "--graph: with --routing learned --capacity none the host waits in every layer "
                    "for counts of rows, which no graph holds: choose a capacity, such as 1.25, or "
                    "leave --graph out");
    return 0;
}

int device_ask(const struct study *study, const struct device_type *device)
{
    int rc = ask_host(study, device);
    return rc != 0 ? rc : ask_graph(study, device);
}
