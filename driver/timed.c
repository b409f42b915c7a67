#include "driver/timed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device_timed.h"
#include "base/err.h"
#include "driver/agree.h"
#include "driver/point_row.h"
#include "workloads/cost.h"

const char timed_words[] = "kernels are the cost model's, communication is this machine's";

static bool is_timed(const struct job *job)
{
    return job->backend.kernels->no_numerics;
}

int timed_prepare(struct job *job)
{
    char names[256];
    int rc = 0;
    if (is_timed(job) && job->study.topology[0] == '\0') {
        topology_names(names, sizeof names);
        return fail(
            FAIL_USAGE,
            "--device timed: wanted --topology too, the machine whose time it keeps: one of "
            "%s, a FILE.yaml, or a machine such as \"node:16 gpu:8\"",
            names);
    }
    if (job->study.topology[0] == '\0')
        return 0;
    TRY(topology_load(&job->topology, job->study.topology));
    job->backend.topology = &job->topology;
    for (int i = 0; i < job->points.n && is_timed(job); i++)
        TRY(topology_fits(&job->topology, job->points.point[i].nodes,
                          job->points.point[i].ranks_per_node));
out:
    return rc;
}

int timed_check(const struct job *job, const struct plan *plan)
{
    struct cost cost = {.topology = &job->topology,
                        .ranks_per_node = plan->layout.ranks_per_node,
                        .tf32 = plan->tf32};
    return cost_check(&cost, plan);
}

void timed_ceiling(struct job *job)
{
    static const enum fact_kind peak_of[] = {FACT_FP32, FACT_TF32, FACT_BF16}; /* as --dtype */
    enum fact_kind peak = peak_of[job->study.dtype];
    job->peak_flops = job->topology.fact[peak].value;
    snprintf(job->peak_source, sizeof job->peak_source, "%.40s: %s", job->topology.name,
             fact_key((int)peak));
}

void timed_begin(struct execute *execute)
{
    struct device_lateness before;
    if (execute->kernels->no_numerics)
        device_timed_late(&execute->device, &before);
}

struct report { /* of one rank */
    double late_ms, late_most_ms, critical_ms;
};

static struct report report_of(struct execute *e)
{
    struct device_lateness late;
    struct cost cost = {.topology = e->context.topology,
                        .ranks_per_node = e->plan->layout.ranks_per_node,
                        .tf32 = e->plan->tf32};
    struct cost_step step;
    device_timed_late(&e->device, &late);
    cost_plan(&cost, e->plan, NULL, &step);
    return (struct report){late.mean_ns / 1e6, late.most_ns / 1e6, step.step_s * 1e3};
}

int timed_end(struct execute *execute, const void *parent, struct point_row *row)
{
    void *all = NULL;
    int64_t total = 0, *counts;
    int rc;
    if (!execute->kernels->no_numerics)
        return 0;
    struct report mine = report_of(execute);
    counts = must_alloc((size_t)execute->plan->layout.world, sizeof *counts);
    rc = agree_gather(&mine, sizeof mine, &all, &total, counts, parent);
    const struct report *of = all;
    for (int64_t i = 0; rc == 0 && i < total / (int64_t)sizeof *of; i++) {
        row->late_ms = fmax(row->late_ms, of[i].late_ms);
        row->late_most_ms = fmax(row->late_most_ms, of[i].late_most_ms);
        row->critical_ms = fmax(row->critical_ms, of[i].critical_ms);
    }
    free(all);
    free(counts);
    return rc;
}

void timed_note(struct record_point *rows, int64_t at_ns, const struct job *job)
{
    struct event_row *event = RECORD_ADD(&rows->events, 1);
    event->at_ns = at_ns;
    event->rank = -1;
    point_text(event->kind, sizeof event->kind, "note");
    snprintf(event->text, sizeof event->text, "timed: %s; %s", job->topology.name, timed_words);
}
