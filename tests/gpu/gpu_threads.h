/*
 * gpu_threads: a loop of a test over the cores of the host. References are fp64 and would take
 * longer than what they check.
 */
#ifndef TESTS_GPU_THREADS_H
#define TESTS_GPU_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

enum { GPU_MOST_THREADS = 32, GPU_GRAIN = 1 << 16 };

struct gpu_loop {
    atomic_llong next;
    int64_t n, grain;
    void (*work)(void *arg, int64_t first, int64_t end);
    void *arg;
};

static inline void *gpu_loop_run(void *arg)
{
    struct gpu_loop *loop = arg;
    for (;;) {
        int64_t first = atomic_fetch_add(&loop->next, loop->grain);
        if (first >= loop->n)
            return NULL;
        int64_t end = first + loop->grain;
        loop->work(loop->arg, first, end < loop->n ? end : loop->n);
    }
}

/* work(arg, first, end) for pieces of `grain` of 0..n-1, each once, on any thread. */
static inline void gpu_parallel(int64_t n, int64_t grain,
                                void (*work)(void *arg, int64_t first, int64_t end), void *arg)
{
    struct gpu_loop loop = {.n = n, .grain = grain, .work = work, .arg = arg};
    pthread_t threads[GPU_MOST_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t most = (n + grain - 1) / grain - 1; /* this thread works as well */
    int started = 0;
    while (started < most && started < cores - 1 && started < GPU_MOST_THREADS &&
           pthread_create(&threads[started], NULL, gpu_loop_run, &loop) == 0)
        started++;
    gpu_loop_run(&loop);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

#endif
