#include "workloads/kernels/kernels.h"

#include <cblas.h>

/* OpenBLAS' cblas.h brings its version; others have no common way to be asked. */
const char *kernels_blas_version(void)
{
#ifdef OPENBLAS_VERSION
    return openblas_get_config();
#else
    return "unknown CBLAS";
#endif
}

void kernels_blas_threads(int n)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(n);
#else
    (void)n;
#endif
}
