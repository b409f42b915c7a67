#include "topologies/host.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool read_line(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY);
    ssize_t n = file >= 0 ? read(file, text, size - 1) : -1;
    if (file >= 0)
        close(file);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text[0] != '\0';
}

static bool read_link(const char *path, char *text, size_t size)
{
    ssize_t n = readlink(path, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

void host_find(struct host_mark *mark)
{
    char boot[48], uts[32], ipc[32], net[32];
    if (gethostname(mark->name, sizeof mark->name) != 0)
        snprintf(mark->name, sizeof mark->name, "unknown");
    mark->name[sizeof mark->name - 1] = '\0';
    mark->identity[0] = '\0';
    if (read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot) &&
        read_link("/proc/self/ns/uts", uts, sizeof uts) &&
        read_link("/proc/self/ns/ipc", ipc, sizeof ipc) &&
        read_link("/proc/self/ns/net", net, sizeof net))
        snprintf(mark->identity, sizeof mark->identity, "%s %s %s %s", boot, uts, ipc, net);
}

static bool same_host(const struct host_mark *a, const struct host_mark *b)
{
    bool same_identity = a->identity[0] != '\0' && strcmp(a->identity, b->identity) == 0;
    return (a->first == b->first || same_identity) && strcmp(a->name, b->name) == 0;
}

void host_group(const struct host_mark *marks, int n_ranks, int *hosts)
{
    for (int rank = 0; rank < n_ranks; rank++) {
        int first = marks[rank].first; /* nearly always the answer, or else this is a new host */
        if (first < rank && same_host(&marks[first], &marks[rank])) {
            hosts[rank] = hosts[first];
            continue;
        }
        hosts[rank] = rank;
        for (int other = 0; other < rank && hosts[rank] == rank; other++)
            if (hosts[other] == other && same_host(&marks[other], &marks[rank]))
                hosts[rank] = other;
    }
}
