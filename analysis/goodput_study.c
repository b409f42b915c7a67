#include "analysis/goodput_study.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/account.h"
#include "analysis/launches.h"
#include "analysis/studies.h"
#include "base/err.h"
#include "base/units.h"

void goodput_study_release(struct goodput_study *study)
{
    for (int i = 0; i < study->n_points; i++) {
        free((void *)study->points[i].parts);
        free(study->points[i].launch_s);
        goodput_run_release(&study->points[i].run);
    }
    for (int i = 0; i < study->n_files; i++)
        record_file_release(&study->files[i]);
    free(study->points);
    free(study->files);
    *study = (struct goodput_study){0};
}

/* ---- points ---- */

#define SAME(field) (strncmp(a->field, b->field, sizeof a->field) == 0)

/* Samples a step: of the job, in weak scaling of a rank. */
static double batch_of(const struct point_row *p)
{
    bool weak = strncmp(p->scaling, "weak", sizeof p->scaling) == 0;
    return (double)p->global_batch / (weak ? p->ranks : 1);
}

static bool same_work(const struct point_row *a, const struct point_row *b)
{
    return SAME(model) && SAME(dtype) && SAME(device) && SAME(topology) && SAME(scaling) &&
           SAME(input) && batch_of(a) == batch_of(b) && a->micro_batch == b->micro_batch &&
           a->sequence == b->sequence && a->tp == b->tp && a->pp == b->pp && a->cp == b->cp &&
           a->ep == b->ep && (a->shard > 1) == (b->shard > 1) && SAME(schedule) &&
           a->virtual_stages == b->virtual_stages && SAME(cp_kind) &&
           a->ranks_per_node == b->ranks_per_node;
}

/* As curves are: on another machine, or over another fabric, it is another kind. */
static bool same_kind(const struct goodput_point *a, const struct goodput_point *b)
{
    return same_work(a->row, b->row) && studies_same_machine(&a->file->head, &b->file->head);
}

static bool is_used(const struct point_row *row)
{
    return row->valid == 1 && row->copies <= 1 && row->nodes > 0 && row->ranks > 0;
}

/* The launches of one index: they follow each other in a file. */
static void take_point(struct goodput_study *study, const struct record_file *file, int first,
                       int n)
{
    const struct point_row *newest = &file->points[first + n - 1].point;
    if (!is_used(newest)) {
        study->n_left_out++;
        return;
    }
    study->points = must_grow(study->points, (size_t)study->n_points + 1, sizeof *study->points);
    struct goodput_point *p = &study->points[study->n_points++];
    *p = (struct goodput_point){.file = file, .row = newest, .n_parts = n};
    p->parts = must_alloc((size_t)n, sizeof *p->parts);
    for (int i = 0; i < n; i++)
        p->parts[i] = &file->points[first + i];
}

static void take_points(struct goodput_study *study, const struct record_file *file)
{
    for (int i = 0, n; i < file->n_points; i += n) {
        for (n = 1; i + n < file->n_points; n++)
            if (file->points[i + n].point.point != file->points[i].point.point)
                break;
        take_point(study, file, i, n);
    }
}

/* A kind is numbered by its first point. */
static void number_kinds(struct goodput_study *study)
{
    for (int i = 0; i < study->n_points; i++) {
        int j = 0;
        while (j < i && !same_kind(&study->points[j], &study->points[i]))
            j++;
        study->points[i].kind = j < i ? study->points[j].kind : study->n_kinds++;
    }
}

static int by_kind_and_nodes(const void *left, const void *right)
{
    const struct goodput_point *a = left, *b = right;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->row->nodes != b->row->nodes)
        return a->row->nodes < b->row->nodes ? -1 : 1;
    return (a->file > b->file) - (a->file < b->file);
}

/* ---- what a point tells ---- */

/* Mean period of the timed steps of one launch, in s. */
static int timed_launch(struct stats_interval *out, const struct record_point *part, uint64_t seed)
{
    struct account account;
    int rc = account_point(&account, part, seed);
    if (rc != 0)
        return rc;
    *out = account.step_ns;
    account_release(&account);
    out->value /= 1e9;
    out->low /= 1e9;
    out->high /= 1e9;
    return 0;
}

/* Of all its launches that passed and have any. */
static int timed_steps(struct goodput_point *p, uint64_t seed)
{
    p->launch_s = must_alloc((size_t)p->n_parts, sizeof *p->launch_s);
    for (int i = 0; i < p->n_parts; i++) {
        struct stats_interval *one = &p->launch_s[p->n_launches];
        if (p->parts[i]->steps.n == 0 || !is_used(&p->parts[i]->point))
            continue;
        int rc = timed_launch(one, p->parts[i], seed);
        if (rc != 0)
            return rc;
        p->n_launches += one->value > 0.0;
    }
    launches_join(p->launch_s, p->n_launches, 0.95, &p->step_s);
    return 0;
}

static int tell(struct goodput_point *p, uint64_t seed)
{
    int rc = goodput_run_of(&p->run, p->file, p->row->point);
    p->step_s = (struct stats_interval){NAN, NAN, NAN, 0};
    p->step_of_run = rc == 0 && p->run.there && isfinite(p->run.step_s);
    if (p->step_of_run)
        p->step_s =
            (struct stats_interval){p->run.step_s, NAN, NAN, p->run.steps - p->run.warm_up_steps};
    else if (rc == 0)
        rc = timed_steps(p, seed);
    return rc;
}

static bool same_launch(const struct record_file *a, const struct record_file *b)
{
    return strcmp(a->head.study_digest, b->head.study_digest) == 0 &&
           a->head.t0_unix_ns == b->head.t0_unix_ns;
}

static int read_files(struct goodput_study *out, char **paths, int n)
{
    out->files = must_alloc((size_t)n + 1, sizeof *out->files);
    for (int i = 0; i < n; i++) {
        int rc = record_read(&out->files[i], paths[i]);
        if (rc != 0)
            return rc;
        out->n_files++;
        for (int j = 0; j < i; j++)
            if (same_launch(&out->files[i], &out->files[j]))
                return fail(FAIL_USAGE,
                            "%s and %s hold the same launch: it would count twice; give one of "
                            "them",
                            paths[j], paths[i]);
    }
    return 0;
}

int goodput_study_read(struct goodput_study *out, char **paths, int n, uint64_t seed)
{
    int rc;
    *out = (struct goodput_study){0};
    TRY(read_files(out, paths, n));
    for (int i = 0; i < out->n_files; i++)
        take_points(out, &out->files[i]);
    number_kinds(out);
    if (out->n_points > 1)
        qsort(out->points, (size_t)out->n_points, sizeof *out->points, by_kind_and_nodes);
    for (int i = 0; i < out->n_points; i++)
        TRY(tell(&out->points[i], seed));
out:
    return rc;
}

const struct goodput_point *goodput_kind_first(const struct goodput_study *study, int kind)
{
    for (int i = 0; i < study->n_points; i++)
        if (study->points[i].kind == kind)
            return &study->points[i];
    return NULL;
}

/* Another kind did the same work: on another machine. */
static bool needs_machine(const struct goodput_study *study, int kind)
{
    for (int k = 0; k < study->n_kinds; k++)
        if (k != kind &&
            same_work(goodput_kind_first(study, k)->row, goodput_kind_first(study, kind)->row))
            return true;
    return false;
}

void goodput_kind_text(const struct goodput_study *study, int kind, char *text, size_t size)
{
    const struct point_row *p = goodput_kind_first(study, kind)->row;
    double batch = batch_of(p);
    bool weak = strncmp(p->scaling, "weak", sizeof p->scaling) == 0;
    int used = snprintf(
        text, size,
        "%.64s, %.16s scaling, %.16s, %.16s%s%.64s, %d rank%s a node, %g sample%s%s (micro-batch "
        "%lld) of %lld token%s a step, input %.64s",
        p->model, p->scaling, p->dtype, p->device, p->topology[0] ? ": " : "", p->topology,
        p->ranks_per_node, units_s(p->ranks_per_node), batch, units_s(batch), weak ? " a rank" : "",
        (long long)p->micro_batch, (long long)p->sequence, units_s((double)p->sequence), p->input);
    if (used > 0 && (size_t)used < size && (p->tp * p->pp * p->cp * p->ep > 1 || p->shard > 1))
        used += snprintf(text + used, size - (size_t)used, ", %.32s", p->parallel);
    if (used > 0 && (size_t)used < size && needs_machine(study, kind))
        snprintf(text + used, size - (size_t)used, ", machine and fabric of %s",
                 goodput_kind_first(study, kind)->file->path);
}

int goodput_node_counts(const struct goodput_study *study, int kind, double *out, int room)
{
    int n = 0;
    for (int i = 0; i < study->n_points && n < room; i++) {
        const struct goodput_point *p = &study->points[i];
        if (p->kind == kind && (n == 0 || out[n - 1] != p->row->nodes))
            out[n++] = p->row->nodes;
    }
    return n;
}

/* ---- failures ---- */

/* Failures are taken as independent: a t interval. NaN entries are left out. */
static void mean_of(struct stats_interval *out, double *x, int n)
{
    int known = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(x[i]))
            x[known++] = x[i];
    stats_t_interval(x, known, 0.95, out);
    stats_positive(out);
}

void goodput_recovery_cost(const struct goodput_study *study, int kind, double nodes,
                           struct stats_interval *detect_s, struct stats_interval *restart_s)
{
    int n = 0, room = 1;
    for (int i = 0; i < study->n_points; i++)
        room += study->points[i].run.n_recoveries;
    double *detect = must_alloc((size_t)room, sizeof *detect);
    double *restart = must_alloc((size_t)room, sizeof *restart);
    double *began = must_alloc((size_t)room, sizeof *began);
    for (int i = 0; i < study->n_points; i++) {
        const struct goodput_point *p = &study->points[i];
        if (p->kind != kind || (nodes > 0.0 && p->row->nodes != nodes))
            continue;
        for (int k = 0; k < p->run.n_recoveries; k++, n++) {
            const struct goodput_recovery *r = &p->run.recoveries[k];
            detect[n] = r->detect_s;
            restart[n] = r->noted ? r->restart_s : (double)NAN;
            began[n] = r->began_s;
        }
    }
    mean_of(detect_s, detect, n);
    mean_of(restart_s, restart, n);
    if (restart_s->n == 0)
        mean_of(restart_s, began, n);
    free(began);
    free(detect);
    free(restart);
}
