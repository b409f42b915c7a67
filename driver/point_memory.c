#include "driver/point_memory.h"

#include <stdio.h>

#include "base/err.h"
#include "collectives/comm_check.h"
#include "driver/point_row.h"
#include "driver/timed.h"

static const double gib = 1073741824.0;

/* Of a host: the program, MPI, and what measuring keeps. */
static const int64_t of_program = INT64_C(192) << 20;

void point_memory(const struct job *job, const struct plan *plan, bool scratch, struct memory *out)
{
    struct memory_added added = {.scratch = scratch,
                                 .log_steps = (int)job->study.block + 1,
                                 .proof_bytes = comm_prove_bytes(POINT_PROVE_ELEMENTS)};
    memory_of_plan(out, plan, &added);
}

static bool wants_scratch(const struct job *job)
{
    return job->study.scratch != SCRATCH_RECREATE && !job->backend.kernels->no_numerics;
}

/* ---- does it fit ---- */

static int gpu_is_taken(const struct discover_rank *rank, int r, double need)
{
    return fail(
        FAIL_USAGE,
        "memory: a rank needs %.1f GiB, and of the %.1f GiB of %s of rank %d (%s) %.1f were "
        "free when the job began: end what holds the rest (nvidia-smi names it), or take "
        "another GPU",
        need / gib, (double)rank->device_bytes / gib, rank->device, r, rank->device_bus,
        (double)rank->device_free_bytes / gib);
}

static int gpu_fits(const struct job *job, const struct point *point, const struct memory *m,
                    int communicators)
{
    double need = (double)(m->bytes + memory_beside(communicators));
    char most[256];
    memory_say(m, memory_most(m), gib, "GiB", most, sizeof most);
    for (int r = 0; r < job->size; r++) {
        const struct discover_rank *rank = &job->found.ranks[r];
        if (point_rank(job, point, r) < 0 || rank->device_bytes <= 0)
            continue;
        if (need <= (double)rank->device_bytes && rank->device_free_bytes > 0 &&
            need > (double)rank->device_free_bytes)
            return gpu_is_taken(rank, r, need);
        if (need <= (double)rank->device_bytes)
            continue;
        return fail(FAIL_USAGE,
                    "memory: a rank needs %.1f GiB and %s of rank %d has %.1f GiB; %s: take a "
                    "smaller model, micro-batch or sequence, recompute, or split over more GPUs",
                    need / gib, rank->device, r, (double)rank->device_bytes / gib, most);
    }
    return 0;
}

int64_t point_memory_foreign(const struct job *job, const struct point *point, int *rank)
{
    int64_t most = 0;
    for (int r = 0; r < job->size; r++) {
        const struct discover_rank *it = &job->found.ranks[r];
        int64_t held = it->device_bytes - it->device_free_bytes;
        if (point_rank(job, point, r) < 0 || it->device_free_bytes <= 0 ||
            held <= POINT_MEMORY_OF_DRIVER || held <= most)
            continue;
        most = held;
        *rank = r;
    }
    return most;
}

static int timed_device_fits(const struct job *job, const struct memory *m)
{
    double has = job->topology.fact[FACT_MEMORY].value;
    char most[256];
    if ((double)m->bytes <= has)
        return 0;
    memory_say(m, memory_most(m), 1e9, "GB", most, sizeof most);
    return fail(FAIL_USAGE,
                "memory: a rank needs %.1f GB and a device of %s has %.1f GB; %s: take a smaller "
                "model or micro-batch, recompute, or more ranks where they share the state",
                (double)m->bytes / 1e9, job->topology.name, has / 1e9, most);
}

/* Copies for the variants are a choice; what is left without them decides. */
static const char *advice(const struct memory *m, int ranks, const struct discover_host *host)
{
    double bare = (double)ranks * (double)(m->bytes - m->item[MEMORY_SCRATCH]);
    if (bare <= (double)host->memory_bytes)
        return "take --scratch recreate, which does without copies of the state";
    return "take a smaller model or micro-batch, recompute, or fewer ranks a host";
}

static int hosts_fit(const struct job *job, const struct point *point, const struct memory *m)
{
    char most[256];
    memory_say(m, memory_most(m), gib, "GiB", most, sizeof most);
    for (int h = 0; h < job->found.n_hosts; h++) {
        const struct discover_host *host = &job->found.hosts[h];
        int members = point->ranks * point->copies;
        int ranks = host->ranks < members ? host->ranks : members;
        double need = (double)ranks * (double)m->bytes;
        if (host->memory_bytes > 0 && need > (double)host->memory_bytes)
            return fail(
                FAIL_USAGE,
                "memory: host %s has %.1f GiB and %d rank%s there need%s %.1f GiB; a rank %.1f "
                "GiB, %s: %s",
                host->name, (double)host->memory_bytes / gib, ranks, ranks == 1 ? "" : "s",
                ranks == 1 ? "s" : "", need / gib, (double)m->bytes / gib, most,
                advice(m, ranks, host));
    }
    return 0;
}

int point_fits(const struct job *job, const struct point *point, const struct plan *plan)
{
    struct memory memory;
    bool on_gpu = job->backend.device->probe != NULL;
    point_memory(job, plan, wants_scratch(job) && !on_gpu, &memory);
    if (job->backend.kernels->no_numerics) {
        int rc = timed_check(job, plan);
        return rc != 0 ? rc : timed_device_fits(job, &memory);
    }
    return on_gpu ? gpu_fits(job, point, &memory, plan->n_channels)
                  : hosts_fit(job, point, &memory);
}

/* ---- what it took ---- */

static struct memory_row *add_row(struct record_point *to, int rank, const char *class,
                                  int64_t peak, int64_t predicted)
{
    struct memory_row *row = RECORD_ADD(&to->memory, 1);
    row->rank = rank;
    point_text(row->class, sizeof row->class, class);
    row->peak_bytes = peak;
    row->predicted_bytes = predicted;
    return row;
}

void point_memory_rows(const struct job *job, const struct plan *plan, struct execute *execute,
                       struct record_point *to)
{
    struct device_memory measured;
    struct memory predicted;
    int rank = plan->layout.rank;
    point_memory(job, plan, execute_has_scratch(execute), &predicted);
    execute->device.type->memory(&execute->device, &measured);
    measured.peak_bytes[DEVICE_TEMPORARIES] -= execute->kernel_bytes;
    for (int c = 0; c < DEVICE_CLASSES; c++) {
        struct memory_row *row = add_row(to, rank, device_class_name(c), measured.peak_bytes[c],
                                         predicted.class_bytes[c]);
        int top = predicted.top[c];
        row->largest_bytes = top < 0 ? 0 : predicted.largest[top].bytes;
        memory_say_part(&predicted, c, row->largest, sizeof row->largest);
    }
    if (execute->kernel_bytes > 0)
        add_row(to, rank, "kernels", execute->kernel_bytes, -1);
    add_row(to, rank, "reserved", measured.reserved_bytes,
            execute->kernel_bytes > 0 ? -1 : predicted.bytes);
    add_row(to, rank, "training", measured.reserved_bytes - predicted.item[MEMORY_SCRATCH],
            execute->kernel_bytes > 0 ? -1 : predicted.bytes - predicted.item[MEMORY_SCRATCH]);
    bool on_gpu = job->backend.device->probe != NULL;
    add_row(to, rank, "process", measured.process_bytes,
            job->backend.kernels->no_numerics
                ? -1
                : predicted.bytes + execute->kernel_bytes +
                      (on_gpu ? memory_beside(execute_n_comms(execute)) : of_program));
}
