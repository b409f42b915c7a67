/* Who searches for what all ranks take, and how they tell each other (struct kernel_share). */
#include "workloads/kernels/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int cuda_share_agree(const struct kernel_share *share, int code)
{
    return share == NULL ? code : share->agree(share->arg, code);
}

int cuda_share_all(const struct kernel_share *share, const void *mine, size_t size, int n,
                   void **all, int *n_all)
{
    size_t bytes = 0;
    int rc = 0;
    if (share == NULL) {
        *all = must_alloc((size_t)n + 1, size);
        memcpy(*all, mine, (size_t)n * size);
        *n_all = n;
        return 0;
    }
    TRY(share->gather(share->arg, mine, (size_t)n * size, all, &bytes));
    *n_all = (int)(bytes / size);
out:
    return rc;
}

/* A key with the rank that has it, each `size` bytes long. */
int cuda_share_out(const struct kernel_share *share, const void *keys, size_t key, int n,
                   bool *owns)
{
    const int64_t me = share != NULL ? share->rank : 0;
    const size_t size = sizeof me + key;
    unsigned char *mine = must_alloc((size_t)n + 1, size), *all = NULL;
    int n_all = 0, rc = 0;
    for (int i = 0; i < n; i++) {
        memcpy(mine + (size_t)i * size, &me, sizeof me);
        memcpy(mine + (size_t)i * size + sizeof me, (const unsigned char *)keys + (size_t)i * key,
               key);
    }
    TRY(cuda_share_all(share, mine, size, n, (void **)&all, &n_all));
    for (int i = 0; i < n; i++) {
        const unsigned char *first = all;
        while (memcmp(first + sizeof me, mine + (size_t)i * size + sizeof me, key) != 0)
            first += size;
        owns[i] = memcmp(first, &me, sizeof me) == 0;
    }
out:
    free(mine);
    free(all);
    return rc;
}
