#include "driver/agree.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <mpi.h>

#include "base/err.h"
#include "base/units.h"

enum { MESSAGE_BYTES = 1024, SLEEP_LEAST_NS = 20000, SLEEP_MOST_NS = 1000000 };
enum { BROADCAST_BYTES = 1 << 29 }; /* MPI counts are int */

void agree_failed(int code, const char *call)
{
    char words[MPI_MAX_ERROR_STRING] = "", host[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0, rank = 0;
    MPI_Error_string(code, words, &length);
    MPI_Get_processor_name(host, &length);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    die(FAIL_COMM, "mpi: %s: %s (host %s, rank %d)", call, words, host, rank);
}

int agree_wait(void *request)
{
    int done = 0;
    int64_t sleep_ns = SLEEP_LEAST_NS;
    for (;;) {
        AGREE_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done)
            break;
        units_sleep_ns(sleep_ns);
        sleep_ns += sleep_ns / 2;
        sleep_ns = sleep_ns < SLEEP_MOST_NS ? sleep_ns : SLEEP_MOST_NS;
    }
    return 0;
}

int agree_barrier(const void *comm)
{
    int rc = 0;
    MPI_Request request;
    AGREE_MPI(MPI_Ibarrier(*(const MPI_Comm *)comm, &request));
    TRY(agree_wait(&request));
out:
    return rc;
}

int agree_broadcast(void *data, int64_t bytes, int root, const void *comm)
{
    int rc = 0;
    char *at = data;
    while (bytes > 0) {
        int piece = bytes < BROADCAST_BYTES ? (int)bytes : BROADCAST_BYTES;
        MPI_Request request;
        AGREE_MPI(MPI_Ibcast(at, piece, MPI_BYTE, root, *(const MPI_Comm *)comm, &request));
        TRY(agree_wait(&request));
        at += piece;
        bytes -= piece;
    }
out:
    return rc;
}

static int minimum(int *values, int n, MPI_Comm comm)
{
    int rc = 0;
    MPI_Request request;
    AGREE_MPI(MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_INT, MPI_MIN, comm, &request));
    TRY(agree_wait(&request));
out:
    return rc;
}

/* The first rank of this host, found once per communicator and kept on it as an attribute. */
static int find_host(int *first, MPI_Comm comm)
{
    int rc = 0, rank;
    MPI_Comm local = MPI_COMM_NULL;
    AGREE_MPI(MPI_Comm_rank(comm, &rank));
    TRY(agree_barrier(&comm)); /* the split below spins: let nobody be late for it */
    AGREE_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local));
    *first = rank;
    TRY(minimum(first, 1, local));
out:
    if (local != MPI_COMM_NULL)
        MPI_Comm_free(&local);
    return rc;
}

int agree_host(int *first, const void *address)
{
    static int key = MPI_KEYVAL_INVALID; /* for the life of the process */
    MPI_Comm comm = *(const MPI_Comm *)address;
    int rc = 0, known;
    void *kept;
    if (key == MPI_KEYVAL_INVALID)
        AGREE_MPI(
            MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    AGREE_MPI(MPI_Comm_get_attr(comm, key, (void *)&kept, &known));
    if (known) {
        *first = (int)(intptr_t)kept;
        return 0;
    }
    TRY(find_host(first, comm));
    AGREE_MPI(MPI_Comm_set_attr(comm, key, (void *)(intptr_t)*first));
out:
    return rc;
}

struct verdict {
    int code;
    char message[MESSAGE_BYTES];
    char host[MPI_MAX_PROCESSOR_NAME];
};

static void verdict_fill(struct verdict *verdict, int code)
{
    int length = 0;
    verdict->code = code;
    const char *words = *fail_message() != '\0' ? fail_message() : fail_words(code);
    snprintf(verdict->message, sizeof verdict->message, "%s", words);
    MPI_Get_processor_name(verdict->host, &length);
}

/* " (host H, rank R)", "" where all failed alike. */
static void verdict_where(const struct verdict *verdict, int rank, bool all_alike, char *out,
                          size_t size)
{
    out[0] = '\0';
    if (!all_alike)
        snprintf(out, size, " (host %s, rank %d)", verdict->host, rank);
}

/* Who hears of a failure. */
enum hearing { ALOUD, QUIETLY, NAMED };

/* Some rank failed, `speaker` first: spread its verdict, and print it there. */
static int settle_failure(int code, int speaker, int rank, MPI_Comm comm, enum hearing hearing)
{
    int rc = 0;
    char where[MPI_MAX_PROCESSOR_NAME + 32];
    struct verdict mine = {0}, verdict;
    verdict_fill(&mine, code);
    verdict = mine;
    TRY(agree_broadcast(&verdict, sizeof verdict, speaker, &comm));
    int alike = mine.code == verdict.code && strcmp(mine.message, verdict.message) == 0;
    TRY(minimum(&alike, 1, comm));
    verdict_where(&verdict, speaker, alike != 0, where, sizeof where);
    if (hearing == ALOUD && rank == speaker) {
        fflush(stdout);
        fprintf(stderr, "scalestudy: %s%s\n", verdict.message, where);
    }
    fail_clear();
    rc = fail(verdict.code, "%s%s", verdict.message, hearing == NAMED ? where : "");
out:
    return rc;
}

static int settle(int code, const void *comm, enum hearing hearing)
{
    int rc = 0, rank, speaker;
    AGREE_MPI(MPI_Comm_rank(*(const MPI_Comm *)comm, &rank));
    speaker = code != 0 ? rank : INT_MAX;
    TRY(minimum(&speaker, 1, *(const MPI_Comm *)comm));
    if (speaker != INT_MAX)
        TRY(settle_failure(code, speaker, rank, *(const MPI_Comm *)comm, hearing));
out:
    return rc;
}

int agree(int rc, const void *comm)
{
    return settle(rc, comm, ALOUD);
}

int agree_quietly(int rc, const void *comm)
{
    return settle(rc, comm, QUIETLY);
}

int agree_named(int rc, const void *comm)
{
    return settle(rc, comm, NAMED);
}
