#include "driver/watchdog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"

enum { HOST_BYTES = 256, LOOKS = 8, SHORTEST_LOOK_NS = 1000000, LONGEST_LOOK_NS = 250000000 };

/* A seqlock: `said` is odd while the fields change, and counts what was said. One writer. */
static atomic_uint_fast64_t said;
static _Atomic(const char *) what_now, peer_now; /* what NULL: paused */
static atomic_int_fast64_t number_now;

static struct {
    bool running;
    pthread_t thread;
    pthread_mutex_t lock; /* guards stop */
    pthread_cond_t wake;
    bool stop;
    int64_t deadline_ns;
    int rank;
    char host[HOST_BYTES];
} dog;

/* Each field is released after the odd count: who sees a new field sees that it is being changed. */
void watchdog_at(const char *what, int64_t number, const char *peer)
{
    uint_fast64_t count = atomic_load_explicit(&said, memory_order_relaxed);
    atomic_store_explicit(&said, count + 1, memory_order_relaxed);
    atomic_store_explicit(&what_now, what, memory_order_release);
    atomic_store_explicit(&number_now, number, memory_order_release);
    atomic_store_explicit(&peer_now, peer, memory_order_release);
    atomic_store_explicit(&said, count + 2, memory_order_release);
}

void watchdog_pause(void)
{
    watchdog_at(NULL, 0, NULL);
}

struct saying {
    uint_fast64_t count;
    const char *what, *peer;
    int64_t number;
};

/* False while it is being changed: then something is going on, and there is nothing to report. */
static bool listen_to(struct saying *saying)
{
    saying->count = atomic_load_explicit(&said, memory_order_acquire);
    saying->what = atomic_load_explicit(&what_now, memory_order_acquire);
    saying->number = atomic_load_explicit(&number_now, memory_order_acquire);
    saying->peer = atomic_load_explicit(&peer_now, memory_order_acquire);
    return saying->count % 2 == 0 &&
           atomic_load_explicit(&said, memory_order_relaxed) == saying->count;
}

_Noreturn static void bark(const struct saying *saying, int64_t silent_ns)
{
    char line[1024], peer[260] = "";
    if (saying->peer != NULL && saying->peer[0] != '\0')
        snprintf(peer, sizeof peer, " (%.255s)", saying->peer);
    int length =
        snprintf(line, sizeof line,
                 "scalestudy: timeout: host %s rank %d: %.255s %lld%s for %.1f s, deadline "
                 "%.1f s\n",
                 dog.host, dog.rank, saying->what, (long long)saying->number, peer,
                 1e-9 * (double)silent_ns, 1e-9 * (double)dog.deadline_ns);
    /* Not stdio: the hanging thread may hold its locks. */
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written;
    _exit(FAIL_TIMEOUT);
}

/* Sleep one look, or less when told to stop; true when told to. */
static bool sleep_one_look(int64_t look_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nsec = until.tv_nsec + look_ns;
    until.tv_sec += (time_t)(nsec / 1000000000);
    until.tv_nsec = (long)(nsec % 1000000000);
    pthread_mutex_lock(&dog.lock);
    int rc = 0;
    while (!dog.stop && rc == 0)
        rc = pthread_cond_timedwait(&dog.wake, &dog.lock, &until);
    bool stop = dog.stop;
    pthread_mutex_unlock(&dog.lock);
    return stop;
}

static void *watch(void *unused)
{
    (void)unused;
    int64_t look_ns = dog.deadline_ns / LOOKS;
    if (look_ns > LONGEST_LOOK_NS)
        look_ns = LONGEST_LOOK_NS;
    if (look_ns < SHORTEST_LOOK_NS)
        look_ns = SHORTEST_LOOK_NS;
    int64_t last_ns = units_now_ns(), silent_ns = 0;
    uint_fast64_t heard = 0;
    while (!sleep_one_look(look_ns)) {
        int64_t now_ns = units_now_ns(), passed_ns = now_ns - last_ns;
        struct saying saying;
        last_ns = now_ns;
        if (!listen_to(&saying) || saying.count != heard || saying.what == NULL) {
            heard = saying.count;
            silent_ns = 0;
            continue;
        }
        /* A look that came very late means that the process stood still: count it as one. */
        silent_ns += passed_ns < 2 * look_ns ? passed_ns : look_ns;
        if (silent_ns >= dog.deadline_ns)
            bark(&saying, silent_ns);
    }
    return NULL;
}

int watchdog_start(double seconds, int rank, const char *host)
{
    pthread_condattr_t monotonic;
    if (seconds <= 0 || dog.running)
        return 0;
    memset(&dog, 0, sizeof dog);
    dog.deadline_ns = (int64_t)(seconds * 1e9);
    dog.rank = rank;
    snprintf(dog.host, sizeof dog.host, "%s", host);
    watchdog_pause();
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&dog.wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&dog.lock, NULL);
    int error = pthread_create(&dog.thread, NULL, watch, NULL);
    if (error != 0)
        return fail(FAIL_INTERNAL, "watchdog: no thread: %s", strerror(error));
    dog.running = true;
    return 0;
}

void watchdog_stop(void)
{
    if (!dog.running)
        return;
    pthread_mutex_lock(&dog.lock);
    dog.stop = true;
    pthread_cond_signal(&dog.wake);
    pthread_mutex_unlock(&dog.lock);
    pthread_join(dog.thread, NULL);
    pthread_cond_destroy(&dog.wake);
    pthread_mutex_destroy(&dog.lock);
    dog.running = false;
}
