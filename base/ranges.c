#include "base/ranges.h"

#ifdef SCALESTUDY_NVTX

#include <nvtx3/nvToolsExt.h>

void ranges_push(const char *name)
{
    nvtxRangePushA(name);
}

void ranges_pop(void)
{
    nvtxRangePop();
}

bool ranges_built(void)
{
    return true;
}

#else

void ranges_push(const char *name)
{
    (void)name;
}

void ranges_pop(void)
{
}

bool ranges_built(void)
{
    return false;
}

#endif
