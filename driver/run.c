#include "driver/run.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/audit.h"
#include "driver/calibrate.h"
#include "driver/full_run.h"
#include "driver/point_memory.h"
#include "driver/point_plan.h"
#include "driver/point_row.h"
#include "driver/point_run.h"
#include "driver/point_watch.h"
#include "driver/preempt.h"
#include "driver/timed.h"
#include "driver/watchdog.h"
#include "workloads/plan_check.h"

struct planned {
    const struct job *job;
    const struct point *point;
};

static int make_plan(void *arg, int rank, struct plan *out)
{
    const struct planned *planned = arg;
    const struct point *point = planned->point;
    struct layout layout;
    struct policy policy;
    struct model model;
    int rc = 0;
    point_policy(planned->job, point, &model, &policy);
    policy.pack = policy.pack == CHOICE_ON ? CHOICE_AUTO : policy.pack;
    TRY(layout_init(&layout, point->nodes, point->ranks_per_node, rank, &point->degrees));
    TRY(transformer_plan(out, &model, &layout, &policy));
out:
    return rc;
}

/* The plans of all ranks of a point, by one rank: nobody may find out later that they do not fit. */
static int check_plans(const struct job *job, const struct point *point)
{
    struct planned planned = {job, point};
    struct plan_check check;
    if (job->rank != 0)
        return 0;
    watchdog_at("check the plans", point->ranks, "ranks");
    return plan_check_all(&check, point->ranks, make_plan, &planned);
}

int run_validate(const struct job *job)
{
    int rc = calibrate_check(job);
    if (rc == 0)
        rc = audit_check(job);
    for (int i = 0; i < job->points.n && rc == 0; i++) {
        const struct point *point = &job->points.point[i];
        struct plan plan;
        rc = point_plan(job, point, job->rank < point->ranks ? job->rank : 0, &plan);
        if (rc == 0)
            rc = point_fits(job, point, &plan);
        plan_release(&plan);
        if (rc == 0)
            rc = check_plans(job, point);
    }
    return rc;
}

static void print_number(int width, int digits, double value)
{
    if (isfinite(value))
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void print_point(const struct record_point *row, const struct point_summary *summary)
{
    const struct point_row *p = &row->point;
    static bool headed;
    if (!headed)
        printf("# %5s %5s %8s %8s %12s %7s %10s %10s %9s %9s  %s\n", "nodes", "ranks", "batch",
               "sequence", "tokens/s", "+-%", "step_ms", "stall_ms", "loss", "seconds", "verdict");
    headed = true;
    printf("%7d %5d %8lld %8lld", p->nodes, p->ranks, (long long)p->global_batch,
           (long long)p->sequence);
    print_number(12, 1, summary->tokens_per_s);
    print_number(7, 2, summary->half_width_pct);
    print_number(10, 3, summary->step_ms);
    print_number(10, 3, summary->stall_ms);
    if (p->topology[0])
        printf(" %9s", "n/a");
    else
        print_number(9, 4, p->final_loss);
    print_number(9, 1, (double)(p->end_ns - p->start_ns) / 1e9);
    printf("  %s", p->valid ? "ok" : "INVALID");
    if (strchr(p->parallel, ',') || strncmp(p->parallel, "dp", 2) != 0)
        printf(", %s", p->parallel);
    if (strcmp(p->input, "synthetic") != 0)
        printf(", %s", p->input);
    printf("%s%s%s%s%s%s%s\n", p->settled ? "" : ", not settled",
           full_run_is_unsaved(row) ? ", its end is not saved" : "",
           p->copies > 1 ? ", all nodes at once" : "", p->oversubscribed ? ", oversubscribed" : "",
           p->emulated ? ", emulated nodes" : "", p->topology[0] ? ", no numerics, timed: " : "",
           p->topology);
    if (p->topology[0])
        printf("# timed: %s; %s; critical path there %.3f ms, deadlines late by %.4f ms, at most "
               "%.3f\n",
               p->topology, timed_words, p->critical_ms, p->late_ms, p->late_most_ms);
    point_watch_print(row);
    fflush(stdout);
    if (!p->valid)
        fprintf(stderr, "scalestudy: point %dx%d (%s) is invalid: %s\n", p->nodes,
                p->ranks_per_node, p->parallel, p->why);
}

static int split(const struct job *job, int index, int colour, MPI_Comm *out)
{
    watchdog_at("split", index, "all ranks");
    if (MPI_Comm_split(*(const MPI_Comm *)job->world, colour, job->rank, out) != MPI_SUCCESS)
        return fail(FAIL_COMM, "point %d: MPI_Comm_split failed", index);
    if (*out != MPI_COMM_NULL)
        MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    return 0;
}

/* The most severe of all points: wrong, then not saved, then not settled. */
int run_verdict(int so_far, const struct record_point *rows, bool require_settled)
{
    if (!rows->point.valid || so_far == FAIL_WRONG)
        return FAIL_WRONG;
    if (full_run_is_unsaved(rows) || so_far == FAIL_UNSAVED)
        return FAIL_UNSAVED;
    return !rows->point.settled && require_settled ? FAIL_UNSETTLED : so_far;
}

/* Run one point on its members, all copies at once; publish the first copy. The rest of the job
 * sleeps in agree(). */
static int run_one(struct job *job, struct record *record, int index, int order, int *verdict)
{
    const struct point *point = &job->points.point[index];
    int rank = point_rank(job, point, job->rank);
    bool member = rank >= 0;
    struct record_point rows;
    struct point_summary summary;
    MPI_Comm comm, together;
    int rc = 0;
    memset(&rows, 0, sizeof rows);
    if (!full_run_wanted(&job->study)) /* a run saves its state first */
        rc = preempt_check(job->study.out);
    TRY(agree(rc, job->world));
    TRY(split(job, index, member ? 0 : MPI_UNDEFINED, &together));
    TRY(split(job, index,
              member ? job->rank / job->points.ranks_per_node / point->nodes : MPI_UNDEFINED,
              &comm));
    if (member) {
        rc = point_run(job, point, rank, order, &comm, &together, &rows, &summary);
        MPI_Comm_free(&comm);
        MPI_Comm_free(&together);
    } else {
        watchdog_pause();
    }
    TRY(agree(rc, job->world));
    watchdog_at("append to the study file", index, "rank 0");
    if (job->rank == 0)
        rc = record_append(record, &rows);
    TRY(agree(rc, job->world));
    if (job->rank == 0) {
        print_point(&rows, &summary);
        *verdict = run_verdict(*verdict, &rows, job->study.require_settled);
    }
out:
    record_point_release(&rows);
    return rc;
}

/* The point that the others are compared with: the one with the fewest ranks. */
static int base_point(const struct points *points)
{
    int base = 0;
    for (int i = 1; i < points->n; i++)
        if (points->point[i].ranks < points->point[base].ranks)
            base = i;
    return base;
}

static bool anything_left(const struct points *points, const bool *done)
{
    for (int i = 0; i < points->n; i++)
        if (!done[i])
            return true;
    return false;
}

/* The point whose run was cut off goes on before others begin. */
static void put_first(int *order, int n, int point)
{
    for (int i = 1; i < n; i++)
        if (order[i] == point) {
            memmove(order + 1, order, (size_t)i * sizeof *order);
            order[0] = point;
        }
}

int run_study(struct job *job, struct record *record, const bool *done)
{
    int n = job->points.n, verdict = 0, position = 0, rc = 0;
    int base = base_point(&job->points);
    int *order = must_alloc((size_t)n, sizeof *order);
    study_order((uint64_t)job->study.seed, job->launch, n, order);
    put_first(order, n, job->unfinished);
    /* A resumed launch measures its base again, so that its ratios have both sides in one launch. */
    if (done[base] && anything_left(&job->points, done) && !full_run_wanted(&job->study))
        TRY(run_one(job, record, base, position++, &verdict));
    for (int i = 0; i < n; i++)
        if (!done[order[i]])
            TRY(run_one(job, record, order[i], position++, &verdict));
    rc = agree_broadcast(&verdict, sizeof verdict, 0, job->world);
    if (rc == 0)
        rc = verdict;
out:
    free(order);
    return rc;
}
