#include "analysis/report_plot.h"

#include <math.h>
#include <string.h>

#include "analysis/gnuplot.h"
#include "analysis/report_columns.h"
#include "analysis/report_notes.h"
#include "analysis/report_plot_laws.h"
#include "base/err.h"

enum { SETS_MAX = 8 }; /* colours that can be told apart */

/* An end that is unknown draws no whisker: it falls on the point. */
static void interval(FILE *to, const struct stats_interval *x, double scale)
{
    gnuplot_number(to, x->value * scale);
    gnuplot_number(to, (isfinite(x->low) ? x->low : x->value) * scale);
    gnuplot_number(to, (isfinite(x->high) ? x->high : x->value) * scale);
}

/* ---- what is drawn ---- */

/* A set of one study, points that may be compared, on nodes of one shape. */
struct curve {
    const struct report *report;
    int set, ranks_per_node;
    bool one_of_several; /* shapes of its set */
    char name[400];
    int drawn[2]; /* points that failed, points that count */
    struct plot_laws laws;
};

static const struct scaling_row *next_row(const struct curve *curve, int *i)
{
    const struct scaling *s = curve->report->scaling;
    for (; *i < s->n_rows; (*i)++)
        if (scaling_has_shape(&s->rows[*i], curve->set, curve->ranks_per_node))
            return &s->rows[(*i)++];
    return NULL;
}

/* Not by data parallelism alone: that is what the axis of devices is. */
static bool is_split(const struct point_row *p)
{
    return strncmp(p->parallel, "dp=", 3) != 0 || strchr(p->parallel, ',') != NULL;
}

static void name_curve(struct curve *curve, int number)
{
    int i = 0;
    const struct point_row *p = next_row(curve, &i)->point;
    size_t used = (size_t)snprintf(
        curve->name, sizeof curve->name, "(%d) %.48s, %.12s scaling, %.16s, %.16s%s%.64s%s%.64s",
        number, p->model, p->scaling, p->dtype, p->device, p->topology[0] != '\0' ? ": " : "",
        p->topology, is_split(p) ? ", " : "", is_split(p) ? p->parallel : "");
    if (curve->report->scaling->n_sets > 1)
        snprintf(curve->name + used, sizeof curve->name - used, ", %lld tokens, %.64s",
                 (long long)p->sequence, p->input);
    used = strlen(curve->name);
    if (curve->one_of_several)
        snprintf(curve->name + used, sizeof curve->name - used, ", %d a node",
                 curve->ranks_per_node);
}

static bool has_others(const struct scaling *s, int first)
{
    for (int i = 0; i < s->n_rows; i++)
        if (i != first && s->rows[i].set == s->rows[first].set && scaling_opens_shape(s, i))
            return true;
    return false;
}

/* The first SETS_MAX curves; returns how many there are. */
static int collect(const struct report *reports, int n, struct curve *curves)
{
    int found = 0;
    for (int r = 0; r < n; r++) {
        const struct scaling *s = reports[r].scaling;
        for (int i = 0; i < s->n_rows; i++) {
            int first = 0;
            struct curve curve = {.report = &reports[r],
                                  .set = s->rows[i].set,
                                  .ranks_per_node = s->rows[i].point->ranks_per_node,
                                  .one_of_several = has_others(s, i)};
            if (!scaling_opens_shape(s, i) || next_row(&curve, &first) == NULL)
                continue;
            if (found++ >= SETS_MAX)
                continue;
            curves[found - 1] = curve;
            name_curve(&curves[found - 1], found);
        }
    }
    return found;
}

/* $CURVE_k: devices, tokens/s with its ends, ideal tokens/s, efficiency % with its ends. */
static void write_data(FILE *to, struct curve *curve, int k)
{
    const struct scaling_row *row, *rows = curve->report->scaling->rows;
    for (int valid = 1; valid >= 0; valid--) {
        fprintf(to, "$%s_%d << END\n", valid ? "curve" : "invalid", k);
        for (int i = 0; (row = next_row(curve, &i)) != NULL;) {
            if (row->valid != (valid == 1))
                continue;
            const struct scaling_row *base = row->speedup.base < 0 ? row : &rows[row->speedup.base];
            curve->drawn[valid]++;
            fprintf(to, "%d", row->point->ranks);
            interval(to, &row->tokens_per_s, 1);
            gnuplot_number(to, base->tokens_per_s.value / base->point->ranks * row->point->ranks);
            interval(to, &row->efficiency.ratio, 100);
            fputc('\n', to);
        }
        fputs("END\n", to);
    }
}

static const char *const parts[] = {"compute_ms", "stall_ms",  "input_ms",
                                    "idle_ms",    "stamps_ms", "residual_ms"};
enum { N_PARTS = sizeof parts / sizeof *parts };

static double column_value(const struct curve *curve, const struct scaling_row *row,
                           const char *name)
{
    for (int c = 0; c < report_n_columns(); c++)
        if (strcmp(report_column_name(c), name) == 0)
            return report_value(c, curve->report, row).real;
    BUG("no report column is called %s", name);
}

/* A part of a node is a point of every shape's curve. */
static bool drawn_before(const struct curve *curves, int k, const struct scaling_row *row)
{
    for (int i = 0; i < k; i++)
        if (curves[i].report == curves[k].report &&
            scaling_has_shape(row, curves[i].set, curves[i].ranks_per_node))
            return true;
    return false;
}

/* $step: "shape" and the parts of an instrumented step in ms; returns the rows written. */
static int write_steps(FILE *to, const struct curve *curves, int n)
{
    int written = 0;
    fputs("$step << END\n", to);
    for (int k = 0; k < n; k++) {
        const struct scaling_row *row;
        for (int i = 0; (row = next_row(&curves[k], &i)) != NULL;) {
            char shape[32];
            if (!row->valid || drawn_before(curves, k, row) ||
                !isfinite(column_value(&curves[k], row, parts[0])))
                continue;
            notes_shape(shape, row->point);
            if (n > 1)
                fprintf(to, "\"%s (%d)\"", shape, k + 1);
            else
                fprintf(to, "\"%s\"", shape);
            for (int p = 0; p < N_PARTS; p++) {
                double value = column_value(&curves[k], row, parts[p]);
                gnuplot_number(to, isfinite(value) ? value : 0);
            }
            fputc('\n', to);
            written++;
        }
    }
    fputs("END\n", to);
    return written;
}

/* ---- the panels ---- */

/* Where curve k of n draws its points: beside those of the others, at one number of devices. */
static double aside(int k, int n)
{
    return pow(2.0, 0.06 * (k - (n - 1) / 2.0));
}

/* Separates the parts of one plot command. */
static const char *next_part(int *n)
{
    return (*n)++ > 0 ? ", \\\n    " : "plot ";
}

static void plot_throughput(FILE *to, const struct curve *curves, int n, int left_out)
{
    int parts_done = 0, first_fitted = 0;
    while (first_fitted < n && curves[first_fitted].laws.n == 0)
        first_fitted++;
    fputs("set logscale xy 2\nset logscale y 10\nset autoscale xfix\nset xlabel 'devices'\n"
          "set ylabel 'tokens/s, all devices'\nset key tmargin left Left reverse vertical maxcols "
          "1 noenhanced\n"
          "set offsets graph 0.05, graph 0.05, 0, 0\n",
          to);
    for (int k = 0; k < n; k++) {
        if (curves[k].drawn[1] > 0) {
            fprintf(to, "%s$curve_%d using 1:5 with lines dt 2 lc %d title '%s'",
                    next_part(&parts_done), k, k + 1,
                    k == 0 ? "ideal: the base times devices" : "");
            fprintf(to, "%s$curve_%d using ($1*%.4f):2:3:4 with yerrorbars pt 7 lc %d title ",
                    next_part(&parts_done), k, aside(k, n), k + 1);
            gnuplot_quote(to, curves[k].name);
            report_plot_laws(to, REPORT_PLOT_RATE, k, &curves[k].laws, k == first_fitted);
        }
        if (curves[k].drawn[0] > 0)
            fprintf(to,
                    "%s$invalid_%d using 1:2 with points pt 2 lc 'grey' title 'failed its gate'",
                    next_part(&parts_done), k);
    }
    if (left_out > 0)
        fprintf(to, "%sNaN with points lc 'white' title 'curves that are not drawn: %d'",
                next_part(&parts_done), left_out);
    fputc('\n', to);
}

static void plot_efficiency(FILE *to, const struct curve *curves, int n)
{
    fputs("unset logscale y\nset ylabel 'efficiency against the base, %'\nset yrange [0:110<*]\n"
          "set key tmargin left Left reverse horizontal maxcols 4\nplot 100 with lines dt 2 lc "
          "'black' "
          "title "
          "'ideal'",
          to);
    for (int k = 0; k < n; k++)
        if (curves[k].drawn[1] > 0)
            fprintf(
                to,
                ", \\\n    $curve_%d using ($1*%.4f):6:7:8 with yerrorbars pt 7 lc %d title '%s'",
                k, aside(k, n), k + 1, k == 0 ? "measured, 95 % interval" : "");
    for (int k = 0; k < n; k++)
        report_plot_laws(to, REPORT_PLOT_EFFICIENCY, k, &curves[k].laws, false);
    fputc('\n', to);
}

static void plot_steps(FILE *to)
{
    fputs(
        "unset logscale x\nunset offsets\nset yrange [0:*]\nset xlabel 'nodes x devices per node'\n"
        "set ylabel 'instrumented step, ms'\nset key tmargin right horizontal maxcols 6\n"
        "set style data histograms\nset style histogram rowstacked\n"
        "set style fill solid 0.8 border -1\nset boxwidth 0.7\nset xtics rotate by -30\nplot ",
        to);
    for (int p = 0; p < N_PARTS; p++)
        fprintf(to, "$step using %d%s title '%.*s'%s", p + 2, p == 0 ? ":xtic(1)" : "",
                (int)strlen(parts[p]) - 3, parts[p], p + 1 < N_PARTS ? ", \\\n    " : "\n");
}

struct picture {
    const struct report *reports;
    int n;
    const char *title;
};

static void write_script(FILE *to, const void *about)
{
    const struct picture *picture = about;
    struct curve curves[SETS_MAX];
    int all = collect(picture->reports, picture->n, curves);
    int found = all < SETS_MAX ? all : SETS_MAX;
    for (int k = 0; k < found; k++) {
        write_data(to, &curves[k], k);
        report_plot_laws_data(to, curves[k].report, curves[k].set, curves[k].ranks_per_node, k,
                              &curves[k].laws);
    }
    int steps = write_steps(to, curves, found);
    fprintf(to, "set multiplot layout %d,1 title ", steps > 0 ? 3 : 2);
    gnuplot_quote(to, picture->title[0] != '\0'
                          ? picture->title
                          : "scalestudy: measured points with 95 % intervals");
    fputs(" noenhanced\nset xtics 2\n", to);
    plot_throughput(to, curves, found, all - found);
    plot_efficiency(to, curves, found);
    if (steps > 0)
        plot_steps(to);
    fputs("unset multiplot\n", to);
}

int report_plot_check(const char *path)
{
    return gnuplot_check(path);
}

int report_plot(const struct report *reports, int n, const char *path, const char *title)
{
    struct picture picture = {reports, n, title};
    return gnuplot_draw(path, write_script, &picture);
}
