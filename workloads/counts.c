#include "workloads/counts.h"

#include "base/err.h"

int64_t counts_most(int64_t rows, int top_k, int experts, int ranks)
{
    int here = experts / ranks;
    return rows * ranks * (top_k < here ? top_k : here);
}

void counts_even(int64_t slots, int experts, int64_t *counts)
{
    for (int e = 0; e < experts; e++)
        counts[e] = slots / experts + (e < slots % experts);
}

static int64_t checked(const struct shape_counts *s, int32_t rows)
{
    if (rows < 0 || rows > s->most)
        die(FAIL_COMM, "counts: %d rows for an expert, of at most %lld: the exchange is broken",
            (int)rows, (long long)s->most);
    return rows;
}

void counts_put(const struct shape_counts *s, const int32_t *own, const int32_t *arrived)
{
    int here = s->experts / s->ranks;
    bool one = here == 1; /* then all ranks' rows are one block */
    *s->now = 0;
    for (int m = 0; m < s->ranks; m++) {
        s->send[m] = s->receive[m] = 0;
        for (int e = 0; e < here; e++) {
            int64_t rows = checked(s, arrived[m * here + e]);
            int64_t *block = &s->rows[one ? 0 : m * here + e];
            *block = one && m > 0 ? *block + rows : rows;
            s->send[m] += checked(s, own[m * here + e]) * s->width;
            s->receive[m] += rows * s->width;
            *s->now += rows;
        }
    }
    if (*s->now > s->most)
        die(FAIL_COMM, "counts: %lld rows arrive, of at most %lld: the exchange is broken",
            (long long)*s->now, (long long)s->most);
}
