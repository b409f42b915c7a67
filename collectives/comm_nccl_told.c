/* What NCCL tells of its choices: a profiler plugin that lives in the program. */
#include "collectives/comm_nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nccl.h>

/*
 * The interface as NCCL declares it (plugins/profiler, version 4: NCCL 2.27 to 2.30 at least),
 * without the members that are for events nobody here asks for.
 */
enum { TELL_COLLECTIVES = 1 << 1, TELL_TRANSFERS = 1 << 2 };

struct event_4 {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t sequence;
            const char *function;
            const void *send;
            void *receive;
            size_t count;
            int root;
            const char *datatype;
            uint8_t n_channels;
            uint8_t n_warps;
            const char *algorithm;
            const char *protocol;
        } collective;
        struct {
            const char *function;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t n_channels;
        } transfer;
    } u;
};

struct profiler_4 {
    const char *name;
    ncclResult_t (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash,
                         int n_nodes, int n_ranks, int rank, void *log);
    ncclResult_t (*start)(void *context, void **handle, struct event_4 *event);
    ncclResult_t (*stop)(void *handle);
    ncclResult_t (*state)(void *handle, int state, void *args);
    ncclResult_t (*finalize)(void *context);
};

/* Calls that differ in nothing but their count make one line. */
struct told_line {
    char function[24], datatype[16], algorithm[16], protocol[16];
    int n_channels;
    size_t least, most; /* elements */
    int64_t calls;
};

enum { TOLD_LINES = 24, TOLD_COMMS = 64 };

struct told {
    char name[32]; /* "": free */
    int n_nodes, n_lines;
    struct told_line lines[TOLD_LINES];
};

static struct told told[TOLD_COMMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int *active; /* NCCL's own word: what it asks us about */
static _Atomic int watching;
static char next_name[32];

static struct told *find(const char *name)
{
    for (int i = 0; i < TOLD_COMMS; i++)
        if (strcmp(told[i].name, name) == 0)
            return &told[i];
    return NULL;
}

static void keep(struct told *comm, const struct told_line *call)
{
    struct told_line *line = comm->lines, *end = comm->lines + comm->n_lines;

    while (line < end &&
           (strcmp(line->function, call->function) != 0 ||
            strcmp(line->datatype, call->datatype) != 0 ||
            strcmp(line->algorithm, call->algorithm) != 0 ||
            strcmp(line->protocol, call->protocol) != 0 || line->n_channels != call->n_channels))
        line++;
    if (line == end) {
        if (comm->n_lines == TOLD_LINES)
            return;
        comm->n_lines++;
        *line = *call;
    }
    line->calls++;
    line->least = call->least < line->least ? call->least : line->least;
    line->most = call->most > line->most ? call->most : line->most;
}

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from != NULL ? from : "");
}

static ncclResult_t told_init(void **context, int *mask, const char *comm_name, uint64_t comm_hash,
                              int n_nodes, int n_ranks, int rank, void *log)
{
    struct told *comm;

    (void)comm_name;
    (void)comm_hash;
    (void)n_ranks;
    (void)rank;
    (void)log;
    pthread_mutex_lock(&lock);
    comm = next_name[0] != '\0' ? find(next_name) : NULL;
    if (comm != NULL)
        comm->n_nodes = n_nodes;
    *context = comm;
    active = mask;
    *mask = atomic_load(&watching) ? TELL_COLLECTIVES | TELL_TRANSFERS : 0;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static ncclResult_t told_start(void *context, void **handle, struct event_4 *event)
{
    struct told_line call = {.calls = 0};

    *handle = NULL;
    if (context == NULL || !atomic_load(&watching))
        return ncclSuccess;
    if (event->type == TELL_COLLECTIVES) {
        copy(call.function, sizeof call.function, event->u.collective.function);
        copy(call.datatype, sizeof call.datatype, event->u.collective.datatype);
        copy(call.algorithm, sizeof call.algorithm, event->u.collective.algorithm);
        copy(call.protocol, sizeof call.protocol, event->u.collective.protocol);
        call.n_channels = event->u.collective.n_channels;
        call.least = call.most = event->u.collective.count;
    } else if (event->type == TELL_TRANSFERS) {
        copy(call.function, sizeof call.function, event->u.transfer.function);
        copy(call.datatype, sizeof call.datatype, event->u.transfer.datatype);
        call.n_channels = event->u.transfer.n_channels;
        call.least = call.most = event->u.transfer.count;
    } else {
        return ncclSuccess;
    }
    pthread_mutex_lock(&lock);
    keep(context, &call);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static ncclResult_t told_stop(void *handle)
{
    (void)handle;
    return ncclSuccess;
}

static ncclResult_t told_state(void *handle, int state, void *args)
{
    (void)handle;
    (void)state;
    (void)args;
    return ncclSuccess;
}

static ncclResult_t told_finalize(void *context)
{
    (void)context;
    return ncclSuccess;
}

/* Found by its name: NCCL asks the dynamic linker. */
extern const struct profiler_4 ncclProfiler_v4;
__attribute__((visibility("default"))) const struct profiler_4 ncclProfiler_v4 = {
    "scalestudy", told_init, told_start, told_stop, told_state, told_finalize};

void nccl_told_watch(bool on)
{
    pthread_mutex_lock(&lock);
    atomic_store(&watching, on);
    if (active != NULL)
        *active = on ? TELL_COLLECTIVES | TELL_TRANSFERS : 0;
    pthread_mutex_unlock(&lock);
}

void nccl_told_open(const char *name)
{
    struct told *comm;

    pthread_mutex_lock(&lock);
    copy(next_name, sizeof next_name, name);
    comm = find("");
    if (comm != NULL) {
        memset(comm, 0, sizeof *comm);
        copy(comm->name, sizeof comm->name, name);
    }
    pthread_mutex_unlock(&lock);
}

void nccl_told_close(const char *name)
{
    struct told *comm;

    pthread_mutex_lock(&lock);
    comm = find(name);
    if (comm != NULL)
        comm->name[0] = '\0';
    pthread_mutex_unlock(&lock);
}

void nccl_told_write(const char *name, char *text, size_t size)
{
    struct told *comm;
    size_t used = 0;

    text[0] = '\0';
    pthread_mutex_lock(&lock);
    comm = find(name);
    for (int i = 0; comm != NULL && i < comm->n_lines && used + 1 < size; i++) {
        const struct told_line *line = &comm->lines[i];
        bool named = line->algorithm[0] != '\0';
        used += (size_t)snprintf(text + used, size - used,
                                 "%s%s %s %zu..%zu: %s%s%s%s%d channels, %d node%s, %lld calls",
                                 i > 0 ? "\n" : "", line->function, line->datatype, line->least,
                                 line->most, line->algorithm, named ? " " : "", line->protocol,
                                 named ? ", " : "", line->n_channels, comm->n_nodes,
                                 comm->n_nodes == 1 ? "" : "s", (long long)line->calls);
    }
    pthread_mutex_unlock(&lock);
}
