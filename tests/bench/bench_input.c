/*
 * bench_input: what the kinds of input cost a training step, and what a file larger than memory
 * costs the process.
 *
 *     bench_input [ROUNDS [FILE]]
 *
 * Full steps of the tiny model on one rank, blocks of the kinds alternating (A B C C B A): synthetic,
 * memory, and FILE (default: a sparse file of 10 GiB made in TMPDIR and removed), each with 0, 1 and
 * 2 workers. Throughput is of whole blocks; the ratio is the median over rounds of block time of
 * synthetic without workers over the block beside it, with its quartiles; A/A is the same for two
 * blocks of synthetic. Then the file alone is read as fast as it can be, and the resident set looked
 * at as it goes.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/execute.h"
#include "workloads/input_feed.h"
#include "workloads/input_file.h"
#include "workloads/transformer.h"

enum { STEPS = 10, KINDS = 8, ROUNDS_MOST = 1000, READ_SAMPLES = 200000 };

struct kind {
    const char *name; /* of --input, without path */
    int workers;
    struct input input;
    struct execute execute;
    double block_ns[2 * ROUNDS_MOST]; /* blocks there and back */
    double wait_ns, input_ns, worker_cpu_ns, depth, steps;
};

struct bench {
    struct model model;
    struct policy policy;
    struct layout layout;
    struct plan plan;
    struct backend backend;
    struct kind kinds[KINDS];
    char path[512];
    bool made;
};

static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static int make_sparse(struct bench *b)
{
    const char *folder = getenv("TMPDIR");
    snprintf(b->path, sizeof b->path, "%s/bench-input.XXXXXX", folder != NULL ? folder : "/tmp");
    int descriptor = mkstemp(b->path);
    if (descriptor < 0 || ftruncate(descriptor, (off_t)10 << 30) != 0)
        return fail(FAIL_FILE, "bench: no sparse file of 10 GiB at %s", b->path);
    close(descriptor);
    b->made = true;
    return 0;
}

static int open_kind(struct bench *b, struct kind *kind)
{
    char word[600];
    bool is_file = strcmp(kind->name, "file") == 0;
    int rc = 0;
    snprintf(word, sizeof word, "%s%s%s", kind->name, is_file ? ":" : "", is_file ? b->path : "");
    TRY(input_open(&kind->input, word, 1, b->model.vocabulary, b->model.sequence, 0,
                   16 * b->policy.global_batch));
    TRY(input_feed_open(&kind->input, &b->plan, kind->workers, 4, STEPS));
    struct execute_config config = {.plan = &b->plan,
                                    .backend = &b->backend,
                                    .input = &kind->input,
                                    .max_steps = STEPS,
                                    .fault = {.drop_op = -1}};
    TRY(execute_open(&kind->execute, &config));
    execute_reset(&kind->execute, 1);
out:
    return rc;
}

static int open_bench(struct bench *b)
{
    static const struct {
        const char *name;
        int workers;
    } kinds[KINDS] = {{"synthetic", 0}, {"synthetic", 2}, {"memory", 0}, {"memory", 2},
                      {"file", 0},      {"file", 1},      {"file", 2},   {"synthetic", 0}};
    struct degrees degrees = {0};
    int rc = 0;
    TRY(model_load(&b->model, "tiny"));
    policy_defaults(&b->policy, &b->model);
    b->policy.global_batch = 8;
    b->policy.micro_batch = 2;
    TRY(layout_init(&b->layout, 1, 1, 0, &degrees));
    TRY(transformer_plan(&b->plan, &b->model, &b->layout, &b->policy));
    b->backend = (struct backend){.device = &device_cpu, .kernels = &kernels_cpu};
    for (int i = 0; i < KINDS; i++) {
        b->kinds[i].name = kinds[i].name;
        b->kinds[i].workers = kinds[i].workers;
        TRY(open_kind(b, &b->kinds[i]));
    }
out:
    return rc;
}

static void run_block(struct kind *kind, int at)
{
    int64_t begin = units_now_ns();
    execute_block(&kind->execute, VARIANT_FULL, 0, STEPS, -1, NULL);
    kind->block_ns[at] = (double)(units_now_ns() - begin);
    const struct input_step *steps = input_feed_steps(kind->input.feed);
    for (int i = 1; i < STEPS; i++) { /* the first one leads in */
        kind->wait_ns += (double)steps[i].wait_ns;
        kind->input_ns += (double)steps[i].input_ns;
        kind->worker_cpu_ns += (double)steps[i].worker_cpu_ns;
        kind->depth += steps[i].depth;
        kind->steps++;
    }
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_kind(const struct bench *b, const struct kind *kind, int rounds, bool control)
{
    double ratio[2 * ROUNDS_MOST], mean = 0;
    int n = 2 * rounds;
    for (int i = 0; i < n; i++) {
        ratio[i] = b->kinds[0].block_ns[i] / kind->block_ns[i];
        mean += kind->block_ns[i] / n / STEPS;
    }
    qsort(ratio, (size_t)n, sizeof *ratio, by_value);
    double steps = kind->steps;
    printf("%10s %7d %9.3f %8.4f %8.4f %8.4f %9.2f %9.2f %6.2f %12.2f\n",
           control ? "A/A" : kind->name, kind->workers, mean / 1e6, ratio[n / 2], ratio[n / 4],
           ratio[3 * n / 4], kind->input_ns / steps / 1e3, kind->wait_ns / steps / 1e3,
           kind->depth / steps, kind->worker_cpu_ns / steps / 1e3);
}

static void print_steps(struct bench *b, int rounds)
{
    for (int round = 0; round < 2 * rounds; round++)
        for (int i = 0; i < KINDS; i++)
            run_block(&b->kinds[round % 2 == 0 ? i : KINDS - 1 - i], round);
    printf("# %d blocks of %d steps of each kind; ratio: speed against synthetic without workers\n",
           2 * rounds, STEPS);
    printf("#    input workers   step_ms    ratio      q25      q75  input_us   wait_us  depth "
           "worker_cpu_us\n");
    for (int i = 0; i < KINDS; i++)
        print_kind(b, &b->kinds[i], rounds, i == KINDS - 1);
}

/* The reader alone, at full speed: what it keeps resident while it goes through the file. */
static void print_memory(struct bench *b)
{
    struct input *input = &b->kinds[KINDS - 2].input;
    int64_t length = b->model.sequence, before = resident_bytes(), most = 0;
    int32_t *words = must_alloc(2 * (size_t)length, sizeof *words);
    uint8_t *mask = must_alloc((size_t)length, 1);
    struct stat found;
    int64_t begin = units_now_ns();
    for (int64_t i = 0; i < READ_SAMPLES; i++) {
        input_make(input, i, 1, words, words + length, mask);
        int64_t now = i % 1000 == 0 ? resident_bytes() : 0;
        most = now > most ? now : most;
    }
    double seconds = (double)(units_now_ns() - begin) / 1e9;
    if (stat(b->path, &found) != 0)
        found.st_size = 0;
    printf("# file of %.2f GiB: %d samples of %" PRId64 " bytes in random order, %.2f us each; "
           "resident %.1f MiB before, at most %.1f MiB (bound: %d MiB more); rings %.1f KiB\n",
           (double)found.st_size / 1073741824.0, READ_SAMPLES, length + 1,
           seconds * 1e6 / READ_SAMPLES, (double)before / 1048576.0, (double)most / 1048576.0,
           INPUT_FILE_RESIDENT >> 20, (double)input_feed_bytes(input->feed) / 1024.0);
    free(words);
    free(mask);
}

int main(int argc, char **argv)
{
    static struct bench b;
    int rounds = argc > 1 ? atoi(argv[1]) : 10, rc = 0;
    if (rounds < 1 || rounds > ROUNDS_MOST)
        rounds = 10;
    if (argc > 2)
        snprintf(b.path, sizeof b.path, "%s", argv[2]);
    else
        TRY(make_sparse(&b));
    TRY(open_bench(&b));
    print_steps(&b, rounds);
    print_memory(&b);
out:
    if (rc != 0)
        fprintf(stderr, "%s\n", fail_message());
    for (int i = 0; i < KINDS; i++) {
        execute_close(&b.kinds[i].execute);
        input_close(&b.kinds[i].input);
    }
    plan_release(&b.plan);
    if (b.made)
        unlink(b.path);
    return rc;
}
