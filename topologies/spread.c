#include "topologies/spread.h"

#include <stdio.h>
#include <string.h>

#include <hwloc.h>

/* Cores, NUMA domains and PCI devices; without x86, which visits every CPU in turn, without those that
 * would start a driver to ask it for its devices, and without libpciaccess, since Linux tells by
 * itself. */
static bool load(hwloc_topology_t *topology, bool with_pci)
{
    static const char *const unwanted[] = {"x86",  "cuda", "nvml",      "opencl",
                                           "rsmi", "gl",   "levelzero", "pci"};
    if (hwloc_topology_init(topology) != 0)
        return false;
    for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++)
        hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      unwanted[i]);
    if (with_pci)
        hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(*topology) == 0)
        return true;
    hwloc_topology_destroy(*topology);
    return false;
}

void spread_near(const char *bus, char *cpus, size_t size)
{
    hwloc_topology_t topology;
    cpus[0] = '\0';
    if (!load(&topology, true))
        return;
    hwloc_const_bitmap_t set = hwloc_topology_get_allowed_cpuset(topology);
    hwloc_obj_t device = bus[0] != '\0' ? hwloc_get_pcidev_by_busidstring(topology, bus) : NULL;
    hwloc_obj_t place = device != NULL ? hwloc_get_non_io_ancestor_obj(topology, device) : NULL;
    if (place != NULL && place->cpuset != NULL && !hwloc_bitmap_iszero(place->cpuset))
        set = place->cpuset; /* of what this process may have: the topology holds no other */
    if (hwloc_bitmap_list_snprintf(cpus, size, set) >= (int)size)
        cpus[0] = '\0';
    hwloc_topology_destroy(topology);
}

void spread_share(int n_cores, int n, int index, int *first, int *last)
{
    *first = 0;
    *last = n_cores;
    if (n_cores < n)
        return;
    *first = (int)((long long)index * n_cores / n);
    *last = (int)((long long)(index + 1) * n_cores / n);
}

static int cores_in(hwloc_topology_t topology, hwloc_const_bitmap_t set)
{
    int n = 0;
    for (int i = 0; i < hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE); i++)
        n += hwloc_bitmap_intersects(
            hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i)->cpuset, set);
    return n;
}

/* The threads of cores first..last of those that `near` holds a thread of, and that are in it. */
static void take_cores(hwloc_topology_t topology, hwloc_const_bitmap_t near, int first, int last,
                       hwloc_bitmap_t out)
{
    int at = 0;
    for (int i = 0; i < hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE); i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        if (!hwloc_bitmap_intersects(core->cpuset, near))
            continue;
        if (at >= first && at < last)
            hwloc_bitmap_or(out, out, core->cpuset);
        at++;
    }
    hwloc_bitmap_and(out, out, near);
}

static void write_list(char text[SPREAD_CPUS], hwloc_const_bitmap_t set)
{
    if (hwloc_bitmap_list_snprintf(text, SPREAD_CPUS, set) >= SPREAD_CPUS)
        snprintf(text, SPREAD_CPUS, "...");
}

/* A mask that somebody chose: enough cores, and not all there are. */
static bool is_chosen(hwloc_topology_t topology, hwloc_const_bitmap_t mask)
{
    hwloc_const_bitmap_t all = hwloc_topology_get_allowed_cpuset(topology);
    return cores_in(topology, mask) >= SPREAD_ENOUGH && !hwloc_bitmap_isincluded(all, mask);
}

static void spread_on(hwloc_topology_t topology, hwloc_bitmap_t near, int n, int index,
                      hwloc_bitmap_t mask, hwloc_bitmap_t share, struct spread *out)
{
    int first, last, n_cores = cores_in(topology, near);
    spread_share(n_cores, n, index, &first, &last);
    take_cores(topology, near, first, last, share);
    out->crowded = n_cores < n;
    out->kept = is_chosen(topology, mask) || hwloc_bitmap_iszero(share) ||
                hwloc_set_cpubind(topology, share, HWLOC_CPUBIND_PROCESS) != 0;
    hwloc_const_bitmap_t used = out->kept ? mask : share;
    write_list(out->used, used);
    out->n_cpus = hwloc_bitmap_weight(used);
    out->n_cores = cores_in(topology, used);
}

void spread_process(const char *near, int n, int index, struct spread *out)
{
    hwloc_topology_t topology;
    memset(out, 0, sizeof *out);
    out->kept = true;
    if (!load(&topology, false))
        return;
    hwloc_bitmap_t mask = hwloc_bitmap_alloc(), share = hwloc_bitmap_alloc();
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (mask != NULL && share != NULL && set != NULL &&
        hwloc_get_cpubind(topology, mask, HWLOC_CPUBIND_THREAD) == 0 &&
        hwloc_bitmap_list_sscanf(set, near) == 0) {
        write_list(out->found, mask);
        spread_on(topology, set, n, index, mask, share, out);
    }
    hwloc_bitmap_free(set);
    hwloc_bitmap_free(share);
    hwloc_bitmap_free(mask);
    hwloc_topology_destroy(topology);
}
