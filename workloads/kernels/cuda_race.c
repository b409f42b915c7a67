#include "workloads/kernels/cuda_race.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "workloads/kernels/cuda.h"

void cuda_race_open(struct cuda_race *race, void *stream)
{
    race->stream = stream;
    for (int i = 0; i < RACE_RUNS; i++) {
        cuda_must((int)cudaEventCreate((cudaEvent_t *)&race->begin[i]), "search: event");
        cuda_must((int)cudaEventCreate((cudaEvent_t *)&race->end[i]), "search: event");
    }
}

void cuda_race_close(struct cuda_race *race)
{
    for (int i = 0; i < RACE_RUNS; i++) {
        cudaEventDestroy(race->begin[i]);
        cudaEventDestroy(race->end[i]);
    }
}

/* Between the events of number `at`. */
static bool give_out(struct cuda_race *race, race_run *run, void *arg, int competitor, int at)
{
    cuda_must((int)cudaEventRecord(race->begin[at], race->stream), "search: event");
    bool ran = run(arg, competitor, at);
    cuda_must((int)cudaEventRecord(race->end[at], race->stream), "search: event");
    return ran;
}

static float took_us(const struct cuda_race *race, int at)
{
    float ms = 0;
    cuda_must((int)cudaEventSynchronize(race->end[at]), "search");
    cuda_must((int)cudaEventElapsedTime(&ms, race->begin[at], race->end[at]), "search");
    return ms * 1e3F;
}

float cuda_race_alone(struct cuda_race *race, race_run *run, void *arg, int competitor)
{
    if (!give_out(race, run, arg, competitor, 0) || !give_out(race, run, arg, competitor, 1))
        return -1;
    return took_us(race, 1);
}

/* order[n]: a permutation for each round. */
static void draw(int *order, int n, int round)
{
    uint64_t key = rng_key((uint64_t)round, "race");
    for (int i = 0; i < n; i++) {
        int at = (int)rng_below(key, (uint64_t)i, (uint32_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void cuda_race_all(struct cuda_race *race, race_run *run, void *arg, int n, int rounds,
                   float *median_us)
{
    int order[RACE_RUNS], at[RACE_RUNS]; /* at: the number of a competitor's run, by round */
    float us[RACE_RUNS];
    if (n * (rounds + 1) > RACE_RUNS)
        BUG("a race of %d x %d runs", n, rounds + 1);
    for (int i = 0; i < n; i++)
        median_us[i] = 0;
    for (int round = 0; round <= rounds; round++) {
        draw(order, n, round);
        for (int i = 0; i < n; i++) {
            at[round * n + order[i]] = round * n + i;
            if (!give_out(race, run, arg, order[i], round * n + i))
                median_us[order[i]] = -1;
        }
    }
    for (int i = 0; i < n; i++) {
        for (int round = 1; round <= rounds; round++)
            us[round - 1] = took_us(race, at[round * n + i]);
        qsort(us, (size_t)rounds, sizeof *us, by_size);
        median_us[i] = median_us[i] < 0 ? -1 : us[rounds / 2];
    }
}
