#include "driver/point_steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/point_row.h"
#include "driver/watchdog.h"

int point_capture(const struct job *job, struct execute *e, const void *comm, struct point_row *row)
{
    int64_t begin = units_now_ns();
    int rc = 0;
    row->stamp_ns = (double)e->device.stamp_ns;
    row->graph_stamp_ns = (double)e->device.graph_stamp_ns;
    if (!job->study.graph)
        return 0;
    rc = agree_quietly(execute_capture(e, (int)job->study.stamps), comm);
    row->capture_s = (double)(units_now_ns() - begin) / 1e9;
    return rc;
}

static void note_digest(const struct job *job, const struct execute *e, uint64_t digest,
                        struct record_point *rows)
{
    struct event_row *event = RECORD_ADD(&rows->events, 1);
    event->at_ns = units_now_ns() - job->t0_ns;
    event->rank = -1;
    point_text(event->kind, sizeof event->kind, "digest");
    snprintf(event->text, sizeof event->text,
             "state of all ranks after %lld steps: %016llx; the same again on the same machine",
             (long long)e->global_steps, (unsigned long long)digest);
}

int point_digest(const struct job *job, struct execute *e, const void *comm,
                 struct record_point *rows)
{
    if (!job->study.deterministic || job->backend.kernels->no_numerics)
        return 0;
    watchdog_at("digest of the state", e->plan->layout.world, "ranks");
    uint64_t mine = execute_digest(e), digest = 0;
    int64_t *counts = must_alloc((size_t)e->plan->layout.world, sizeof *counts), total = 0;
    void *all = NULL;
    int rc = agree_gather(&mine, sizeof mine, &all, &total, counts, comm);
    if (rc == 0 && e->plan->layout.rank == 0) {
        for (int rank = 0; rank < e->plan->layout.world; rank++)
            digest = rng_bits(digest, ((const uint64_t *)all)[rank]);
        note_digest(job, e, digest, rows);
    }
    free(all);
    free(counts);
    return agree_quietly(rc, comm);
}
