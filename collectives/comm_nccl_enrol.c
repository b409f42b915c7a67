/* Memory that NCCL is told of before calls use it, so that it need not copy through its own. */
#include "collectives/comm_nccl.h"

#include <stdlib.h>
#include <string.h>

#include <nccl.h>

#include "base/err.h"

enum { BUFFERS_SINCE = 21900, WINDOWS_SINCE = 22700 }; /* as NCCL_VERSION_CODE */

static int absent(const char *axis, const char *what, const char *why)
{
    return fail(FAIL_ABSENT, "comm: %s: NCCL %s cannot take %s: %s", axis, comm_nccl_version(),
                what, why);
}

static int refused(struct ncclComm *comm, const char *axis, const char *what, ncclResult_t result)
{
    return fail(FAIL_COMM, "comm: %s: NCCL refused %s: %s (%s)", axis, what,
                ncclGetErrorString(result), ncclGetLastError(comm));
}

static int buffer(struct ncclComm *comm, const char *axis, void *memory, size_t bytes, int version)
{
    void *handle = NULL;
#if NCCL_VERSION_CODE >= 21900
    if (version >= BUFFERS_SINCE) {
        ncclResult_t result = ncclCommRegister(comm, memory, bytes, &handle);
        return result == ncclSuccess ? 0 : refused(comm, axis, "a buffer", result);
    }
#endif
    (void)comm, (void)memory, (void)bytes, (void)handle, (void)version;
    return absent(axis, "buffers", "2.19 or later is wanted");
}

/*
 * A window of a communicator that may multicast would be bound to multicast memory of the GPUs. That
 * is nothing to begin on a host that others share: windows want NCCL_NVLS_ENABLE=0 to be said.
 */
static int window(struct ncclComm *comm, const char *axis, void *memory, size_t bytes, int version)
{
    const char *multicast = getenv("NCCL_NVLS_ENABLE");
    if (multicast == NULL || strcmp(multicast, "0") != 0)
        return absent(axis, "windows", "NCCL_NVLS_ENABLE=0 is wanted in the environment");
#if NCCL_VERSION_CODE >= 22700
    if (version >= WINDOWS_SINCE) {
        ncclWindow_t handle = NULL;
        ncclResult_t result =
            ncclCommWindowRegister(comm, memory, bytes, &handle, NCCL_WIN_COLL_SYMMETRIC);
        return result == ncclSuccess ? 0 : refused(comm, axis, "a window", result);
    }
#endif
    (void)comm, (void)memory, (void)bytes, (void)version;
    return absent(axis, "windows", "2.27 or later is wanted");
}

int comm_nccl_enrol(struct ncclComm *comm, const char *axis, void *memory, size_t bytes,
                    enum comm_enrolment how)
{
    int version = 0;
    ncclGetVersion(&version);
    if (how == ENROL_BUFFERS)
        return buffer(comm, axis, memory, bytes, version);
    return how == ENROL_WINDOWS ? window(comm, axis, memory, bytes, version) : 0;
}
