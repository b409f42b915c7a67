/* What kernels measured at set-up comes to all ranks alike: all that each gave, in the order of ranks,
 * also where some give nothing; a rank that is alone has its own. */
#include "tests/test.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/choices.h"

enum { MOST = 5 };

/* Rank r gives r % MOST numbers of 100 r + i. */
static void all_get_all(const MPI_Comm *comm, int rank, int size)
{
    struct kernel_share share;
    int mine[MOST], n = 0, *all = NULL;
    size_t bytes = 0;
    CHECK_EQ(choices_share(&share, comm), 0);
    CHECK_EQ(share.rank, rank);
    for (int i = 0; i < rank % MOST; i++)
        mine[i] = 100 * rank + i;
    void *gathered = NULL;
    CHECK_EQ(share.gather(share.arg, mine, (size_t)(rank % MOST) * sizeof *mine, &gathered, &bytes),
             0);
    all = gathered;
    for (int r = 0; r < size; r++)
        for (int i = 0; i < r % MOST; i++, n++)
            CHECK(n < (int)(bytes / sizeof *all) && all[n] == 100 * r + i);
    CHECK_EQ(bytes, (size_t)n * sizeof *all);
    free(gathered);
}

/* What one rank fails with, all fail with, and gather after the next agreement. */
static void all_leave_together(const MPI_Comm *comm, int rank, int size)
{
    struct kernel_share share;
    CHECK_EQ(choices_share(&share, comm), 0);
    for (int who = 0; who < size; who++) {
        int rc = who == rank ? fail(FAIL_CUDA, "a test: rank %d has no memory", rank) : 0;
        char words[64];
        snprintf(words, sizeof words, "a test: rank %d has no memory", who);
        CHECK_EQ(share.agree(share.arg, rc), FAIL_CUDA);
        CHECK(strcmp(fail_message(), words) == 0);
        fail_clear();
        CHECK_EQ(share.agree(share.arg, 0), 0);
        all_get_all(comm, rank, size);
    }
}

static void alone_gets_its_own(void)
{
    struct kernel_share share;
    char *all = NULL;
    void *gathered = NULL;
    size_t bytes = 0;
    CHECK_EQ(choices_share(&share, NULL), 0);
    CHECK_EQ(share.gather(share.arg, "abc", 4, &gathered, &bytes), 0);
    all = gathered;
    CHECK(bytes == 4 && strcmp(all, "abc") == 0);
    free(gathered);
    CHECK_EQ(share.agree(share.arg, 0), 0);
    CHECK_EQ(share.agree(share.arg, FAIL_USAGE), FAIL_USAGE);
}

int main(int argc, char **argv)
{
    MPI_Comm world = MPI_COMM_WORLD;
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    for (int round = 0; round < 3; round++)
        all_get_all(&world, rank, size);
    all_leave_together(&world, rank, size);
    alone_gets_its_own();
    MPI_Finalize();
    return test_end();
}
