/* What can never end, or breaks the contract of streams and stamps, ends the job in words: each case
 * in a child process of its own. */
#include "base/device.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "tests/test.h"

static void start(void *arg)
{
    (void)arg;
}

static int never_done(void *arg)
{
    (void)arg;
    return 0;
}

static void open_device(struct device *device, int n_streams, int n_stamps, int depth)
{
    CHECK_EQ(device_open(device, &device_cpu, 0, n_streams), 0);
    CHECK_EQ(device->type->reserve(device, n_stamps, depth), 0);
}

static void enqueue(struct device *device, int stream)
{
    device->type->enqueue(device, stream,
                          &(struct device_task){.start = start, .done = never_done});
}

/* Run in a child: its exit code, and what it said. */
static int in_child(void (*body)(void), char *said, size_t size)
{
    int pipe_ends[2], status = 0;
    ssize_t n, length = 0;
    pid_t child;

    if (pipe(pipe_ends) != 0)
        return -1;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        alarm(20);
        body();
        _exit(0);
    }
    close(pipe_ends[1]);
    while (length < (ssize_t)size - 1 &&
           (n = read(pipe_ends[0], said + length, size - 1 - (size_t)length)) > 0)
        length += n;
    said[length] = '\0';
    close(pipe_ends[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void too_many_entries(void)
{
    struct device device;

    open_device(&device, 2, 4, 3);
    enqueue(&device, 1);
    for (int i = 0; i < 3; i++)
        device.type->stamp(&device, 1, i);
}

static void stamp_twice(void)
{
    struct device device;

    open_device(&device, 2, 4, 4);
    device.type->stamp(&device, 1, 2);
    device.type->stamp(&device, DEVICE_COMPUTE, 2);
}

static void stamp_beyond(void)
{
    struct device device;

    open_device(&device, 2, 4, 4);
    device.type->await(&device, 1, 4);
}

static void everybody_waits(void)
{
    struct device device;

    open_device(&device, 3, 4, 4);
    device.type->await(&device, 2, 3);
    device.type->sync(&device);
}

static void host_waits_for_nothing(void)
{
    struct device device;

    open_device(&device, 2, 4, 4);
    device.type->await(&device, DEVICE_COMPUTE, 1);
}

static void task_on_compute(void)
{
    struct device device;

    open_device(&device, 2, 4, 4);
    enqueue(&device, DEVICE_COMPUTE);
}

static void stream_beyond(void)
{
    struct device device;

    open_device(&device, 2, 4, 4);
    enqueue(&device, 2);
}

static void test_what_cannot_go_on(void)
{
    static const struct {
        void (*body)(void);
        const char *words;
    } table[] = {
        {too_many_entries, "stream 1 is full: 3 entries are outstanding"},
        {stamp_twice, "stamp 2 is given out twice"},
        {stamp_beyond, "stamp 4, but 4 are reserved"},
        {everybody_waits, "wait for each other: stream 2 for stamp 3"},
        {host_waits_for_nothing, "waits for stamp 1, which no stream has been given"},
        {task_on_compute, "a task on the compute stream"},
        {stream_beyond, "stream 2 of 2"},
    };
    char said[1024];

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        CHECK_EQ(in_child(table[i].body, said, sizeof said), FAIL_INTERNAL);
        CHECK_HAS(said, table[i].words);
    }
}

int main(void)
{
    test_what_cannot_go_on();
    return test_end();
}
