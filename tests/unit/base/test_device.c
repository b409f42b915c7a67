/* Streams of the "cpu" device keep their order, run beside each other, wait for each other's
 * stamps, and sleep when there is nothing to do. */
#include "base/device.h"

#include <stdatomic.h>
#include <time.h>

#include "base/err.h"
#include "base/units.h"
#include "tests/test.h"

enum { MS = 1000000 };

/* What the progress thread saw wrong: CHECK belongs to the main thread. */
static atomic_int thread_faults;

/* A task that takes some polls and then writes its number into a log. */
struct work {
    int number, polls_left;
    atomic_int *log;
    atomic_int *n_logged;
    const atomic_bool *gate; /* not done before it is set; may be NULL */
    atomic_bool *opens;      /* set when the task starts; may be NULL */
    bool started;
};

static void work_start(void *arg)
{
    struct work *work = arg;

    atomic_fetch_add(&thread_faults, work->started);
    work->started = true;
    if (work->opens != NULL)
        atomic_store(work->opens, true);
}

static int work_done(void *arg)
{
    struct work *work = arg;

    if (work->polls_left-- > 0 || (work->gate != NULL && !atomic_load(work->gate)))
        return 0;
    if (work->log != NULL)
        atomic_store(&work->log[atomic_fetch_add(work->n_logged, 1)], work->number);
    return 1;
}

static void enqueue(struct device *device, int stream, struct work *work)
{
    device->type->enqueue(
        device, stream, &(struct device_task){.start = work_start, .done = work_done, .arg = work});
}

static void open_device(struct device *device, int n_streams, int n_stamps, int depth)
{
    CHECK_EQ(device_open(device, &device_cpu, 0, n_streams), 0);
    CHECK_EQ(device->type->reserve(device, n_stamps, depth), 0);
}

static void test_names(void)
{
    const struct device_type *type;

    CHECK_EQ(device_find("cpu", &type), 0);
    CHECK(type == &device_cpu);
    CHECK_EQ(device_find("auto", &type), 0);
    CHECK(type == &device_cpu);
    CHECK_EQ(device_find("timed", &type), 0);
    CHECK(type == &device_timed);
    CHECK_EQ(device_find("gpu", &type), FAIL_USAGE);
    CHECK_HAS(fail_message(), "no device is called \"gpu\"");
    CHECK(type == NULL);
    fail_clear();
    CHECK_HAS(device_class_name(DEVICE_OPTIMIZER), "optimizer");
    CHECK_HAS(device_class_name(DEVICE_COMMUNICATION), "communication");
    CHECK_HAS(device_class_name(DEVICE_CLASSES), "unknown");
}

static bool is_zero(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != 0)
            return false;
    return true;
}

static void test_memory(void)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4097, 1 << 20};
    struct device device;
    struct device_memory memory;
    void *a;

    open_device(&device, 1, 0, 0);
    for (int twice = 0; twice < 2; twice++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            CHECK_EQ(device.type->alloc(&device, DEVICE_GRADIENTS, sizes[i], &a), 0);
            CHECK_EQ((uintptr_t)a % 64, 0);
            CHECK(is_zero(a, sizes[i]));
            memset(a, 0x5a, sizes[i]); /* what the next one must not see */
            device.type->free(&device, DEVICE_GRADIENTS, a, sizes[i]);
        }
    }
    CHECK_EQ(device.type->alloc(&device, DEVICE_PARAMETERS, 300, &a), 0);
    device.type->free(&device, DEVICE_PARAMETERS, a, 300);
    CHECK_EQ(device.type->alloc(&device, DEVICE_PARAMETERS, 200, &a), 0);
    device.type->memory(&device, &memory);
    CHECK_EQ(memory.peak_bytes[DEVICE_PARAMETERS], 300);
    CHECK_EQ(memory.peak_bytes[DEVICE_GRADIENTS], 1 << 20);
    CHECK_EQ(memory.peak_bytes[DEVICE_OPTIMIZER], 0);
    CHECK(memory.process_bytes > 1 << 18);
    CHECK(memory.capacity_bytes > memory.process_bytes);
    device.type->free(&device, DEVICE_PARAMETERS, a, 200);
    device_close(&device);
    device_close(&device); /* a closed one is a zeroed one */
}

static void test_no_memory_left(void)
{
    struct device device;
    void *a = &device;

    open_device(&device, 1, 0, 0);
    CHECK_EQ(device.type->alloc(&device, DEVICE_ACTIVATIONS, SIZE_MAX - 8, &a), FAIL_USAGE);
    CHECK(a == NULL);
    CHECK_HAS(fail_message(), "bytes of activations wanted");
    fail_clear();
    device_close(&device);
}

enum { STREAMS = 3, EACH = 40 };

/* Tasks of different lengths on three queues: each queue in its order, all of them finished. */
static void test_order(void)
{
    static struct work work[STREAMS * EACH];
    static atomic_int log[STREAMS * EACH];
    atomic_int n_logged = 0;
    struct device device;
    int seen[STREAMS] = {0};

    open_device(&device, 1 + STREAMS, 0, EACH);
    for (int i = 0; i < STREAMS * EACH; i++) {
        work[i] =
            (struct work){.number = i, .polls_left = i * 7 % 5, .log = log, .n_logged = &n_logged};
        enqueue(&device, 1 + i % STREAMS, &work[i]);
    }
    device.type->sync(&device);
    CHECK_EQ(atomic_load(&n_logged), STREAMS * EACH);
    for (int i = 0; i < STREAMS * EACH; i++) {
        int number = atomic_load(&log[i]);
        CHECK_EQ(number / STREAMS, seen[number % STREAMS]++);
    }
    device_close(&device);
}

/* The head of the first queue can only finish when that of the last has been started. */
static void test_queues_run_beside_each_other(void)
{
    atomic_bool gate = false;
    struct work waits = {.gate = &gate}, opens = {.opens = &gate};
    struct device device;

    open_device(&device, 3, 0, 4);
    enqueue(&device, 1, &waits);
    enqueue(&device, 2, &opens);
    device.type->sync(&device);
    CHECK(waits.started && opens.started);
    device_close(&device);
}

static void add_one(void *arg, void *native)
{
    atomic_fetch_add(&thread_faults, native != NULL);
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* Launches and copies happen at once on the compute stream, in the queue's order elsewhere. */
static void test_launch_and_copy(void)
{
    atomic_bool gate = false;
    atomic_int n = 0;
    struct work hold = {.gate = &gate};
    struct device device;
    int from = 41, to = 0;

    open_device(&device, 2, 0, 8);
    device.type->launch(&device, DEVICE_COMPUTE, add_one, &n);
    CHECK_EQ(atomic_load(&n), 1);
    enqueue(&device, 1, &hold);
    device.type->launch(&device, 1, add_one, &n);
    device.type->upload(&device, 1, &to, &from, sizeof to);
    units_sleep_ns(2 * MS);
    CHECK_EQ(atomic_load(&n), 1);
    atomic_store(&gate, true);
    device.type->sync(&device);
    CHECK_EQ(atomic_load(&n), 2);
    CHECK_EQ(to, 41);
    from = 7;
    device.type->download(&device, DEVICE_COMPUTE, &to, &from, sizeof to);
    CHECK_EQ(to, 7);
    device_close(&device);
}

/* A stamp's time lies between what its stream did before and after it. */
static void test_stamps_are_times(void)
{
    struct work work[8];
    struct device device;
    int64_t before = units_now_ns(), last, after;

    open_device(&device, 2, 18, 32);
    device.type->stamp(&device, 1, 0);
    for (int i = 0; i < 8; i++) {
        work[i] = (struct work){.polls_left = 3};
        enqueue(&device, 1, &work[i]);
        device.type->stamp(&device, 1, 1 + i);
        device.type->stamp(&device, DEVICE_COMPUTE, 10 + i);
    }
    device.type->sync(&device);
    after = units_now_ns();
    last = before;
    for (int i = 0; i < 9; i++) {
        CHECK(device.type->when(&device, i) >= last);
        last = device.type->when(&device, i);
    }
    CHECK(last <= after);
    for (int i = 1; i < 8; i++)
        CHECK(device.type->when(&device, 10 + i) >= device.type->when(&device, 9 + i));
    CHECK_EQ(device.type->when(&device, 9), 0); /* never stamped */
    device_close(&device);
}

/* Stream 2 waits for stream 1, the host for stream 2; the await is given before its stamp. */
static void test_await_across_streams(void)
{
    enum { FIRST, SECOND };
    atomic_int log[2], n_logged = 0;
    struct work slow = {.number = 1, .polls_left = 50, .log = log, .n_logged = &n_logged};
    struct work then = {.number = 2, .log = log, .n_logged = &n_logged};
    struct device device;

    open_device(&device, 3, 2, 8);
    device.type->await(&device, 2, FIRST);
    enqueue(&device, 2, &then);
    device.type->stamp(&device, 2, SECOND);
    units_sleep_ns(2 * MS);
    CHECK_EQ(atomic_load(&n_logged), 0);
    enqueue(&device, 1, &slow);
    device.type->stamp(&device, 1, FIRST);
    device.type->await(&device, DEVICE_COMPUTE, SECOND);
    CHECK_EQ(atomic_load(&n_logged), 2);
    CHECK_EQ(atomic_load(&log[0]), 1);
    CHECK_EQ(atomic_load(&log[1]), 2);
    device.type->sync(&device);
    CHECK(device.type->when(&device, SECOND) >= device.type->when(&device, FIRST));
    device_close(&device);
}

/* A sync ends the generation of a stamp: what waits for it waits anew, its time stays. */
static void test_stamps_have_generations(void)
{
    struct device device;
    int64_t first;

    open_device(&device, 2, 1, 8);
    for (int generation = 0; generation < 3; generation++) {
        struct work work = {0};
        first = device.type->when(&device, 0);
        device.type->await(&device, 1, 0);
        enqueue(&device, 1, &work);
        units_sleep_ns(2 * MS);
        CHECK_EQ(device.type->when(&device, 0), first);
        CHECK(!work.started); /* the queue stands: the thread has not touched it */
        device.type->stamp(&device, DEVICE_COMPUTE, 0);
        device.type->await(&device, DEVICE_COMPUTE, 0);
        device.type->sync(&device);
        CHECK(work.started);
        CHECK(device.type->when(&device, 0) > first);
    }
    device_close(&device);
}

static int64_t cpu_time_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Processor time of this process, thread included, while 0.3 s pass. */
static int64_t cost_of_sleeping_ns(void)
{
    int64_t before = cpu_time_ns();

    units_sleep_ns(300 * MS);
    return cpu_time_ns() - before;
}

static void test_idle_costs_nothing(void)
{
    atomic_bool gate = false;
    struct work work[2] = {{0}, {.gate = &gate}};
    struct device device;

    open_device(&device, 3, 1, 8);
    enqueue(&device, 1, &work[0]);
    device.type->sync(&device);
    CHECK(cost_of_sleeping_ns() < 5 * MS); /* empty */
    device.type->await(&device, 2, 0);
    CHECK(cost_of_sleeping_ns() < 5 * MS); /* waiting for the host */
    enqueue(&device, 1, &work[1]);
    CHECK(cost_of_sleeping_ns() < 120 * MS); /* polling, with back-off */
    device.type->stamp(&device, DEVICE_COMPUTE, 0);
    atomic_store(&gate, true);
    device.type->sync(&device);
    device_close(&device);
}

/* Many short handovers between all three streams: the place for lost wake-ups and races. */
static void test_handovers(void)
{
    enum { ROUNDS = 3000 };
    struct device device;
    static struct work work[ROUNDS];
    int64_t last = 0;

    open_device(&device, 3, 3 * ROUNDS, 4 * ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        work[i] = (struct work){.polls_left = i % 3};
        device.type->stamp(&device, DEVICE_COMPUTE, 3 * i);
        device.type->await(&device, 1, 3 * i);
        enqueue(&device, 1, &work[i]);
        device.type->stamp(&device, 1, 3 * i + 1);
        device.type->await(&device, 2, 3 * i + 1);
        device.type->stamp(&device, 2, 3 * i + 2);
        if (i % 4 == 0)
            device.type->await(&device, DEVICE_COMPUTE, 3 * i + 2);
    }
    device.type->sync(&device);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t a = device.type->when(&device, 3 * i), b = device.type->when(&device, 3 * i + 1),
                c = device.type->when(&device, 3 * i + 2);
        if (!(a <= b && b <= c && last <= c))
            CHECK(false);
        last = c;
    }
    CHECK(last <= units_now_ns());
    device_close(&device);
}

int main(void)
{
    test_names();
    test_memory();
    test_no_memory_left();
    test_order();
    test_queues_run_beside_each_other();
    test_launch_and_copy();
    test_stamps_are_times();
    test_await_across_streams();
    test_stamps_have_generations();
    test_idle_costs_nothing();
    test_handovers();
    CHECK_EQ(atomic_load(&thread_faults), 0);
    return test_end();
}
