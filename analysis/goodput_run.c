#include "analysis/goodput_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- failures ---- */

static double seconds_between(int64_t from, int64_t until)
{
    return from < 0 || until < 0 ? (double)NAN : (double)(until - from) / 1e9;
}

/* Begin of the first step behind a launch; -1: none was made. */
static int64_t next_step_ns(const struct record_file *file, int point, int launch)
{
    int64_t first = -1;
    for (int i = 0; i < file->n_points; i++)
        for (int64_t k = 0; k < file->points[i].intervals.n; k++) {
            const struct interval_row *row = &file->points[i].intervals.rows[k];
            if (file->points[i].point.point == point && row->launch > launch &&
                strncmp(row->kind, "steps", sizeof row->kind) == 0 &&
                (first < 0 || row->begin_ns < first))
                first = row->begin_ns;
        }
    return first;
}

static void take_recoveries(struct goodput_run *run, const struct wall *wall,
                            const struct record_file *file, int point)
{
    run->recoveries = must_alloc((size_t)wall->n_recoveries + 1, sizeof *run->recoveries);
    for (int64_t k = 0; k < wall->n_recoveries; k++) {
        const struct recovery_row *row = &wall->recoveries[k];
        int64_t first = next_step_ns(file, point, row->launch);
        /* Where nobody said when it was known, wall takes the failure itself. */
        bool said = row->detected_ns != row->failed_ns;
        if (strncmp(row->cause, "preempted", sizeof row->cause) == 0)
            continue;
        run->recoveries[run->n_recoveries++] = (struct goodput_recovery){
            .noted = said,
            .detect_s = said ? seconds_between(row->failed_ns, row->detected_ns) : (double)NAN,
            .restart_s = seconds_between(row->detected_ns, first),
            .began_s = seconds_between(row->began_ns, first),
            .load_s = seconds_between(row->loading_ns, row->loaded_ns),
            .lost_s = row->lost_ns < 0 ? (double)NAN : (double)row->lost_ns / 1e9,
            .lost_steps = row->lost_steps};
    }
    run->failures = run->n_recoveries + run->silent;
}

/* ---- the account ---- */

static void derive(struct goodput_run *run, const struct wall *wall)
{
    const double *b = run->bucket_s;
    double in_steps = b[WALL_USEFUL] + b[WALL_DATA] + b[WALL_STRAGGLER];
    int64_t useful = run->steps - run->warm_up_steps;
    run->step_s = useful > 0 ? in_steps / (double)useful : (double)NAN;
    run->in_steps = in_steps > 0.0 ? b[WALL_USEFUL] / in_steps : (double)NAN;
    run->between_steps = wall->between_steps;
    run->between_s = run->between_steps * run->step_s;
    run->tokens_per_step = run->steps > 0 ? (double)wall->tokens / (double)run->steps : (double)NAN;
    run->tokens_per_s = (double)wall->tokens / run->wall_s;
}

static void take_wall(struct goodput_run *run, const struct wall *wall)
{
    double each = 1e9 * wall->ranks;
    run->wall_s = (double)(wall->end_ns - wall->begin_ns) / 1e9;
    for (int b = 0; b < WALL_BUCKETS; b++)
        run->bucket_s[b] = (double)wall->rank_ns[b] / each;
    run->there = run->wall_s > 0.0;
    run->closes = wall_closes(wall);
    run->finished = wall->finished;
    run->ranks = wall->ranks;
    run->steps = wall->count[WALL_USEFUL] + wall->count[WALL_WARM_UP];
    run->rework_steps = wall->count[WALL_REWORK];
    run->warm_up_steps = wall->count[WALL_WARM_UP];
    run->launches = wall->launches;
    run->silent = wall->silent;
    run->saves = wall->count[WALL_CALL];
    run->exposed_s = (double)wall->exposed_ns / each;
    run->load_s = (double)wall->load_ns / each;
    run->inflation_signed_s = (double)wall->inflation_signed_ns / each;
    derive(run, wall);
}

int goodput_run_of(struct goodput_run *out, const struct record_file *file, int point)
{
    struct wall wall = {0};
    int64_t intervals = 0;
    int rc = 0;
    *out = (struct goodput_run){0};
    for (int i = 0; i < file->n_points; i++)
        if (file->points[i].point.point == point)
            intervals += file->points[i].intervals.n;
    if (intervals == 0)
        return 0;
    TRY(wall_of_point(&wall, file, point));
    take_wall(out, &wall);
    take_recoveries(out, &wall, file, point);
out:
    wall_release(&wall);
    return rc;
}

void goodput_run_release(struct goodput_run *run)
{
    free(run->recoveries);
    *run = (struct goodput_run){0};
}

/* ---- the names of others ---- */

#define IN(name) (1u << WALL_##name)
#define STEPS_KEPT (IN(USEFUL) | IN(STRAGGLER) | IN(INFLATION))
#define IS_UP                                                                                      \
    (STEPS_KEPT | IN(DATA) | IN(WARM_UP) | IN(CALL) | IN(REWORK) | IN(START_UP) | IN(RECORD) |     \
     IN(OTHER))

const struct goodput_definition goodput_definitions[GOODPUT_DEFINITIONS] = {
    {"goodput", "goodput_pct", IN(USEFUL), false,
     "useful alone: steps that were kept, less waits for data and late ranks and what saves slow "
     "them by (here)"},
    {"ETTR", "ettr_pct", STEPS_KEPT | IN(DATA) | IN(WARM_UP), false,
     "productive runtime over available wallclock time: all time in steps that were kept, saves "
     "are overhead (Kokolis et al., HPCA 2025)"},
    {"runtime goodput", "runtime_goodput_pct", STEPS_KEPT, true,
     "productive step time over job time: waits for data, saves, excess of first steps are lost, "
     "slow steps are not (Google, ML Productivity Goodput)"},
    {"effective training time", "effective_training_pct", STEPS_KEPT | IN(WARM_UP), false,
     "consuming new data over end-to-end time: 100 % less idleness and failures (Meta, ETT%; "
     "useful over elapsed time in Llama 3, 3.3.4)"},
    {"uptime", "uptime_pct", IS_UP, false,
     "(MTTF - MTTR) / MTTF: all but detection and restart, rework and saves included; also called "
     "ETTR by some"},
};

double goodput_share(const struct goodput_run *run, const struct goodput_definition *d)
{
    double sum = 0.0;
    for (int b = 0; b < WALL_BUCKETS; b++)
        if (d->buckets >> b & 1u)
            sum += run->bucket_s[b];
    if (d->warm_steps && run->warm_up_steps > 0 && isfinite(run->step_s))
        sum += fmin(run->bucket_s[WALL_WARM_UP], (double)run->warm_up_steps * run->step_s);
    return sum / run->wall_s;
}
