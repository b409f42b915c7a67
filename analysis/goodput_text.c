#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/goodput_text_part.h"
#include "base/units.h"

void goodput_cells(struct table *t, const struct stats_interval *x, double scale, int digits)
{
    table_digits(t, scale * x->value, digits);
    table_digits(t, scale * x->low, digits);
    table_digits(t, scale * x->high, digits);
}

/* A table without rows is not printed. */
static void close_where(struct table *t, bool any, FILE *to)
{
    if (any)
        table_close(t, to);
    else
        free(t->cells);
}

/* ---- measured ---- */

static void key(struct table *t, const struct goodput_point *p)
{
    table_int(t, p->kind);
    table_int(t, p->row->nodes);
    table_int(t, p->row->ranks);
}

static void print_accounts(FILE *to, const struct goodput_study *study)
{
    struct table t;
    fprintf(to,
            "#\n# measured, %% of wall time: each nanosecond of a rank is in one bucket, the first "
            "from the left that claims it;\n# exact; n: steps of the run that were kept, of them "
            "w in warm-up, those done again left out; record: what writing this down took\n"
            "# between steps; closes: other is at most 1 %%\n");
    table_open(&t, "kind nodes ranks wall_s restart_% detection_% rework_% start-up_% warm-up_% "
                   "call_% data_% inflation_% straggler_% useful_% record_% other_% closes n w");
    for (int i = 0; i < study->n_points; i++) {
        const struct goodput_point *p = &study->points[i];
        if (!p->run.there)
            continue;
        key(&t, p);
        table_real(&t, p->run.wall_s, 3);
        for (int b = 0; b < WALL_BUCKETS; b++)
            table_real(&t, 100.0 * p->run.bucket_s[b] / p->run.wall_s, 2);
        table_text(&t, p->run.closes ? "yes" : "NO");
        table_int(&t, p->run.steps);
        table_int(&t, p->run.warm_up_steps);
    }
    table_close(&t, to);
}

static void print_names(FILE *to, const struct goodput_study *study)
{
    struct table t;
    char line[400];
    fprintf(to,
            "#\n# the same runs by the names of others, %% of wall time; exposed: communication "
            "within useful, for information;\n# tokens/s: of kept steps, over wall time; between: "
            "from one save to the next (median; steps, and their time without warm-up)\n");
    table_open(&t, "kind nodes ranks goodput_% ETTR_% runtime_goodput_% effective_training_% "
                   "uptime_% exposed_% tokens/s saves between_s between_steps rework_steps "
                   "failures launches");
    for (int i = 0; i < study->n_points; i++) {
        const struct goodput_point *p = &study->points[i];
        if (!p->run.there)
            continue;
        key(&t, p);
        for (int d = 0; d < GOODPUT_DEFINITIONS; d++)
            table_real(&t, 100.0 * goodput_share(&p->run, &goodput_definitions[d]), 2);
        table_real(&t, 100.0 * p->run.exposed_s / p->run.wall_s, 2);
        table_real(&t, p->run.tokens_per_s, 1);
        table_int(&t, p->run.saves);
        table_digits(&t, p->run.between_s, 4);
        table_digits(&t, p->run.between_steps, 4);
        table_int(&t, p->run.rework_steps);
        table_int(&t, p->run.failures);
        table_int(&t, p->run.launches);
    }
    table_close(&t, to);
    for (int d = 0; d < GOODPUT_DEFINITIONS; d++) {
        snprintf(line, sizeof line, "%s: %s", goodput_definitions[d].name,
                 goodput_definitions[d].text);
        table_note(to, "# - ", line);
    }
}

/* Several runs of one size that had as many failures. */
static void print_means(FILE *to, const struct goodput_study *study)
{
    struct table t;
    bool any = false;
    table_open(&t, "kind nodes failures goodput_% low high runs");
    for (int i = 0; i < study->n_points; i++) {
        const struct goodput_point *p = &study->points[i];
        struct stats_interval g = goodput_measured(study, p->kind, p->row->nodes, p->run.failures);
        bool first = p->run.there;
        for (int j = 0; j < i; j++)
            first = first && !(study->points[j].kind == p->kind && study->points[j].run.there &&
                               study->points[j].row->nodes == p->row->nodes &&
                               study->points[j].run.failures == p->run.failures);
        if (g.n < 2 || !first)
            continue;
        any = true;
        table_int(&t, p->kind);
        table_int(&t, p->row->nodes);
        table_int(&t, p->run.failures);
        goodput_cells(&t, &g, 100.0, 5);
        table_int(&t, g.n);
    }
    if (any)
        fprintf(to, "#\n# goodput over runs of one size with as many failures: mean, 95 %% t "
                    "interval over runs\n");
    close_where(&t, any, to);
}

static void print_failures(FILE *to, const struct goodput_study *study)
{
    struct table t;
    fprintf(
        to,
        "#\n# what each failure cost, s: until it was known (detect), from there to the begin of "
        "the first new step (restart,\n# load within), and the work behind the last save; began: "
        "from the begin of the next launch's program to that step;\n# noted no: nobody wrote down "
        "when it was known, and restart is the time until someone restarted, not the machine's\n");
    table_open(&t, "kind nodes ranks failure noted detect_s restart_s began_s load_s lost_s "
                   "lost_steps");
    for (int i = 0; i < study->n_points; i++)
        for (int k = 0; k < study->points[i].run.n_recoveries; k++) {
            const struct goodput_recovery *r = &study->points[i].run.recoveries[k];
            key(&t, &study->points[i]);
            table_int(&t, k);
            table_text(&t, r->noted ? "yes" : "no");
            table_real(&t, r->detect_s, 3);
            table_real(&t, r->restart_s, 3);
            table_real(&t, r->began_s, 3);
            table_real(&t, r->load_s, 3);
            table_real(&t, r->lost_s, 3);
            table_int(&t, r->lost_steps);
        }
    table_close(&t, to);
}

static void print_measured(FILE *to, const struct goodput_study *study)
{
    int runs = 0, failures = 0;
    for (int i = 0; i < study->n_points; i++) {
        runs += study->points[i].run.there;
        failures += study->points[i].run.n_recoveries;
    }
    if (runs == 0)
        return;
    print_accounts(to, study);
    print_names(to, study);
    print_means(to, study);
    if (failures > 0)
        print_failures(to, study);
}

/* ---- what saves cost ---- */

static void storage_text(char *text, size_t size, const struct goodput_known *k)
{
    const struct goodput_storage *s = &k->storage;
    char node[96], shared[96];
    snprintf(node, sizeof node, "B_node %.4g GB/s (%.4g to %.4g)", s->node_per_s.value / 1e9,
             s->node_per_s.low / 1e9, s->node_per_s.high / 1e9);
    if (!s->node_seen)
        snprintf(node, sizeof node, "B_node at least %.4g GB/s: the rate did not grow with nodes",
                 s->node_per_s.low / 1e9);
    snprintf(shared, sizeof shared, "B_shared %.4g GB/s (%.4g to %.4g)",
             s->shared_per_s.value / 1e9, s->shared_per_s.low / 1e9, s->shared_per_s.high / 1e9);
    if (!s->shared_seen)
        snprintf(shared, sizeof shared, "B_shared at least %.4g GB/s: no limit was seen",
                 s->shared_per_s.low / 1e9);
    if (s->assumed && s->shared_seen)
        snprintf(text, size, "storage, assumed: min(N x %.4g GB/s, %.4g GB/s)",
                 s->node_per_s.value / 1e9, s->shared_per_s.value / 1e9);
    else if (s->assumed)
        snprintf(text, size, "storage, assumed: N x %.4g GB/s, and no limit that nodes share",
                 s->node_per_s.value / 1e9);
    else
        snprintf(text, size,
                 "storage, mode %s, fitted: min(N B_node, B_shared), %s, %s; 95 %%, n = %d saves "
                 "of %d node counts, worst %.1f %%",
                 k->mode, node, shared, s->n_saves, s->n_sizes, 100.0 * s->worst);
}

static void save_row(struct table *t, int kind, const struct goodput_save_cost *c)
{
    table_int(t, kind);
    table_int(t, (int64_t)c->nodes);
    table_int(t, (int64_t)c->ranks);
    table_text(t, c->mode);
    table_int(t, c->saves);
    table_int(t, c->lost);
    table_real(t, c->bytes / 1e9, 4);
    table_real(t, c->bytes / c->ranks / 1e6, 3);
    table_digits(t, c->blocked_s.value, 4);
    table_digits(t, c->inflation_s.value, 3);
    table_digits(t, (c->inflation_s.high - c->inflation_s.low) / 2.0, 3);
    table_text(t, c->detected ? "yes" : isnan(c->inflation_s.low) ? "-" : "no");
    goodput_cells(t, &c->cost_s, 1.0, 4);
    goodput_cells(t, &c->complete_s, 1.0, 4);
    table_real(t, c->bytes / c->complete_s.value / 1e9, 4);
    table_text(t, c->of_run ? "run" : "section");
}

static void print_saves(FILE *to, const struct goodput_report *report)
{
    struct table t;
    char line[600];
    int rows = 0;
    table_open(
        &t, "kind nodes ranks mode saves lost GB rank_MB blocked_s inflation_s +-_s detected d_b_s "
            "low high d_c_s low high GB/s of");
    for (int p = 0; p < report->n_plans; p++)
        for (int i = 0; i < report->plans[p].known.n_costs; i++, rows++)
            save_row(&t, report->plans[p].known.kind, &report->plans[p].known.costs[i]);
    if (rows > 0)
        fprintf(
            to,
            "#\n# saves, all nodes at once, means, slowest rank: d_b = blocked + inflation (as far "
            "as detected; all of it in the\n# upper end), d_c until publication; arithmetic "
            "means over saves, 95 %%; inflation a save, its interval over blocks of steps\n");
    close_where(&t, rows > 0, to);
    for (int p = 0; p < report->n_plans; p++)
        if (report->plans[p].known.has_storage) {
            storage_text(line, sizeof line, &report->plans[p].known);
            table_note(to, "# - ", line);
        }
}

static bool has_rows(const struct goodput_plan *plan)
{
    for (int r = 0; r < plan->n_rows; r++)
        if (plan->rows[r].planned)
            return true;
    return false;
}

static void print_head(FILE *to, const struct goodput_report *report)
{
    char line[480], text[256];
    goodput_law_text(report->law, text, sizeof text);
    fprintf(to, "# goodput  %d file%s, %d point%s; bootstrap seed %d\n", report->study->n_files,
            units_s(report->study->n_files), report->study->n_points,
            units_s(report->study->n_points), (int)report->seed);
    fprintf(to, "# law      %s%s%s\n", text, report->law->said[0] != '\0' ? ": " : "",
            report->law->said);
    for (int k = 0; k < report->study->n_kinds; k++) {
        goodput_kind_text(report->study, k, line, sizeof line);
        fprintf(to, "# kind %d   %s\n", k, line);
    }
}

void goodput_text(FILE *to, const struct goodput_report *report)
{
    print_head(to, report);
    print_measured(to, report->study);
    print_saves(to, report);
    for (int p = 0; p < report->n_plans; p++)
        if (has_rows(&report->plans[p])) {
            goodput_text_plan(to, &report->plans[p]);
        }
    fprintf(to, "#\n# notes\n");
    for (int i = 0; i < report->notes.n; i++)
        table_note(to, "# - ", report->notes.text[i]);
}
