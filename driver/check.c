#include "driver/check.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "driver/state.h"

/* L2 norm, and dot product with generated +-1, in fp64. */
struct checksum {
    double norm, dot;
};

/* Of the masters, by tensor, over the pieces that this rank owns; -1 where it owns nothing of it. */
static struct checksum *checksums(struct execute *e, uint64_t seed)
{
    const struct plan *plan = e->plan;
    struct checksum *sums = must_alloc((size_t)plan->n_tensors, sizeof *sums);
    for (int i = 0; i < plan->n_tensors; i++)
        sums[i].norm = -1;
    for (int i = 0; i < plan->n_pieces; i++) {
        const struct plan_piece *piece = &plan->pieces[i];
        struct checksum *sum = &sums[piece->tensor];
        if (state_valid(plan, piece) == 0)
            continue; /* padding alone: nothing there changes */
        const char *name = plan->tensors[piece->tensor].name;
        struct tensor at = {plan->master, piece->offset * (int64_t)sizeof(float)};
        double part[2];
        execute_sums(e, at, piece->count, rng_key(rng_key(seed, "checksum"), name), part);
        sum->norm = sum->norm < 0 ? sqrt(part[0]) : hypot(sum->norm, sqrt(part[0]));
        sum->dot += part[1];
    }
    return sums;
}

static struct gate_row finite_row(const struct step_row *step)
{
    bool finite = isfinite(step->loss) && isfinite(step->grad_norm);
    return gate_row_of("finite", "loss and gradient norm", 1, finite, finite ? 0 : 1, 0);
}

static struct gate_row counter_row(const char *check, int expected, int found)
{
    return gate_row_of(check, "step 1", expected, found, abs(found - expected), 0);
}

static int64_t check_loss(const struct model *model, const struct step_row *step,
                          struct gate_row *rows)
{
    /* Logits of a normalised row and a random head are normal with variance width * sigma^2. */
    double variance = (double)model->hidden * 0.02 * 0.02;
    double expected = log((double)model->vocabulary) + variance / 2;
    int64_t n = 0;
    rows[n++] = gate_row_of("initial-loss", "step 1", expected, step->loss,
                            fabs(step->loss - expected), 0.02 * expected);
    rows[n++] = finite_row(step);
    return n;
}

static int64_t check_first_step(struct execute *e, const struct input *input,
                                const struct model *model, struct proof_counts *work,
                                struct gate_row *rows)
{
    struct proof_counts before;
    struct execute_samples samples;
    proof_read(e, &before);
    execute_block(e, VARIANT_FULL, 0, 1, -1, &samples);
    proof_read(e, work);
    proof_subtract(work, &before);
    const struct step_row *step = samples.step;
    double batch = (double)e->plan->global_batch;
    double valid = (double)input_valid(input, 0, e->plan->global_batch);
    int64_t n = e->kernels->no_numerics ? 0 : check_loss(model, step, rows);
    rows[n++] = gate_row_of("valid-tokens", "step 1", valid, (double)step->valid_tokens,
                            fabs((double)step->valid_tokens - valid), 0);
    rows[n++] = counter_row("consumed-samples", (int)batch, (int)step->consumed);
    double effective = (double)e->plan->layout.degrees.dp * (double)e->plan->samples;
    rows[n++] = gate_row_of("effective-batch", "replicas * local batch * accumulation", batch,
                            effective, fabs(effective - batch), 0);
    rows[n++] = counter_row("micro-steps", e->plan->micro_batches, step->micro_step);
    rows[n++] = counter_row("optimizer-steps", 1, step->optimizer_step);
    rows[n++] =
        counter_row("global-steps", (int)e->global_steps, step->optimizer_step + step->skipped);
    rows[n++] = gate_row_of("skipped", "step 1", 0, step->skipped, step->skipped, 0);
    execute_samples_release(&samples);
    return n;
}

static int64_t check_changes(const struct plan *plan, const struct checksum *before,
                             const struct checksum *after, struct gate_row *rows)
{
    for (int i = 0; i < plan->n_tensors; i++) {
        bool owned = before[i].norm >= 0;
        bool same = owned && before[i].norm == after[i].norm && before[i].dot == after[i].dot;
        rows[i] = gate_row_of("changes", plan->tensors[i].name, before[i].norm, after[i].norm,
                              same || !isfinite(after[i].norm), 0);
    }
    return plan->n_tensors;
}

/* A tenth less: in 30 steps, 10 of them warm-up, a model of 124 million parameters loses a fourth of
 * its first loss, a small one half. */
static const double check_share = 0.9;

/* The row's difference is the number of steps that it took; what does not learn needs too many. */
static struct gate_row check_repeated(struct execute *e, struct input *input, uint64_t seed)
{
    double first = 0, last = INFINITY;
    int steps = 0;
    execute_reset(e, seed);
    input->repeat = e->plan->global_batch;
    while (steps < CHECK_REPEATS && !(last < check_share * first)) {
        struct execute_samples samples;
        execute_block(e, VARIANT_FULL, 0, 1, -1, &samples);
        last = samples.step[0].loss;
        first = steps++ == 0 ? last : first;
        execute_samples_release(&samples);
    }
    input->repeat = 0;
    return gate_row_of("repeated-batch", "steps to 0.9 of the first loss", check_share * first,
                       last, last < check_share * first ? steps : CHECK_REPEATS + 1, CHECK_REPEATS);
}

int check_full(struct execute *e, struct input *input, const struct model *model, uint64_t seed,
               const void *parent, struct proof_counts *work, struct record_point *out)
{
    struct gate_row *rows = must_alloc((size_t)e->plan->n_tensors + 16, sizeof *rows);
    bool numerics = !e->kernels->no_numerics;
    struct checksum *before = numerics ? checksums(e, seed) : NULL;
    int64_t n = check_first_step(e, input, model, work, rows);
    struct checksum *after = numerics ? checksums(e, seed) : NULL;
    if (numerics) {
        n += check_changes(e->plan, before, after, rows + n);
        rows[n++] = check_repeated(e, input, seed);
    }
    execute_reset(e, seed);
    int rc = gate_collect(rows, n, &e->plan->layout, parent, out);
    free(before);
    free(after);
    free(rows);
    return rc;
}
