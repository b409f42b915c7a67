#include "analysis/report_laws.h"

#include "analysis/curve_fit.h"
#include "base/err.h"

static void one_regime(FILE *to, const struct series *series, struct regime *regime, uint64_t seed)
{
    struct curve_fit_options how = {.seed = seed};
    struct curve_fit fit;
    if (regime->n_points < REPORT_LAWS_POINTS) {
        regime_release(regime);
        return;
    }
    fprintf(to, "#\n");
    if (curve_fit_init(&fit, series, regime, &how) != 0) {
        fprintf(to, "# laws    none: %s\n", fail_message());
        fail_clear();
        return;
    }
    curve_fit_text(to, &fit);
    curve_fit_release(&fit);
}

void report_laws(FILE *to, const struct report *report)
{
    struct series_set set = {0};
    struct regime regimes[REGIMES];
    const char *why;
    int n;
    series_from_scaling(&set, report->scaling, "curve", report->files[0]->path);
    for (int i = 0; i < set.n_series; i++) {
        if (!series_fittable(&set.series[i], &why) ||
            regime_find(regimes, &n, &set.series[i], REGIME_AS_SERIES) != 0)
            continue;
        for (int k = 0; k < n; k++)
            one_regime(to, &set.series[i], &regimes[k], report->seed);
    }
    series_set_release(&set);
}
