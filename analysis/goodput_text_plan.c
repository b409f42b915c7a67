/* What is to be expected, as text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/goodput_text_part.h"

static void count(struct table *t, double n)
{
    char text[32];
    snprintf(text, sizeof text, "%.10g", n);
    table_text(t, isfinite(n) ? text : "");
}

static void may_be_outside(struct table *t, const struct goodput_choice *c, int which, double x)
{
    if (c->outside >> which & 1u)
        table_text(t, "outside");
    else
        table_digits(t, x, 5);
}

static void row_key(struct table *t, const struct goodput_plan *plan, const struct goodput_row *row)
{
    if (plan->known.kind >= 0)
        table_int(t, plan->known.kind);
    else
        table_text(t, "");
    count(t, row->at.nodes);
    table_text(t, plan->known.mode);
}

static void from(struct table *t, const struct goodput_figure *figure)
{
    table_text(t, goodput_source_name(figure->source));
}

static void print_costs(FILE *to, const struct goodput_plan *plan)
{
    struct table t;
    fprintf(to, "#\n# costs of the plan, s, and where each is from\n");
    table_open(&t, "kind nodes mode d_b_s low high from d_c_s low high from detect_s low high from "
                   "restart_s low high from step_s low high from");
    for (int r = 0; r < plan->n_rows; r++) {
        const struct goodput_row *row = &plan->rows[r];
        if (!row->planned)
            continue;
        row_key(&t, plan, row);
        goodput_cells(&t, &row->at.cost.x, 1.0, 4);
        from(&t, &row->at.cost);
        goodput_cells(&t, &row->at.complete.x, 1.0, 4);
        from(&t, &row->at.complete);
        goodput_cells(&t, &row->at.detect.x, 1.0, 4);
        from(&t, &row->at.detect);
        goodput_cells(&t, &row->at.restart.x, 1.0, 4);
        from(&t, &row->at.restart);
        goodput_cells(&t, &row->at.step.x, 1.0, 4);
        from(&t, &row->at.step);
    }
    table_close(&t, to);
}

static void print_intervals(FILE *to, const struct goodput_plan *plan)
{
    struct table t;
    fprintf(to,
            "#\n# the interval to choose, useful s between saves; best: the better whole number of "
            "steps by the exact model;\n# regret: what it loses at most against the best one if "
            "ends of the intervals of law and costs are the truth; tokens/s: kept\n");
    table_open(&t, "kind nodes mode devices MTBF_s low high young_s daly_s exact_s async_s best_s "
                   "steps goodput_% low high regret_% tokens/s");
    for (int r = 0; r < plan->n_rows; r++) {
        const struct goodput_row *row = &plan->rows[r];
        const struct goodput_choice *best = &row->choices[row->best];
        if (!row->planned)
            continue;
        row_key(&t, plan, row);
        count(&t, row->at.devices);
        goodput_cells(&t, &row->mtbf_s, 1.0, 6);
        for (int c = CHOICE_YOUNG; c <= CHOICE_ASYNC; c++)
            may_be_outside(&t, &row->choices[c], OUTSIDE_TAU, row->choices[c].tau_s);
        table_digits(&t, best->tau_s, 5);
        count(&t, row->best == CHOICE_STEPS ? round(best->steps) : (double)NAN);
        goodput_cells(&t, &best->g, 100.0, 5);
        table_digits(&t, 100.0 * row->regret, 3);
        table_digits(&t, row->tokens_per_s, 6);
    }
    table_close(&t, to);
}

static void print_choices(FILE *to, const struct goodput_plan *plan)
{
    struct table t;
    fprintf(
        to,
        "#\n# goodput of an interval, %%: renewal (exact for exponential failures), and "
        "first-order forms by name; -: saves would overlap\n"
        "# - first: 1 - d_b/tau - (tau/2 + d_c - d_b + D + R)/M; product: tau/(tau + d_b) (1 - "
        "(tau/2 + d_c + D + R)/M)\n"
        "# - ETTR: (1 - (D + R + tau/2)/M) / (1 + d_b/tau), Kokolis et al.\n# - Google: (M - tau/2 "
        "- d_c + d_b)/(M + D + R), runtime goodput without what saves cost\n");
    table_open(&t, "kind nodes mode by tau_s steps goodput_% low high first_% product_% ETTR_% "
                   "Google_%");
    for (int r = 0; r < plan->n_rows; r++)
        for (int c = 0; c < plan->rows[r].n_choices; c++) {
            const struct goodput_choice *choice = &plan->rows[r].choices[c];
            char name[40];
            bool best = c == plan->rows[r].best;
            snprintf(name, sizeof name, "%s%s", choice->name, best ? "*" : "");
            for (char *space = name; (space = strchr(space, ' ')) != NULL;)
                *space = '_';
            row_key(&t, plan, &plan->rows[r]);
            table_text(&t, name);
            may_be_outside(&t, choice, OUTSIDE_TAU, choice->tau_s);
            table_digits(&t, choice->steps, 5);
            goodput_cells(&t, &choice->g, 100.0, 5);
            may_be_outside(&t, choice, OUTSIDE_FIRST, 100.0 * choice->first_order);
            may_be_outside(&t, choice, OUTSIDE_PRODUCT, 100.0 * choice->product);
            may_be_outside(&t, choice, OUTSIDE_ETTR, 100.0 * choice->ettr);
            may_be_outside(&t, choice, OUTSIDE_RUNTIME, 100.0 * choice->runtime);
        }
    table_close(&t, to);
}

static void say_levels(FILE *to, const struct goodput_plan *plan)
{
    const struct goodput_given *given = &plan->known.given;
    char cost[32], line[512];
    if (!(given->local_s > 0.0))
        return;
    goodput_duration(cost, sizeof cost, given->local_s);
    snprintf(
        line, sizeof line,
        "local, global: two levels of saves that work together; a local one costs %s (assumed) "
        "and survives %g %% of failures; each has Young's interval for the failures that are its "
        "own, the global one a whole number of local ones; first: 1 - sum of d_l/tau_l + tau_l/(2 "
        "M_l), less (d_c - d_b)/M_2 and (D + R)/M",
        cost, 100.0 * given->local_share);
    table_note(to, "# - ", line);
}

static void say_outside(FILE *to, const struct goodput_plan *plan)
{
    unsigned outside = 0;
    for (int r = 0; r < plan->n_rows; r++)
        for (int c = 0; c < plan->rows[r].n_choices; c++)
            outside |= plan->rows[r].choices[c].outside;
    if (outside & 1u << OUTSIDE_TAU)
        table_note(
            to, "# - ",
            "outside its validity: Young's interval, which a save that costs half an MTBF or "
            "more makes longer than the MTBF");
    if (outside & ~(1u << OUTSIDE_TAU))
        table_note(
            to, "# - ",
            "outside its validity: a first-order form that leaves 0 to 100 %, as tau, d_c and "
            "D + R are not small against M there");
}

void goodput_text_plan(FILE *to, const struct goodput_plan *plan)
{
    print_costs(to, plan);
    print_intervals(to, plan);
    print_choices(to, plan);
    say_levels(to, plan);
    say_outside(to, plan);
}
