/* The timed device keeps its own clock: kernels are chained, lateness is not paid twice, streams wait
 * for each other, and large memory is one region seen many times. */
#include "base/device_timed.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/units.h"
#include "tests/test.h"

enum { MS = 1000000, TRIES = 6 };

static void busy(void *arg, void *native)
{
    device_timed_busy(native, *(const int64_t *)arg);
}

static void kernel(struct device *device, int stream, int64_t ns)
{
    device->type->launch(device, stream, busy, &ns);
}

static void open_timed(struct device *device, int n_streams)
{
    CHECK_EQ(device_open(device, &device_timed, 0, n_streams), 0);
    CHECK_EQ(device->type->reserve(device, 1024, 1024), 0);
}

static int64_t between(struct device *device, int from, int to)
{
    return device->type->when(device, to) - device->type->when(device, from);
}

/* The shortest of some tries: other processes can only make one longer. */
static int64_t shortest(int64_t (*try)(struct device *))
{
    struct device device;
    int64_t best = INT64_MAX;
    open_timed(&device, 2);
    for (int i = 0; i < TRIES; i++) {
        int64_t ns = try(&device);
        best = ns < best ? ns : best;
        device.type->sync(&device);
    }
    device_close(&device);
    return best;
}

static int64_t chain(struct device *d)
{
    d->type->stamp(d, 0, 0);
    for (int i = 0; i < 200; i++)
        kernel(d, 0, MS / 20);
    d->type->stamp(d, 0, 1);
    d->type->sync(d);
    return between(d, 0, 1);
}

/* Each kernel stamped: were every one late by a wake-up, the sum would show it. */
static int64_t chain_of_stamps(struct device *d)
{
    d->type->stamp(d, 0, 0);
    for (int i = 1; i <= 200; i++) {
        kernel(d, 0, MS / 20);
        d->type->stamp(d, 0, i);
    }
    d->type->sync(d);
    return between(d, 0, 200);
}

/* A host that is held up for 4 of 12 ms gives kernels out late, and they end in time. */
static int64_t late_host(struct device *d)
{
    d->type->stamp(d, 0, 0);
    kernel(d, 0, 6 * MS);
    units_sleep_ns(4 * MS);
    kernel(d, 0, 6 * MS);
    d->type->stamp(d, 0, 1);
    d->type->sync(d);
    return between(d, 0, 1);
}

/* 3 ms on stream 1 beside 5 ms on stream 0; then 2 ms more on stream 0, which waits for both. */
static int64_t two_streams(struct device *d)
{
    d->type->stamp(d, 0, 0);
    d->type->stamp(d, 1, 2);
    kernel(d, 1, 3 * MS);
    d->type->stamp(d, 1, 3);
    kernel(d, 0, 5 * MS);
    d->type->await(d, 0, 3);
    kernel(d, 0, 2 * MS);
    d->type->stamp(d, 0, 1);
    d->type->sync(d);
    CHECK(between(d, 2, 3) >= 3 * MS);
    return between(d, 0, 1);
}

/* What is awaited ends after the stream: it goes on from there, not from when it was woken. */
static int64_t waiting(struct device *d)
{
    d->type->stamp(d, 0, 0);
    kernel(d, 1, 6 * MS);
    d->type->stamp(d, 1, 2);
    kernel(d, 0, 1 * MS);
    d->type->await(d, 0, 2);
    kernel(d, 0, 2 * MS);
    d->type->stamp(d, 0, 1);
    d->type->sync(d);
    CHECK(between(d, 2, 1) >= 2 * MS);
    return between(d, 2, 1);
}

static void keeps_time(void)
{
    static const struct {
        int64_t (*try)(struct device *);
        int64_t ns;
    } cases[] = {{chain, 10 * MS},
                 {chain_of_stamps, 10 * MS},
                 {late_host, 12 * MS},
                 {two_streams, 7 * MS},
                 {waiting, 2 * MS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ns = shortest(cases[i].try);
        CHECK(ns >= cases[i].ns - (cases[i].try == waiting ? 0 : MS / 4)); /* a late first stamp */
        CHECK(ns < cases[i].ns + cases[i].ns / 2 + 2 * MS); /* other programs may have the core */
    }
}

static void lateness_is_counted(void)
{
    struct device d;
    struct device_lateness late;
    open_timed(&d, 1);
    device_timed_late(&d, &late);
    CHECK_EQ(late.deadlines, 0);
    kernel(&d, 0, MS);
    units_sleep_ns(4 * MS);
    d.type->stamp(&d, 0, 0);
    kernel(&d, 0, MS); /* its deadline has passed already, too */
    d.type->stamp(&d, 0, 1);
    d.type->stamp(&d, 0, 2); /* nothing in between: no deadline */
    device_timed_late(&d, &late);
    CHECK_EQ(late.deadlines, 2);
    CHECK(late.most_ns >= 3 * MS && late.mean_ns >= 2 * MS && late.mean_ns <= late.most_ns);
    device_timed_late(&d, &late);
    CHECK_EQ(late.deadlines, 0);
    device_close(&d);
}

static void large_memory_is_a_window(void)
{
    struct device d;
    struct device_memory memory;
    void *large = NULL, *huge = NULL, *small = NULL;
    size_t bytes = (size_t)3 << 30, most = (size_t)1 << 40;
    open_timed(&d, 1);
    CHECK_EQ(d.type->alloc(&d, DEVICE_GRADIENTS, bytes, &large), 0);
    CHECK_EQ(d.type->alloc(&d, DEVICE_OPTIMIZER, most, &huge), 0);
    CHECK_EQ(d.type->alloc(&d, DEVICE_COMMUNICATION, DEVICE_TIMED_REAL, &small), 0);
    unsigned char *seen = large;
    int wrong = 0;
    for (size_t at = 0; at < bytes; at += 1 << 20)
        wrong += seen[at] != 0;
    CHECK_EQ(wrong, 0);
    seen[7] = 42;
    CHECK_EQ(seen[7 + DEVICE_TIMED_REAL], 42); /* the same page once more */
    CHECK_EQ(((unsigned char *)huge)[7], 0);   /* a region of its own */
    ((unsigned char *)huge)[most - 1] = 1;
    memset(small, 1, DEVICE_TIMED_REAL);
    d.type->memory(&d, &memory);
    CHECK_EQ(memory.peak_bytes[DEVICE_GRADIENTS], (int64_t)bytes);
    CHECK_EQ(memory.reserved_bytes, (int64_t)(bytes + most + DEVICE_TIMED_REAL));
    CHECK(memory.process_bytes > DEVICE_TIMED_REAL && memory.process_bytes < (int64_t)1 << 29);
    d.type->free(&d, DEVICE_GRADIENTS, large, bytes);
    d.type->free(&d, DEVICE_OPTIMIZER, huge, most);
    d.type->free(&d, DEVICE_COMMUNICATION, small, DEVICE_TIMED_REAL);
    device_close(&d);
}

int main(void)
{
    keeps_time();
    lateness_is_counted();
    large_memory_is_a_window();
    return test_end();
}
