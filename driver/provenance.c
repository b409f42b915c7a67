#include "driver/provenance.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include <gsl/gsl_version.h>
#include <hdf5.h>
#include <mpi.h>
#include <openssl/evp.h>

#include "base/err.h"
#include "base/revision.h" /* made by cmake/revision.cmake */
#include "collectives/comm.h"
#include "driver/container.h"
#include "workloads/kernels/kernels.h"

enum { VALUE_MAX = 512, ARGV_MAX = 32768 };

extern char **environ;

/* ---- versions ---- */

typedef void take_version(void *to, const char *name, const char *text);

static void give_mpi(take_version *take, void *to)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    MPI_Get_library_version(text, &length); /* allowed before MPI_Init */
    text[strcspn(text, "\n")] = '\0';       /* MPICH goes on for lines */
    take(to, "mpi", text);
}

static void give_hdf5(take_version *take, void *to)
{
    unsigned major = 0, minor = 0, release = 0;
    char text[64];
#ifdef H5_HAVE_PARALLEL
    const char *kind = "parallel";
#else
    const char *kind = "serial";
#endif
    H5get_libversion(&major, &minor, &release);
    snprintf(text, sizeof text, "%u.%u.%u %s", major, minor, release, kind);
    take(to, "hdf5", text);
}

static void give_versions(take_version *take, void *to)
{
#ifdef __clang__
    static const char compiler[] = "clang " __clang_version__;
#else
    static const char compiler[] = "gcc " __VERSION__;
#endif
    take(to, "scalestudy", SCALESTUDY_VERSION);
    take(to, "revision", SCALESTUDY_REVISION);
    take(to, "compiler", compiler);
    take(to, "flags", SCALESTUDY_FLAGS);
    give_mpi(take, to);
    take(to, "cuda", SCALESTUDY_CUDA);
    take(to, "nccl", comm_nccl_version());
    take(to, "cudnn", kernels_cudnn_version());
    give_hdf5(take, to);
    take(to, "blas", kernels_blas_version());
    take(to, "gsl", gsl_version);
}

static void print_version(void *to, const char *name, const char *text)
{
    fprintf(to, "%s %s\n", name, text);
}

void provenance_version(void *to_FILE)
{
    give_versions(print_version, to_FILE);
}

static void keep_version(void *to, const char *name, const char *text)
{
    record_head_set(to, "provenance", name, text);
}

/* ---- what was asked ---- */

static void sha256(const char *text, char hex[65])
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_Digest(text, strlen(text), hash, &length, EVP_sha256(), NULL) != 1 || length != 32)
        die(FAIL_INTERNAL, "provenance: libcrypto has no SHA-256");
    for (unsigned i = 0; i < length; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
}

static void keep_study(struct record_head *head, const struct study *study,
                       const struct model *model)
{
    char *text = must_alloc(STUDY_CANONICAL, 1);
    char hex[65], value[STUDY_PATH];
    for (size_t i = 0; i < study_n_options; i++) {
        const struct opt *row = &study_options[i];
        if (study_is_term(row)) {
            study_term(study, model, row, value, sizeof value);
            record_head_set(head, "study", row->name, value);
        } else {
            opt_text(row, study, value, sizeof value);
            record_head_set(head, "launch", row->name, value);
        }
    }
    study_text(study, model, text, STUDY_CANONICAL);
    sha256(text, head->study_digest);
    model_text(model, text, STUDY_CANONICAL);
    sha256(text, hex);
    record_head_set(head, "study", "model_text", text);
    record_head_set(head, "study", "model_sha256", hex);
    free(text);
}

void provenance_data(struct record_head *head, const char *fingerprint)
{
    char text[STUDY_PATH + 128];
    if (fingerprint[0] == '\0')
        return;
    snprintf(text, sizeof text, "%s\n[data]\n%s\n", head->study_digest, fingerprint);
    sha256(text, head->study_digest);
    record_head_set(head, "study", "input_fingerprint", fingerprint);
}

void provenance_topology(struct record_head *head, const struct topology *topology)
{
    if (topology->n_levels == 0)
        return;
    size_t used, size = TOPOLOGY_TEXT + 128;
    char *text = must_alloc(size, 1);
    used = (size_t)snprintf(text, size, "%s\n[topology]\n", head->study_digest);
    topology_text(topology, text + used, size - used);
    record_head_set(head, "study", "topology_name", topology->name);
    record_head_set(head, "study", "topology_text", text + used);
    sha256(text, head->study_digest);
    free(text);
}

/* Words that a shell would split or change are quoted: the line can be pasted. */
static void keep_argv(struct record_head *head, int argc, char **argv)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=+,.:/%@";
    char *line = must_alloc(ARGV_MAX, 1);
    size_t used = 0;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        bool quote = word[0] == '\0' || word[strspn(word, plain)] != '\0';
        if (used + 4 * strlen(word) + 4 > ARGV_MAX) {
            snprintf(line + used, ARGV_MAX - used, " #");
            break; /* longer than any use of it: cut, and said */
        }
        if (i > 0)
            line[used++] = ' ';
        if (quote)
            line[used++] = '\'';
        for (const char *c = word; *c != '\0'; c++)
            used += (size_t)snprintf(line + used, ARGV_MAX - used, *c == '\'' ? "'\\''" : "%c", *c);
        if (quote)
            line[used++] = '\'';
    }
    record_head_set(head, "provenance", "argv", line);
    free(line);
}

/* ---- environment ---- */

static bool begins_with_one_of(const char *name, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strncmp(name, *list, strlen(*list)) == 0)
            return true;
    return false;
}

/* Does the name contain one of the words, in either case? */
static bool speaks_of(const char *name, const char *const *words)
{
    char upper[VALUE_MAX];
    size_t n = 0;
    for (; name[n] != '\0' && n + 1 < sizeof upper; n++)
        upper[n] = (char)toupper((unsigned char)name[n]);
    upper[n] = '\0';
    for (; *words != NULL; words++)
        if (strstr(upper, *words) != NULL)
            return true;
    return false;
}

static bool names_a_host(const char *value, const struct discover *found)
{
    for (int i = 0; i < found->n_hosts; i++) {
        char name[DISCOVER_NAME];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(found->hosts[i].name, "."),
                 found->hosts[i].name);
        if (name[0] != '\0' && strstr(value, name) != NULL)
            return true;
    }
    return false;
}

static bool may_store(const char *name, const char *value, const struct discover *found,
                      bool anonymous)
{
    static const char *const allowed[] = {"NCCL_",     "OMPI_MCA_", "UCX_",  "CUDA_", "SLURM_JOB",
                                          "OPENBLAS_", "OMP_",      "PMIX_", NULL};
    static const char *const secret[] = {"KEY",
                                         "TOKEN",
                                         "SECRET",
                                         "PASS",
                                         "CRED",
                                         "PRECONDITION",
                                         /* Open MPI's transport key */ NULL};
    static const char *const plumbing[] = {"OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix",
                                           "PMIX_SERVER", NULL}; /* how ranks find their daemon */
    static const char *const personal[] = {"HOST", "NODELIST", "URI",  "ADDR", "SERVER",
                                           "USER", "ACCOUNT",  "UID",  "GID",  "DIR",
                                           "PATH", "JOB_NAME", "FILE", NULL};
    if (!begins_with_one_of(name, allowed) || begins_with_one_of(name, plumbing) ||
        speaks_of(name, secret))
        return false;
    if (strlen(value) > VALUE_MAX)
        return false;
    return !anonymous || (!speaks_of(name, personal) && !names_a_host(value, found));
}

static void keep_environment(struct record_head *head, const struct discover *found, bool anonymous)
{
    for (char **entry = environ; *entry != NULL; entry++) {
        char name[sizeof head->attributes->name - (sizeof "env." - 1)];
        char attribute[sizeof head->attributes->name];
        size_t length = strcspn(*entry, "=");
        if ((*entry)[length] == '\0' || length >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, *entry);
        if (!may_store(name, *entry + length + 1, found, anonymous))
            continue;
        snprintf(attribute, sizeof attribute, "env.%s", name);
        record_head_set(head, "provenance", attribute, *entry + length + 1);
    }
}

static void keep_surroundings(struct record_head *head, const struct discover *found)
{
    struct container container;
    struct utsname os;
    char text[sizeof os.sysname + sizeof os.release + sizeof os.machine];
    container_find(&container, "");
    record_head_set(head, "provenance", "container", container.runtime);
    record_head_set(head, "provenance", "container_image", container.image);
    record_head_set(head, "provenance", "container_digest", container.digest);
    record_head_set(head, "provenance", "launcher", found->launcher);
    if (uname(&os) == 0) {
        snprintf(text, sizeof text, "%s %s %s", os.sysname, os.release, os.machine);
        record_head_set(head, "provenance", "os", text);
    }
}

/* ---- machine ---- */

static void keep_machine(struct record_head *head, const struct discover *found, bool anonymous)
{
    head->n_hosts = found->n_hosts;
    head->hosts = must_alloc((size_t)found->n_hosts, sizeof *head->hosts);
    for (int i = 0; i < found->n_hosts; i++) {
        const struct discover_host *from = &found->hosts[i];
        struct host_row *to = &head->hosts[i];
        if (anonymous)
            snprintf(to->name, sizeof to->name, "host%02d", i);
        else
            snprintf(to->name, sizeof to->name, "%s", from->name);
        snprintf(to->processor, sizeof to->processor, "%s", from->model);
        to->ranks = from->ranks;
        to->cores = from->cores;
        to->cpus = from->cpus;
        to->memory_bytes = from->memory_bytes;
    }
    head->n_ranks = found->world;
    head->ranks = must_alloc((size_t)found->world, sizeof *head->ranks);
    for (int i = 0; i < found->world; i++) {
        const struct discover_rank *from = &found->ranks[i];
        struct rank_row *to = &head->ranks[i];
        to->rank = i;
        to->host = from->host;
        to->local = from->local;
        to->n_cpus = from->n_cpus;
        to->n_cores = from->n_cores;
        to->oversubscribed = from->oversubscribed;
        snprintf(to->cpus, sizeof to->cpus, "%s", from->cpus);
        snprintf(to->cpus_used, sizeof to->cpus_used, "%s", from->cpus_used);
        snprintf(to->device, sizeof to->device, "%s", from->device);
        snprintf(to->device_bus, sizeof to->device_bus, "%s", from->device_bus);
        to->device_bytes = from->device_bytes;
        to->device_shared = from->device_shared;
    }
}

int provenance_fill(struct record_head *head, const struct study *study, const struct model *model,
                    const struct discover *found, int argc, char **argv)
{
    struct timespec now;
    memset(head, 0, sizeof *head);
    clock_gettime(CLOCK_REALTIME, &now);
    head->schema = RECORD_SCHEMA;
    head->t0_unix_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    keep_study(head, study, model);
    give_versions(keep_version, head);
    keep_argv(head, argc, argv);
    keep_surroundings(head, found);
    keep_environment(head, found, study->anonymous);
    keep_machine(head, found, study->anonymous);
    return 0;
}
