#include "analysis/energy_steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/launches.h"
#include "base/err.h"

/* ---- several launches ---- */

/* Of the joules of a kind of block, or (-1) of communication. NaN where one does not tell. */
static struct stats_interval join_joules(const struct energy_steps *const *launches, int n,
                                         int kind)
{
    struct stats_interval out, *all = must_alloc((size_t)n + 1, sizeof *all);
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        all[i] = kind < 0 ? launches[i]->comm_joules : launches[i]->kind[kind].joules;
        sum += all[i].value;
    }
    launches_join(all, n, 0.95, &out);
    if (isnan(sum))
        out.value = out.low = out.high = NAN;
    free(all);
    return out;
}

static void join_step(struct energy_step *sum, const struct energy_step *one)
{
    if (one->most_joules > sum->most_joules) {
        sum->most_joules = one->most_joules;
        sum->most_rank = one->most_rank;
    }
    sum->power_w += one->power_w;
    sum->step_ns += one->step_ns;
    sum->block_ns += one->block_ns;
    sum->held_share = fmax(sum->held_share, one->held_share);
}

static void divide_step(struct energy_step *sum, int n)
{
    sum->power_w /= n;
    sum->step_ns /= n;
    sum->block_ns /= n;
}

void energy_steps_join(struct energy_steps *out, const struct energy_steps *const *launches, int n)
{
    *out = *launches[0];
    for (int i = 1; i < n; i++) {
        const struct energy_steps *one = launches[i];
        for (int k = 0; k < ENERGY_KINDS; k++)
            join_step(&out->kind[k], &one->kind[k]);
        if (one->bound_rank != out->bound_rank)
            out->bound_rank = -1; /* a mean of several */
        out->limit_w += one->limit_w;
        out->bound_ns += one->bound_ns;
        out->bound_share += one->bound_share;
        out->comm_ns += one->comm_ns;
    }
    for (int k = 0; k < ENERGY_KINDS; k++) {
        divide_step(&out->kind[k], n);
        out->kind[k].joules = join_joules(launches, n, k);
    }
    out->comm_joules = join_joules(launches, n, -1);
    out->limit_w /= n;
    out->bound_ns /= n;
    out->bound_share /= n;
    out->comm_ns /= n;
}

/* ---- words ---- */

const char *energy_kind_name(enum energy_kind kind)
{
    static const char *const names[ENERGY_KINDS] = {"full", "instrumented", "compute-only",
                                                    "comm-only", "graph"};
    return names[kind];
}

static size_t say_bound(char *text, size_t size, const struct energy_steps *e)
{
    const struct energy_step *full = &e->kind[e->full];
    double bound_ms = e->bound_ns / 1e6;
    char whose[32] = "";
    if (e->bound_rank >= 0)
        snprintf(whose, sizeof whose, " (rank %d)", e->bound_rank);
    size_t used = (size_t)snprintf(
        text, size,
        "held by the power limit for %.0f %% of the time of full steps: %.4g J a step%s at %.4g W",
        100.0 * full->held_share, e->bound_ns / 1e9 * e->limit_w, whose, e->limit_w);
    if (used >= size)
        return size;
    if (e->bound_share < 1)
        used += (size_t)snprintf(text + used, size - used, " are %.4g of its %.4g ms", bound_ms,
                                 bound_ms / e->bound_share);
    else
        used += (size_t)snprintf(text + used, size - used, " are all of its %.4g ms (%.4g)",
                                 bound_ms / e->bound_share, bound_ms);
    return used < size ? used : size;
}

static void say_comm(char *text, size_t size, const struct energy_steps *e)
{
    const struct stats_interval *comm = &e->comm_joules;
    if (isnan(comm->value))
        return;
    if (isnan(comm->low) || isnan(comm->high))
        snprintf(text, size, "; communication takes %.3g J a GPU, %.3g ms, without an interval",
                 comm->value, e->comm_ns / 1e6);
    else if (comm->low > 0)
        snprintf(text, size, "; communication takes %.3g J a GPU (%.3g to %.3g), %.3g ms",
                 comm->value, comm->low, comm->high, e->comm_ns / 1e6);
    else
        snprintf(text, size, "; what communication takes is not told from 0: %.3g to %.3g J a GPU",
                 comm->low, comm->high);
}

bool energy_steps_sentence(char *text, size_t size, const struct energy_steps *e)
{
    text[0] = '\0';
    double held = e->kind[e->full].held_share;
    bool known = isfinite(held) && isfinite(e->bound_ns) && isfinite(e->bound_share);
    if (!known || held <= 0.5 || e->bound_share < ENERGY_DECIDES || e->bound_ns <= 0)
        return false;
    size_t used = say_bound(text, size, e);
    say_comm(text + used, size - used, e);
    return true;
}
