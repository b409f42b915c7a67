/*
 * input_map: a file in memory that may shrink, fail or be too large, and ends nobody's job.
 *
 * A page of a mapping that has no file behind it any more (truncated, a disk or server that fails)
 * raises SIGBUS. map_copy() takes it: the thread that copies has said where to go back to, and gets
 * `false`. A SIGBUS of anybody else goes to whoever handled it before.
 *
 * What a mapping keeps resident is bounded: a touched page brings at most INPUT_MAP_AROUND bytes
 * (what Linux maps around a fault), and after `budget` bytes of such touches the pages are handed
 * back (they stay in the page cache, which is the system's). Any number of threads may copy.
 */
#ifndef WORKLOADS_INPUT_MAP_H
#define WORKLOADS_INPUT_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { INPUT_MAP_AROUND = 64 << 10 };

struct input_map {
    const unsigned char *at; /* NULL: not open */
    size_t bytes;
    size_t budget;         /* bytes of touches before pages are handed back */
    atomic_size_t touched; /* since then */
};

/* Map the whole of an open file; `once`: it is small and will be read soon, all of it. 0, or errno.
 * The descriptor may be closed afterwards. */
int map_open(struct input_map *map, int descriptor, size_t bytes, size_t budget, bool once);
void map_close(struct input_map *map); /* safe on a zeroed struct */

/* Copy [offset, offset + bytes), which lies within the map. False: a page of it cannot be read. */
bool map_copy(struct input_map *map, size_t offset, size_t bytes, void *to);

/* Hand the resident pages back now. */
void map_drop(struct input_map *map);

#endif
