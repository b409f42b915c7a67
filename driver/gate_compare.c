#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "driver/gate.h"
#include "driver/state.h"

const struct gate_bounds *gate_bounds(enum gate_numbers numbers)
{
    static const struct gate_bounds bounds[] = {
        [GATE_FP32] = {GATE_STEPS, 1e-5, 1e-5, 1e-5, 1e-4, 1e-4, 0, 1e-5, 0},
        [GATE_TF32] = {GATE_STEPS, 1e-2, 1e-3, 1e-3, 3e-3, 1e-2, 0.15, 1e-2, 3e-4},
        [GATE_BF16] = {GATE_STEPS_MOST, 2e-2, 5e-4, 1e-3, 5e-3, 1e-2, 0.15, 3e-2, 3e-4},
        [GATE_FP32_BF16] = {GATE_STEPS_MOST, 2e-2, 1e-5, 1e-3, 5e-3, 1e-2, 0.15, 1e-5, 3e-4},
        [GATE_TF32_BF16] = {GATE_STEPS_MOST, 2e-2, 1e-3, 1e-3, 5e-3, 1e-2, 0.15, 1e-2, 3e-4},
    };
    return &bounds[numbers];
}

static const struct gate_bounds *bounds_of(const struct gate_reference *reference)
{
    return reference->bounds ? reference->bounds : gate_bounds(GATE_FP32);
}

static double norm_of(const float *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

struct gate_row gate_row_of(const char *check, const char *subject, double expected, double found,
                            double difference, double allowed)
{
    struct gate_row row = {.expected = expected,
                           .found = found,
                           .difference = difference,
                           .allowed = allowed,
                           .passed = difference <= allowed};
    snprintf(row.check, sizeof row.check, "%s", check);
    snprintf(row.subject, sizeof row.subject, "%s", subject);
    return row;
}

/* What a rank holds of one tensor of the reference, summed over its pieces. */
struct tally {
    double difference;              /* squares: gradient against the reference */
    double found, expected;         /* squares: gradient outside what is structurally zero */
    double all_found, all_expected; /* squares: gradient */
    double worst, largest, padded;  /* parameter: difference, size; squares of padded rows */
    /* squares: parameter difference outside what is structurally zero; where the reference has a gradient
     * below `least`, only of what an update the other way (`turned`) does not explain */
    double moved, least, turned;
};

struct compare {
    const struct plan_tensor *tensor; /* of the reference, whole */
    const float *gradient, *parameter;
    const float *found_gradient, *found_parameter; /* of the piece */
    int64_t first;
    struct tally *tally;
};

static void compare_element(const struct compare *c, int64_t whole, int64_t local)
{
    struct tally *tally = c->tally;
    const struct plan_tensor *t = c->tensor;
    double g = (double)c->found_gradient[local], r = (double)c->gradient[whole];
    double p = (double)c->found_parameter[local], q = (double)c->parameter[whole];
    double d = fabs(p - q);
    bool is_zero = whole >= t->zero_first && whole < t->zero_first + t->zero_count;
    tally->difference += (g - r) * (g - r);
    tally->all_found += g * g;
    tally->all_expected += r * r;
    tally->found += is_zero ? 0 : g * g;
    tally->expected += is_zero ? 0 : r * r;
    if (whole >= t->valid_rows * t->columns)
        tally->padded += g * g + p * p;
    if (!(d <= tally->worst)) /* NaN stays */
        tally->worst = d;
    tally->largest = fmax(tally->largest, fabs(q));
    bool is_unsure = fabs(r) < tally->least && d <= tally->turned;
    tally->moved += is_zero || is_unsure ? 0 : d * d; /* NaN stays */
}

static void compare_run(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    const struct compare *c = arg;
    for (int64_t i = 0; i < count; i++)
        compare_element(c, whole_first + i, local_first - c->first + i);
}

/* Below which the sign of a gradient is not sure: all that AdamW makes of it in its first step. */
static double least_of(const struct gate_reference *reference, const struct plan_tensor *t,
                       double global)
{
    const struct gate_bounds *bounds = bounds_of(reference);
    int64_t count = t->rows * t->columns;
    if (reference->steps > 1 || bounds->update == 0)
        return 0;
    double norm = fmax(norm_of(reference->gradient + t->offset, count), 1e-3 * global);
    return 5 * bounds->gradient * norm / sqrt((double)count);
}

static void tally_pieces(const struct gate_reference *reference, const struct gate_found *found,
                         const struct plan_tensor *t, double least, struct tally *tally)
{
    const struct plan *plan = found->plan;
    *tally = (struct tally){.least = least, .turned = 1.01 * (double)reference->model.lr};
    for (int i = 0; i < plan->n_pieces; i++) {
        const struct plan_piece *piece = &plan->pieces[i];
        if (strcmp(plan->tensors[piece->tensor].name, t->name) != 0)
            continue;
        struct compare compare = {.tensor = t,
                                  .gradient = reference->gradient + t->offset,
                                  .parameter = reference->parameter + t->offset,
                                  .found_gradient = found->gradient + piece->offset,
                                  .found_parameter = found->parameter + piece->offset,
                                  .first = piece->first,
                                  .tally = tally};
        plan_piece_runs(plan, piece, compare_run, &compare);
    }
}

/* How far the reference moved a tensor from where it began, of elements as in struct tally. */
static double reference_moved(const struct gate_reference *reference, int tensor, double least)
{
    const struct plan_tensor *t = &reference->plan.tensors[tensor];
    struct plan_piece whole = {.tensor = tensor, .count = t->rows * t->columns};
    float *initial = must_alloc((size_t)whole.count, sizeof *initial);
    double sum = 0;
    state_initial(&reference->plan, &whole, reference->seed, 1, initial);
    for (int64_t i = 0; i < whole.count; i++) {
        double d = (double)reference->parameter[t->offset + i] - (double)initial[i];
        bool is_zero = i >= t->zero_first && i < t->zero_first + t->zero_count;
        double g = fabs((double)reference->gradient[t->offset + i]);
        sum += is_zero || g < least ? 0 : d * d;
    }
    free(initial);
    return sqrt(sum);
}

static struct gate_row update_row(const struct gate_reference *reference, int tensor,
                                  const struct tally *tally, double largest)
{
    const char *name = reference->plan.tensors[tensor].name;
    double relative = bounds_of(reference)->update;
    if (relative == 0)
        return gate_row_of("update", name, tally->largest, tally->worst, tally->worst,
                           1e-5 * largest + 0.02 * reference->steps * (double)reference->model.lr);
    double moved = reference_moved(reference, tensor, tally->least);
    return gate_row_of("update", name, moved, sqrt(tally->moved), sqrt(tally->moved),
                       relative * moved);
}

/* The rows of one tensor: bounds are those of the whole tensor, whatever part is held. */
static int64_t compare_tensor(const struct gate_reference *reference, int tensor,
                              const struct tally *tally, double global, struct gate_row *rows)
{
    const struct plan_tensor *t = &reference->plan.tensors[tensor];
    const struct gate_bounds *bounds = bounds_of(reference);
    int64_t count = t->rows * t->columns, n = 0;
    double norm = norm_of(reference->gradient + t->offset, count), largest = 0;
    double floor = 1e-3 * global;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)reference->parameter[t->offset + i]));
    rows[n++] =
        gate_row_of("gradient", t->name, sqrt(tally->all_expected), sqrt(tally->all_found),
                    sqrt(tally->difference), bounds->gradient * (norm > floor ? norm : floor));
    rows[n++] = update_row(reference, tensor, tally, largest);
    bool good = isfinite(tally->found) && (tally->found > 0) == (tally->expected > 0);
    rows[n++] =
        gate_row_of("nonzero", t->name, tally->expected > 0, sqrt(tally->found), good ? 0 : 1, 0);
    if (t->valid_rows < t->rows)
        rows[n++] = gate_row_of("padded", t->name, 0, sqrt(tally->padded), sqrt(tally->padded), 0);
    return n;
}

/* Tied tokens are reported; what the reference was told is judged. */
static int64_t compare_routing(const struct gate_reference *reference,
                               const struct gate_found *found, struct gate_row *rows)
{
    const struct gate_routing *r = &reference->routed;
    int64_t wrong = r->refused + r->tokens - r->known;
    rows[0] = gate_row_of("tied-tokens", "step 1", 0, found->tied, 0, 0);
    rows[1] =
        gate_row_of("routing", "step 1", (double)r->known, (double)r->followed, (double)wrong, 0);
    return r->tokens > 0 ? 2 : 1;
}

int64_t gate_compare(const struct gate_reference *reference, const struct gate_found *found,
                     struct gate_row *rows)
{
    const struct gate_bounds *bounds = bounds_of(reference);
    double global = norm_of(reference->gradient, reference->plan.n_parameters);
    int64_t n = 0;
    for (int i = 0; i < reference->plan.n_tensors; i++) {
        struct tally tally;
        const struct plan_tensor *t = &reference->plan.tensors[i];
        tally_pieces(reference, found, t, least_of(reference, t, global), &tally);
        n += compare_tensor(reference, i, &tally, global, rows + n);
    }
    for (int step = 0; step < reference->steps; step++) {
        char subject[16];
        snprintf(subject, sizeof subject, "step %d", step + 1);
        double loss = reference->loss[step], norm = reference->norm[step];
        double loss_bound = step == 0 ? bounds->loss_first : bounds->loss;
        double norm_bound = step == 0 ? bounds->norm_first : bounds->norm;
        rows[n++] = gate_row_of("loss", subject, loss, found->loss[step],
                                fabs(found->loss[step] - loss), loss_bound * loss);
        rows[n++] = gate_row_of("norm", subject, norm, found->norm[step],
                                fabs(found->norm[step] - norm), norm_bound * norm);
    }
    if (reference->model.experts > 0 && reference->routing.kind == ROUTING_LEARNED)
        n += compare_routing(reference, found, rows + n);
    return n;
}

double gate_severity(const struct gate_row *row)
{
    if (isnan(row->difference))
        return INFINITY;
    if (row->allowed > 0)
        return row->difference / row->allowed;
    return row->passed ? 0 : INFINITY;
}
