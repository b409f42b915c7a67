#include "collectives/comm.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int comm_find(const char *name, const struct comm_type **out)
{
    *out = NULL;
    if (strcmp(name, "mpi") == 0 || strcmp(name, "auto") == 0) {
        *out = &comm_mpi;
        return 0;
    }
    if (strcmp(name, "nccl") != 0)
        return fail(FAIL_USAGE,
                    "comm: no communicator is called \"%s\"; there are: auto, mpi, nccl", name);
#ifdef SCALESTUDY_HAVE_CUDA
    *out = &comm_nccl;
    return 0;
#else
    return fail(FAIL_ABSENT, "comm: \"nccl\" is not in this build; it has: auto, mpi");
#endif
}

int comm_find_for(const struct device_type *device, const char *name, const struct comm_type **out)
{
    bool on_host = device->runs_host_tasks;
    int rc = 0;

    TRY(comm_find(strcmp(name, "auto") == 0 && !on_host ? "nccl" : name, out));
    if ((*out)->host_memory != on_host)
        rc = fail(FAIL_USAGE, "comm: \"%s\" does not move the memory of device \"%s\": take %s",
                  name, device->name, on_host ? "mpi" : "nccl");
out:
    return rc;
}

static const char *const memory_words[COMM_ENROLMENTS] = {"nothing", "buffers", "windows"};
static const char *const block_words[COMM_BLOCKS] = {NULL, "few", "none"};

/* The place of the word in the list, -1. */
static int find_word(const char *const *words, int n, const char *text, size_t length)
{
    for (int i = 0; i < n; i++)
        if (words[i] != NULL && strlen(words[i]) == length && strncmp(words[i], text, length) == 0)
            return i;
    return -1;
}

static bool parse_blocks(struct comm_setup *out, const char *text)
{
    enum { MOST = 64 };
    char *end;
    int word = find_word(block_words, COMM_BLOCKS, text, strlen(text));
    if (word >= 0) {
        out->blocks = (enum comm_blocks)word;
        return true;
    }
    long blocks = strtol(text, &end, 10);
    out->max_ctas = blocks > 0 && blocks <= MOST ? (int)blocks : 0;
    return out->max_ctas > 0 && *end == '\0' && text[0] >= '1' && text[0] <= '9';
}

int comm_setup_parse(struct comm_setup *out, const char *text)
{
    size_t length = strcspn(text, ",");
    int memory = find_word(memory_words, COMM_ENROLMENTS, text, length);
    *out = (struct comm_setup){.enrolment = (enum comm_enrolment)(memory < 0 ? 0 : memory)};
    if (memory >= 0 && (text[length] == '\0' || parse_blocks(out, text + length + 1)))
        return 0;
    return fail(
        FAIL_USAGE,
        "--comm-setup: found \"%s\", wanted nothing, buffers or windows, and behind a comma "
        "few, none, or the most thread blocks of a call, 1 to 64",
        text);
}

int comm_setup_for(struct comm_setup *out, const struct comm_type *type, const char *text)
{
    static const struct comm_setup own;
    int rc = comm_setup_parse(out, text);
    if (rc == 0 && memcmp(out, &own, sizeof own) != 0 && type->set_up == NULL)
        rc = fail(FAIL_USAGE, "--comm-setup %s: of communicator \"%s\" nothing can be set up", text,
                  type->name);
    return rc;
}

void comm_setup_text(const struct comm_setup *setup, char text[static COMM_SETUP_TEXT])
{
    const char *memory = memory_words[setup->enrolment];
    if (setup->max_ctas > 0)
        snprintf(text, COMM_SETUP_TEXT, "%s,%d", memory, setup->max_ctas);
    else if (setup->blocks != COMM_BLOCKS_OWN)
        snprintf(text, COMM_SETUP_TEXT, "%s,%s", memory, block_words[setup->blocks]);
    else
        snprintf(text, COMM_SETUP_TEXT, "%s", memory);
}

#ifndef SCALESTUDY_HAVE_CUDA
const char *comm_nccl_version(void)
{
    return "none";
}
#endif

int comm_open(struct comm *comm, const struct comm_type *type, const void *parent,
              struct device *device, int stream, enum axis axis, const struct group *group,
              int max_calls)
{
    int rc;

    *comm = (struct comm){.type = type,
                          .device = device,
                          .stream = stream,
                          .group = *group,
                          .axis = axis,
                          .max_calls = max_calls};
    rc = type->open(comm, parent, max_calls);
    if (rc != 0)
        *comm = (struct comm){0};
    return rc;
}

void comm_close(struct comm *comm)
{
    if (comm->type != NULL) {
        comm->device->type->sync(comm->device);
        comm->type->close(comm);
    }
    *comm = (struct comm){0};
}

void comm_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    if (n_calls == 0)
        return;
    comm->posted_calls += n_calls;
    for (int i = 0; i < n_calls; i++)
        comm->posted_bytes += coll_wire_bytes(&calls[i].coll, comm->group.size);
    comm->type->post(comm, calls, n_calls);
}
