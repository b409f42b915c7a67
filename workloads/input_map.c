#define _DEFAULT_SOURCE /* madvise: posix_madvise(POSIX_MADV_DONTNEED) does nothing in glibc */
#include "workloads/input_map.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Where this thread goes back to when a page is not there; NULL outside map_copy(). */
static _Thread_local sigjmp_buf *volatile guard;

static struct {
    pthread_mutex_t lock;
    int maps; /* open in this process */
    struct sigaction before;
} handler = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_bus_error(int signal_number)
{
    if (guard != NULL) {
        sigset_t set; /* the jump leaves the handler without returning, which would unblock it */
        sigemptyset(&set);
        sigaddset(&set, signal_number);
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        siglongjmp(*guard, 1);
    }
    sigaction(signal_number, &handler.before,
              NULL); /* the access is made again, and raises again */
}

static void watch(void)
{
    pthread_mutex_lock(&handler.lock);
    if (handler.maps++ == 0) {
        struct sigaction action = {.sa_handler = on_bus_error};
        sigemptyset(&action.sa_mask);
        sigaction(SIGBUS, &action, &handler.before);
    }
    pthread_mutex_unlock(&handler.lock);
}

static void unwatch(void)
{
    pthread_mutex_lock(&handler.lock);
    if (--handler.maps == 0)
        sigaction(SIGBUS, &handler.before, NULL);
    pthread_mutex_unlock(&handler.lock);
}

int map_open(struct input_map *map, int descriptor, size_t bytes, size_t budget, bool once)
{
    memset(map, 0, sizeof *map);
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED)
        return errno;
    posix_madvise(at, bytes, once ? POSIX_MADV_WILLNEED : POSIX_MADV_RANDOM);
    map->at = at;
    map->bytes = bytes;
    map->budget = budget;
    watch();
    return 0;
}

void map_close(struct input_map *map)
{
    if (map->at == NULL)
        return;
    munmap((void *)(uintptr_t)map->at, map->bytes);
    unwatch();
    memset(map, 0, sizeof *map);
}

void map_drop(struct input_map *map)
{
    madvise((void *)(uintptr_t)map->at, map->bytes, MADV_DONTNEED);
}

static bool copy(const unsigned char *from, size_t bytes, void *to)
{
    sigjmp_buf here;
    if (sigsetjmp(here, 0) != 0) {
        guard = NULL;
        return false;
    }
    guard = &here;
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(to, from, bytes);
    atomic_signal_fence(memory_order_seq_cst);
    guard = NULL;
    return true;
}

bool map_copy(struct input_map *map, size_t offset, size_t bytes, void *to)
{
    bool whole = copy(map->at + offset, bytes, to);
    size_t touch = bytes + INPUT_MAP_AROUND;
    if (map->bytes > map->budget && atomic_fetch_add(&map->touched, touch) + touch > map->budget) {
        atomic_store(&map->touched, 0);
        map_drop(map);
    }
    return whole;
}
