#include "driver/calibrate_say.h"

#include <stdio.h>
#include <string.h>

#include "driver/calibrate_parts.h"
#include "workloads/cost.h"

static void say_rate(double rate, const char *unit)
{
    bool flops = strncmp(unit, "FLOP", 4) == 0;
    printf(" %9.2f %s", rate / (flops ? 1e12 : 1e9), flops ? "TFLOP/s" : "GB/s");
}

static void say_row(const struct ceiling_row *row)
{
    printf("%-20s %-36s %-5s %5d %2d %11.2f %11.2f", row->kind, row->shape,
           row->dtype[0] != '\0' ? row->dtype : "-", row->calls, row->n, row->time_us,
           row->least_us);
    say_rate(row->rate, row->unit);
    if (row->level[0] != '\0')
        printf("  %s, %d ranks", row->level, row->group);
    printf("\n");
}

static void say_level(const struct topology_level *level)
{
    printf("# level %-5s %4d ranks  alpha %.2f us  B %.2f GB/s\n", level->name, level->ranks,
           1e6 * level->latency.value, level->bandwidth.value / 1e9);
}

static void say_facts(const struct topology *t)
{
    static const enum fact_kind shares[] = {FACT_GEMM_SHARE, FACT_ATTENTION_SHARE,
                                            FACT_MEMORY_SHARE};
    for (int i = 0; i < t->n_levels; i++)
        say_level(&t->level[i]);
    printf("#");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        printf(" %s %.1f %%", fact_key((int)shares[i]), 100.0 * t->fact[shares[i]].value);
    printf(" launch %.2f us\n", 1e6 * t->fact[FACT_LAUNCH].value);
}

/* The plan replayed twice: with its own ops' times, and by the facts. */
static void say_replay(const struct calibration *c)
{
    struct cost cost = {
        .topology = &c->topology, .ranks_per_node = c->point->ranks_per_node, .tf32 = c->plan.tf32};
    struct cost_step ops, facts;
    cost_plan(&cost, &c->plan, NULL, &facts);
    cost.op_s = c->op_s;
    cost_plan(&cost, &c->plan, NULL, &ops);
    printf("# step measured %.3f ms; replayed with each op as measured alone %.3f ms, ratio %.3f; "
           "by the facts of the machine %.3f ms, ratio %.3f\n",
           1e3 * c->step_s, 1e3 * ops.step_s, ops.step_s / c->step_s, 1e3 * facts.step_s,
           facts.step_s / c->step_s);
}

void calibrate_say(const struct calibration *c)
{
    printf("# calibrate: %s on %s, %d x %d ranks, micro-batch %lld x %lld tokens, global batch "
           "%lld\n",
           c->model.name, c->topology.device, c->point->nodes, c->point->ranks_per_node,
           (long long)c->point->micro_batch, (long long)c->point->sequence,
           (long long)c->point->global_batch);
    printf("# %-18s %-36s %-5s %5s %2s %11s %11s %9s\n", "kind", "shape", "dtype", "calls", "n",
           "time_us", "least_us", "rate");
    for (int64_t i = 0; i < c->n; i++)
        say_row(&c->ceilings[i]);
    say_facts(&c->topology);
    say_replay(c);
}
