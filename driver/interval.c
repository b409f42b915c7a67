#include "driver/interval.h"

#include <stdlib.h>

static int by_begin(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

int interval_merge(struct interval *list, int n)
{
    int kept = 0;
    if (n > 0)
        qsort(list, (size_t)n, sizeof *list, by_begin);
    for (int i = 0; i < n; i++) {
        if (kept > 0 && list[i].begin <= list[kept - 1].end) {
            if (list[i].end > list[kept - 1].end)
                list[kept - 1].end = list[i].end;
        } else {
            list[kept++] = list[i];
        }
    }
    return kept;
}

int64_t interval_length(const struct interval *list, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += list[i].end - list[i].begin;
    return sum;
}

int64_t interval_common(const struct interval *a, int n_a, const struct interval *b, int n_b)
{
    int64_t sum = 0;
    for (int i = 0, j = 0; i < n_a && j < n_b;) {
        int64_t begin = a[i].begin > b[j].begin ? a[i].begin : b[j].begin;
        int64_t end = a[i].end < b[j].end ? a[i].end : b[j].end;
        if (end > begin)
            sum += end - begin;
        if (a[i].end < b[j].end)
            i++;
        else
            j++;
    }
    return sum;
}
