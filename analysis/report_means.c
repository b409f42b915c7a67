#include "analysis/report_means.h"

#include <math.h>

#include "analysis/report_columns.h"

/* Without a pipeline there is no bubble; with one, it takes ops that were timed. */
#define OF_PIPELINE(value) (p->replay_ms > 0 ? (value) : (double)NAN)
#define OF_TIMED(value) (p->topology[0] != '\0' ? (value) : (double)NAN)

static double graph_period_ns(const struct account *a)
{
    const struct account_series *graph = &a->series[ACCOUNT_GRAPH];
    return stats_mean(graph->period_ns, graph->n); /* NaN of none */
}

#define MEAN(name, value)                                                                          \
    static double of_launch_##name(const struct account *a)                                        \
    {                                                                                              \
        const struct point_row *p = &a->record->point;                                             \
        (void)p;                                                                                   \
        return (value);                                                                            \
    }                                                                                              \
    double mean_##name(const struct scaling_row *row)                                              \
    {                                                                                              \
        return scaling_mean(row, of_launch_##name);                                                \
    }
REPORT_MEANS(MEAN)

#define JOINED(name, field, scale)                                                                 \
    static struct stats_interval interval_##name(const struct account *a)                          \
    {                                                                                              \
        const struct stats_interval *x = &a->field;                                                \
        return (struct stats_interval){(scale)*x->value, (scale)*x->low, (scale)*x->high, x->n};   \
    }                                                                                              \
    struct stats_interval joined_##name(const struct scaling_row *row)                             \
    {                                                                                              \
        return scaling_mean_interval(row, interval_##name);                                        \
    }
REPORT_JOINED(JOINED)
