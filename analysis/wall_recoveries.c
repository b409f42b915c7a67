/* What each launch that did not finish its run cost. */
#include "analysis/wall_part.h"

#include <stdio.h>
#include <string.h>

/* "rank 3 in save" or "host 1 in step", as the victim said. */
static void say_cause(const struct wall_launch *l, struct recovery_row *row)
{
    char cause[16] = "unknown", moment[16] = "";
    row->victim = -1;
    if (l->failure != NULL)
        (void)sscanf(l->failure->text, "%15s %d in %15s", cause, &row->victim, moment);
    else if (l->stopped)
        strcpy(cause, "preempted");
    memcpy(row->cause, cause, sizeof row->cause);
    memcpy(row->moment, moment, sizeof row->moment);
}

/* Intervals are of blocks: the end of the one that has the step. Rows of single steps of pieces that were
 * written are in no memory any more. */
static int64_t caught_up(const struct wall_rows *rows, int launch, int64_t reached)
{
    for (int64_t i = 0; i < rows->n; i++) {
        const struct interval_row *row = &rows->rows[i];
        if (row->launch >= launch && wall_is(row, "steps") &&
            row->first_step + row->steps >= reached)
            return row->end_ns;
    }
    return -1;
}

void wall_recoveries(const struct wall_rows *rows, struct wall *out)
{
    int64_t capacity = 0;
    for (int i = 0; i + 1 < rows->n_launches; i++) {
        const struct wall_launch *l = &rows->launch[i], *next = l + 1;
        out->recoveries =
            record_room(out->recoveries, sizeof *out->recoveries, out->n_recoveries, &capacity, 1);
        struct recovery_row *row = &out->recoveries[out->n_recoveries++];
        say_cause(l, row);
        row->launch = l->launch;
        row->ranks = rows->rows[0].ranks;
        row->failed_ns = l->failed_ns;
        row->detected_ns = l->detected_ns;
        row->began_ns = next->begin_ns;
        row->loading_ns = next->load != NULL ? next->load->begin_ns : -1;
        row->loaded_ns = next->load != NULL ? next->load->end_ns : -1;
        row->first_step_ns = next->has_steps ? next->first->end_ns : -1;
        row->reached_step = l->has_steps ? l->reached : -1;
        row->resumed_step = next->has_steps ? next->start_step : -1;
        row->caught_up_ns = l->has_steps ? caught_up(rows, next->launch, l->reached) : -1;
        bool loses = l->has_steps && next->has_steps && next->start_step < l->reached;
        row->lost_steps = loses ? l->reached - next->start_step : 0;
        row->lost_ns = l->failed_ns > l->rework_ns ? l->failed_ns - l->rework_ns : 0;
    }
}
