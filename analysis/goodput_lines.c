/* The columns of goodput, once: CSV and JSON come from here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/goodput_report.h"
#include "base/err.h"

typedef void fill(struct goodput_value *out, const struct goodput_line *line);

/* ---- where a line stands ---- */

static int kind_of(const struct goodput_line *line)
{
    return line->point ? line->point->kind : line->plan->known.kind;
}

static const struct point_row *first_point(const struct goodput_line *line)
{
    int kind = kind_of(line);
    if (line->point)
        return line->point->row;
    return kind >= 0 ? goodput_kind_first(line->report->study, kind)->row : NULL;
}

static void text(struct goodput_value *out, const char *words)
{
    out->kind = VALUE_TEXT;
    snprintf(out->text, sizeof out->text, "%.95s", words);
}

static void line_row(struct goodput_value *out, const struct goodput_line *line)
{
    text(out, line->point ? "measured" : "expected");
}

static void line_file(struct goodput_value *out, const struct goodput_line *line)
{
    text(out, line->point ? line->point->file->path : "");
}

static void line_kind(struct goodput_value *out, const struct goodput_line *line)
{
    out->kind = VALUE_INT;
    out->whole = kind_of(line);
}

static void line_model(struct goodput_value *out, const struct goodput_line *line)
{
    text(out, first_point(line) ? first_point(line)->model : "");
}

static void line_scaling(struct goodput_value *out, const struct goodput_line *line)
{
    text(out, first_point(line) ? first_point(line)->scaling : "");
}

static void line_nodes(struct goodput_value *out, const struct goodput_line *line)
{
    out->real = line->point ? line->point->row->nodes : line->row->at.nodes;
}

static void line_ranks(struct goodput_value *out, const struct goodput_line *line)
{
    out->real = line->point ? line->point->row->ranks : line->row->at.devices;
}

static void line_emulated(struct goodput_value *out, const struct goodput_line *line)
{
    out->kind = VALUE_FLAG;
    out->whole = first_point(line) ? first_point(line)->emulated : -1;
}

static void line_mode(struct goodput_value *out, const struct goodput_line *line)
{
    text(out, line->plan ? line->plan->known.mode : "");
}

static void line_by(struct goodput_value *out, const struct goodput_line *line)
{
    text(out, line->choice ? line->choice->name : "");
}

static void line_best(struct goodput_value *out, const struct goodput_line *line)
{
    out->kind = VALUE_FLAG;
    out->whole = line->choice ? line->choice == &line->row->choices[line->row->best] : -1;
}

/* ---- goodput ---- */

static void line_interval(struct goodput_value *out, const struct goodput_line *line)
{
    out->real = line->point ? line->point->run.between_s : line->choice->tau_s;
}

static void line_steps_between(struct goodput_value *out, const struct goodput_line *line)
{
    out->real = line->point ? line->point->run.between_steps : line->choice->steps;
}

static void share(struct goodput_value *out, const struct goodput_line *line, int definition)
{
    out->real = NAN;
    if (line->point)
        out->real = 100.0 * goodput_share(&line->point->run, &goodput_definitions[definition]);
}

static void line_goodput(struct goodput_value *out, const struct goodput_line *line)
{
    share(out, line, 0);
    if (line->choice)
        out->real = 100.0 * line->choice->g.value;
}

static void line_ettr(struct goodput_value *out, const struct goodput_line *line)
{
    share(out, line, 1);
    if (line->choice)
        out->real = 100.0 * line->choice->ettr;
}

static void line_runtime(struct goodput_value *out, const struct goodput_line *line)
{
    share(out, line, 2);
    if (line->choice)
        out->real = 100.0 * line->choice->runtime;
}

static void line_effective(struct goodput_value *out, const struct goodput_line *line)
{
    share(out, line, 3);
}

static void line_uptime(struct goodput_value *out, const struct goodput_line *line)
{
    share(out, line, 4);
}

#define OF_CHOICE(function, expression)                                                            \
    static void function(struct goodput_value *out, const struct goodput_line *line)               \
    {                                                                                              \
        out->real = line->choice ? (double)(expression) : (double)NAN;                             \
    }
OF_CHOICE(line_goodput_low, 100.0 * line->choice->g.low)
OF_CHOICE(line_goodput_high, 100.0 * line->choice->g.high)
OF_CHOICE(line_first_order, 100.0 * line->choice->first_order)
OF_CHOICE(line_product, 100.0 * line->choice->product)
OF_CHOICE(line_mtbf, line->choice->mtbf_s.value)
OF_CHOICE(line_mtbf_low, line->choice->mtbf_s.low)
OF_CHOICE(line_mtbf_high, line->choice->mtbf_s.high)
OF_CHOICE(line_cost, line->choice->cost.x.value)
OF_CHOICE(line_cost_low, line->choice->cost.x.low)
OF_CHOICE(line_cost_high, line->choice->cost.x.high)
OF_CHOICE(line_complete, line->choice->complete.x.value)
OF_CHOICE(line_complete_low, line->choice->complete.x.low)
OF_CHOICE(line_complete_high, line->choice->complete.x.high)
OF_CHOICE(line_detect, line->row->at.detect.x.value)
OF_CHOICE(line_detect_low, line->row->at.detect.x.low)
OF_CHOICE(line_detect_high, line->row->at.detect.x.high)
OF_CHOICE(line_restart, line->row->at.restart.x.value)
OF_CHOICE(line_restart_low, line->row->at.restart.x.low)
OF_CHOICE(line_restart_high, line->row->at.restart.x.high)
OF_CHOICE(line_regret, 100.0 * line->row->regret)
OF_CHOICE(line_local, line->choice->local_s)
OF_CHOICE(line_local_share, 100.0 * line->choice->local_share)

#define OF_SOURCE(function, figure)                                                                \
    static void function(struct goodput_value *out, const struct goodput_line *line)               \
    {                                                                                              \
        text(out, line->choice ? goodput_source_name(line->figure.source) : "");                   \
    }
OF_SOURCE(line_cost_from, choice->cost)
OF_SOURCE(line_complete_from, choice->complete)
OF_SOURCE(line_detect_from, row->at.detect)
OF_SOURCE(line_restart_from, row->at.restart)

/* Names of the columns that are empty because their form does not hold there. */
static void line_outside(struct goodput_value *out, const struct goodput_line *line)
{
    static const char *const names[OUTSIDES] = {"interval_s", "first_order_pct", "product_pct",
                                                "ettr_pct", "runtime_goodput_pct"};
    text(out, "");
    for (int i = 0; line->choice && i < OUTSIDES; i++)
        if (line->choice->outside >> i & 1u) {
            size_t used = strlen(out->text);
            snprintf(out->text + used, sizeof out->text - used, "%s%s", used > 0 ? " " : "",
                     names[i]);
        }
}

static void line_step(struct goodput_value *out, const struct goodput_line *line)
{
    out->real = line->point ? line->point->run.step_s : line->row->at.step.x.value;
}

static void line_step_from(struct goodput_value *out, const struct goodput_line *line)
{
    text(out, goodput_source_name(line->point ? FROM_MEASURED : line->row->at.step.source));
}

static void line_tokens(struct goodput_value *out, const struct goodput_line *line)
{
    out->real =
        line->point ? line->point->run.tokens_per_s : goodput_plan_tokens(line->row, line->choice);
}

/* ---- the account of a run ---- */

#define OF_RUN(function, expression)                                                               \
    static void function(struct goodput_value *out, const struct goodput_line *line)               \
    {                                                                                              \
        out->real = line->point ? (double)(line->point->run.expression) : (double)NAN;             \
    }
OF_RUN(line_wall, wall_s)
OF_RUN(line_restarting, bucket_s[WALL_RESTART])
OF_RUN(line_detection, bucket_s[WALL_DETECTION])
OF_RUN(line_rework, bucket_s[WALL_REWORK])
OF_RUN(line_start_up, bucket_s[WALL_START_UP])
OF_RUN(line_warm_up, bucket_s[WALL_WARM_UP])
OF_RUN(line_call, bucket_s[WALL_CALL])
OF_RUN(line_data, bucket_s[WALL_DATA])
OF_RUN(line_inflation, bucket_s[WALL_INFLATION])
OF_RUN(line_straggler, bucket_s[WALL_STRAGGLER])
OF_RUN(line_useful, bucket_s[WALL_USEFUL])
OF_RUN(line_record, bucket_s[WALL_RECORD])
OF_RUN(line_other, bucket_s[WALL_OTHER])
OF_RUN(line_exposed, exposed_s)
OF_RUN(line_load, load_s)
OF_RUN(line_inflation_signed, inflation_signed_s)
OF_RUN(line_launches, launches)
OF_RUN(line_failures, failures)
OF_RUN(line_run_steps, steps)
OF_RUN(line_warm_up_steps, warm_up_steps)
OF_RUN(line_rework_steps, rework_steps)
OF_RUN(line_saves, saves)

static void line_closes(struct goodput_value *out, const struct goodput_line *line)
{
    out->kind = VALUE_FLAG;
    out->whole = line->point ? line->point->run.closes : -1;
}

static void line_finished(struct goodput_value *out, const struct goodput_line *line)
{
    out->kind = VALUE_FLAG;
    out->whole = line->point ? line->point->run.finished : -1;
}

static const struct {
    const char *name;
    fill *fill;
} columns[] = {
    {"row", line_row},
    {"file", line_file},
    {"kind", line_kind},
    {"model", line_model},
    {"scaling", line_scaling},
    {"nodes", line_nodes},
    {"ranks", line_ranks},
    {"emulated", line_emulated},
    {"ckpt_mode", line_mode},
    {"by", line_by},
    {"best", line_best},
    {"interval_s", line_interval},
    {"interval_steps", line_steps_between},
    {"goodput_pct", line_goodput},
    {"goodput_lo_pct", line_goodput_low},
    {"goodput_hi_pct", line_goodput_high},
    {"first_order_pct", line_first_order},
    {"product_pct", line_product},
    {"ettr_pct", line_ettr},
    {"runtime_goodput_pct", line_runtime},
    {"effective_training_pct", line_effective},
    {"uptime_pct", line_uptime},
    {"tokens_per_s", line_tokens},
    {"regret_pct", line_regret},
    {"mtbf_s", line_mtbf},
    {"mtbf_lo_s", line_mtbf_low},
    {"mtbf_hi_s", line_mtbf_high},
    {"save_cost_s", line_cost},
    {"save_cost_lo_s", line_cost_low},
    {"save_cost_hi_s", line_cost_high},
    {"save_cost_from", line_cost_from},
    {"complete_s", line_complete},
    {"complete_lo_s", line_complete_low},
    {"complete_hi_s", line_complete_high},
    {"complete_from", line_complete_from},
    {"detect_s", line_detect},
    {"detect_lo_s", line_detect_low},
    {"detect_hi_s", line_detect_high},
    {"detect_from", line_detect_from},
    {"restart_s", line_restart},
    {"restart_lo_s", line_restart_low},
    {"restart_hi_s", line_restart_high},
    {"restart_from", line_restart_from},
    {"step_s", line_step},
    {"step_from", line_step_from},
    {"wall_s", line_wall},
    {"restarting_s", line_restarting},
    {"detection_s", line_detection},
    {"rework_s", line_rework},
    {"start_up_s", line_start_up},
    {"warm_up_s", line_warm_up},
    {"checkpoint_call_s", line_call},
    {"data_stall_s", line_data},
    {"inflation_s", line_inflation},
    {"straggler_wait_s", line_straggler},
    {"useful_s", line_useful},
    {"record_s", line_record},
    {"other_s", line_other},
    {"exposed_s", line_exposed},
    {"load_s", line_load},
    {"inflation_signed_s", line_inflation_signed},
    {"closes", line_closes},
    {"finished", line_finished},
    {"launches", line_launches},
    {"failures", line_failures},
    {"steps", line_run_steps},
    {"warm_up_steps", line_warm_up_steps},
    {"rework_steps", line_rework_steps},
    {"saves", line_saves},
    {"outside", line_outside},
    {"local_blocked_s", line_local},
    {"local_share_pct", line_local_share},
};

int goodput_n_columns(void)
{
    return (int)(sizeof columns / sizeof *columns);
}

const char *goodput_column_name(int column)
{
    return columns[column].name;
}

struct goodput_value goodput_column_value(int column, const struct goodput_line *line)
{
    struct goodput_value value = {.kind = VALUE_REAL, .real = NAN, .whole = -1};
    columns[column].fill(&value, line);
    if (strcmp(value.text, "-") == 0)
        value.text[0] = '\0';
    return value;
}

void goodput_each_line(const struct goodput_report *report,
                       void (*take)(const struct goodput_line *line, void *to), void *to)
{
    for (int i = 0; i < report->study->n_points; i++) {
        struct goodput_line line = {.report = report, .point = &report->study->points[i]};
        if (line.point->run.there)
            take(&line, to);
    }
    for (int p = 0; p < report->n_plans; p++)
        for (int r = 0; r < report->plans[p].n_rows; r++) {
            const struct goodput_row *row = &report->plans[p].rows[r];
            for (int c = 0; c < row->n_choices; c++) {
                struct goodput_line line = {report, NULL, &report->plans[p], row, &row->choices[c]};
                take(&line, to);
            }
        }
}

struct stats_interval goodput_measured(const struct goodput_study *study, int kind, double nodes,
                                       int failures)
{
    struct stats_interval out;
    double *shares = must_alloc((size_t)study->n_points + 1, sizeof *shares);
    int n = 0;
    for (int i = 0; i < study->n_points; i++) {
        const struct goodput_point *p = &study->points[i];
        if (p->kind == kind && p->row->nodes == nodes && p->run.there &&
            p->run.failures == failures)
            shares[n++] = goodput_share(&p->run, &goodput_definitions[0]);
    }
    stats_t_interval(shares, n, 0.95, &out); /* over runs */
    free(shares);
    if (n > 1) {
        out.low = fmax(out.low, 0.0);
        out.high = fmin(out.high, 1.0);
    }
    return out;
}
