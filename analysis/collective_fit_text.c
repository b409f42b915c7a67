#include "analysis/collective_fit_text.h"

#include <math.h>

#include "analysis/report_table.h"

static void bytes_cell(struct table *t, double bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", bytes);
    table_text(t, text);
}

static void line_row(struct table *t, const char *what, const struct collective_fit *f,
                     const struct collective_line *line)
{
    table_text(t, what);
    bytes_cell(t, f->bytes[line->first]);
    bytes_cell(t, f->bytes[line->first + line->n - 1]);
    table_int(t, line->n);
    table_digits(t, line->alpha_us, 4);
    table_digits(t, line->alpha_error, 2);
    if (isinf(line->bus_GBps))
        table_text(t, "none");
    else
        table_digits(t, line->bus_GBps, 4);
    table_digits(t, line->bus_error, 2);
    table_real(t, 100.0 * line->worst, 1);
}

static void print_model(FILE *to, const struct collective_fit *f)
{
    struct table t;
    table_open(&t, "model from_B to_B n alpha_us +- busbw_GB/s +- worst_%");
    line_row(&t, "line", f, &f->line);
    for (int i = 0; i < f->n_pieces; i++)
        line_row(&t, "piece", f, &f->pieces[i]);
    table_close(&t, to);
    if (f->model == COLLECTIVE_TABLE)
        fprintf(to,
                "# - no model comes within %.0f %% at every size: sizes between rows are "
                "interpolated from the table, not modelled\n",
                100.0 * COLLECTIVE_TOLERANCE);
    else
        fprintf(to, "# - used: %s, within %.1f %% at every size\n",
                f->model == COLLECTIVE_LINE ? "one line" : "pieces", 100.0 * f->worst);
}

static void print_residuals(FILE *to, const struct collective_fit *f)
{
    struct table t;
    table_open(&t, "bytes time_us busbw_GB/s line_us line_% used_us used_%");
    for (int i = 0; i < f->n_rows; i++) {
        double line = collective_line_us(f, &f->line, f->bytes[i]);
        double used = collective_time_us(f, f->bytes[i]);
        bytes_cell(&t, f->bytes[i]);
        table_digits(&t, f->time_us[i], 5);
        table_digits(&t, f->factor * f->bytes[i] / f->time_us[i] * 1e-3, 4);
        table_digits(&t, line, 4);
        table_real(&t, 100.0 * (line / f->time_us[i] - 1.0), 1);
        table_digits(&t, used, 4);
        table_real(&t, 100.0 * (used / f->time_us[i] - 1.0), 1);
    }
    table_close(&t, to);
}

static void print_interfaces(FILE *to, const struct collective_fit *f, int64_t nodes,
                             enum collective_algorithm algorithm)
{
    double bus = 0.0;
    for (int i = 0; i < f->n_rows; i++)
        bus = fmax(bus, f->factor * f->bytes[i] / f->time_us[i] * 1e-3);
    double flat = collective_nic_flat_GBps(bus, f->ranks, nodes);
    double hierarchical = collective_nic_hierarchical_GBps(bus, f->ranks, nodes);
    if (isnan(flat))
        return;
    if (algorithm != ALGORITHM_HIERARCHICAL)
        fprintf(to, "# - per interface, flat ring: %.4g GB/s of the best busbw %.4g GB/s\n", flat,
                bus);
    if (algorithm != ALGORITHM_FLAT)
        fprintf(to, "# - per interface, hierarchical: %.4g GB/s of the best busbw %.4g GB/s\n",
                hierarchical, bus);
    if (algorithm == ALGORITHM_UNKNOWN)
        fprintf(to, "# - no algorithm was recorded: both readings are printed and neither is a "
                    "gate (--algorithm)\n");
}

/* Which group a time is of. */
static void print_groups(FILE *to, const struct collective_table *table)
{
    if (table->at_once <= 1)
        return;
    if (isnan(table->apart))
        fprintf(
            to,
            "# - %lld groups make a call at once, which this file does not tell apart: its time "
            "is that of the shortest rank of all\n# of them, so of the fastest group\n",
            (long long)table->at_once);
    else
        fprintf(to,
                "# - %lld groups make a call at once: times are those of the slowest group on "
                "average (of a call its shortest rank);\n# the fastest takes up to %.1f %% less\n",
                (long long)table->at_once, 100.0 * (1.0 - 1.0 / table->apart));
}

void collective_fit_text(FILE *to, const struct collective_table *table,
                         const struct collective_fit *f, enum collective_algorithm algorithm)
{
    fprintf(to, "# collective %s%s%s", table->operation, table->type[0] != '\0' ? " " : "",
            table->type);
    if (table->ranks > 0)
        fprintf(to, ", %lld ranks", (long long)table->ranks);
    if (table->nodes > 0)
        fprintf(to, " on %lld node%s", (long long)table->nodes, table->nodes == 1 ? "" : "s");
    if (table->point[0] != '\0')
        fprintf(to, ", axis %s, %s at %s", table->axis, table->source, table->point);
    fprintf(to, ": %d sizes, busbw = %.4g x bytes / time; t = alpha + %.4g bytes / B\n", f->n_rows,
            f->factor, f->factor);
    if (f->n_left_out > 0)
        fprintf(to, "# - %d row%s without bytes or time left out\n", f->n_left_out,
                f->n_left_out == 1 ? "" : "s");
    print_groups(to, table);
    print_model(to, f);
    print_interfaces(to, f, table->nodes, algorithm);
    fprintf(to, "#\n");
    print_residuals(to, f);
}

static void bracket_line(FILE *to, const char *name, const struct collective_bracket *b)
{
    fprintf(
        to,
        "# - %s: latency %.4g us (%.3g a hop of a ring, %.3g of a tree), an interface %.4g GB/s "
        "as a ring, %.4g as a tree, worst %.0f %%\n",
        name, b->latency_us, b->hop_ring_us, b->hop_tree_us, b->nic_ring_GBps, b->nic_tree_GBps,
        100.0 * b->worst);
}

void collective_hierarchy_text(FILE *to, const struct collective_hierarchy *h)
{
    struct table t;
    fprintf(to,
            "# hierarchy %lld ranks on %lld nodes over the measured time of one node, %d sizes in "
            "both tables\n",
            (long long)h->ranks, (long long)h->nodes, h->n_rows);
    bracket_line(to, "phases one after another", &h->sum);
    bracket_line(to, "phases fully overlapped", &h->max);
    table_open(&t, "bytes time_us one_node_us serial_us serial_% overlapped_us overlapped_%");
    for (int i = 0; i < h->n_rows; i++) {
        double serial = collective_hierarchy_us(h, i, false);
        double overlapped = collective_hierarchy_us(h, i, true);
        bytes_cell(&t, h->bytes[i]);
        table_digits(&t, h->time_us[i], 5);
        table_digits(&t, h->inside_us[i], 5);
        table_digits(&t, serial, 4);
        table_real(&t, 100.0 * (serial / h->time_us[i] - 1.0), 1);
        table_digits(&t, overlapped, 4);
        table_real(&t, 100.0 * (overlapped / h->time_us[i] - 1.0), 1);
    }
    table_close(&t, to);
}
