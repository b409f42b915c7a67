/* The "cuda" device: memory comes zeroed and is counted, copies of any size arrive, streams order by
 * stamps and marks, stamps tell the host's time, and what cannot be is said in words. */
#include "base/device.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/units.h"
#include "tests/test.h"

enum { STREAMS = 3, STAMPS = 4096 };

static struct device device;
static jmp_buf escape;

static void leave(int code)
{
    longjmp(escape, code);
}

/* The code that the next statement dies with; 0 when it does not. */
#define DIES(statement)                                                                            \
    (die_handler(leave),                                                                           \
     setjmp(escape) == 0 ? ((statement), die_handler(NULL), 0) : (die_handler(NULL), 1))

static void *take(size_t bytes)
{
    void *memory = NULL;
    CHECK_EQ(device.type->alloc(&device, DEVICE_ACTIVATIONS, bytes, &memory), 0);
    return memory;
}

static void give(void *memory, size_t bytes)
{
    device.type->free(&device, DEVICE_ACTIVATIONS, memory, bytes);
}

/* ---- memory and copies ---- */

static uint32_t pattern(size_t i, uint32_t seed)
{
    return (uint32_t)i * 2654435761u + seed;
}

static long count_wrong(const uint32_t *found, size_t n, uint32_t seed)
{
    long wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += found[i] != pattern(i, seed);
    return wrong;
}

static long count_nonzero(const uint32_t *found, size_t n)
{
    long nonzero = 0;
    for (size_t i = 0; i < n; i++)
        nonzero += found[i] != 0;
    return nonzero;
}

/* Up, across, and down again, on streams that only stamps order. */
static void round_trip(size_t n, uint32_t seed)
{
    size_t bytes = n * sizeof(uint32_t);
    uint32_t *host = must_alloc(n + 1, sizeof *host), *back = must_alloc(n + 1, sizeof *back);
    void *there = take(bytes), *other = take(bytes);
    memset(back, 0xee, bytes);
    device.type->download(&device, 0, back, there, bytes);
    device.type->sync(&device);
    for (size_t i = 0; i < n; i++)
        host[i] = pattern(i, seed);
    CHECK_EQ(count_nonzero(back, n), 0);
    device.type->upload(&device, 0, there, host, bytes);
    memset(host, 0xee, bytes); /* upload has taken it */
    device_mark(&device, 0, 0);
    device.type->await(&device, 1, 0);
    device.type->upload(&device, 1, other, there, bytes); /* from device memory */
    device_mark(&device, 1, 1);
    device.type->await(&device, 2, 1);
    device.type->download(&device, 2, back, other, bytes);
    device.type->sync(&device);
    CHECK_EQ(count_wrong(back, n, seed), 0);
    give(there, bytes);
    give(other, bytes);
    free(host);
    free(back);
}

static void copies(void)
{
    static const size_t counts[] = {0, 1, 3, 64, 1000, 1 << 20, (40 << 20) + 7};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        round_trip(counts[i], (uint32_t)i + 1);
}

/* Many small copies wrap around the ring in order. */
static void many_copies(void)
{
    enum { N = 3000, EACH = 10007 };
    uint32_t *host = must_alloc(EACH, sizeof *host);
    uint32_t *back = must_alloc((size_t)N * EACH, sizeof *back);
    unsigned char *there = take((size_t)N * EACH * sizeof *host);
    for (int k = 0; k < N; k++) {
        for (size_t i = 0; i < EACH; i++)
            host[i] = pattern(i, (uint32_t)k);
        device.type->upload(&device, 1, there + (size_t)k * EACH * sizeof *host, host,
                            EACH * sizeof *host);
    }
    device.type->sync(&device);
    long wrong = 0;
    for (int k = 0; k < N; k++)
        device.type->download(&device, k % STREAMS, back + (size_t)k * EACH,
                              there + (size_t)k * EACH * sizeof *host, EACH * sizeof *host);
    device.type->sync(&device);
    for (int k = 0; k < N; k++)
        wrong += count_wrong(back + (size_t)k * EACH, EACH, (uint32_t)k);
    CHECK_EQ(wrong, 0);
    give(there, (size_t)N * EACH * sizeof *host);
    free(host);
    free(back);
}

static void memory_is_counted(void)
{
    struct device_memory before, after;
    device.type->memory(&device, &before);
    void *memory = take(300 << 20);
    device.type->memory(&device, &after);
    CHECK(after.peak_bytes[DEVICE_ACTIVATIONS] >= 300 << 20);
    CHECK(after.process_bytes - before.process_bytes >= 299 << 20);
    CHECK(after.capacity_bytes > after.process_bytes);
    give(memory, 300 << 20);
}

/* Too much is refused with its bytes, and the device goes on. */
static void too_much(void)
{
    void *memory = NULL;
    CHECK_EQ(device.type->alloc(&device, DEVICE_OPTIMIZER, (size_t)1 << 46, &memory), FAIL_CUDA);
    CHECK_HAS(fail_message(), "70368744177664 bytes for optimizer");
    CHECK_HAS(fail_message(), "GiB are free");
    fail_clear();
    round_trip(1000, 99);
}

/* ---- streams and stamps ---- */

static void doze(void *arg)
{
    units_sleep_ns(*(const int64_t *)arg);
}

/* A stream that is held up: the host function sleeps on a thread of the driver's. */
static void hold(void *arg, void *native)
{
    CHECK_EQ(cudaLaunchHostFunc((cudaStream_t)native, doze, arg), 0);
}

static int64_t nap = 20000000;

/* Stamps of a stream that is held are as far apart as it was held, in the host's time. */
static void stamps_tell_time(void)
{
    int64_t before = units_now_ns(), after;
    device.type->stamp(&device, 0, 0);
    device.type->launch(&device, 0, hold, &nap);
    device.type->stamp(&device, 0, 1);
    device.type->await(&device, 1, 1);
    device.type->stamp(&device, 1, 2);
    CHECK(!device.type->idle(&device)); /* the host ran ahead */
    device.type->sync(&device);
    after = units_now_ns();
    int64_t a = device.type->when(&device, 0), b = device.type->when(&device, 1);
    int64_t c = device.type->when(&device, 2);
    printf("held %lld us, stamps %lld us apart; waiting stream %lld us behind; "
           "host saw %lld us before and %lld us after\n",
           (long long)nap / 1000, (long long)(b - a) / 1000, (long long)(c - b) / 1000,
           (long long)(a - before) / 1000, (long long)(after - c) / 1000);
    CHECK(b - a >= nap - 10000);
    CHECK(b - a < nap + 5000000);
    CHECK(c >= b && c - b < 1000000);
    CHECK(a >= before - 50000 && c <= after + 50000);
    device.type->sync(&device); /* times stay readable */
    CHECK_EQ(device.type->when(&device, 1), b);
}

/* Every stream waits for the one before it, over many rounds, while the host waits for nothing. */
static void order_holds(void)
{
    enum { ROUNDS = 200 };
    unsigned char *there = take(ROUNDS + 1), last = 0;
    int64_t waits = device.host_waits;
    int64_t short_nap = 3000000;
    device.type->launch(&device, 0, hold, &short_nap);
    device_mark(&device, 0, 0);
    for (int i = 0; i < ROUNDS; i++) {
        int stream = (i + 1) % STREAMS;
        device.type->await(&device, stream, i);
        CHECK_EQ(cudaMemcpyAsync(there + i + 1, there + i, 1, cudaMemcpyDeviceToDevice,
                                 device.type->native(&device, stream)),
                 0);
        if (i == 0)
            CHECK_EQ(cudaMemsetAsync(there + 1, 77, 1, device.type->native(&device, stream)), 0);
        if (i % 2)
            device_mark(&device, stream, i + 1);
        else
            device.type->stamp(&device, stream, i + 1);
    }
    CHECK_EQ(device.host_waits, waits);
    device.type->sync(&device);
    CHECK_EQ(device.host_waits, waits + 1);
    device.type->download(&device, 0, &last, there + ROUNDS, 1);
    device.type->sync(&device);
    CHECK_EQ(last, 77);
    give(there, ROUNDS + 1);
}

static void misuse_is_said(void)
{
    device.type->sync(&device);
    CHECK(DIES(device.type->await(&device, 1, 7)));
    device.type->sync(&device);
    device.type->stamp(&device, 0, 7);
    CHECK(DIES(device.type->stamp(&device, 1, 7)));
    device.type->sync(&device);
    device.type->stamp(&device, 1, 7); /* a new generation */
    device.type->sync(&device);
}

static void indices(void)
{
    struct device other;
    struct device_unit unit;
    int n = 0;
    CHECK_EQ(device.type->probe(&unit, 1, &n), 0);
    CHECK(n >= 1);
    CHECK(strncmp(unit.uuid, "GPU-", 4) == 0 && strlen(unit.uuid) == 40);
    printf("%s, bus %s, %s, %.1f GiB, sm_%d, driver %d, runtime %d; a stamp takes %lld ns\n",
           unit.name, unit.bus, unit.uuid, (double)unit.memory_bytes / 1073741824.0,
           unit.capability, unit.driver, unit.runtime, (long long)device.stamp_ns);
    CHECK(device.stamp_ns > 0 && device.stamp_ns < 50000);
    CHECK_EQ(device_open(&other, device.type, n, 1), FAIL_USAGE);
    CHECK_HAS(fail_message(), "this process sees");
    fail_clear();
}

int main(void)
{
    const struct device_type *type;
    int n = 0;
    if (device_find("cuda", &type) != 0 || type->probe(NULL, 0, &n) != 0) {
        printf("skipped: %s\n", fail_message());
        return 77;
    }
    CHECK_EQ(device_open(&device, type, 0, STREAMS), 0);
    CHECK_EQ(device.type->reserve(&device, STAMPS, 0), 0);
    indices();
    copies();
    many_copies();
    memory_is_counted();
    too_much();
    stamps_tell_time();
    order_holds();
    misuse_is_said();
    device_close(&device);
    return test_end();
}
