#include "analysis/studies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void studies_release(struct studies *studies)
{
    for (int i = 0; i < studies->n; i++)
        scaling_release(&studies->scalings[i]);
    for (int i = 0; i < studies->n_files; i++)
        record_file_release(&studies->files[i]);
    free(studies->files);
    free((void *)studies->grouped);
    free(studies->scalings);
    free(studies->reports);
    *studies = (struct studies){0};
}

static const char *known(const char *text)
{
    return text != NULL ? text : "";
}

/* A node without its name, the device of a rank, and what was said of the way between nodes: launches on
 * other machines, or over other fabrics, are no launches of one curve. */
bool studies_same_machine(const struct record_head *a, const struct record_head *b)
{
    static const char *const fabric[] = {"NCCL_NET",
                                         "NCCL_IB_DISABLE",
                                         "NCCL_IB_HCA",
                                         "NCCL_SOCKET_IFNAME",
                                         "NCCL_P2P_DISABLE",
                                         "UCX_TLS",
                                         "OMPI_MCA_pml",
                                         "OMPI_MCA_btl",
                                         "OMPI_MCA_mtl",
                                         "FI_PROVIDER",
                                         "MPIR_CVAR_OFI_USE_PROVIDER"};
    for (size_t i = 0; i < sizeof fabric / sizeof *fabric; i++) {
        char name[64];
        snprintf(name, sizeof name, "env.%s", fabric[i]);
        if (strcmp(known(record_head_get(a, "provenance", name)),
                   known(record_head_get(b, "provenance", name))) != 0)
            return false;
    }
    if (a->n_hosts == 0 || b->n_hosts == 0 || a->n_ranks == 0 || b->n_ranks == 0)
        return true;
    return strncmp(a->hosts[0].processor, b->hosts[0].processor, sizeof a->hosts->processor) == 0 &&
           a->hosts[0].cores == b->hosts[0].cores &&
           strncmp(a->ranks[0].device, b->ranks[0].device, sizeof a->ranks->device) == 0;
}

bool studies_same(const struct record_file *a, const struct record_file *b)
{
    return strcmp(a->head.study_digest, b->head.study_digest) == 0 &&
           studies_same_machine(&a->head, &b->head);
}

int studies_refuse_twice(const struct record_file *files, int i)
{
    for (int j = 0; j < i; j++)
        if (studies_same(&files[i], &files[j]) &&
            files[i].head.t0_unix_ns == files[j].head.t0_unix_ns)
            return fail(FAIL_USAGE,
                        "%s and %s hold the same launch: it would count twice; give one of them",
                        files[j].path, files[i].path);
    return 0;
}

/* The study of files[i], opened when it is the first of its digest; n: paths in all. */
static int study_of(struct studies *studies, int i, int n, uint64_t seed)
{
    for (int k = 0; k < studies->n; k++)
        if (studies_same(studies->reports[k].files[0], &studies->files[i]))
            return k;
    int k = studies->n++;
    studies->grouped = must_grow((void *)studies->grouped, (size_t)studies->n * (size_t)n,
                                 sizeof *studies->grouped);
    studies->scalings = must_grow(studies->scalings, (size_t)studies->n, sizeof *studies->scalings);
    studies->reports = must_grow(studies->reports, (size_t)studies->n, sizeof *studies->reports);
    studies->scalings[k] = (struct scaling){0};
    studies->reports[k] = (struct report){.seed = seed};
    for (int j = 0; j < studies->n; j++)
        studies->reports[j].files = studies->grouped + (size_t)j * (size_t)n;
    return k;
}

/* Each file is accounted for as soon as it is read, so that its raw steps need not stay. */
static int read_files(struct studies *studies, char **paths, int n, uint64_t seed)
{
    studies->files = must_alloc((size_t)n, sizeof *studies->files);
    for (int i = 0; i < n; i++) {
        int rc = record_read(&studies->files[i], paths[i]);
        if (rc != 0)
            return rc;
        studies->n_files++;
        if ((rc = studies_refuse_twice(studies->files, i)) != 0)
            return rc;
        int k = study_of(studies, i, n, seed);
        struct report *report = &studies->reports[k];
        studies->grouped[(size_t)k * (size_t)n + (size_t)report->n_files] = &studies->files[i];
        rc = scaling_add(&studies->scalings[k], &studies->files[i], report->n_files++, seed);
        if (rc != 0)
            return rc;
        scaling_drop_steps(&studies->files[i]);
    }
    return 0;
}

int studies_read(struct studies *out, char **paths, int n, uint64_t seed)
{
    *out = (struct studies){0};
    int rc = read_files(out, paths, n, seed);
    for (int i = 0; i < out->n && rc == 0; i++) {
        scaling_join(&out->scalings[i], seed);
        out->reports[i].scaling = &out->scalings[i];
    }
    return rc;
}
