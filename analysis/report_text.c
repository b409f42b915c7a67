#include "analysis/report_text.h"

#include <math.h>
#include <string.h>

#include "analysis/report_checkpoints.h"
#include "analysis/report_columns.h"
#include "analysis/report_floors.h"
#include "analysis/report_inputs.h"
#include "analysis/report_laws.h"
#include "analysis/report_notes.h"
#include "analysis/report_pace.h"
#include "analysis/report_proof.h"
#include "analysis/report_table.h"
#include "analysis/report_work.h"
#include "analysis/run_record.h"

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_files(FILE *to, const struct report *r)
{
    for (int i = 0; i < r->n_files; i++)
        fprintf(to, "# %s %s\n", i == 0 ? "study" : "     ", r->files[i]->path);
    const char *seed = report_attribute(r, "study", "seed");
    fprintf(to, "# digest %.16s, %d point%s, %d %s; seeds: study %s, bootstrap %llu\n",
            r->files[0]->head.study_digest, r->scaling->n_rows, plural(r->scaling->n_rows),
            r->scaling->n_launches, r->scaling->n_launches == 1 ? "launch" : "launches",
            seed[0] != '\0' ? seed : "-", (unsigned long long)r->seed);
}

static bool same_kind(const struct host_row *a, const struct host_row *b)
{
    return strcmp(a->processor, b->processor) == 0 && a->cores == b->cores &&
           a->ranks == b->ranks && a->memory_bytes >> 30 == b->memory_bytes >> 30;
}

/* Hosts of the first launch, those of one kind together. */
static void print_machine(FILE *to, const struct record_head *head)
{
    enum { NAMES = 4 };
    for (int64_t i = 0, n = 0; i < head->n_hosts; i += n) {
        const struct host_row *first = &head->hosts[i];
        for (n = 1; i + n < head->n_hosts && same_kind(first, &first[n]) && first[n].launch == 0;)
            n++;
        if (first->launch != 0)
            continue;
        fprintf(to, "# machine %lld host%s of %s, %s%d core%s, %.1f GiB, %d rank%s:", (long long)n,
                plural(n), first->processor[0] != '\0' ? first->processor : "unknown processor",
                n == 1 ? "" : "each ", first->cores, plural(first->cores),
                (double)first->memory_bytes / 1073741824.0, first->ranks, plural(first->ranks));
        for (int64_t k = 0; k < n && k < NAMES; k++)
            fprintf(to, " %s", first[k].name);
        fprintf(to, "%s\n", n > NAMES ? " ..." : "");
    }
}

static void print_work(FILE *to, const struct point_row *p)
{
    fprintf(to,
            "# work    model %s, %lld parameters, %s; device %s%s%s, communicator %s; input %s\n",
            p->model, (long long)p->parameters, p->dtype, p->device,
            p->topology[0] != '\0' ? ": " : "", p->topology, p->comm, p->input);
    if (strncmp(p->scaling, "weak", sizeof p->scaling) == 0)
        fprintf(to,
                "# weak scaling: work grows with ranks; efficiency is the rate per rank kept\n");
    else
        fprintf(
            to,
            "# strong scaling: every point does the same %lld sample%s of %lld token%s a step\n",
            (long long)p->global_batch, plural(p->global_batch), (long long)p->sequence,
            plural(p->sequence));
}

/* What a set splits otherwise than another one; dp follows from N. */
static void print_layout(FILE *to, const struct point_row *p)
{
    const struct {
        const char *name, *how;
        int degree;
    } axes[] = {{"tp", "", p->tp},
                {"pp", p->schedule, p->pp},
                {"cp", p->cp_kind, p->cp},
                {"ep", "", p->ep}};
    fprintf(to, "# layout  ");
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].degree > 1 && axes[i].how[0] != '\0')
            fprintf(to, "%s=%d (%s), ", axes[i].name, axes[i].degree, axes[i].how);
        else if (axes[i].degree > 1)
            fprintf(to, "%s=%d, ", axes[i].name, axes[i].degree);
    if (p->virtual_stages > 1)
        fprintf(to, "%d chunks a stage, ", p->virtual_stages);
    fprintf(to, "data parallel%s\n", p->shard > 1 ? ", sharded" : "");
}

enum { OF_SPEEDUP = 1, OF_DEVICE = 2, OF_NODE = 4 };

/* What the row is the base of, in the set of `set`. */
static int base_of(const struct scaling *s, int base, int set)
{
    int of = 0;
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        if (row->set != set)
            continue;
        of |= row->speedup.base == base ? OF_SPEEDUP : 0;
        of |= row->eff_device.base == base ? OF_DEVICE : 0;
        of |= row->eff_node.base == base ? OF_NODE : 0;
    }
    return of;
}

static void print_bases(FILE *to, const struct scaling *s, int set)
{
    static const char *const names[] = {"speedup", "eff_dev", "eff_node"};
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        int of = base_of(s, i, set), named = 0;
        char shape[32];
        if (of == 0)
            continue;
        notes_shape(shape, row->point);
        fprintf(to, "# base    of");
        for (int bit = 0; bit < 3; bit++)
            if (of & 1 << bit)
                fprintf(to, "%s %s", named++ > 0 ? "," : "", names[bit]);
        fprintf(to, ": %s, %d device%s, %.1f tokens/s, %.3f ms a step\n", shape, row->point->ranks,
                plural(row->point->ranks), row->tokens_per_s.value, report_ms(row->step_ns.value));
    }
}

static bool recomputes(const struct scaling_row *row)
{
    return report_hfu(row) > report_mfu(row) * (1.0 + 1e-9);
}

static void print_mfu(FILE *to, const struct scaling_row *row)
{
    if (isnan(row->peak_flops)) {
        fprintf(to, "# MFU     not given: no peak was measured\n");
        return;
    }
    fprintf(
        to,
        "# MFU     model FLOPs (forward and backward, causal half, logits, no recompute) over a "
        "%s:\n#         %.4g TFLOP/s a device, %s, dense (%s)\n",
        row->point->topology[0] != '\0' ? "peak of the topology"
                                        : "measured rate, not a vendor's peak",
        row->peak_flops / 1e12, row->point->dtype, row->peak_source);
    if (isnan(report_hfu(row)))
        fprintf(to, "# HFU     not given: what was recomputed is not recorded\n");
    else
        fprintf(to, "# HFU     %s\n",
                recomputes(row) ? "the same peak, with the FLOPs that are computed again"
                                : "is MFU: nothing is computed again");
}

/* The larger side of an interval; NaN where one of them has no end. */
static double larger_side(const struct stats_interval *x)
{
    double up = x->high - x->value, down = x->value - x->low;
    return isnan(up) || isnan(down) ? (double)NAN : fmax(up, down);
}

static void ratio_cell(struct table *t, const struct scaling_ratio *ratio, double factor,
                       int decimals)
{
    table_marked(t, factor * ratio->ratio.value, decimals, ratio->unpaired ? "u" : "");
}

/* Kernels that compute nothing, unless something else of the point failed. */
static bool is_timed(const struct scaling_row *row)
{
    return strncmp(row->point->gate, "no numerics", sizeof row->point->gate) == 0;
}

static void flags_cell(struct table *t, const struct scaling_row *row)
{
    char text[TABLE_CELL];
    bool work = strncmp(row->point->gate, "failed", sizeof row->point->gate) != 0 &&
                strcmp(proof_of_work(row), "failed") == 0;
    snprintf(text, sizeof text, "%s%s%s%s%s%s", report_status(row), work ? ":work" : "",
             row->point->copies > 1 ? ",loaded" : "", row->point->emulated ? ",emul" : "",
             row->point->oversubscribed ? ",over" : "",
             row->point->topology[0] != '\0' ? ",timed" : "");
    table_text(t, text);
}

/* The base while all nodes work is worth a column where it says something else: beyond 2 %. */
static bool loaded_differs(const struct scaling *s, int set)
{
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        double ratio = row->eff_node.ratio.value / row->eff_loaded.ratio.value;
        if (row->set == set && fabs(ratio - 1.0) > 0.02)
            return true;
    }
    return false;
}

static bool any_recomputes(const struct scaling *s, int set)
{
    for (int i = 0; i < s->n_rows; i++)
        if (s->rows[i].set == set && recomputes(&s->rows[i]))
            return true;
    return false;
}

static void print_curve(FILE *to, const struct scaling *s, int set)
{
    struct table t;
    char names[256];
    bool loaded = loaded_differs(s, set), again = any_recomputes(s, set);
    snprintf(names, sizeof names,
             "nodes ranks tokens/s +-_%% tokens/s/dev speedup +- eff_dev_%% eff_node_%%%s inc_%% "
             "step_ms TFLOP/s/dev MFU_%%%s steps gate status",
             loaded ? " eff_loaded_%" : "", again ? " HFU_%" : "");
    table_open(&t, names);
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        if (row->set != set)
            continue;
        table_int(&t, row->point->nodes);
        table_int(&t, row->point->ranks);
        table_digits(&t, row->tokens_per_s.value, 6);
        table_real(&t, 100.0 * larger_side(&row->tokens_per_s) / row->tokens_per_s.value, 2);
        table_digits(&t, row->tokens_per_s.value / row->point->ranks, 6);
        ratio_cell(&t, &row->speedup, 1.0, 3);
        table_real(&t, larger_side(&row->speedup.ratio), 3);
        ratio_cell(&t, &row->eff_device, 100.0, 1);
        ratio_cell(&t, &row->eff_node, 100.0, 1);
        if (loaded)
            ratio_cell(&t, &row->eff_loaded, 100.0, 1);
        ratio_cell(&t, &row->incremental, 100.0, 1);
        table_real(&t, report_ms(row->step_ns.value), 3);
        table_digits(&t, report_tflops_per_device(row), 3);
        table_real(&t, 100.0 * report_mfu(row), 1);
        if (again)
            table_real(&t, 100.0 * report_hfu(row), 1);
        table_int(&t, row->step_ns.n);
        table_text(&t, is_timed(row) ? "no-numerics" : row->point->gate);
        flags_cell(&t, row);
    }
    table_close(&t, to);
}

static void print_notes(FILE *to, const struct report *r)
{
    struct notes notes;
    notes_collect(&notes, r);
    for (int i = 0; i < notes.n; i++)
        fprintf(to, "%s# - %s\n", i == 0 ? "#\n# notes\n" : "", notes.text[i]);
    notes_release(&notes);
}

/* Loud and first: what would be misread without it. */
static void print_labels(FILE *to, const struct scaling *s)
{
    int emulated = 0, over = 0, invalid = 0, timed = 0;
    char text[512];
    if (notes_noisy(text, sizeof text, s))
        fprintf(to, "# %s\n", text);
    for (int i = 0; i < s->n_rows; i++) {
        emulated += s->rows[i].point->emulated != 0;
        over += s->rows[i].point->oversubscribed != 0;
        invalid += !s->rows[i].valid;
        timed += s->rows[i].point->topology[0] != '\0';
    }
    if (timed > 0)
        fprintf(to,
                "# TIMED: %d of %d point%s computed nothing: kernels are the cost model's, "
                "communication is this machine's\n",
                timed, s->n_rows, plural(s->n_rows));
    if (emulated > 0)
        fprintf(to, "# EMULATED NODES: %d of %d point%s ran declared nodes on one host\n", emulated,
                s->n_rows, plural(s->n_rows));
    if (over > 0)
        fprintf(to, "# OVERSUBSCRIBED: %d of %d point%s had more ranks than cores\n", over,
                s->n_rows, plural(s->n_rows));
    if (invalid > 0)
        fprintf(to, "# INVALID: %d of %d point%s failed: in no curve, and no base\n", invalid,
                s->n_rows, plural(s->n_rows));
    proof_sentence(text, sizeof text, s, ";\n#         ");
    fprintf(to, "# proof   %s\n", text);
}

/* Batch and window: what must agree before two figures may be compared. */
static void print_contract(FILE *to, const struct scaling_row *row)
{
    const struct point_row *p = row->point;
    const struct record_head *head = &row->runs[0].file->head;
    char window[256];
    fprintf(to, "# batch   micro-batch %lld x %lld tokens; launcher %s\n",
            (long long)p->micro_batch, (long long)p->sequence,
            record_head_get(head, "provenance", "launcher")
                ? record_head_get(head, "provenance", "launcher")
                : "not recorded");
    run_record_rule(head, window, sizeof window);
    fprintf(to, "# window  %s\n", window);
}

/* What the rows of a set have in common, their bases, and their curve. */
static void print_set(FILE *to, const struct scaling *s, int first)
{
    const struct scaling_row *row = &s->rows[first];
    if (s->n_sets > 1)
        fprintf(to, "#\n# set %d of %d: points of different sets are not compared\n", row->set,
                s->n_sets);
    print_work(to, row->point);
    if (s->n_sets > 1)
        print_layout(to, row->point);
    print_contract(to, row);
    print_bases(to, s, row->set);
    print_mfu(to, row);
    fprintf(to, "# +-      95 %% interval; %s\n#\n", notes_coverage(s));
    print_curve(to, s, row->set);
}

void report_text(FILE *to, const struct report *report)
{
    const struct scaling *s = report->scaling;
    print_files(to, report);
    print_machine(to, &report->files[0]->head);
    report_floors(to, report);
    if (s->n_rows == 0)
        return;
    print_labels(to, s);
    for (int i = 0; i < s->n_rows; i++)
        if (i == 0 || s->rows[i].set != s->rows[i - 1].set)
            print_set(to, s, i);
    report_work_text(to, report);
    report_inputs_text(to, report);
    report_checkpoints_text(to, report);
    print_notes(to, report);
    report_pace(to, report);
    report_text_details(to, report);
    report_laws(to, report);
    fprintf(to, "#\n# columns are defined in analysis/README.md; scalereport schema describes the "
                "file\n");
}
