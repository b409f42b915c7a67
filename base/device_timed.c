#include "base/device_timed.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/prompt.h"
#include "base/units.h"

/* Waking takes some microseconds alone, and some tens where cores are shared. */
enum { SPIN_NS = 60000 };

struct timed;

struct stream {
    struct timed *timed;
    int index;
};

/* A kernel on a stream of the progress thread. */
struct pause {
    int64_t ns, until_ns;
};

struct timed {
    struct device host; /* streams, stamps and small memory are those of "cpu" */
    struct stream *streams;
    struct pause *pauses; /* [n_pauses] of this generation */
    int n_pauses, next_pause;
    int64_t ready_ns; /* where the compute stream has got to; 0: idle since the last sync */
    bool busy;        /* since its last deadline was kept */
    int64_t deadlines, late_ns, most_late_ns;
    int64_t now_bytes[DEVICE_CLASSES], peak_bytes[DEVICE_CLASSES], all_bytes, peak_all_bytes;
};

/* ---- keeping time ---- */

static void sleep_until(int64_t at_ns)
{
    struct timespec at = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

static void keep_deadline(struct timed *timed)
{
    int64_t now = units_now_ns();

    if (!timed->busy)
        return;
    timed->busy = false;
    if (timed->ready_ns - now > SPIN_NS) {
        sleep_until(timed->ready_ns - SPIN_NS);
        now = units_now_ns();
    }
    while (now < timed->ready_ns) {
        sched_yield();
        now = units_now_ns();
    }
    timed->deadlines++;
    timed->late_ns += now - timed->ready_ns;
    if (timed->most_late_ns < now - timed->ready_ns)
        timed->most_late_ns = now - timed->ready_ns;
}

static void pause_start(void *arg)
{
    struct pause *pause = arg;

    pause->until_ns = units_now_ns() + pause->ns;
}

static int pause_done(void *arg)
{
    const struct pause *pause = arg;

    return units_now_ns() >= pause->until_ns;
}

static void pause_stream(struct timed *timed, int stream, int64_t ns)
{
    struct device_task task = {.start = pause_start, .done = pause_done};

    if (timed->next_pause == timed->n_pauses)
        die(FAIL_INTERNAL, "device: more than %d kernels on other streams, reserve more",
            timed->n_pauses);
    task.arg = &timed->pauses[timed->next_pause++];
    ((struct pause *)task.arg)->ns = ns;
    device_cpu.enqueue(&timed->host, stream, &task);
}

void device_timed_busy(void *native, int64_t ns)
{
    const struct stream *stream = native;
    struct timed *timed = stream->timed;

    if (stream->index != DEVICE_COMPUTE) {
        pause_stream(timed, stream->index, ns);
        return;
    }
    if (timed->ready_ns == 0)
        timed->ready_ns = units_now_ns();
    timed->ready_ns += ns;
    timed->busy = true;
}

void device_timed_late(struct device *device, struct device_lateness *out)
{
    struct timed *timed = device->state;

    out->deadlines = timed->deadlines;
    out->mean_ns = timed->deadlines > 0 ? (double)timed->late_ns / (double)timed->deadlines : 0;
    out->most_ns = (double)timed->most_late_ns;
    timed->deadlines = timed->late_ns = timed->most_late_ns = 0;
}

/* ---- the device ---- */

static int timed_open(struct device *device, int index, int n_streams)
{
    struct timed *timed = must_alloc(1, sizeof *timed);
    int rc = device_open(&timed->host, &device_cpu, index, n_streams);

    if (rc != 0) {
        free(timed);
        return rc;
    }
    timed->streams = must_alloc((size_t)n_streams, sizeof *timed->streams);
    for (int i = 0; i < n_streams; i++)
        timed->streams[i] = (struct stream){timed, i};
    prompt_wakeups();
    device->state = timed;
    return 0;
}

static void timed_close(struct device *device)
{
    struct timed *timed = device->state;

    device_close(&timed->host);
    free(timed->streams);
    free(timed->pauses);
    free(timed);
}

static int timed_alloc(struct device *device, enum device_class which, size_t bytes, void **out)
{
    struct timed *timed = device->state;
    int rc = 0;

    if (bytes <= DEVICE_TIMED_REAL) {
        TRY(device_cpu.alloc(&timed->host, which, bytes, out));
    } else {
        *out = device_timed_map(bytes);
        if (*out == NULL)
            return fail(FAIL_USAGE,
                        "device: %zu bytes of %s wanted, and the system maps no more (%s): take a "
                        "smaller model or batch",
                        bytes, device_class_name((int)which), strerror(errno));
    }
    timed->now_bytes[which] += (int64_t)bytes;
    if (timed->peak_bytes[which] < timed->now_bytes[which])
        timed->peak_bytes[which] = timed->now_bytes[which];
    timed->all_bytes += (int64_t)bytes;
    if (timed->peak_all_bytes < timed->all_bytes)
        timed->peak_all_bytes = timed->all_bytes;
out:
    return rc;
}

static void timed_free(struct device *device, enum device_class which, void *memory, size_t bytes)
{
    struct timed *timed = device->state;

    if (memory == NULL)
        return;
    timed->now_bytes[which] -= (int64_t)bytes;
    timed->all_bytes -= (int64_t)bytes;
    if (bytes <= DEVICE_TIMED_REAL)
        device_cpu.free(&timed->host, which, memory, bytes);
    else
        device_timed_unmap(memory, bytes);
}

static void timed_upload(struct device *device, int stream, void *to, const void *from,
                         size_t bytes)
{
    struct timed *timed = device->state;

    device_cpu.upload(&timed->host, stream, to, from, bytes);
}

static void timed_download(struct device *device, int stream, void *to, const void *from,
                           size_t bytes)
{
    struct timed *timed = device->state;

    device_cpu.download(&timed->host, stream, to, from, bytes);
}

static int timed_reserve(struct device *device, int n_stamps, int n_tasks)
{
    struct timed *timed = device->state;

    timed->pauses = must_grow(timed->pauses, (size_t)n_tasks + 1, sizeof *timed->pauses);
    timed->n_pauses = n_tasks;
    timed->next_pause = 0;
    return device_cpu.reserve(&timed->host, n_stamps, n_tasks);
}

static void timed_launch(struct device *device, int stream, void (*kernel)(void *arg, void *native),
                         void *arg)
{
    struct timed *timed = device->state;

    kernel(arg, &timed->streams[stream]);
}

static void timed_enqueue(struct device *device, int stream, const struct device_task *task)
{
    struct timed *timed = device->state;

    device_cpu.enqueue(&timed->host, stream, task);
}

static void timed_stamp(struct device *device, int stream, int stamp)
{
    struct timed *timed = device->state;

    if (stream == DEVICE_COMPUTE)
        keep_deadline(timed);
    device_cpu.stamp(&timed->host, stream, stamp);
}

static void timed_await(struct device *device, int stream, int stamp)
{
    struct timed *timed = device->state;

    if (stream == DEVICE_COMPUTE)
        keep_deadline(timed);
    device_cpu.await(&timed->host, stream, stamp);
    if (stream ==
        DEVICE_COMPUTE) { /* it is made; being woken late is no part of the stream's time */
        int64_t made_ns = device_cpu.when(&timed->host, stamp);
        if (timed->ready_ns < made_ns)
            timed->ready_ns = made_ns;
    }
}

static void timed_sync(struct device *device)
{
    struct timed *timed = device->state;

    keep_deadline(timed);
    device_cpu.sync(&timed->host);
    timed->ready_ns = 0;
    timed->next_pause = 0;
}

static int64_t timed_when(struct device *device, int stamp)
{
    struct timed *timed = device->state;

    return device_cpu.when(&timed->host, stamp);
}

static void *timed_native(struct device *device, int stream)
{
    struct timed *timed = device->state;

    return &timed->streams[stream];
}

/* A page that is shown a thousand times counts once: the proportional set, where Linux tells it. */
static int64_t proportional_bytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[128];
    long kib = 0;

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Pss: %ld kB", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return (int64_t)kib * 1024;
}

static void timed_memory(struct device *device, struct device_memory *out)
{
    struct timed *timed = device->state;

    memset(out, 0, sizeof *out);
    memcpy(out->peak_bytes, timed->peak_bytes, sizeof out->peak_bytes);
    out->reserved_bytes = timed->peak_all_bytes;
    out->process_bytes = proportional_bytes();
}

const struct device_type device_timed = {
    .name = "timed",
    .open = timed_open,
    .close = timed_close,
    .alloc = timed_alloc,
    .free = timed_free,
    .upload = timed_upload,
    .download = timed_download,
    .reserve = timed_reserve,
    .launch = timed_launch,
    .enqueue = timed_enqueue,
    .stamp = timed_stamp,
    .await = timed_await,
    .sync = timed_sync,
    .when = timed_when,
    .native = timed_native,
    .memory = timed_memory,
    .runs_host_tasks = true,
};
