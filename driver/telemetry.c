#define _GNU_SOURCE /* SCHED_IDLE */
#include "driver/telemetry.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "base/nvml.h"
#include "base/units.h"
#include "driver/point_row.h"

struct moment {
    int64_t at_ns;
    struct nvml_sample sample;
};

struct reading { /* of the counters */
    int64_t at_ns;
    struct nvml_counters counters;
};

struct telemetry {
    struct nvml *nvml; /* the thread's while `watching`, else the caller's */
    int rank;
    struct nvml_limits limits;
    struct reading section, block, block_end;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool watching, asking, ended; /* under the lock */
    int n_moments;
    struct moment moments[TELEMETRY_MOMENTS];
};

/* ---- the thread ---- */

static void be_idle(void)
{
    struct sched_param none = {0};
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none); /* refused: it sleeps anyway */
}

static void wait_period(struct telemetry *t)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + TELEMETRY_PERIOD_NS;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&t->changed, &t->lock, &until);
}

/* The library is asked without the lock: a block that ends waits for the answer, no longer. */
static void ask(struct telemetry *t)
{
    struct moment *moment = &t->moments[t->n_moments];
    t->asking = true;
    pthread_mutex_unlock(&t->lock);
    moment->at_ns = units_now_ns();
    nvml_sample(t->nvml, &moment->sample);
    pthread_mutex_lock(&t->lock);
    t->asking = false;
    t->n_moments += t->watching;
    pthread_cond_broadcast(&t->changed);
}

static void *watch(void *arg)
{
    struct telemetry *t = arg;
    be_idle();
    pthread_mutex_lock(&t->lock);
    while (!t->ended) {
        if (!t->watching) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        wait_period(t);
        if (t->watching && !t->ended && t->n_moments < TELEMETRY_MOMENTS)
            ask(t);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- open and close ---- */

int telemetry_open(struct telemetry **out, const char *library, const char *bus, int rank)
{
    struct telemetry *t = must_alloc(1, sizeof *t);
    pthread_condattr_t clock;
    int rc = 0;

    *out = NULL;
    TRY(nvml_open(&t->nvml, library, bus));
    t->rank = rank;
    nvml_limits(t->nvml, &t->limits);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&t->thread, NULL, watch, t) != 0)
        die(FAIL_INTERNAL, "telemetry: no thread for it");
    *out = t;
    return 0;
out:
    free(t);
    return rc;
}

void telemetry_close(struct telemetry *t)
{
    if (t == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    t->ended = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    nvml_close(t->nvml);
    free(t);
}

static void set_watching(struct telemetry *t, bool on)
{
    pthread_mutex_lock(&t->lock);
    t->watching = on;
    pthread_cond_broadcast(&t->changed);
    while (t->asking)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

/* ---- rows ---- */

static struct telemetry_row *add(const struct telemetry *t, struct record_point *rows,
                                 const char *kind, int block, int64_t start_ns)
{
    struct telemetry_row *row = RECORD_ADD(&rows->telemetry, 1);
    point_text(row->kind, sizeof row->kind, kind);
    row->rank = t->rank;
    row->block = block;
    row->start_ns = start_ns;
    row->energy_j = row->sm_mhz = row->memory_mhz = row->power_w = row->temperature_c = NAN;
    row->power_limited_ns = row->thermal_limited_ns = row->reasons = -1;
    row->ecc_corrected = row->ecc_uncorrected = row->nvlink_errors = -1;
    return row;
}

static void read_counters(const struct telemetry *t, bool errors, struct reading *out)
{
    nvml_counters(t->nvml, errors, &out->counters);
    out->at_ns = units_now_ns();
}

/* What the counters gained from a reading to another. */
static struct telemetry_row *add_difference(const struct telemetry *t, struct record_point *rows,
                                            const char *kind, int block, const struct reading *from,
                                            const struct reading *to)
{
    struct nvml_counters d;
    nvml_since(&from->counters, &to->counters, &d);
    struct telemetry_row *row = add(t, rows, kind, block, from->at_ns);
    row->duration_ns = to->at_ns - from->at_ns;
    row->energy_j = d.energy_j;
    row->power_limited_ns = d.power_limited_ns;
    row->thermal_limited_ns = d.thermal_limited_ns;
    row->ecc_corrected = d.ecc_corrected;
    row->ecc_uncorrected = d.ecc_uncorrected;
    row->nvlink_errors = d.nvlink_errors;
    return row;
}

void telemetry_section(struct telemetry *t)
{
    if (t != NULL)
        read_counters(t, true, &t->section);
}

void telemetry_section_end(struct telemetry *t, struct record_point *rows)
{
    if (t == NULL)
        return;
    struct reading now;
    read_counters(t, true, &now);
    struct telemetry_row *row = add_difference(t, rows, "section", 0, &t->section, &now);
    row->sm_mhz = t->limits.sm_mhz;
    row->memory_mhz = t->limits.memory_mhz;
    row->power_w = t->limits.power_w;
}

void telemetry_block(struct telemetry *t, bool moments)
{
    if (t == NULL)
        return;
    read_counters(t, false, &t->block);
    t->n_moments = 0;
    if (moments)
        set_watching(t, true);
}

void telemetry_block_stop(struct telemetry *t)
{
    if (t == NULL)
        return;
    set_watching(t, false);
    read_counters(t, false, &t->block_end);
}

void telemetry_block_rows(struct telemetry *t, int block, struct record_point *rows)
{
    if (t == NULL)
        return;
    add_difference(t, rows, "block", block, &t->block, &t->block_end);
    for (int i = 0; i < t->n_moments; i++) {
        const struct moment *moment = &t->moments[i];
        struct telemetry_row *row = add(t, rows, "moment", block, moment->at_ns);
        row->sm_mhz = moment->sample.sm_mhz;
        row->memory_mhz = moment->sample.memory_mhz;
        row->power_w = moment->sample.power_w;
        row->temperature_c = moment->sample.temperature_c;
        row->reasons = moment->sample.reasons;
    }
}

void telemetry_block_end(struct telemetry *t, int block, struct record_point *rows)
{
    telemetry_block_stop(t);
    telemetry_block_rows(t, block, rows);
}
