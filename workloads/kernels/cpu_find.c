#include "workloads/kernels/kernels.h"

#include <string.h>

#include "base/err.h"

static const struct kernel_set *const sets[] = {
#ifdef SCALESTUDY_HAVE_CUDA
    &kernels_cuda,
#endif
    &kernels_cpu,
    &kernels_timed,
};

#ifndef SCALESTUDY_HAVE_CUDA
const char *kernels_cudnn_version(void)
{
    return "none";
}
#endif

int kernels_find(const char *device, const struct kernel_set **out)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        if (strcmp(sets[i]->name, device) == 0)
            *out = sets[i];
    if (*out == NULL)
        return fail(FAIL_ABSENT, "kernels: this build has none for device \"%s\": choose cpu",
                    device);
    return 0;
}
