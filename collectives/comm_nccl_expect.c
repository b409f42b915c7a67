/* What a study promises before NCCL starts, as the environment that NCCL reads once. */
#include "collectives/comm_nccl.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/*
 * One ring, one protocol, one number of channels: then an element is summed in one order of ranks,
 * whatever the size of the call and whatever NCCL's model of the machine says today. Buffers of
 * registered windows would bring other kernels. What the user has set stays.
 */
static void pin(void)
{
    setenv("NCCL_ALGO", "Ring", 0);
    setenv("NCCL_PROTO", "Simple", 0);
    setenv("NCCL_MIN_NCHANNELS", "16", 0);
    setenv("NCCL_MAX_NCHANNELS", "16", 0);
    setenv("NCCL_WIN_ENABLE", "0", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
}

/*
 * Graphs run one behind the other and have communicators of their own, on which nothing else is
 * outstanding meanwhile: NCCL need not order its calls in a graph against others, and puts no nodes
 * into it for that. Nor does it order launches by itself, which in a graph are edges from the launch of
 * one kernel to the next: with nodes of stamps between such calls, upload of the graph has crashed
 * inside driver 580.159, and these edges are suspected. Each group waits for the last one instead.
 */
static int allow_graphs(int version)
{
    if (version < NCCL_ORDERED)
        return fail(FAIL_ABSENT,
                    "comm: NCCL %d.%d.%d is loaded and --graph wants 2.26 or later: put a newer "
                    "libnccl.so.2 before it (LD_LIBRARY_PATH)",
                    version / 10000, version / 100 % 100, version % 100);
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 0);
    return 0;
}

bool comm_nccl_orders_itself(void)
{
    const char *implicit = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");

    return implicit != NULL && strcmp(implicit, "0") != 0;
}

int comm_nccl_promise(const struct comm_promise *promise, int version)
{
    if (promise->deterministic)
        pin();
    return promise->graph ? allow_graphs(version) : 0;
}

int comm_nccl_expect(const struct comm_promise *promise)
{
    int version = 0;

    ncclGetVersion(&version);
    return comm_nccl_promise(promise, version);
}
