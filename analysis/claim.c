#include "analysis/claim.h"

#include <math.h>
#include <stdio.h>

static bool ends(const struct stats_interval *x)
{
    return !isnan(x->value) && !isnan(x->low) && !isnan(x->high);
}

static bool aa_too_wide(const struct claim *c)
{
    double margin = fabs(c->bound - 1.0);
    return fmax(fabs(c->aa.high - 1.0), fabs(c->aa.low - 1.0)) > margin;
}

enum claim_verdict claim_judge(const struct claim *c)
{
    bool all, none;
    if (!ends(&c->ratio) || !ends(&c->aa) || aa_too_wide(c))
        return CLAIM_UNDECIDED;
    all = c->at_least ? c->ratio.low >= c->bound : c->ratio.high <= c->bound;
    none = c->at_least ? c->ratio.high < c->bound : c->ratio.low > c->bound;
    return all ? CLAIM_HOLDS : none ? CLAIM_FAILS : CLAIM_UNDECIDED;
}

enum claim_verdict claim_differs(const struct stats_interval *ratio,
                                 const struct stats_interval *aa)
{
    struct claim above = {*ratio, *aa, ratio->value, true};
    if (!ends(ratio) || !ends(aa) || (ratio->low <= 1.0 && ratio->high >= 1.0))
        return CLAIM_UNDECIDED;
    return aa_too_wide(&above) ? CLAIM_UNDECIDED : CLAIM_HOLDS;
}

void claim_widen(struct stats_interval *widest, const struct stats_interval *aa)
{
    bool first = widest->n++ == 0, low = !isnan(widest->low) && !isnan(aa->low),
         high = !isnan(widest->high) && !isnan(aa->high);
    widest->low = first ? aa->low : low ? fmin(widest->low, aa->low) : (double)NAN;
    widest->high = first ? aa->high : high ? fmax(widest->high, aa->high) : (double)NAN;
}

static const char *reason(const struct claim *c)
{
    if (!ends(&c->ratio))
        return " (the ratio has no interval)";
    if (!ends(&c->aa))
        return " (no A/A ratio beside it)";
    return aa_too_wide(c) ? " (A/A is wider than the margin)"
                          : " (the interval contains the bound)";
}

void claim_text(const struct claim *c, char *text, size_t size)
{
    static const char *const words[] = {"undecided", "holds", "fails"};
    enum claim_verdict verdict = claim_judge(c);
    snprintf(text, size, "%.4g [%.4g, %.4g] %s %.4g %s%s; A/A %.4g [%.4g, %.4g]", c->ratio.value,
             c->ratio.low, c->ratio.high, c->at_least ? ">=" : "<=", c->bound, words[verdict],
             verdict == CLAIM_UNDECIDED ? reason(c) : "", c->aa.value, c->aa.low, c->aa.high);
}
