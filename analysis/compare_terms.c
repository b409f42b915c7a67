#include <math.h>
#include <string.h>

#include "analysis/compare.h"

const char *compare_term_name(int term)
{
    static const char *const names[N_COMPARE_TERMS] = {
#define COMPARE_NAME(name, text) text,
        COMPARE_TERMS(COMPARE_NAME)
#undef COMPARE_NAME
    };
    return names[term];
}

/* ---- what backward made again ---- */

struct again {
    double gemm_flops[2], gemm_ns; /* forward, backward; of backward */
    double other_ns;
    int64_t steps; /* of ranks */
};

static bool is(const char *text, const char *word)
{
    return strncmp(text, word, sizeof(text16)) == 0;
}

/* Kinds that belong to forward: in backward they can only be recomputation. */
static bool is_forward_kind(const char *kind)
{
    static const char *const kinds[] = {"attention", "norm", "gelu", "swiglu", "embed"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(kind, kinds[i]))
            return true;
    return false;
}

static void add_op(struct again *again, const struct op_row *op)
{
    bool backward = is(op->phase, "backward");
    if (is(op->kind, "gemm")) {
        again->gemm_flops[backward] += op->flops;
        again->gemm_ns += backward ? (double)op->duration_ns : 0.0;
    } else if (backward && is_forward_kind(op->kind)) {
        again->other_ns += (double)op->duration_ns;
    }
}

/* Mean over the ranks and steps whose operations were kept; 0 when none were. */
static double recompute_ns(const struct account *account)
{
    const struct record_point *p = account->record;
    struct again again = {0};
    int32_t first = -1;
    for (int64_t i = 0; i < p->ops.n; i++) {
        const struct op_row *op = &p->ops.rows[i];
        if (op->variant != VARIANT_FULL)
            continue;
        first = first < 0 ? op->op : first;
        again.steps += op->op == first;
        add_op(&again, op);
    }
    if (again.steps == 0)
        return 0.0;
    double beyond = again.gemm_flops[1] - 2.0 * again.gemm_flops[0];
    double gemm =
        beyond > 1e-6 * again.gemm_flops[1] ? again.gemm_ns * beyond / again.gemm_flops[1] : 0.0;
    return (gemm + again.other_ns) / (double)again.steps;
}

/* ---- terms of one run ---- */

/* Dense gradients go over dp, or over dp with cp; the tied embedding's between the ends of a pipeline. */
static int axis_term(const char *axis)
{
    if (is(axis, "embedding"))
        return COMPARE_PP;
    if (is(axis, "dp-cp"))
        return COMPARE_DP;
    for (int t = COMPARE_DP; t <= COMPARE_EDP; t++)
        if (is(axis, compare_term_name(t)))
            return t;
    return COMPARE_OTHER;
}

static void terms_of_run(const struct account *a, double step_ns, double term[N_COMPARE_TERMS])
{
    const double *stamped = a->series[ACCOUNT_INSTRUMENTED].term_ns;
    memset(term, 0, N_COMPARE_TERMS * sizeof *term);
    for (int i = 0; i < a->n_axes; i++) {
        const struct account_axis *axis = &a->axes[i];
        int t = axis_term(axis->name);
        if (t != COMPARE_OTHER)
            term[t] += isnan(axis->stall_ns) ? axis->stall_closed_ns : axis->stall_ns;
    }
    term[COMPARE_RECOMPUTE] = recompute_ns(a);
    term[COMPARE_SLOWDOWN] = isnan(a->slowdown_ns.value) ? 0.0 : a->slowdown_ns.value;
    term[COMPARE_COMPUTE] =
        stamped[TERM_COMPUTE] - term[COMPARE_SLOWDOWN] - term[COMPARE_RECOMPUTE];
    term[COMPARE_INPUT] = stamped[TERM_INPUT];
    term[COMPARE_IDLE] = stamped[TERM_IDLE];
    double known = 0.0;
    for (int t = 0; t < COMPARE_OTHER; t++)
        known += term[t];
    term[COMPARE_OTHER] = step_ns - known;
}

void compare_terms(const struct scaling_row *row, double term_ns[N_COMPARE_TERMS])
{
    int n = 0;
    memset(term_ns, 0, N_COMPARE_TERMS * sizeof *term_ns);
    for (int i = 0; i < row->n_used; i++) {
        const struct account *a = &row->runs[i].account;
        double term[N_COMPARE_TERMS];
        if (a->series[ACCOUNT_INSTRUMENTED].n == 0)
            continue;
        terms_of_run(a, a->step_ns.value, term);
        for (int t = 0; t < N_COMPARE_TERMS; t++)
            term_ns[t] += term[t];
        n++;
    }
    for (int t = 0; t < N_COMPARE_TERMS; t++)
        term_ns[t] = n > 0 ? term_ns[t] / n : (double)NAN;
}
