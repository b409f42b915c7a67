#include "topologies/affinity.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hwloc.h>

#include "base/err.h"

/* Cores, packages and threads only; without the x86 component, which visits every CPU in turn. */
static bool load(hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0)
        return false;
    hwloc_topology_set_flags(*topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(*topology) == 0)
        return true;
    hwloc_topology_destroy(*topology);
    return false;
}

static void find_host(struct affinity *out, hwloc_topology_t topology)
{
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char *model = package != NULL ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (model == NULL)
        model = hwloc_obj_get_info_by_name(root, "CPUModel");
    snprintf(out->model, sizeof out->model, "%s", model != NULL ? model : "");
    /* Not hwloc's sum over NUMA nodes: where memory was plugged in later, Linux leaves it out. */
    out->memory_bytes = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    out->host_cpus = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    out->host_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
}

/* "0-3,8-11", or cut at a comma: "0-3,...". */
static void write_list(char *text, size_t size, hwloc_const_bitmap_t set)
{
    int length = hwloc_bitmap_list_snprintf(text, size, set);
    if (length < 0)
        text[0] = '\0';
    if (length < (int)size)
        return;
    text[size - sizeof "..."] = '\0';
    char *comma = strrchr(text, ',');
    strcpy(comma != NULL ? comma + 1 : text, "...");
}

static void find_process(struct affinity *out, hwloc_topology_t topology)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    out->may_use = must_alloc((size_t)out->host_cores + 1, 1);
    if (set != NULL && hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_THREAD) == 0) {
        out->n_cpus = hwloc_bitmap_weight(set);
        write_list(out->cpus, sizeof out->cpus, set);
        for (int i = 0; i < out->host_cores; i++) {
            hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
            out->may_use[i] = (char)(hwloc_bitmap_intersects(core->cpuset, set) != 0);
            out->n_cores += out->may_use[i];
        }
    }
    hwloc_bitmap_free(set);
}

void affinity_find(struct affinity *out)
{
    hwloc_topology_t topology;
    memset(out, 0, sizeof *out);
    if (!load(&topology))
        return;
    find_host(out, topology);
    find_process(out, topology);
    hwloc_topology_destroy(topology);
}

void affinity_release(struct affinity *affinity)
{
    free(affinity->may_use);
    memset(affinity, 0, sizeof *affinity);
}

struct matching {
    const char *may_use;
    int n_cores;
    int *owner;    /* [n_cores] rank, or -1 */
    char *visited; /* [n_cores] */
};

/* Give `rank` a core, moving others to other cores where that helps (augmenting path). */
static bool place(struct matching *matching, int rank)
{
    for (int core = 0; core < matching->n_cores; core++) {
        if (!matching->may_use[(size_t)rank * (size_t)matching->n_cores + (size_t)core] ||
            matching->visited[core])
            continue;
        matching->visited[core] = 1;
        if (matching->owner[core] < 0 || place(matching, matching->owner[core])) {
            matching->owner[core] = rank;
            return true;
        }
    }
    return false;
}

void affinity_crowded(const char *may_use, int n_ranks, int n_cores, int *crowded)
{
    struct matching matching = {.may_use = may_use, .n_cores = n_cores};
    matching.owner = must_alloc((size_t)n_cores + 1, sizeof *matching.owner);
    matching.visited = must_alloc((size_t)n_cores + 1, 1);
    for (int core = 0; core < n_cores; core++)
        matching.owner[core] = -1;
    for (int rank = 0; rank < n_ranks; rank++)
        crowded[rank] = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        memset(matching.visited, 0, (size_t)n_cores);
        if (place(&matching, rank))
            continue;
        /* All cores that were tried are taken, by ranks that can go nowhere else. */
        for (int core = 0; core < n_cores; core++)
            if (matching.visited[core])
                crowded[matching.owner[core]] = crowded[rank] = 1;
    }
    free(matching.owner);
    free(matching.visited);
}
