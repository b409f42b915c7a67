/* What is stored about a study's origin is on the allow-list; secrets, long values and, when asked,
 * names are not; and the digest changes with what is measured, and with nothing else. */
#undef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mkdtemp and setenv beside the POSIX ones */
#include "driver/provenance.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/sha.h>

#include "base/err.h"
#include "driver/container.h"
#include "tests/test.h"

static struct study study;
static struct record_head head;
static const struct model model = {.name = "six",
                                   .path = "models/six.yaml",
                                   .layers = 2,
                                   .hidden = 8,
                                   .heads = 2,
                                   .ffn = 32,
                                   .vocabulary = 100,
                                   .sequence = 64,
                                   .pad = 8,
                                   .lr = 1e-3};
static struct discover_host hosts[2] = {
    {"node17.cluster.example", 2, 4, 8, "Processor X", INT64_C(1) << 35},
    {"node18.cluster.example", 1, 4, 8, "Processor X", INT64_C(1) << 35}};
static struct discover_rank ranks[3] = {
    {.host = 0, .local = 0, .n_cpus = 4, .n_cores = 2, .cpus = "0-3"},
    {.host = 0, .local = 1, .n_cpus = 4, .n_cores = 2, .oversubscribed = 1, .cpus = "4-7"},
    {.host = 1, .local = 0, .n_cpus = 8, .n_cores = 4, .cpus = "0-7"}};
static const struct discover found = {
    .world = 3, .n_hosts = 2, .hosts = hosts, .ranks = ranks, .launcher = "srun"};

/* Fill the head from the words of a line, split at blanks. */
static void fill(const char *line)
{
    static char words[1024];
    static char *argv[64];
    int argc = 0;
    bool help;
    snprintf(words, sizeof words, "scalestudy --layout 3x1 %s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    fail_clear();
    record_head_release(&head);
    CHECK_EQ(study_parse(&study, argc, argv, &help), 0);
    CHECK_EQ(provenance_fill(&head, &study, &model, &found, argc, argv), 0);
}

static bool has_value(const char *value)
{
    for (int64_t i = 0; i < head.n_attributes; i++)
        if (strstr(head.attributes[i].text, value) != NULL)
            return true;
    return false;
}

static const char *get(const char *name)
{
    return record_head_get(&head, "provenance", name);
}

static void test_environment(void)
{
    static const char *const stored[] = {"NCCL_DEBUG",   "OMPI_MCA_btl", "UCX_TLS",
                                         "CUDA_VISIBLE", "SLURM_JOB_ID", "OPENBLAS_CORETYPE",
                                         "OMP_PROC",     "PMIX_MCA_gds"};
    static const char *const dropped[] = {
        "NCCL_API_KEY",         "OMPI_MCA_token",   "UCX_SECRET",        "CUDA_PASSWORD",
        "SLURM_JOB_CREDENTIAL", "OMP_Passwd",       "OPENBLAS_apikey_x", "HOME_SWEET",
        "MY_NCCL_DEBUG",        "AWS_REGION",       "SLURMJOB",          "nccl_debug",
        "LD_PRELOAD2",          "PMIX_secret_place"};
    char value[32], attribute[64];
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        snprintf(value, sizeof value, "kept-%zu", i);
        setenv(stored[i], value, 1);
    }
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        setenv(dropped[i], "hunter2", 1);
    fill("");
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        snprintf(value, sizeof value, "kept-%zu", i);
        snprintf(attribute, sizeof attribute, "env.%s", stored[i]);
        CHECK(get(attribute) != NULL && strcmp(get(attribute), value) == 0);
    }
    CHECK(!has_value("hunter2"));
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        unsetenv(dropped[i]);
}

static void test_lengths(void)
{
    static char value[600], name[128], attribute[160];
    memset(value, 'v', sizeof value);
    value[512] = '\0';
    setenv("NCCL_LONG", value, 1);
    fill("");
    CHECK(get("env.NCCL_LONG") != NULL && strlen(get("env.NCCL_LONG")) == 512);
    value[512] = 'v';
    value[513] = '\0';
    setenv("NCCL_LONG", value, 1);
    fill("");
    CHECK(get("env.NCCL_LONG") == NULL);
    unsetenv("NCCL_LONG");

    memset(name, 'N',
           sizeof name); /* longer than an attribute's name may be: no crash, not stored */
    memcpy(name, "NCCL_", 5);
    for (size_t length = 55; length <= 70; length++) {
        char c = name[length];
        name[length] = '\0';
        setenv(name, "marked", 1);
        fill("");
        snprintf(attribute, sizeof attribute, "env.%s", name);
        bool fits = strlen(attribute) < sizeof head.attributes->name;
        CHECK((get(attribute) != NULL) == fits && has_value("marked") == fits);
        unsetenv(name);
        name[length] = c;
    }
}

static void test_anonymous(void)
{
    setenv("NCCL_WHERE", "on node18 today", 1);
    setenv("SLURM_JOB_NODELIST", "rack[1-2]", 1);
    setenv("SLURM_JOB_USER", "somebody", 1);
    setenv("NCCL_ALGO", "Ring", 1);
    fill("");
    CHECK(get("env.NCCL_WHERE") && get("env.SLURM_JOB_NODELIST") && get("env.SLURM_JOB_USER"));
    CHECK(strcmp(head.hosts[1].name, "node18.cluster.example") == 0);
    fill("--anonymous");
    CHECK(!has_value("node18") && !has_value("rack") && !has_value("somebody"));
    CHECK(get("env.NCCL_ALGO") != NULL);
    CHECK(strcmp(head.hosts[0].name, "host00") == 0 && strcmp(head.hosts[1].name, "host01") == 0);
    unsetenv("NCCL_WHERE");
    unsetenv("SLURM_JOB_NODELIST");
    unsetenv("SLURM_JOB_USER");
}

static void test_machine(void)
{
    fill("");
    CHECK_EQ(head.schema, RECORD_SCHEMA);
    CHECK(head.n_hosts == 2 && head.n_ranks == 3);
    CHECK(head.hosts[0].ranks == 2 && head.hosts[0].cores == 4 && head.hosts[0].cpus == 8);
    CHECK(head.hosts[1].memory_bytes == INT64_C(1) << 35);
    CHECK(strcmp(head.hosts[0].processor, "Processor X") == 0);
    CHECK(head.ranks[1].rank == 1 && head.ranks[1].local == 1 && head.ranks[1].oversubscribed == 1);
    CHECK(head.ranks[2].host == 1 && head.ranks[2].n_cpus == 8 && head.ranks[2].n_cores == 4);
    CHECK(strcmp(head.ranks[1].cpus, "4-7") == 0);
    CHECK(llabs((long long)(head.t0_unix_ns / 1000000000 - (int64_t)time(NULL))) <= 5);
    CHECK(strcmp(get("launcher"), "srun") == 0);
}

static void test_argv(void)
{
    char a[] = "scalestudy", b[] = "--layout", c[] = "3x1", d[] = "--out", e[] = "it's a $file.h5",
         f[] = "";
    char *argv[] = {a, b, c, d, e, f, NULL};
    fill("");
    record_head_release(&head);
    provenance_fill(&head, &study, &model, &found, 6, argv);
    CHECK(strcmp(get("argv"), "scalestudy --layout 3x1 --out 'it'\\''s a $file.h5' ''") == 0);

    static char quotes[10000]; /* grows fourfold: cut, never overrun */
    memset(quotes, '\'', sizeof quotes - 1);
    argv[2] = quotes;
    record_head_release(&head);
    provenance_fill(&head, &study, &model, &found, 6, argv);
    CHECK(strcmp(get("argv"), "scalestudy --layout #") == 0);
}

static void test_study_group(void)
{
    char text[STUDY_PATH];
    fill("--seed 7 --out x.h5 --timeout 9s");
    for (size_t i = 0; i < study_n_options; i++) {
        const struct opt *row = &study_options[i];
        const char *group = study_is_term(row) ? "study" : "launch";
        const char *other = study_is_term(row) ? "launch" : "study";
        opt_text(row, &study, text, sizeof text);
        const char *stored = record_head_get(&head, group, row->name);
        const char *wanted = strcmp(row->name, "model") == 0 ? "six" : text;
        CHECK(stored != NULL && strcmp(stored, wanted) == 0);
        CHECK(record_head_get(&head, other, row->name) == NULL);
    }
    CHECK(strcmp(record_head_get(&head, "launch", "out"), "x.h5") == 0);
    CHECK(strcmp(record_head_get(&head, "study", "seed"), "7") == 0);
    CHECK_HAS(record_head_get(&head, "study", "model_text"), "hidden: 8\n");
}

static void hash(const char *text, char hex[65])
{
    unsigned char bytes[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)text, strlen(text), bytes);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

static void test_digest(void)
{
    static char text[STUDY_CANONICAL];
    char base[65], hex[65];
    fill("");
    memcpy(base, head.study_digest, sizeof base);
    study_text(&study, &model, text, sizeof text);
    hash(text, hex);
    CHECK(strcmp(base, hex) == 0 && strlen(base) == 64);
    model_text(&model, text, sizeof text);
    hash(text, hex);
    CHECK(strcmp(record_head_get(&head, "study", "model_sha256"), hex) == 0);

    static const char *const same[] = {"--out x.h5",        "--out x.h5 --resume",
                                       "--timeout 9s",      "--max-seconds 5s",
                                       "--require-settled", "--validate",
                                       "--show-map",        "--emulate-nodes",
                                       "--seed 1",          "--model models/six.yaml"};
    static const char *const other[] = {"--seed 2",       "-w 11",       "--settle 2%",
                                        "--min-steps 19", "--block 6",   "--stamps 2",
                                        "--scaling weak", "--threads 1", "--check off",
                                        "--nodes 1,3",    "--anonymous", "--test-delay 1ms",
                                        "--bucket 1M",    "--comm mpi",  "--global-batch 12"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        fill(same[i]);
        if (!CHECK(strcmp(base, head.study_digest) == 0))
            printf("  %s\n", same[i]);
    }
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        fill(other[i]);
        if (!CHECK(strcmp(base, head.study_digest) != 0))
            printf("  %s\n", other[i]);
    }
}

static void test_versions(void)
{
    static const char *const names[] = {"scalestudy", "revision", "compiler", "flags",
                                        "mpi",        "cuda",     "nccl",     "cudnn",
                                        "hdf5",       "blas",     "gsl"};
    static char text[8192];
    FILE *file = tmpfile();
    provenance_version(file);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    fill("");
    const char *line = text;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char wanted[1024];
        CHECK(get(names[i]) != NULL && strchr(get(names[i]), '\n') == NULL);
        int length = snprintf(wanted, sizeof wanted, "%s %s\n", names[i], get(names[i]));
        CHECK(strncmp(line, wanted, (size_t)length) == 0); /* --version and the file agree */
        CHECK(strlen(get(names[i])) > 0 || strcmp(names[i], "flags") == 0);
        line += length;
    }
    CHECK_EQ(*line, 0);
    CHECK(strchr("0123456789", get("hdf5")[0]) != NULL && strchr("12", get("gsl")[0]) != NULL);
    CHECK(strstr(get("mpi"), "MPI") != NULL || strstr(get("mpi"), "MPICH") != NULL);
    CHECK(strstr(get("os"), " ") != NULL);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static void test_container(void)
{
    static const char *const names[] = {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER",
                                        "ENROOT_ROOTFS",       "ENROOT_IMAGE",
                                        "SLURM_CONTAINER",     "KUBERNETES_SERVICE_HOST",
                                        "SCALESTUDY_IMAGE",    "SCALESTUDY_IMAGE_DIGEST"};
    struct container container;
    char root[512], path[600];
    const char *where = getenv("TMPDIR");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    snprintf(root, sizeof root, "%.400s/container-XXXXXX", where != NULL ? where : "/tmp");
    CHECK(mkdtemp(root) != NULL);
    container_find(&container, root);
    CHECK(container.runtime[0] == '\0' && container.image[0] == '\0' &&
          container.digest[0] == '\0');

    snprintf(path, sizeof path, "%s/.dockerenv", root);
    write_file(path, "");
    container_find(&container, root);
    CHECK(strcmp(container.runtime, "docker") == 0);
    setenv("SCALESTUDY_IMAGE", "registry/x@sha256:abc", 1); /* a job script may say what it knows */
    container_find(&container, root);
    CHECK(strcmp(container.image, "registry/x@sha256:abc") == 0);
    CHECK(strcmp(container.digest, "sha256:abc") == 0);
    setenv("SCALESTUDY_IMAGE_DIGEST", "sha256:def", 1);
    container_find(&container, root);
    CHECK(strcmp(container.digest, "sha256:def") == 0);
    unsetenv("SCALESTUDY_IMAGE");
    unsetenv("SCALESTUDY_IMAGE_DIGEST");

    snprintf(path, sizeof path, "%s/run", root);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/run/.containerenv", root);
    write_file(path, "engine=\"podman-4.3\"\nname=\"n\"\nid=\"11\"\nimage=\"quay.io/a/b:1\"\n"
                     "imageid=\"77aa\"\n");
    container_find(&container, root);
    CHECK(strcmp(container.runtime, "podman") == 0);
    CHECK(strcmp(container.image, "quay.io/a/b:1") == 0);
    CHECK(strcmp(container.digest, "sha256:77aa") == 0);
    write_file(path, "");
    container_find(&container, root);
    CHECK(strcmp(container.runtime, "podman") == 0 && container.digest[0] == '\0');

    setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    container_find(&container, root);
    CHECK(strcmp(container.runtime, "kubernetes") == 0 && container.image[0] == '\0');
    setenv("ENROOT_ROOTFS", "/run/enroot/r", 1);
    container_find(&container, root);
    CHECK(strcmp(container.runtime, "enroot") == 0);
    CHECK(strcmp(container.image, "/run/enroot/r") == 0);
    setenv("APPTAINER_CONTAINER", "/images/a.sif", 1);
    fill("");
    CHECK(strcmp(get("container"), "apptainer") == 0);
    CHECK(strcmp(get("container_image"), "/images/a.sif") == 0);

    unlink(path);
    snprintf(path, sizeof path, "%s/run", root);
    rmdir(path);
    snprintf(path, sizeof path, "%s/.dockerenv", root);
    unlink(path);
    rmdir(root);
}

int main(void)
{
    test_environment();
    test_lengths();
    test_anonymous();
    test_machine();
    test_argv();
    test_study_group();
    test_digest();
    test_versions();
    test_container();
    record_head_release(&head);
    return test_end();
}
