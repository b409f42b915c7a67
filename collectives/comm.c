#include "collectives/comm.h"

#include <string.h>

#include "base/err.h"

int comm_find(const char *name, const struct comm_type **out)
{
    *out = NULL;
    if (strcmp(name, "mpi") == 0 || strcmp(name, "auto") == 0) {
        *out = &comm_mpi;
        return 0;
    }
    if (strcmp(name, "nccl") != 0)
        return fail(FAIL_USAGE,
                    "comm: no communicator is called \"%s\"; there are: auto, mpi, nccl", name);
#ifdef SCALESTUDY_HAVE_CUDA
    *out = &comm_nccl;
    return 0;
#else
    return fail(FAIL_ABSENT, "comm: \"nccl\" is not in this build; it has: auto, mpi");
#endif
}

int comm_find_for(const struct device_type *device, const char *name, const struct comm_type **out)
{
    bool on_host = device->runs_host_tasks;
    int rc = 0;

    TRY(comm_find(strcmp(name, "auto") == 0 && !on_host ? "nccl" : name, out));
    if ((*out)->host_memory != on_host)
        rc = fail(FAIL_USAGE, "comm: \"%s\" does not move the memory of device \"%s\": take %s",
                  name, device->name, on_host ? "mpi" : "nccl");
out:
    return rc;
}

#ifndef SCALESTUDY_HAVE_CUDA
const char *comm_nccl_version(void)
{
    return "none";
}
#endif

int comm_open(struct comm *comm, const struct comm_type *type, const void *parent,
              struct device *device, int stream, enum axis axis, const struct group *group,
              int max_calls)
{
    int rc;

    *comm = (struct comm){.type = type,
                          .device = device,
                          .stream = stream,
                          .group = *group,
                          .axis = axis,
                          .max_calls = max_calls};
    rc = type->open(comm, parent, max_calls);
    if (rc != 0)
        *comm = (struct comm){0};
    return rc;
}

void comm_close(struct comm *comm)
{
    if (comm->type != NULL) {
        comm->device->type->sync(comm->device);
        comm->type->close(comm);
    }
    *comm = (struct comm){0};
}

void comm_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    if (n_calls == 0)
        return;
    comm->posted_calls += n_calls;
    for (int i = 0; i < n_calls; i++)
        comm->posted_bytes += coll_wire_bytes(&calls[i].coll, comm->group.size);
    comm->type->post(comm, calls, n_calls);
}
