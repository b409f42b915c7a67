#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/units.h"
#include "driver/calibrate_parts.h"
#include "driver/point_row.h"

struct ceiling_row *calibrate_row(struct calibration *c, const char *kind, const char *shape)
{
    c->ceilings = record_room(c->ceilings, sizeof *c->ceilings, c->n, &c->capacity, 1);
    struct ceiling_row *row = &c->ceilings[c->n++];
    point_text(row->kind, sizeof row->kind, kind);
    point_text(row->shape, sizeof row->shape, shape);
    row->group = 1;
    return row;
}

void calibrate_times(struct ceiling_row *row, double *seconds, int n, double work, const char *unit)
{
    double median = stats_median(seconds, n);
    row->n = n;
    row->time_us = 1e6 * median;
    row->least_us = 1e6 * stats_quantile(seconds, n, 0.0);
    row->rate = work / median;
    point_text(row->unit, sizeof row->unit, unit);
}

/* On a thread of the device's library. */
static void wait_for_release(void *arg)
{
    struct calibrate_hold *hold = arg;
    while (!atomic_load(&hold->released))
        units_sleep_ns(1000);
}

void calibrate_hold(struct device *device, int stream, struct calibrate_hold *hold)
{
    atomic_store(&hold->released, 0);
    if (!device->type->runs_host_tasks && device->type->notify != NULL)
        device->type->notify(device, stream, wait_for_release, hold);
}

void calibrate_warm(struct device *device, void (*give)(void *arg), void *arg)
{
    device->type->sync(device);
    give(arg);
    device->type->sync(device);
}

double calibrate_time(struct device *device, int stream, void (*give)(void *arg), void *arg)
{
    struct calibrate_hold hold;
    device->type->sync(device);
    calibrate_hold(device, stream, &hold);
    device->type->stamp(device, stream, 0);
    give(arg);
    device->type->stamp(device, stream, 1);
    atomic_store(&hold.released, 1);
    device->type->sync(device);
    return (double)(device->type->when(device, 1) - device->type->when(device, 0)) / 1e9;
}

void calibrate_fact(struct fact *fact, double value, const char *format, ...)
{
    va_list list;
    fact->value = value;
    fact->source = SOURCE_MEASURED;
    va_start(list, format);
    vsnprintf(fact->from, sizeof fact->from, format, list);
    va_end(list);
    for (char *at = fact->from; *at != '\0'; at++)
        if (*at == '"' || *at == '\\')
            *at = '\'';
}
