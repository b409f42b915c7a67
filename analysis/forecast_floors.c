#include "analysis/forecast.h"

/*
 * From the published curves of tests/golden/backtest/curves.csv (Narayanan et al., SC21, table 2;
 * MaxText on TPU v5e; NVIDIA DGX Cloud benchmarks v25.03): three fitted points or more, every
 * later point of a curve predicted, quantiles over curves. tests/unit/analysis/test_backtest.c
 * computes them again.
 */
const struct forecast_floor forecast_floors[FORECAST_FLOORS] = {
    {FORECAST_X2, 0.028132, 0.039423, 11, 31},
    {FORECAST_X4, 0.056618, 0.065405, 11, 20},
};
