#include "base/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/progress.h"

/* Stream 0 is the calling thread: what is given to it happens at once. Stream s > 0 is queue s - 1
 * of the progress thread. */
struct cpu {
    struct progress *progress;
    int64_t now_bytes[DEVICE_CLASSES];
    int64_t peak_bytes[DEVICE_CLASSES];
    int64_t all_bytes, peak_all_bytes;
};

enum { ALIGNMENT = 64 };

static int cpu_open(struct device *device, int index, int n_streams)
{
    struct cpu *cpu = must_alloc(1, sizeof *cpu);
    int rc = progress_start(&cpu->progress, n_streams - 1);

    (void)index; /* the launcher has placed this process already */
    if (rc != 0) {
        free(cpu);
        return rc;
    }
    device->state = cpu;
    return 0;
}

static void cpu_close(struct device *device)
{
    struct cpu *cpu = device->state;

    progress_stop(cpu->progress);
    free(cpu);
}

static int cpu_alloc(struct device *device, enum device_class which, size_t bytes, void **out)
{
    struct cpu *cpu = device->state;
    size_t rounded = (bytes / ALIGNMENT + 1) * ALIGNMENT; /* never 0, and whole lines */

    *out = rounded > bytes ? aligned_alloc(ALIGNMENT, rounded) : NULL;
    if (*out == NULL)
        return fail(FAIL_USAGE,
                    "device: %zu bytes of %s wanted, and the host has not that much memory left: "
                    "take a smaller model or batch",
                    bytes, device_class_name((int)which));
    memset(*out, 0, rounded);
    cpu->now_bytes[which] += (int64_t)bytes;
    if (cpu->peak_bytes[which] < cpu->now_bytes[which])
        cpu->peak_bytes[which] = cpu->now_bytes[which];
    cpu->all_bytes += (int64_t)bytes;
    if (cpu->peak_all_bytes < cpu->all_bytes)
        cpu->peak_all_bytes = cpu->all_bytes;
    return 0;
}

static void cpu_free(struct device *device, enum device_class which, void *memory, size_t bytes)
{
    struct cpu *cpu = device->state;

    if (memory == NULL)
        return;
    cpu->now_bytes[which] -= (int64_t)bytes;
    cpu->all_bytes -= (int64_t)bytes;
    free(memory);
}

static void copy(struct device *device, int stream, void *to, const void *from, size_t bytes)
{
    struct cpu *cpu = device->state;
    struct progress_entry entry = {.kind = PROGRESS_COPY};

    if (bytes == 0)
        return;
    if (stream == DEVICE_COMPUTE) {
        memcpy(to, from, bytes);
        return;
    }
    entry.u.copy.to = to;
    entry.u.copy.from = from;
    entry.u.copy.bytes = bytes;
    progress_push(cpu->progress, stream - 1, &entry);
}

static int cpu_reserve(struct device *device, int n_stamps, int n_tasks)
{
    struct cpu *cpu = device->state;

    if (n_stamps < 0 || n_tasks < 0)
        BUG("reserve of %d stamps and %d tasks", n_stamps, n_tasks);
    progress_reserve(cpu->progress, n_stamps, n_tasks);
    return 0;
}

static void cpu_launch(struct device *device, int stream, void (*kernel)(void *arg, void *native),
                       void *arg)
{
    struct cpu *cpu = device->state;
    struct progress_entry entry = {.kind = PROGRESS_CALL};

    if (stream == DEVICE_COMPUTE) {
        kernel(arg, NULL);
        return;
    }
    entry.u.call.kernel = kernel;
    entry.u.call.arg = arg;
    progress_push(cpu->progress, stream - 1, &entry);
}

static void cpu_enqueue(struct device *device, int stream, const struct device_task *task)
{
    struct cpu *cpu = device->state;
    struct progress_entry entry = {.kind = PROGRESS_TASK, .u.task = *task};

    if (stream == DEVICE_COMPUTE)
        BUG("a task on the compute stream, which is the calling thread and polls nothing");
    progress_push(cpu->progress, stream - 1, &entry);
}

static void cpu_stamp(struct device *device, int stream, int stamp)
{
    struct cpu *cpu = device->state;
    struct progress_entry entry = {.kind = PROGRESS_STAMP, .u.stamp = stamp};

    if (stream == DEVICE_COMPUTE)
        progress_stamp(cpu->progress, stamp);
    else
        progress_push(cpu->progress, stream - 1, &entry);
}

static void cpu_await(struct device *device, int stream, int stamp)
{
    struct cpu *cpu = device->state;
    struct progress_entry entry = {.kind = PROGRESS_AWAIT, .u.stamp = stamp};

    if (stream == DEVICE_COMPUTE)
        progress_await(cpu->progress, stamp);
    else
        progress_push(cpu->progress, stream - 1, &entry);
}

static void cpu_sync(struct device *device)
{
    struct cpu *cpu = device->state;

    progress_drain(cpu->progress);
}

static int64_t cpu_when(struct device *device, int stamp)
{
    struct cpu *cpu = device->state;

    return progress_when(cpu->progress, stamp);
}

static void *cpu_native(struct device *device, int stream)
{
    (void)device;
    (void)stream;
    return NULL;
}

/* The second number of statm: resident pages. 0 where there is no /proc. */
static int64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1)
        pages = 0;
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void cpu_memory(struct device *device, struct device_memory *out)
{
    struct cpu *cpu = device->state;
    long pages = sysconf(_SC_PHYS_PAGES);

    memcpy(out->peak_bytes, cpu->peak_bytes, sizeof out->peak_bytes);
    out->reserved_bytes = cpu->peak_all_bytes;
    out->process_bytes = resident_bytes();
    out->capacity_bytes = pages > 0 ? (int64_t)pages * sysconf(_SC_PAGESIZE) : 0;
}

const struct device_type device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = copy,
    .download = copy,
    .reserve = cpu_reserve,
    .launch = cpu_launch,
    .enqueue = cpu_enqueue,
    .stamp = cpu_stamp,
    .await = cpu_await,
    .sync = cpu_sync,
    .when = cpu_when,
    .native = cpu_native,
    .memory = cpu_memory,
    .runs_host_tasks = true,
};
