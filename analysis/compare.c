#include "analysis/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/claim.h"
#include "analysis/report_columns.h"
#include "analysis/report_memory.h"
#include "base/err.h"

static const double level = 0.95;

const char *compare_verdict_name(int verdict)
{
    static const char *const names[] = {"best", "slower", "cannot be told apart",
                                        "cannot be told apart (A/A)"};
    return names[verdict];
}

/* ---- rows ---- */

static const struct record_head *head_of(const struct compare_row *r)
{
    return &r->row->runs[0].file->head;
}

static int64_t most_bytes(const struct scaling_row *row, const char *class)
{
    int64_t most = -1;
    for (int i = 0; i < row->n_used; i++) {
        const struct memory_row *m = report_memory_worst(row->runs[i].account.record, class);
        if (m != NULL && m->peak_bytes > most)
            most = m->peak_bytes;
    }
    return most;
}

/* Sums over the axes of what all ranks sent, a rank; NaN when no row says so. */
static double sent(const struct record_point *p, const char *where)
{
    double bytes = 0.0;
    for (int64_t i = 0; i < p->traffic.n; i++)
        if (strncmp(p->traffic.rows[i].level, where, sizeof(text16)) == 0)
            bytes += p->traffic.rows[i].executed;
    if (p->traffic.n == 0)
        return p->point.ranks == 1 ? 0.0 : (double)NAN;
    return bytes / p->point.ranks;
}

static struct compare_row row_of(const struct report *studies, int study,
                                 const struct scaling_row *row)
{
    struct compare_row r = {.study = study, .report = &studies[study], .row = row, .reason = -1};
    const struct record_point *p = row->runs[0].account.record;
    compare_terms(row, r.term_ns);
    for (int t = COMPARE_DP; t <= COMPARE_EDP; t++)
        r.exposed_ns += r.term_ns[t];
    r.inside_bytes = sent(p, "inside");
    r.across_bytes = sent(p, "across");
    r.arena_bytes = most_bytes(row, "reserved");
    r.process_bytes = most_bytes(row, "process");
    return r;
}

static bool is_ranked(const struct scaling_row *row)
{
    return row->valid && row->point->copies <= 1 && row->step_ns.value > 0.0;
}

/* ---- groups ---- */

static void group_add(struct compare_group *g, const struct compare_row *row)
{
    if (g->n == g->room) {
        g->room = 2 * g->room + 8;
        g->rows = must_grow(g->rows, (size_t)g->room, sizeof *g->rows);
    }
    g->rows[g->n++] = *row;
}

static struct compare_group *group_of(struct compare *c, const struct compare_row *row)
{
    struct contract_difference ignored;
    for (int i = 0; i < c->n_groups; i++) {
        const struct compare_row *other = &c->groups[i].rows[0];
        if (contract_equal_work(head_of(other), other->row->point, head_of(row), row->row->point,
                                &ignored))
            return &c->groups[i];
    }
    c->groups = must_grow(c->groups, (size_t)c->n_groups + 1, sizeof *c->groups);
    c->groups[c->n_groups] = (struct compare_group){0};
    return &c->groups[c->n_groups++];
}

static void sort_into_groups(struct compare *c, const struct report *studies, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < studies[i].scaling->n_rows; j++) {
            const struct scaling_row *row = &studies[i].scaling->rows[j];
            c->n_invalid += !row->valid;
            if (!is_ranked(row))
                continue;
            struct compare_row r = row_of(studies, i, row);
            group_add(group_of(c, &r), &r);
        }
}

static void count_studies(struct compare_group *g)
{
    for (int i = 0; i < g->n; i++) {
        int j = 0;
        while (j < i && g->rows[j].study != g->rows[i].study)
            j++;
        g->n_studies += j == i;
    }
}

/* Keep groups that rank something. */
static void drop_single_rows(struct compare *c)
{
    int kept = 0;
    for (int i = 0; i < c->n_groups; i++) {
        count_studies(&c->groups[i]);
        if (c->groups[i].n >= 2) {
            c->groups[kept++] = c->groups[i];
            continue;
        }
        c->n_alone++;
        free(c->groups[i].rows);
    }
    c->n_groups = kept;
}

static int step_order(const void *left, const void *right)
{
    double a = ((const struct compare_row *)left)->row->step_ns.value;
    double b = ((const struct compare_row *)right)->row->step_ns.value;
    return (a > b) - (a < b);
}

static int group_order(const void *left, const void *right)
{
    const struct point_row *a = ((const struct compare_group *)left)->rows[0].row->point;
    const struct point_row *b = ((const struct compare_group *)right)->rows[0].row->point;
    return a->ranks != b->ranks
               ? (a->ranks > b->ranks) - (a->ranks < b->ranks)
               : (a->global_batch > b->global_batch) - (a->global_batch < b->global_batch);
}

/* ---- against the fastest ---- */

static struct stats_series periods(const struct scaling_run *run)
{
    const struct account_series *full = &run->account.series[ACCOUNT_FULL];
    return (struct stats_series){full->period_ns, full->n};
}

/* Launches that both rows were measured in, in pairs; else all of both. */
static void ratio_of(struct compare_row *r, const struct compare_row *best, uint64_t seed)
{
    const struct scaling_row *a = r->row, *b = best->row;
    int room = (a->n_used + 1) * (b->n_used + 1), n = 0;
    struct stats_series *num = must_alloc((size_t)room, sizeof *num);
    struct stats_series *den = must_alloc((size_t)room, sizeof *den);
    for (int i = 0; i < a->n_used && r->study == best->study; i++)
        for (int j = 0; j < b->n_used; j++)
            if (a->runs[i].file_index == b->runs[j].file_index &&
                a->runs[i].account.record->point.launch ==
                    b->runs[j].account.record->point.launch) {
                num[n] = periods(&a->runs[i]);
                den[n++] = periods(&b->runs[j]);
            }
    r->unpaired = n == 0;
    for (int i = 0; i < a->n_used && r->unpaired; i++)
        num[i] = periods(&a->runs[i]);
    for (int j = 0; j < b->n_used && r->unpaired; j++)
        den[j] = periods(&b->runs[j]);
    stats_launches_ratio(num, r->unpaired ? a->n_used : n, den, r->unpaired ? b->n_used : n,
                         !r->unpaired, level, seed, &r->ratio);
    free(num);
    free(den);
}

static void widen_aa(struct stats_interval *widest, const struct scaling_row *row)
{
    for (int i = 0; i < row->n_used; i++)
        claim_widen(widest, &row->runs[i].account.aa_ratio);
}

static void find_reason(struct compare_row *r, const struct compare_row *best)
{
    double gap = r->row->step_ns.value - best->row->step_ns.value, most = 0.0;
    for (int t = 0; t < N_COMPARE_TERMS; t++) {
        double grew = r->term_ns[t] - best->term_ns[t];
        if (!(grew > most)) /* nor for NaN */
            continue;
        most = grew;
        r->reason = t;
        r->reason_share = grew / gap;
    }
}

static void hold_against(struct compare_row *r, const struct compare_row *best, uint64_t seed)
{
    ratio_of(r, best, seed);
    r->aa = (struct stats_interval){1.0, NAN, NAN, 0};
    widen_aa(&r->aa, r->row);
    widen_aa(&r->aa, best->row);
    bool apart = r->ratio.low > 1.0; /* not for NaN */
    r->verdict = claim_differs(&r->ratio, &r->aa) == CLAIM_HOLDS ? COMPARE_SLOWER
                 : apart                                         ? COMPARE_WITHIN_NOISE
                                                                 : COMPARE_NOT_TOLD_APART;
    if (r->verdict == COMPARE_SLOWER)
        find_reason(r, best);
}

static void rank(struct compare_group *g, uint64_t seed)
{
    qsort(g->rows, (size_t)g->n, sizeof *g->rows, step_order);
    struct compare_row *best = &g->rows[0];
    best->place = 1;
    best->ratio = (struct stats_interval){1.0, 1.0, 1.0, best->row->step_ns.n};
    best->aa = (struct stats_interval){1.0, NAN, NAN, 0};
    widen_aa(&best->aa, best->row);
    for (int i = 1; i < g->n; i++) {
        hold_against(&g->rows[i], best, seed + (uint64_t)i);
        g->rows[i].place = g->rows[i].verdict == COMPARE_SLOWER ? i + 1 : 1;
    }
}

/* ---- all ---- */

static int refuse(const struct report *studies, int n, const struct compare *c)
{
    struct contract_difference d = {.field = NULL};
    const struct scaling_row *first = NULL, *other = NULL;
    const struct record_head *head = NULL;
    for (int i = 0; i < n && other == NULL; i++)
        for (int j = 0; j < studies[i].scaling->n_rows && other == NULL; j++) {
            const struct scaling_row *row = &studies[i].scaling->rows[j];
            if (!is_ranked(row) || (first != NULL && n > 1 && i == 0))
                continue;
            if (first == NULL) {
                first = row;
                head = &row->runs[0].file->head;
            } else if (!contract_equal_work(head, first->point, &row->runs[0].file->head,
                                            row->point, &d)) {
                other = row;
            }
        }
    if (other == NULL)
        return fail(FAIL_USAGE,
                    "compare: there are not two points with a passed proof to rank (%d without)",
                    c->n_invalid);
    return fail(FAIL_USAGE,
                "compare: %s, so a ranking would say nothing: %s is %s in one and %s in another; "
                "measure them with equal batch, sequence, model and number of devices",
                n > 1 ? "no two of the studies did the same work on as many devices"
                      : "no two points did the same work on as many devices",
                d.field, d.left[0] != '\0' ? d.left : "nothing",
                d.right[0] != '\0' ? d.right : "nothing");
}

int compare_init(struct compare *out, const struct report *studies, int n, uint64_t seed)
{
    *out = (struct compare){0};
    sort_into_groups(out, studies, n);
    drop_single_rows(out);
    int joint = 0;
    for (int i = 0; i < out->n_groups; i++)
        joint += n == 1 || out->groups[i].n_studies > 1;
    if (joint == 0) {
        int rc = refuse(studies, n, out);
        compare_release(out);
        return rc;
    }
    for (int i = 0; i < out->n_groups; i++)
        rank(&out->groups[i], seed + 1000 * (uint64_t)i);
    qsort(out->groups, (size_t)out->n_groups, sizeof *out->groups, group_order);
    return 0;
}

void compare_release(struct compare *compare)
{
    for (int i = 0; i < compare->n_groups; i++)
        free(compare->groups[i].rows);
    free(compare->groups);
    *compare = (struct compare){0};
}

void compare_reason(const struct compare_group *group, const struct compare_row *row, char *text,
                    size_t size)
{
    const struct compare_row *best = &group->rows[0];
    text[0] = '\0';
    if (row->reason < 0)
        return;
    bool axis = row->reason >= COMPARE_DP && row->reason <= COMPARE_EDP;
    snprintf(text, size, "%s%s +%.3f of +%.3f ms, %.0f %%", axis ? "exposed " : "",
             compare_term_name(row->reason),
             (row->term_ns[row->reason] - best->term_ns[row->reason]) / 1e6,
             (row->row->step_ns.value - best->row->step_ns.value) / 1e6, 100.0 * row->reason_share);
}
