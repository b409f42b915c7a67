/*
 * proof: every point does the work that was asked for, shown by three counts that share no code.
 *
 *   formula   closed form from model, batch, layout and policy (workloads/model, formulas)
 *   plan      sum over the ops of every rank's plan (plan_count)
 *   executed  counted where kernels call their library and where communicators post
 *
 * Counted are tokens, model FLOPs (with recomputation hardware FLOPs beside them), bytes on the wire
 * of each axis, and operations. All three must agree at each point; tokens and model FLOPs must also
 * equal those of the launch's first point of the same sequence (strong scaling) or be proportional
 * to the ranks (weak). With sharded state operations have no closed form: two counts are compared.
 * With dropless routing the router decides how many bytes go over ep: formula and plan say what even
 * routing would send, "executed" is as measured.
 */
#ifndef DRIVER_PROOF_H
#define DRIVER_PROOF_H

#include "analysis/record.h"
#include "driver/job.h"
#include "workloads/plan.h"

/* Work of this rank in one full step, as the executor counted it. */
struct proof_counts {
    double tokens, model_flops, hardware_flops, ops, wire_bytes[AXIS_COUNT];
    double counts; /* times that the host waited for counts of rows (dropless routing) */
};

/* The counters now; subtract two readings to get the work between. */
void proof_read(const struct execute *execute, struct proof_counts *out);
void proof_subtract(struct proof_counts *later, const struct proof_counts *earlier);

/*
 * Collective over the point. Sums over ranks and appends one row per quantity to out->work on rank
 * 0. Returns 0 whatever the verdict; FAIL_COMM.
 */
int proof_point(struct job *job, const struct point *point, const struct plan *plan,
                const struct proof_counts *step, const void *parent, struct record_point *out);

/* 0, or FAIL_WRONG with `why` naming the first quantity that does not agree and the three counts. */
int proof_verdict(const struct record_point *out, char *why, size_t size);

#endif
