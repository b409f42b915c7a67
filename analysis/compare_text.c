#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis/compare_say.h"
#include "analysis/report_columns.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"

void compare_letter(int study, char text[16])
{
    if (study < 26)
        snprintf(text, 16, "%c", 'A' + study);
    else
        snprintf(text, 16, "%d", study + 1);
}

/* ---- the contract ---- */

static void print_studies(FILE *to, const struct comparison *c)
{
    char letter[16];
    for (int i = 0; i < c->n_studies; i++) {
        const struct report *r = &c->studies[i];
        compare_letter(i, letter);
        for (int j = 0; j < r->n_files; j++)
            fprintf(to, "# %s       %s%s\n", letter, r->files[j]->path,
                    j > 0 ? " (another launch)" : "");
    }
}

/* How long the beginning is that all values share, up to the begin of a word. */
static size_t shared_length(char *const *values, int n)
{
    size_t length = strlen(values[0]);
    for (int i = 1; i < n; i++) {
        size_t k = 0;
        while (k < length && values[i][k] == values[0][k])
            k++;
        length = k;
    }
    while (length > 0 && values[0][length - 1] != ' ')
        length--;
    return length;
}

/* What is longer than a cell is shown from where the studies part; cut ends are marked. */
static void value_cell(struct table *t, const char *value, size_t shared)
{
    char text[TABLE_CELL];
    const size_t room = sizeof text - 1, mark = 3, length = strlen(value);
    size_t from = length > room ? length - room + mark : 0;
    if (from > shared)
        from = shared;
    int wanted = snprintf(text, sizeof text, "%s%s", from > 0 ? "..." : "", value + from);
    if ((size_t)wanted > room)
        memcpy(text + room - mark, "...", mark);
    table_text(t, text);
}

static void print_contract(FILE *to, const struct comparison *c)
{
    char columns[512] = "kind field", letter[16];
    struct table t;
    int n = 0;
    for (int kind = 0; kind < CONTRACT_KINDS; kind++)
        n += contract_differs(c->contract, (enum contract_kind)kind);
    if (n == 0) {
        fprintf(to, "# no field of the contract differs\n");
        return;
    }
    fprintf(to, "# %d field%s of the contract differ%s\n", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
    for (int i = 0; i < c->n_studies && strlen(columns) + 20 < sizeof columns; i++) {
        compare_letter(i, letter);
        strcat(strcat(columns, " "), letter);
    }
    table_open(&t, columns);
    for (int i = 0; i < c->contract->n; i++) {
        const struct contract_field *f = &c->contract->fields[i];
        if (!f->differs)
            continue;
        table_text(&t, contract_kind_name((int)f->kind));
        table_text(&t, f->name);
        size_t shared = shared_length(f->values, t.n_columns - 2);
        for (int j = 0; j < t.n_columns - 2; j++)
            value_cell(&t, f->values[j], shared);
    }
    table_close(&t, to);
}

/* ---- one ranking ---- */

static double mib(int64_t bytes)
{
    return bytes >= 0 ? (double)bytes / 1048576.0 : (double)NAN;
}

static void key_cells(struct table *t, const struct compare_row *r)
{
    char letter[16], shape[32];
    compare_letter(r->study, letter);
    notes_shape(shape, r->row->point);
    table_int(t, r->place);
    table_text(t, letter);
    table_text(t, shape);
    table_text(t, r->row->point->parallel);
    table_int(t, r->row->point->micro_batch);
}

static const char *marks(const struct compare_row *r)
{
    const struct point_row *p = r->row->point;
    if (p->oversubscribed)
        return r->unpaired ? "over,unpaired" : "over";
    if (p->emulated)
        return r->unpaired ? "emul,unpaired" : "emul";
    return r->unpaired ? "unpaired" : "";
}

static void ranking_row(struct table *t, const struct compare_group *g, const struct compare_row *r)
{
    char reason[TABLE_CELL];
    compare_reason(g, r, reason, sizeof reason);
    key_cells(t, r);
    table_real(t, report_ms(r->row->step_ns.value), 3);
    table_real(t, report_ms(r->row->step_ns.low), 3);
    table_real(t, report_ms(r->row->step_ns.high), 3);
    table_digits(t, r->row->tokens_per_s.value, 6);
    table_real(t, r->ratio.value, 4);
    table_real(t, r->ratio.low, 4);
    table_real(t, r->ratio.high, 4);
    table_real(t, r->aa.low, 4);
    table_real(t, r->aa.high, 4);
    table_text(t, marks(r));
    table_text(t, compare_verdict_name((int)r->verdict));
    table_text(t, reason);
}

static void beside_row(struct table *t, const struct compare_row *r)
{
    key_cells(t, r);
    table_real(t, report_ms(r->exposed_ns), 3);
    table_real(t, report_ms(r->term_ns[COMPARE_SLOWDOWN]), 3);
    table_real(t, r->inside_bytes / 1e6, 3);
    table_real(t, r->across_bytes / 1e6, 3);
    table_real(t, mib(r->arena_bytes), 1);
    table_real(t, mib(r->process_bytes), 1);
}

/* Terms that occur in the group. */
static bool occurs(const struct compare_group *g, int term)
{
    if (term < COMPARE_DP || term > COMPARE_EDP)
        return true;
    for (int i = 0; i < g->n; i++)
        if (fabs(g->rows[i].term_ns[term]) > 0.0)
            return true;
    return false;
}

/* `base`: NULL for the terms themselves, else what is taken from them. */
static void print_terms(FILE *to, const struct compare_group *g, const struct compare_row *base)
{
    char columns[512] = "place study points parallel mbs step_ms";
    struct table t;
    for (int term = 0; term < N_COMPARE_TERMS; term++)
        if (occurs(g, term))
            strcat(strcat(columns, " "), compare_term_name(term));
    table_open(&t, columns);
    for (int i = base != NULL; i < g->n; i++) {
        const struct compare_row *r = &g->rows[i];
        key_cells(&t, r);
        table_real(&t, report_ms(r->row->step_ns.value - (base ? base->row->step_ns.value : 0.0)),
                   3);
        for (int term = 0; term < N_COMPARE_TERMS; term++)
            if (occurs(g, term))
                table_real(&t, report_ms(r->term_ns[term] - (base ? base->term_ns[term] : 0.0)), 3);
    }
    table_close(&t, to);
}

static void print_group(FILE *to, const struct compare_group *g)
{
    const struct point_row *p = g->rows[0].row->point;
    struct table t;
    fprintf(to,
            "#\n# ranking at equal work: model %s, %" PRId64 " samples of %" PRId64
            " tokens a step, %s, on %d %s device%s; fastest first\n",
            p->model, p->global_batch, p->sequence, p->dtype, p->ranks,
            p->topology[0] != '\0' ? p->topology : p->device, p->ranks == 1 ? "" : "s");
    fprintf(to, "# ratio: step over the fastest, 95 %% interval; A/A: widest of both; reason: term "
                "of the step that grew most, of the difference\n");
    table_open(&t, "place study points parallel mbs step_ms ci_lo_ms ci_hi_ms tokens/s ratio "
                   "ratio_low ratio_high A/A_low A/A_high marks verdict reason");
    for (int i = 0; i < g->n; i++)
        ranking_row(&t, g, &g->rows[i]);
    table_close(&t, to);
    fprintf(to,
            "#\n# side by side: exposed communication and slowdown of a step; sent by a rank in "
            "a step, inside and between nodes; memory of the\n# rank that holds most: arenas, "
            "process\n");
    table_open(&t, "place study points parallel mbs exposed_ms slowdown_ms inside_MB across_MB "
                   "arena_MiB process_MiB");
    for (int i = 0; i < g->n; i++)
        beside_row(&t, &g->rows[i]);
    table_close(&t, to);
    fprintf(to, "#\n# the step as a sum in ms; axes are exposed communication\n");
    print_terms(to, g, NULL);
    fprintf(to, "#\n# difference from the fastest in ms\n");
    print_terms(to, g, &g->rows[0]);
}

/* ---- notes ---- */

static void note_contract(FILE *to, const struct comparison *c)
{
    static const enum contract_kind kinds[] = {CONTRACT_POLICY, CONTRACT_WINDOW, CONTRACT_MACHINE,
                                               CONTRACT_SOFTWARE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && c->n_studies > 1; i++)
        if (contract_differs(c->contract, kinds[i]) > 0)
            fprintf(to,
                    "# - the studies differ in %s: a difference may be that, not the layout's\n",
                    contract_kind_name((int)kinds[i]));
}

static void print_notes(FILE *to, const struct comparison *c)
{
    bool unpaired = false;
    fprintf(to, "#\n# notes\n");
    note_contract(to, c);
    for (int i = 0; i < c->ranking->n_groups; i++)
        for (int j = 0; j < c->ranking->groups[i].n; j++)
            unpaired = unpaired || c->ranking->groups[i].rows[j].unpaired;
    if (unpaired)
        fprintf(to, "# - unpaired: the two sides share no launch; what changed between the jobs is "
                    "in the ratio\n");
    for (int i = 0; i < c->n_studies; i++)
        if (c->studies[i].scaling->n_launches < SCALING_LAUNCHES_ENOUGH) {
            fprintf(to, "# - intervals: %s\n", notes_coverage(c->studies[i].scaling));
            break;
        }
    if (c->ranking->n_alone > 0)
        fprintf(to, "# - %d point%s did work, or ran on as many devices, as no other: not ranked\n",
                c->ranking->n_alone, c->ranking->n_alone == 1 ? "" : "s");
    if (c->ranking->n_invalid > 0)
        fprintf(to, "# - %d point%s failed a proof: not ranked\n", c->ranking->n_invalid,
                c->ranking->n_invalid == 1 ? "" : "s");
}

void compare_text(FILE *to, const struct comparison *comparison)
{
    print_studies(to, comparison);
    print_contract(to, comparison);
    if (comparison->ranking == NULL)
        return;
    for (int i = 0; i < comparison->ranking->n_groups; i++)
        print_group(to, &comparison->ranking->groups[i]);
    print_notes(to, comparison);
}
