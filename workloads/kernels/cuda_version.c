#include <stdio.h>

#include <cudnn.h>

#include "workloads/kernels/kernels.h"

/* The library's word, not the header's: the two may differ. */
const char *kernels_cudnn_version(void)
{
    static char text[32];
    size_t version = cudnnGetVersion();

    snprintf(text, sizeof text, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    return text;
}
