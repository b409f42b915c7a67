#include "driver/study.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "driver/checkpoint_ask.h"
#include "driver/dataset.h"
#include "driver/drill.h"
#include "driver/full_run.h"
#include "workloads/policy_options.h"

#define AT(field) offsetof(struct study, field), sizeof(((struct study *)0)->field)
#define NO_RANGE 0, 0
#define STEPS_MAX 1e6

const struct opt study_options[] = {
    {"layout", 0, OPT_TEXT, AT(layout), "", NO_RANGE, NULL, "NxG",
     "nodes x ranks on each node of this job; must be given"},
    {"nodes", 0, OPT_TEXT, AT(nodes), "", NO_RANGE, NULL, "1,2,4",
     "points to measure, in whole nodes; else powers of two up to N, and N"},
    {"points", 0, OPT_TEXT, AT(points), "", NO_RANGE, NULL, "1x1,1x2,2x8",
     "points to measure, in nodes x ranks on each"},
    {"parallel", 0, OPT_TEXTS, AT(parallel), "", NO_RANGE, NULL, "tp=2,pp=2",
     "degrees of a layout to measure; dp is what remains"},
    {"order", 0, OPT_TEXT, AT(order), "tp-cp-ep-dp-pp", NO_RANGE, NULL, "AXES",
     "axes from the fastest varying to the slowest"},
    {"scaling", 0, OPT_CHOICE, AT(scaling), "strong", NO_RANGE, "strong|weak", "",
     "the same global batch at every point, or one that grows with the ranks"},
    {"base", 0, OPT_CHOICE, AT(base), "auto", NO_RANGE, "auto|alone|loaded", "",
     "one node alone, or also all nodes at once as a second base (auto: on one emulated host)"},
    {"model", 0, OPT_TEXT, AT(model), "tiny", NO_RANGE, NULL, "NAME|FILE.yaml", "the network"},
    {"global-batch", 0, OPT_INT, AT(global_batch), "0", 0, 1 << 30, NULL, "SAMPLES",
     "samples a step; 0: the model file's, else the smallest that splits over every point"},
    {"micro-batch", 0, OPT_TEXT, AT(micro_batch), "", NO_RANGE, NULL, "B[,B]",
     "samples of a micro-batch of a rank; else the model file's, else 1"},
    {"sequence", 0, OPT_TEXT, AT(sequence), "", NO_RANGE, NULL, "S[,S]",
     "tokens of a sample; else the model's"},
    POLICY_OPTIONS(AT),
    {"attention", 0, OPT_CHOICE, AT(attention), "auto", NO_RANGE, "auto|cudnn|fused", "",
     "who computes attention on cuda; auto: cuDNN where it takes the shapes, else fused kernels, "
     "which on Hopper also take the place of its plans where they are faster"},
    {"gemm-search", 0, OPT_BOOL, AT(gemm_search), "on", NO_RANGE, NULL, "",
     "on cuda: time cuBLASLt's algorithms and epilogues, cuDNN's plans and this project's "
     "attention "
     "at set-up and take the fastest; off: the first of the libraries"},
    {"gemm-margin", 0, OPT_INT, AT(gemm_margin), "0", 0, 64, NULL, "N",
     "on cuda: multiprocessors that dense products leave free where communication may run beside"},
    {"comm-tune", 0, OPT_BOOL, AT(comm_tune), "off", NO_RANGE, NULL, "",
     "on cuda: time the step with registered memory and fewer NCCL blocks at set-up, take the "
     "best"},
    {"comm-setup", 0, OPT_TEXT, AT(comm_setup), "nothing", NO_RANGE, NULL, "MEMORY[,BLOCKS]",
     "on cuda: tell NCCL beforehand of nothing, buffers or windows; few, none or at most N blocks "
     "a call"},
    {"comm-tune-seconds", 0, OPT_SECONDS, AT(comm_tune_seconds), "3s", 0, 600, NULL, "",
     "full steps that each candidate is timed with, behind half as long to lead in"},
    {"input", 0, OPT_TEXT, AT(input), "synthetic", NO_RANGE, NULL, "synthetic,memory,file:PATH",
     "where samples come from; a file of bytes, token shards, a folder or pattern of them"},
    {"input-workers", 0, OPT_INT, AT(input_workers), "0", 0, 256, NULL, "THREADS",
     "threads of a rank that make batches ahead of the step; 0: the step makes them"},
    {"prefetch", 0, OPT_INT, AT(prefetch), "4", 1, 65536, NULL, "BATCHES",
     "micro-batches of a rank that workers hold ready, at most"},
    {"pinned", 0, OPT_BOOL, AT(pinned), "on", NO_RANGE, NULL, "",
     "a device with memory of its own (cuda) copies batches from page-locked memory"},
    {"document-end", 0, OPT_TEXT, AT(document_end), "auto", NO_RANGE, NULL, "auto|none|TOKEN",
     "token that ends a document of a file; a sample holds one document; auto: that of the shards"},
    {"padding", 0, OPT_SHARE, AT(padding), "0%", 0, 0.99, NULL, "",
     "largest share of a sample that is masked"},
    {"checkpoint-mode", 0, OPT_TEXT, AT(checkpoint_mode), "", NO_RANGE, NULL,
     "sync,staged,snapshot,lazy",
     "how the state is saved beside training, several to compare them; else staged"},
    {"checkpoint-every", 0, OPT_TEXT, AT(checkpoint_every), "0", NO_RANGE, NULL, "STEPS|SECONDS",
     "between saves, 20 or 30s; 0: the next one as soon as the last is over"},
    {"checkpoint-dir", 0, OPT_TEXT, AT(checkpoint_dir), "", NO_RANGE, NULL, "DIR",
     "where every point saves its state after the timed steps; else nothing is saved"},
    {"checkpoint-saves", 0, OPT_INT, AT(checkpoint_saves), "4", 1, 100000, NULL, "",
     "saves of each mode at a point, the first included, which is reported apart"},
    {"checkpoint-keep", 0, OPT_INT, AT(checkpoint_keep), "2", 0, 1000000, NULL, "",
     "newest checkpoints to keep; 0: all"},
    {"checkpoint-files", 0, OPT_CHOICE, AT(checkpoint_files), "per-rank", NO_RANGE,
     "per-rank|shared|subfiled", "", "a file of each rank, or one for all of them"},
    {"run-steps", 0, OPT_INT, AT(run_steps), "0", 0, 1e9, NULL, "STEPS",
     "a run of so many more steps at each point, with its checkpoints, instead of timed blocks; 0: "
     "timed blocks"},
    {"drill", 0, OPT_BOOL, AT(drill), "off", NO_RANGE, NULL, "",
     "\"scalestudy drill\": kill the first launch of a run, so that another recovers it"},
    {"kill", 0, OPT_TEXT, AT(kill), "rank:0", NO_RANGE, NULL, "rank:R|host:H",
     "drill: who is killed: a rank, or all ranks of a declared node"},
    {"kill-in", 0, OPT_CHOICE, AT(kill_in), "step", NO_RANGE, "step|save", "",
     "drill: in the middle of what"},
    {"kill-seed", 0, OPT_INT, AT(kill_seed), "1", 0, OPT_NO_MAX, NULL, "",
     "drill: of the moment, once a checkpoint is published"},
    {"resume-from", 0, OPT_TEXT, AT(resume_from), "", NO_RANGE, NULL, "DIR",
     "begin with the state of a checkpoint of any layout: a step's folder, or the newest in DIR"},
    {"device", 0, OPT_TEXT, AT(device), "auto", NO_RANGE, NULL, "auto|cpu|cuda|timed",
     "where kernels run; timed: nothing is computed, kernels take the time of another machine"},
    {"topology", 0, OPT_TEXT, AT(topology), "", NO_RANGE, NULL, "NAME|FILE.yaml|MACHINE",
     "machine whose time the timed device keeps, such as \"node:16 gpu:8\"; others record it"},
    {"comm", 0, OPT_TEXT, AT(comm), "auto", NO_RANGE, NULL, "auto|mpi|nccl", "who communicates"},
    {"emulate-nodes", 0, OPT_BOOL, AT(emulate_nodes), "off", NO_RANGE, NULL, "",
     "let one host stand for several declared nodes (implied on cpu)"},
    {"warm-up", 'w', OPT_INT, AT(warm_up), "10", 0, STEPS_MAX, NULL, "STEPS",
     "untimed steps before the timed ones, at least"},
    {"settle", 0, OPT_SHARE, AT(settle), "1%", 0, 1, NULL, "",
     "stop when the interval of tokens/s is within this share of it"},
    {"require-settled", 0, OPT_BOOL, AT(require_settled), "off", NO_RANGE, NULL, "",
     "exit 9 when a point did not settle"},
    {"min-steps", 0, OPT_INT, AT(min_steps), "20", 1, STEPS_MAX, NULL, "STEPS",
     "timed full steps of a point, at least"},
    {"max-steps", 0, OPT_INT, AT(max_steps), "1000", 1, STEPS_MAX, NULL, "STEPS",
     "timed full steps of a point, at most"},
    {"max-seconds", 0, OPT_SECONDS, AT(max_seconds), "60s", 0, OPT_NO_MAX, NULL, "",
     "a point ends at the first cycle of blocks after this, but never before min-steps"},
    {"check", 'c', OPT_BOOL, AT(check), "on", NO_RANGE, NULL, "",
     "prove every point against the single-rank reference before timing"},
    {"stamps", 0, OPT_INT, AT(stamps), "1", 0, 2, NULL, "0|1|2",
     "0: ends of a step, 1: waits and collectives too, 2: every operation"},
    {"graph", 0, OPT_BOOL, AT(graph), "off", NO_RANGE, NULL, "",
     "cuda: also run blocks of steps that are launched as one graph each; the ratio is the host's"},
    {"deterministic", 0, OPT_BOOL, AT(deterministic), "off", NO_RANGE, NULL, "",
     "the same bits every time: algorithms, order of sums and threads are fixed, whatever it "
     "costs"},
    {"block", 0, OPT_INT, AT(block), "5", 1, 1000, NULL, "STEPS",
     "steps of a block in which a variant runs before the next one"},
    {"scratch", 0, OPT_CHOICE, AT(scratch), "copy", NO_RANGE, "copy|recreate", "",
     "state for the variants: a copy where memory allows, or the real one, re-created after them"},
    {"threads", 0, OPT_INT, AT(threads), "0", 0, 4096, NULL, "",
     "BLAS threads of a rank; 0: the cores that it has"},
    {"timeout", 'T', OPT_SECONDS, AT(timeout), "300s", 0, 1e9, NULL, "",
     "end the job when an operation takes longer; 0: never"},
    {"seed", 0, OPT_INT, AT(seed), "1", 0, OPT_NO_MAX, NULL, "",
     "of parameters, samples and the order of points"},
    {"study", 0, OPT_TEXT, AT(study_file), "", NO_RANGE, NULL, "FILE.yaml",
     "read options from a file; argv is stronger"},
    {"out", 0, OPT_TEXT, AT(out), "", NO_RANGE, NULL, "FILE.h5",
     "the study file; else scalestudy-<UTC time>.h5"},
    {"resume", 0, OPT_BOOL, AT(resume), "off", NO_RANGE, NULL, "",
     "go on with the interrupted study of that file"},
    {"telemetry", 0, OPT_BOOL, AT(telemetry), "on", NO_RANGE, NULL, "",
     "read clocks, power, energy and errors of GPUs between blocks (NVML); nothing is set"},
    {"audit", 0, OPT_BOOL, AT(audit), "off", NO_RANGE, NULL, "",
     "after the timed steps, some under the profiler (CUPTI), whose records check the stamps"},
    {"topology-out", 0, OPT_TEXT, AT(topology_out), "", NO_RANGE, NULL, "FILE.yaml",
     "calibrate: write what was measured as a machine description"},
    {"anonymous", 0, OPT_BOOL, AT(anonymous), "off", NO_RANGE, NULL, "", "store no host names"},
    {"version", 0, OPT_BOOL, AT(version), "off", NO_RANGE, NULL, "",
     "say what this was built with, and exit"},
    {"show-map", 0, OPT_BOOL, AT(show_map), "off", NO_RANGE, NULL, "",
     "print host and cores of every rank first"},
    {"validate", 0, OPT_BOOL, AT(validate), "off", NO_RANGE, NULL, "",
     "check everything, measure nothing, exit"},
    {"test-delay", 0, OPT_SECONDS, AT(test_delay), "0s", 0, 3600, NULL, "",
     "tests only: delay of one rank before its first gradient all-reduce of a step"},
    {"test-throttle", 0, OPT_BYTES, AT(test_throttle), "0", 0, OPT_NO_MAX, NULL, "",
     "tests only: bytes a second that a checkpoint's writer of a rank may write; 0: all it can"},
    {"test-drop-op", 0, OPT_INT, AT(test_drop_op), "-1", -1, 1e9, NULL, "",
     "tests only: operation of the plan that is not run; -1: none"},
};
enum { N_OPTIONS = sizeof study_options / sizeof study_options[0] };
const size_t study_n_options = N_OPTIONS;

int study_parse_pair(const char *text, size_t length, int *nodes, int *ranks_per_node)
{
    char copy[32];
    int64_t n, g;
    if (length >= sizeof copy)
        return -1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    char *x = strchr(copy, 'x');
    if (x == NULL)
        return -1;
    *x = '\0';
    if (units_parse_int(copy, &n) != 0 || units_parse_int(x + 1, &g) != 0)
        return -1;
    if (n < 1 || g < 1 || n > INT_MAX || g > INT_MAX || n * g > INT_MAX)
        return -1;
    *nodes = (int)n;
    *ranks_per_node = (int)g;
    return 0;
}

/* Is `word` one of the comma-separated words of `list`? */
static bool list_has(const char *list, const char *word, size_t length)
{
    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

/* Every word of a list must be in `here`. */
static int check_words(const char *option, const char *list, const char *here)
{
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        bool has_path = strncmp(at, "file:", 5) == 0 && list_has(here, "file:PATH", 9);
        if (length == 0 || (!has_path && !list_has(here, at, length)))
            return fail(FAIL_USAGE, "--%s: found \"%s\", wanted some of %s", option, list, here);
        at += length;
        if (*at == '\0')
            return 0;
    }
}

bool study_overlaps(const struct study *study, const char *what)
{
    return list_has(study->overlap, what, strlen(what));
}

bool study_overlaps_gradients(const struct study *study)
{
    return list_has(study->overlap, "grad", 4);
}

static int check_study(const struct study *study)
{
    int nodes, ranks_per_node;
    int rc = 0;
    if (study->layout[0] == '\0')
        return fail(FAIL_USAGE, "--layout: found none, wanted NxG: nodes x ranks on each node");
    if (study_parse_pair(study->layout, strlen(study->layout), &nodes, &ranks_per_node) != 0)
        return fail(FAIL_USAGE, "--layout: found \"%s\", wanted NxG: nodes x ranks on each node",
                    study->layout);
    if (study->nodes[0] != '\0' && study->points[0] != '\0')
        return fail(FAIL_USAGE, "--nodes %s and --points %s: wanted one of the two", study->nodes,
                    study->points);
    if (study->min_steps > study->max_steps)
        return fail(FAIL_USAGE, "--min-steps %lld is more than --max-steps %lld",
                    (long long)study->min_steps, (long long)study->max_steps);
    if (study->comm_tune && strcmp(study->comm_setup, "nothing") != 0)
        return fail(FAIL_USAGE, "--comm-tune and --comm-setup %s: wanted one of the two",
                    study->comm_setup);
    if (study->resume && study->out[0] == '\0')
        return fail(FAIL_USAGE, "--resume: wanted --out FILE.h5, the study to go on with");
    TRY(checkpoint_ask_options(study));
    TRY(full_run_options(study));
    TRY(routing_parse(study->routing, study->capacity, &(struct routing){0}));
    TRY(check_words("overlap", study->overlap, "grad,param,tp,cp,ep,pp,none"));
    TRY(check_words("input", study->input, "synthetic,memory,file:PATH"));
    if (list_has(study->overlap, "none", 4) && strchr(study->overlap, ',') != NULL)
        return fail(FAIL_USAGE, "--overlap: found \"%s\", wanted none alone", study->overlap);
out:
    return rc;
}

/* "scalestudy drill ..." is "scalestudy --drill ...". */
static const char *const subcommand_option[][2] = {{"drill", "--drill=on"}};

static void name_subcommand(int argc, char **argv)
{
    size_t n = sizeof subcommand_option / sizeof *subcommand_option;
    for (size_t i = 0; i < n && argc > 1; i++)
        if (strcmp(argv[1], subcommand_option[i][0]) == 0)
            argv[1] = (char *)(uintptr_t)subcommand_option[i][1];
}

/* argv over what *study holds. getopt reorders what it reads, so it reads a copy. */
static int read_argv(struct study *study, int argc, char **argv, bool *help, bool *given)
{
    int operand;
    char **copy = must_alloc((size_t)argc + 1, sizeof *copy);
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    name_subcommand(argc, copy);
    int rc =
        opt_argv_given(study_options, study_n_options, study, argc, copy, &operand, help, given);
    if (rc == 0 && operand < argc)
        rc = fail(FAIL_USAGE, "found \"%.200s\", wanted options only; --help lists them",
                  copy[operand]);
    free(copy);
    return rc;
}

int study_parse(struct study *study, int argc, char **argv, bool *help)
{
    int rc = 0, lines[N_OPTIONS];
    char path[STUDY_PATH];
    bool given[N_OPTIONS] = {false};
    *help = false;
    memset(study, 0, sizeof *study); /* gaps too: equal studies are equal bytes */
    opt_defaults(study_options, study_n_options, study);
    TRY(read_argv(study, argc, argv, help, given));
    if (*help || study->version)
        goto out;
    TRY(opt_not_empty(study_options, study_n_options, study, given));
    if (study->study_file[0] != '\0') {
        memcpy(path, study->study_file, sizeof path);
        TRY(opt_yaml(study_options, study_n_options, study, path, lines));
        if (study->study_file[0] != '\0') {
            rc = fail(FAIL_USAGE, "%s: study: a study file cannot name another", path);
            goto out;
        }
        for (size_t i = 0; i < study_n_options; i++)
            given[i] |= lines[i] > 0;
        TRY(read_argv(study, argc, argv, help, given));
    }
    TRY(drill_given(study, given));
    TRY(check_study(study));
out:
    return rc;
}

bool study_is_term(const struct opt *row)
{
    static const char *const others[] = {
        "study",          "out",         "resume",        "version",         "show-map",
        "validate",       "timeout",     "emulate-nodes", "require-settled", "max-seconds",
        "checkpoint-dir", "resume-from", "telemetry",     "topology-out",    "comm-tune-seconds"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(row->name, others[i]) == 0)
            return false;
    return true;
}

/* Files by their names: data may move, what it is is hashed too. */
static void input_term(const char *list, char *text, size_t size)
{
    char word[STUDY_PATH], name[STUDY_PATH];
    size_t used = 0;
    text[0] = '\0';
    for (const char *at = list; *at != '\0' && used < size; at += *at == ',') {
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        dataset_name(word, name, sizeof name);
        used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? "," : "", name);
        at += length;
    }
}

void study_term(const struct study *study, const struct model *model, const struct opt *row,
                char *text, size_t size)
{
    if (row->offset == offsetof(struct study, input)) {
        input_term(study->input, text, size);
        return;
    }
    if (row->offset == offsetof(struct study, model))
        snprintf(text, size, "%s", model->name);
    else
        opt_text(row, study, text, size);
}

void study_text(const struct study *study, const struct model *model, char *text, size_t size)
{
    size_t used = 0;
    if (size < STUDY_CANONICAL)
        BUG("study_text() needs %d bytes, not %zu", STUDY_CANONICAL, size);
    for (size_t i = 0; i < study_n_options; i++) {
        char value[STUDY_PATH];
        if (!study_is_term(&study_options[i]))
            continue;
        study_term(study, model, &study_options[i], value, sizeof value);
        used += (size_t)snprintf(text + used, size - used, "%s=%s\n", study_options[i].name, value);
    }
    used += (size_t)snprintf(text + used, size - used, "[model]\n");
    model_text(model, text + used, size - used);
}

void study_order(uint64_t seed, int launch, int n, int *order)
{
    uint64_t key = rng_bits(rng_key(seed, "point.order"), (uint64_t)launch);
    for (int i = 0; i < n; i++) { /* Fisher and Yates, inside out */
        int j = (int)rng_below(key, (uint64_t)i, (uint32_t)i + 1);
        if (j < i)
            order[i] = order[j];
        order[j] = i;
    }
}
