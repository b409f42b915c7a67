/*
 * devices: which GPU each rank takes, on which CPUs it runs, and which host it pretends to be on.
 *
 * Collective over the job, before anything touches a GPU or NCCL. A rank takes the GPU of its number
 * among the ranks of its host; where the launcher lets each rank see one GPU of its own, that one.
 * Refused in words: more ranks than GPUs, two ranks on one GPU, ranks of a host that would compute on
 * different kinds of device, declared nodes that share a host without --emulate-nodes, and
 * --emulate-nodes on a job that has several hosts already.
 *
 * --emulate-nodes gives each declared node of a shared host its own NCCL_HOSTID, so that NCCL goes
 * through its network between them. It also lets several ranks share a GPU: then every rank is a
 * host of its own to NCCL, and the points are functional only: their times mean nothing.
 */
#ifndef DRIVER_DEVICES_H
#define DRIVER_DEVICES_H

#include "driver/job.h"

enum { DEVICES_MOST = 16 }; /* GPUs of a host that a process may see */

/* What a rank of one host sees. */
struct devices_view {
    int rank; /* of the job */
    int n;
    char uuid[DEVICES_MOST][48];
};

/*
 * Arithmetic over the n_ranks views of one host: index[i] in view i. *shared: some GPU has two ranks,
 * which is refused (FAIL_USAGE) unless may_share.
 */
int devices_choose(const struct devices_view *views, int n_ranks, const char *host, bool may_share,
                   int *index, bool *shared);

/*
 * For a device that has units: choose, bind, prepare the communicator's library; fills
 * backend.local_rank, shared_device, and what is recorded of each rank in job->found. For the others
 * nothing happens.
 */
int devices_place(struct job *job);

#endif
