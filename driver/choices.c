#include "driver/choices.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/agree.h"

static int alone(const void *mine, size_t bytes, void **all, size_t *all_bytes)
{
    *all = must_alloc(bytes + 1, 1);
    memcpy(*all, mine, bytes);
    *all_bytes = bytes;
    return 0;
}

/* Rank 0 gathers, and everybody gets what it has. */
static int gather(void *arg, const void *mine, size_t bytes, void **all, size_t *all_bytes)
{
    const void *comm = arg;
    int64_t total = 0, *counts = NULL;
    int rank = 0, size = 0, rc = 0;
    *all = NULL;
    if (comm == NULL)
        return alone(mine, bytes, all, all_bytes);
    MPI_Comm_rank(*(const MPI_Comm *)comm, &rank);
    MPI_Comm_size(*(const MPI_Comm *)comm, &size);
    counts = must_alloc((size_t)size, sizeof *counts);
    TRY(agree_gather(mine, (int64_t)bytes, all, &total, counts, comm));
    TRY(agree_broadcast(&total, sizeof total, 0, comm));
    if (rank != 0)
        *all = must_alloc((size_t)total + 1, 1);
    TRY(agree_broadcast(*all, total, 0, comm));
    *all_bytes = (size_t)total;
out:
    free(counts);
    return rc;
}

/* The owner of the point prints the sentence. */
static int agree_all(void *arg, int code)
{
    return arg == NULL ? code : agree_quietly(code, arg);
}

int choices_share(struct kernel_share *out, const void *comm)
{
    *out = (struct kernel_share){.gather = gather, .agree = agree_all};
    memcpy(&out->arg, &comm, sizeof comm);
    if (comm != NULL && MPI_Comm_rank(*(const MPI_Comm *)comm, &out->rank) != MPI_SUCCESS)
        return fail(FAIL_COMM, "choices: MPI_Comm_rank failed");
    return 0;
}
