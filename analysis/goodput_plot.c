/*
 * Goodput as a picture. Above: over nodes, measured runs as filled points, expected goodput at the best
 * interval as a line (a model) with its range as a shade. Below: expected goodput over the interval,
 * a curve for each of some node counts, the renewal model solid, its first order dashed, the best
 * interval a circle.
 */
#include <math.h>
#include <stdio.h>

#include "analysis/gnuplot.h"
#include "analysis/goodput_report.h"
#include "base/units.h"

enum { PLANS_MAX = 6, CURVES_MAX = 8, POINTS = 80 };

struct picture {
    const struct goodput_report *report;
    const char *title;
};

static const char *part(int *n)
{
    return (*n)++ > 0 ? ", \\\n    " : "plot ";
}

/* ---- data ---- */

/* Each run is a point: an exact account. */
static int write_measured(FILE *to, const struct goodput_report *report)
{
    int written = 0;
    fputs("$measured << END\n", to);
    for (int i = 0; i < report->study->n_points; i++) {
        const struct goodput_point *p = &report->study->points[i];
        if (!p->run.there)
            continue;
        written++;
        gnuplot_number(to, p->row->nodes);
        gnuplot_number(to, 100.0 * goodput_share(&p->run, &goodput_definitions[0]));
        fputc('\n', to);
    }
    fputs("END\n", to);
    return written;
}

static int write_expected(FILE *to, const struct goodput_plan *plan, int p)
{
    int written = 0;
    fprintf(to, "$expected_%d << END\n", p);
    for (int r = 0; r < plan->n_rows; r++) {
        const struct goodput_row *row = &plan->rows[r];
        if (!row->planned)
            continue;
        const struct stats_interval *g = &row->choices[row->best].g;
        written++;
        gnuplot_number(to, row->at.nodes);
        gnuplot_number(to, 100.0 * g->value);
        gnuplot_number(to, 100.0 * (isfinite(g->low) ? g->low : g->value));
        gnuplot_number(to, 100.0 * (isfinite(g->high) ? g->high : g->value));
        fputc('\n', to);
    }
    fputs("END\n", to);
    return written;
}

/* Saves that cost nothing have no best interval but 0, and no curve on a logarithmic axis. */
static bool has_curve(const struct goodput_row *row)
{
    return row->planned && row->choices[row->best].tau_s > 0.0;
}

/* g over tau from a twentieth of the best interval to twenty times it, and the best one. */
static void write_curve(FILE *to, const struct goodput_row *row, int p, int r)
{
    double best = row->choices[row->best].tau_s;
    fprintf(to, "$curve_%d_%d << END\n", p, r);
    for (int i = 0; i <= POINTS; i++) {
        struct goodput_choice c;
        double tau = best / 20.0 * pow(400.0, (double)i / POINTS);
        goodput_choice_at(&c, row, tau);
        gnuplot_number(to, tau);
        gnuplot_number(to, 100.0 * c.g.value);
        gnuplot_number(to, isfinite(c.g.value) && c.first_order > 0.0 ? 100.0 * c.first_order
                                                                      : (double)NAN);
        fputc('\n', to);
    }
    fprintf(to, "END\n$best_%d_%d << END\n", p, r);
    gnuplot_number(to, best);
    gnuplot_number(to, 100.0 * row->choices[row->best].g.value);
    fputs("\nEND\n", to);
}

/* ---- panels ---- */

static void name_of(char *text, size_t size, const struct goodput_report *report,
                    const struct goodput_plan *plan)
{
    int used = snprintf(text, size, "expected at the best interval%s%s",
                        plan->known.mode[0] != '\0' ? ", mode " : "", plan->known.mode);
    if (report->study->n_kinds > 1 && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ", kind %d", plan->known.kind);
}

/* One node count alone is no range, and gnuplot would say so: an octave around it. */
static void range_of_nodes(FILE *to, const struct goodput_report *report, const int *expected)
{
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < report->study->n_points; i++)
        if (report->study->points[i].run.there) {
            least = fmin(least, report->study->points[i].row->nodes);
            most = fmax(most, report->study->points[i].row->nodes);
        }
    for (int p = 0; p < report->n_plans && p < PLANS_MAX; p++)
        for (int r = 0; expected[p] > 0 && r < report->plans[p].n_rows; r++)
            if (report->plans[p].rows[r].planned) {
                least = fmin(least, report->plans[p].rows[r].at.nodes);
                most = fmax(most, report->plans[p].rows[r].at.nodes);
            }
    if (least == most)
        fprintf(to, "set xrange [%.10g:%.10g]\nset xtics (%.10g)\n", least / 2.0, least * 2.0,
                least);
    else if (least > most)
        fputs("set xrange [1:2]\n", to); /* nothing is drawn */
}

static void plot_nodes(FILE *to, const struct goodput_report *report, int measured,
                       const int *expected)
{
    int n = 0;
    char name[240];
    fputs("set logscale x 2\nset xlabel 'nodes'\nset ylabel 'goodput, % of wall time'\n"
          "set yrange [0:100]\nset key tmargin left Left reverse vertical maxcols 1 noenhanced\n"
          "set offsets graph 0.05, graph 0.05, 0, 0\n",
          to);
    range_of_nodes(to, report, expected);
    for (int p = 0; p < report->n_plans && p < PLANS_MAX; p++) {
        if (expected[p] == 0)
            continue;
        name_of(name, sizeof name, report, &report->plans[p]);
        fprintf(to,
                "%s$expected_%d using 1:3:4 with filledcurves lc %d fs transparent solid 0.15 "
                "noborder title '%s'",
                part(&n), p, p + 1, n == 0 ? "range of law and costs" : "");
        fprintf(to, "%s$expected_%d using 1:2 with linespoints pt 6 lc %d title ", part(&n), p,
                p + 1);
        gnuplot_quote(to, name);
    }
    if (measured > 0)
        fprintf(to, "%s$measured using 1:2 with points pt 7 lc 'black' title 'measured, each run'",
                part(&n));
    if (n == 0)
        fprintf(to, "%sNaN title 'nothing was measured, and no failure law was stated'", part(&n));
    fputc('\n', to);
}

static void plot_intervals(FILE *to, const struct goodput_plan *plan, int p)
{
    int n = 0, drawn = 0;
    /* Curves fall to both sides, so no corner is free: the key stands above. */
    fputs("unset offsets\nset xrange [*:*]\nset yrange [*:*]\nset logscale x 10\nset xtics "
          "auto\nset xlabel 'useful "
          "time between saves, s'\nset ylabel 'expected goodput, %'\n"
          "set key tmargin left Left reverse horizontal maxcols 4 noenhanced\n",
          to);
    for (int r = 0; r < plan->n_rows && drawn < CURVES_MAX; r++) {
        if (!has_curve(&plan->rows[r]))
            continue;
        drawn++;
        fprintf(to, "%s$curve_%d_%d using 1:2 with lines lc %d title '%g node%s'", part(&n), p, r,
                drawn, plan->rows[r].at.nodes, units_s(plan->rows[r].at.nodes));
        fprintf(to, "%s$curve_%d_%d using 1:3 with lines dt 3 lc %d notitle", part(&n), p, r,
                drawn);
        fprintf(to, "%s$best_%d_%d using 1:2 with points pt 6 lc %d notitle", part(&n), p, r,
                drawn);
    }
    fprintf(to, "%sNaN with lines dt 3 lc 'black' title 'first order'", part(&n));
    fprintf(to, "%sNaN with points pt 6 lc 'black' title 'the interval to choose'", part(&n));
    fputc('\n', to);
}

static void write_script(FILE *to, const void *about)
{
    const struct picture *picture = about;
    const struct goodput_report *report = picture->report;
    int expected[PLANS_MAX] = {0}, first = -1;
    int measured = write_measured(to, report);
    for (int p = 0; p < report->n_plans && p < PLANS_MAX; p++) {
        expected[p] = write_expected(to, &report->plans[p], p);
        for (int r = 0; first < 0 && r < report->plans[p].n_rows; r++)
            first = has_curve(&report->plans[p].rows[r]) ? p : first;
    }
    for (int r = 0; first >= 0 && r < report->plans[first].n_rows; r++)
        if (has_curve(&report->plans[first].rows[r]))
            write_curve(to, &report->plans[first].rows[r], first, r);
    fprintf(to, "set multiplot layout %d,1 title ", first >= 0 ? 2 : 1);
    gnuplot_quote(to, picture->title[0] != '\0' ? picture->title : "scalestudy: goodput");
    fputs(" noenhanced\n", to);
    plot_nodes(to, report, measured, expected);
    if (first >= 0)
        plot_intervals(to, &report->plans[first], first);
    fputs("unset multiplot\n", to);
}

int goodput_plot(const struct goodput_report *report, const char *path, const char *title)
{
    struct picture picture = {report, title};
    return gnuplot_draw(path, write_script, &picture);
}
