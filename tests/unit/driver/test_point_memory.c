/* A point that a GPU cannot hold is refused before anything is allocated, and one that it could hold if others
 * did not is refused in other words; what others hold is known to the rank. */
#include "driver/point_memory.h"

#include <string.h>

#include "base/device.h"
#include "base/err.h"
#include "tests/test.h"
#include "workloads/transformer.h"

enum { RANKS = 3 };

static struct job job;
static struct discover_rank ranks[RANKS];
static struct device_type gpu;
static struct plan plan;
static const struct point pair = {.nodes = 1, .ranks = 2, .ranks_per_node = 2, .copies = 1};
static double need; /* bytes of a rank, libraries of a GPU included */

/* That there is one makes it a device that is chosen. */
static int no_units(struct device_unit *units, int max, int *n)
{
    (void)units, (void)max;
    return *n = 0;
}

static void open_job(void)
{
    static struct model model;
    static struct layout layout;
    struct degrees degrees = {0};
    struct policy policy;
    struct memory memory;
    CHECK_EQ(model_load(&model, "tiny"), 0);
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&layout, 1, 1, 0, &degrees), 0);
    policy_defaults(&policy, &model);
    policy.global_batch = 4;
    policy.micro_batch = 2;
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), 0);
    gpu = device_cpu;
    gpu.probe = no_units;
    job.backend.device = &gpu;
    job.backend.kernels = &kernels_cpu;
    job.size = RANKS;
    job.points.ranks_per_node = RANKS;
    job.found.ranks = ranks;
    point_memory(&job, &plan, false, &memory);
    need = (double)(memory.bytes + memory_beside(plan.n_channels));
}

/* All three GPUs have `all` bytes; of that of rank `which`, `free_bytes` are free. */
static int fits(double all, int which, double free_bytes)
{
    fail_clear();
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct discover_rank){.device = "NVIDIA H200", .device_bus = "0000:1a:00.0"};
        ranks[r].device_bytes = (long long)all;
        ranks[r].device_free_bytes = (long long)(r == which ? free_bytes : all);
    }
    return point_fits(&job, &pair, &plan);
}

static void refusals(void)
{
    CHECK_EQ(fits(need + 1, -1, 0), 0);
    CHECK_EQ(fits(need - 1, -1, 0), FAIL_USAGE);
    CHECK_HAS(fail_message(), "take a smaller model");
    CHECK_EQ(fits(2 * need, 1, need + 1), 0);
    CHECK_EQ(fits(2 * need, 1, need - 1), FAIL_USAGE);
    CHECK_HAS(fail_message(), "of rank 1 (0000:1a:00.0)");
    CHECK_HAS(fail_message(), "were free when the job began");
    CHECK_EQ(fits(2 * need, 1, 0), 0);        /* not known */
    CHECK_EQ(fits(2 * need, 2, need - 1), 0); /* no rank of the point */
}

static void foreign(void)
{
    int rank = -1;
    const double gib = 1073741824.0;
    fits(100 * gib, 1, 99.5 * gib);
    CHECK_EQ(point_memory_foreign(&job, &pair, &rank), 0);
    CHECK_EQ(rank, -1);
    fits(100 * gib, 1, 60 * gib);
    CHECK_EQ(point_memory_foreign(&job, &pair, &rank), 40 * (int64_t)gib);
    CHECK_EQ(rank, 1);
    fits(100 * gib, 2, 60 * gib);
    CHECK_EQ(point_memory_foreign(&job, &pair, &rank), 0);
    fits(100 * gib, 1, 0);
    CHECK_EQ(point_memory_foreign(&job, &pair, &rank), 0);
}

int main(void)
{
    open_job();
    refusals();
    foreign();
    plan_release(&plan);
    return test_end();
}
