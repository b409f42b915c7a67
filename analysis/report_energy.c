#include "analysis/report_energy.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/audit_calls.h"
#include "analysis/launches.h"
#include "analysis/report_columns.h"
#include "analysis/report_energy_steps.h"
#include "analysis/report_key.h"
#include "analysis/report_notes.h"
#include "analysis/report_table.h"
#include "base/err.h"
#include "base/nvml.h"

enum { SEED = 1 };

static const struct record_point *record_of(const struct scaling_row *row, int run)
{
    return row->runs[run].account.record;
}

/* -1: not known, and adds nothing. */
static void add_errors(int64_t *sum, int64_t one)
{
    if (one >= 0)
        *sum = *sum >= 0 ? *sum + one : one;
}

static struct stats_interval joules_per_token(const struct account *a)
{
    return a->energy.joules_per_token;
}

/* fmin and fmax take the number where the other is none. */
static void join_worst(struct energy *sum, const struct energy *one)
{
    sum->sm_mhz = fmin(sum->sm_mhz, one->sm_mhz);
    sum->sm_most_mhz = fmax(sum->sm_most_mhz, one->sm_most_mhz);
    sum->sm_least_mhz = fmin(sum->sm_least_mhz, one->sm_least_mhz);
    sum->memory_mhz = fmin(sum->memory_mhz, one->memory_mhz);
    sum->temperature_c = fmax(sum->temperature_c, one->temperature_c);
    sum->throttled_share = fmax(sum->throttled_share, one->throttled_share);
    sum->power_limited_share = fmax(sum->power_limited_share, one->power_limited_share);
    sum->thermal_limited_share = fmax(sum->thermal_limited_share, one->thermal_limited_share);
    sum->moments += one->moments;
    sum->reasons |= one->reasons;
    add_errors(&sum->ecc_corrected, one->ecc_corrected);
    add_errors(&sum->ecc_uncorrected, one->ecc_uncorrected);
    add_errors(&sum->nvlink_errors, one->nvlink_errors);
}

static void join_steps(struct energy *sum, const struct scaling_row *row)
{
    const struct energy_steps **launches = must_alloc((size_t)row->n_used + 1, sizeof(void *));
    for (int i = 0; i < row->n_used; i++)
        launches[i] = &row->runs[i].account.energy.steps;
    energy_steps_join(&sum->steps, launches, row->n_used);
    free(launches);
}

struct energy report_energy(const struct scaling_row *row)
{
    struct energy sum, one;
    double joules = 0, watts = 0;
    int n = 0;
    sum = row->runs[0].account.energy;
    for (int i = 0; i < row->n_used; i++) {
        one = row->runs[i].account.energy;
        if (i > 0)
            join_worst(&sum, &one);
        joules += one.joules_per_token.value;
        watts += one.power_w;
        n++;
    }
    sum.joules_per_token = scaling_mean_interval(row, joules_per_token);
    sum.joules_per_token.value = joules / n; /* NaN where one of the runs did not tell */
    sum.tokens_per_joule = 1.0 / sum.joules_per_token.value;
    sum.power_w = watts / n;
    join_steps(&sum, row);
    return sum;
}

int64_t report_joules_n(const struct scaling_row *row)
{
    int64_t n = report_energy(row).joules_per_token.n;
    return n > 0 ? n : REPORT_UNKNOWN;
}

const char *report_joules_interval(const struct scaling_row *row)
{
    struct stats_interval joules = report_energy(row).joules_per_token;
    if (isnan(joules.value))
        return "";
    return isnan(joules.low) ? "counter difference" : "95 %";
}

static const char *throttled_text(const struct energy *energy)
{
    static char text[160];
    if (energy->moments == 0 && isnan(energy->power_limited_share))
        return "";
    if (!energy_throttled(energy))
        return "no";
    nvml_reasons_text(energy->reasons, text, sizeof text);
    if (text[0] == '\0')
        snprintf(text, sizeof text, "%s",
                 energy->thermal_limited_share > ENERGY_HELD ? "heat" : "power limit");
    return text;
}

const char *report_throttled(const struct scaling_row *row)
{
    struct energy energy = report_energy(row);
    return throttled_text(&energy);
}

/* Of the launches that were audited. */
enum audit_ratio { RATIO_AUDIT, RATIO_INSTRUMENTED, RATIO_BARE, AUDIT_RATIOS };

static struct stats_interval *ratio_of(struct audit *a, int which)
{
    struct stats_interval *const all[AUDIT_RATIOS] = {&a->audit_ratio, &a->instrumented_ratio,
                                                      &a->bare_ratio};
    return all[which];
}

struct audit report_audit(const struct scaling_row *row)
{
    size_t room = (size_t)row->n_used + 1;
    struct audit worst = {.off = -1}, one;
    struct stats_interval *ratios = must_alloc(AUDIT_RATIOS * room, sizeof *ratios);
    int n = 0;
    for (int i = 0; i < row->n_used; i++) {
        if (record_of(row, i)->audit.n == 0)
            continue;
        audit_of_point(&one, record_of(row, i), SEED);
        for (int k = 0; k < AUDIT_RATIOS; k++)
            ratios[(size_t)k * room + (size_t)n] = *ratio_of(&one, k);
        if (n++ == 0 || one.off > worst.off)
            worst = one;
    }
    for (int k = 0; k < AUDIT_RATIOS; k++)
        launches_join(ratios + (size_t)k * room, n, 0.95, ratio_of(&worst, k));
    free(ratios);
    return worst;
}

double report_audit_off(const struct scaling_row *row)
{
    struct audit a = report_audit(row);
    return a.steps > 0 ? 100.0 * a.off : (double)NAN;
}

/* ---- tables ---- */

static double known(int64_t count)
{
    return count >= 0 ? (double)count : (double)NAN;
}

static void energy_row(struct table *t, const struct scaling *s, const struct scaling_row *row)
{
    struct energy e = report_energy(row);
    report_key_cells(t, s, row->point);
    table_text(t, row->point->parallel);
    table_digits(t, e.joules_per_token.value, 4);
    table_digits(t, e.joules_per_token.low, 4);
    table_digits(t, e.joules_per_token.high, 4);
    table_int(t, e.joules_per_token.n);
    table_digits(t, e.tokens_per_joule, 4);
    table_real(t, e.power_w, 1);
    table_real(t, e.limit_w * row->point->ranks, 0);
    table_real(t, 100.0 * e.power_limited_share, 1);
    table_real(t, 100.0 * e.thermal_limited_share, 1);
    table_text(t, throttled_text(&e));
}

static void clocks_row(struct table *t, const struct scaling *s, const struct scaling_row *row)
{
    struct energy e = report_energy(row);
    report_key_cells(t, s, row->point);
    table_text(t, row->point->parallel);
    table_real(t, e.sm_mhz, 0);
    table_real(t, e.sm_least_mhz, 0);
    table_real(t, e.sm_most_mhz, 0);
    table_real(t, e.memory_mhz, 0);
    table_real(t, e.temperature_c, 0);
    table_int(t, e.moments);
    table_real(t, known(e.ecc_corrected), 0);
    table_real(t, known(e.ecc_uncorrected), 0);
    table_real(t, known(e.nvlink_errors), 0);
}

static void print_rows(FILE *to, const struct scaling *s, const char *columns,
                       void (*print)(struct table *, const struct scaling *,
                                     const struct scaling_row *))
{
    struct table t;
    report_key_open(&t, s, columns);
    for (int i = 0; i < s->n_rows; i++)
        if (energy_known(record_of(&s->rows[i], 0)))
            print(&t, s, &s->rows[i]);
    table_close(&t, to);
}

void report_energy_text(FILE *to, const struct scaling *s)
{
    bool any = false;
    for (int i = 0; i < s->n_rows; i++)
        any = any || energy_known(record_of(&s->rows[i], 0));
    if (!any)
        return;
    fprintf(to, "#\n# energy of a valid token: gain of the counters of all GPUs over n blocks of "
                "full steps; without low and high it is\n# a counter difference that has no "
                "interval; watts meanwhile, of the limit; time that power limit or heat held "
                "clocks down\n");
    print_rows(
        to, s,
        "parallel J/token low high n tokens/J watts limit power_held_% heat_held_% throttled",
        energy_row);
    report_energy_steps_text(to, s);
    fprintf(to, "#\n# clocks and temperature of GPUs in moments within blocks, of the clock that "
                "there is; errors within the timed section\n");
    print_rows(to, s,
               "parallel SM_MHz least most memory_MHz deg_C moments ecc_corrected ecc_uncorrected "
               "nvlink",
               clocks_row);
}

static int64_t audited(const struct scaling_row *row)
{
    int64_t n = 0;
    for (int i = 0; i < row->n_used; i++)
        n += record_of(row, i)->audit.n;
    return n;
}

static void audit_row(struct table *t, const struct scaling *s, const struct scaling_row *row)
{
    struct audit a = report_audit(row);
    report_key_cells(t, s, row->point);
    table_text(t, row->point->parallel);
    table_int(t, a.steps);
    for (int q = 0; q < AUDIT_COUNT; q++) {
        table_real(t, a.steps > 0 ? a.stamps_ns[q] / 1e6 : (double)NAN, 3);
        table_real(t, a.steps > 0 ? a.records_ns[q] / 1e6 : (double)NAN, 3);
        if (q == AUDIT_COMPUTE)
            table_real(t, a.quiet_ns[q] / 1e6, 3);
    }
    table_real(t, a.steps > 0 ? 100.0 * a.off : (double)NAN, 2);
    table_real(t, a.audit_ratio.value, 4);
    table_real(t, a.instrumented_ratio.value, 4);
    table_real(t, a.bare_ratio.value, 4);
    table_int(t, a.lost);
}

void report_audit_text(FILE *to, const struct scaling *s)
{
    struct table t;
    bool any = false;
    for (int i = 0; i < s->n_rows; i++)
        any = any || audited(&s->rows[i]) > 0;
    if (!any)
        return;
    fprintf(
        to,
        "#\n# audit: medians of steps by stamps and by the profiler's records (rec), ms, of the "
        "rank "
        "and launch where they lie farthest\n# apart; quiet: by stamps without the profiler; off: "
        "of "
        "the step; audited and every op stamped, over bare steps of the same minutes,\n# and bare "
        "ones over steps without stamps of ops: all launches\n");
    report_key_open(&t, s,
                    "parallel steps step rec compute rec quiet comm rec exposed rec off_% "
                    "audit/bare stamped/bare bare/none lost");
    for (int i = 0; i < s->n_rows; i++)
        if (audited(&s->rows[i]) > 0)
            audit_row(&t, s, &s->rows[i]);
    table_close(&t, to);
}

static void call_rows(struct table *t, const struct scaling *s, const struct scaling_run *run)
{
    struct audit_group groups[AUDIT_GROUPS];
    const struct record_point *record = run->account.record;
    char launch[32];
    int left_out = 0, n = audit_groups(groups, record, &left_out);
    notes_launch(launch, run);
    for (int i = 0; i < n; i++) {
        const struct audit_group *g = &groups[i];
        report_key_cells(t, s, &record->point);
        if (s->n_launches > 1)
            table_text(t, launch);
        table_text(t, record->point.parallel);
        table_text(t, g->like->axis);
        table_text(t, g->like->kind);
        table_digits(t, (double)g->like->bytes / 1e6, 4);
        table_int(t, g->n);
        table_digits(t, g->stamps_us, 5);
        table_digits(t, g->records_us, 5);
        table_real(t, g->ratio, 4);
        for (int side = 0; side < AUDIT_SIDES; side++) {
            table_real(t, g->low[side], 1);
            table_real(t, g->middle[side], 1);
            table_real(t, g->high[side], 1);
        }
    }
}

#define CALL_TABLE                                                                                 \
    "parallel axis call MB calls us rec ratio start_p5 p50 p95 end_p5 p50 p95 dur_p5 p50 p95"

void report_audit_calls_text(FILE *to, const struct scaling *s)
{
    struct table t;
    bool any = false;
    for (int i = 0; i < s->n_runs; i++)
        any = any || s->runs[i].account.record->audit_calls.n > 0;
    if (!any)
        return;
    fprintf(to,
            "#\n# audit, call by call: median us by stamps and by the profiler's records (rec), "
            "all time over all time; stamps less record\n# of the same call, us, as p5, p50, p95: "
            "start, end, duration\n");
    report_key_open(&t, s, s->n_launches > 1 ? "launch " CALL_TABLE : CALL_TABLE);
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].account.record->audit_calls.n > 0)
            call_rows(&t, s, &s->runs[i]);
    table_close(&t, to);
}
