#include "driver/execute_input.h"

#include <stdio.h>
#include <unistd.h>

#include "workloads/input_feed.h"

static bool takes_aside(const struct execute *e, enum variant variant)
{
    const struct input *input = e->context.input;
    return variant == VARIANT_COMPUTE && input->feed != NULL &&
           (input->file != NULL || input_feed_has_workers(input->feed));
}

static bool is_metered(const struct execute *e, enum variant variant)
{
    return e->context.input != NULL && e->context.input->feed != NULL && variant != VARIANT_COMM;
}

struct execute_samples_taken execute_input_begin(struct execute *e, enum variant variant,
                                                 int n_steps)
{
    struct execute_samples_taken taken = {e->consumed, 0};
    if (variant == VARIANT_FULL)
        taken.stride = e->plan->global_batch;
    if (!is_metered(e, variant))
        return taken;
    bool aside = takes_aside(e, variant);
    if (aside)
        taken = (struct execute_samples_taken){INPUT_ASIDE_FIRST + e->aside, e->plan->global_batch};
    input_feed_begin(e->context.input->feed, aside ? INPUT_ASIDE : INPUT_TRAIN, taken.first,
                     taken.stride, n_steps);
    return taken;
}

/* Resident set of this process, from /proc: the second number, in pages. */
static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void add_rows(const struct execute *e, enum variant variant, int n_steps,
                     struct execute_samples *samples)
{
    const struct input_step *steps = input_feed_steps(e->context.input->feed);
    struct input_row *rows = RECORD_ADD(&samples->rows.inputs, n_steps);
    int64_t resident = resident_bytes();
    for (int i = 0; i < n_steps; i++)
        rows[i] = (struct input_row){.variant = (i32)variant,
                                     .step = i,
                                     .depth = steps[i].depth,
                                     .waits = steps[i].waits,
                                     .input_ns = steps[i].input_ns,
                                     .wait_ns = steps[i].wait_ns,
                                     .read_bytes = steps[i].read_bytes,
                                     .cpu_ns = steps[i].cpu_ns,
                                     .worker_cpu_ns = steps[i].worker_cpu_ns,
                                     .resident_bytes = resident};
}

void execute_input_end(struct execute *e, enum variant variant, int n_steps,
                       struct execute_samples *samples)
{
    if (!is_metered(e, variant))
        return;
    input_feed_end(e->context.input->feed);
    if (takes_aside(e, variant))
        e->aside += n_steps * e->plan->global_batch;
    if (samples != NULL)
        add_rows(e, variant, n_steps, samples);
}
