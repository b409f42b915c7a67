/*
 * ranges: named stretches of the program for whoever looks on with a profiler (NVTX).
 *
 * Ranges nest and belong to the thread that opens them. Compiled in where the build found NVTX's
 * headers, else nothing. The first call of a process loads a profiler that asks for it
 * (NVTX_INJECTION64_PATH) and belongs outside the fence; without one every later call is a comparison
 * and a return, so ranges may stand inside.
 */
#ifndef BASE_RANGES_H
#define BASE_RANGES_H

#include <stdbool.h>

void ranges_push(const char *name);
void ranges_pop(void);

bool ranges_built(void); /* were headers there? */

#endif
