/*
 * choices: ranks of a point hand each other what their kernels measured at set-up, so that all take
 * the same algorithms (struct kernel_share).
 */
#ifndef DRIVER_CHOICES_H
#define DRIVER_CHOICES_H

#include "workloads/kernels/kernels.h"

/* `comm` is the address of the MPI_Comm whose ranks share, borrowed; NULL: this rank is alone. */
int choices_share(struct kernel_share *out, const void *comm);

#endif
