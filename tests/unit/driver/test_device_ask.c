/* What a device cannot do is refused by option and device, before anything runs; what it can is not. */
#include "driver/device_ask.h"

#include "base/err.h"
#include "driver/gate.h"
#include "tests/test.h"
#include "workloads/kernels/kernels.h"

static int probe(struct device_unit *units, int max, int *n)
{
    (void)units, (void)max;
    *n = 1;
    return 0;
}

static int begin(struct device *device)
{
    (void)device;
    return 0;
}

static const struct device_type host = {.name = "host"};
static const struct device_type bare = {.name = "bare", .probe = probe};
static const struct device_type able = {.name = "able", .probe = probe, .capture_begin = begin};

static struct study study;

static void takes(const struct device_type *device)
{
    CHECK_EQ(device_ask(&study, device), 0);
}

static void refuses(const struct device_type *device, const char *words)
{
    fail_clear();
    CHECK_EQ(device_ask(&study, device), FAIL_USAGE);
    CHECK_HAS(fail_message(), words);
    fail_clear();
}

static void reset(void)
{
    opt_defaults(study_options, study_n_options, &study);
}

static void graphs(void)
{
    reset();
    study.graph = true;
    takes(&able);
    refuses(&host, "--graph: device \"host\" has no graphs");
    refuses(&bare, "--graph: device \"bare\" has no graphs");
    study.block = DEVICE_ASK_GRAPHS - 1;
    takes(&able);
    study.block = DEVICE_ASK_GRAPHS;
    refuses(&able, "found --block 64, wanted at most 63");
    reset();
    study.graph = true;
    study.test_delay = 0.001;
    refuses(&able, "--test-delay is a task of the host");
    reset();
    study.graph = true;
    study.run_steps = 10;
    refuses(&able, "the steps of --run-steps are given out op by op");
    study.run_steps = 0;
    study.pinned = false;
    refuses(&able, "found --pinned off");
    study.graph = false;
    takes(&able);
}

static void hosts(void)
{
    reset();
    takes(&host);
    study.attention = ATTENTION_FUSED;
    refuses(&host, "device \"host\" has one attention");
    takes(&able);
    reset();
    study.dtype = GATE_TF32;
    refuses(&host, "device \"host\" has no tf32");
    takes(&able);
}

int main(void)
{
    graphs();
    hosts();
    return test_end();
}
