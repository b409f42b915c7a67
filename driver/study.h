/*
 * study: what was asked, said once.
 *
 * Every field has exactly one row in study_options[]; argv, --study FILE.yaml, --help, the table
 * printed at the start, the attributes of the study file and reading them back all come from that
 * row. After study_points() nothing here changes.
 *
 * A row is a *term* of the study, or it is not. Terms decide what is measured and how: work,
 * points, layout, devices, measuring rules, seeds, planted faults. They are hashed into the study
 * digest, and --resume must find them unchanged. `anonymous` is one, since a launch without it
 * would write host names into a file that promised none. Not terms: where the study is read from
 * and written to (study, out), how this launch behaves (resume, version, show-map, validate,
 * timeout), what it permits (emulate-nodes), its exit code (require-settled), and the budget of
 * time that it has for a point (max-seconds: another allocation may have more), where state is saved and
 * where it comes from (checkpoint-dir, resume-from: folders move).
 *
 * nccl-tests' letters (-b -e -f -g -i -n -w -m -d -o -r -c -T) mean here what they mean there, or
 * nothing.
 */
#ifndef DRIVER_STUDY_H
#define DRIVER_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/opt.h"
#include "topologies/layout.h"
#include "workloads/model.h"

enum scaling { SCALING_STRONG, SCALING_WEAK };
enum base { BASE_AUTO, BASE_ALONE, BASE_LOADED };
enum scratch { SCRATCH_COPY, SCRATCH_RECREATE };
enum {
    STUDY_TEXT = 256,
    STUDY_PATH = 512,
    STUDY_CANONICAL = 16384, /* bytes that study_text() may need */
    STUDY_POINTS_MAX = 999   /* points of one study: three digits in the file */
};

struct study {
    char layout[32];           /* --layout NxG */
    char nodes[STUDY_TEXT];    /* --nodes 1,2,4: full-node points */
    char points[STUDY_TEXT];   /* --points 1x1,1x2,2x8 */
    char parallel[STUDY_TEXT]; /* --parallel, repeatable; joined by ';' */
    char order[32];            /* --order */
    int scaling;               /* --scaling strong|weak */
    int base;                  /* --base auto|alone|loaded: see study_add_loaded() */
    char model[STUDY_PATH];    /* --model NAME|FILE.yaml */
    int64_t global_batch;    /* --global-batch samples; 0: model file, else smallest that splits */
    char micro_batch[64];    /* --micro-batch b[,b]; "": model file, else 1 */
    char sequence[64];       /* --sequence; "": the model's */
    int dtype;               /* --dtype fp32|tf32|bf16 */
    int grad_dtype;          /* --grad-dtype fp32|bf16 */
    int attention;           /* --attention auto|cudnn|fused: enum attention_choice */
    int recompute;           /* --recompute none|selective|full|mlp */
    int64_t recompute_every; /* --recompute-every n-th layer */
    bool pack;               /* --pack: values that never live together share memory */
    int64_t bucket;          /* --bucket bytes */
    char overlap[64];        /* --overlap grad,param,tp,cp,ep,pp|none */
    int cp_kind;             /* --cp-kind ring|allgather|ulysses: enum cp_kind */
    int64_t head_chunks;     /* --head-chunks of rows, the logits of one at a time */
    int64_t tp_chunks;       /* --tp-chunks of rows, a product and its call each */
    int64_t shard_stage;     /* --shard-stage 1|2|3 */
    int64_t fsdp_prefetch;   /* --fsdp-prefetch units */
    int fsdp_reshard;        /* --fsdp-reshard auto|on|off */
    char routing[32];        /* --routing balanced|skewed:SIGMA|learned */
    char capacity[16];       /* --capacity auto|none|F */
    int reduce;              /* --reduce auto|every|last micro-batch, of sharded gradients */
    int schedule;            /* --schedule gpipe|1f1b|interleaved|zb-h1 */
    int64_t virtual_stages;  /* --virtual-stages of interleaved */
    char input[STUDY_PATH];  /* --input synthetic,memory,file:PATH */
    int64_t
        input_workers; /* --input-workers threads of a rank that make batches; 0: the step does */
    int64_t prefetch;  /* --prefetch batches that they make ahead, a rank */
    char checkpoint_mode[64];        /* --checkpoint-mode sync,staged,snapshot,lazy; "": staged */
    char checkpoint_every[32];       /* --checkpoint-every steps or seconds; 0: as they end */
    char checkpoint_dir[STUDY_PATH]; /* --checkpoint-dir; "": nothing is saved */
    int64_t checkpoint_saves; /* --checkpoint-saves of each mode at a point, the first included */
    int64_t checkpoint_keep;  /* --checkpoint-keep published ones; 0: all */
    int checkpoint_files;     /* --checkpoint-files per-rank|shared|subfiled */
    int64_t run_steps;        /* --run-steps: a run instead of timed blocks, 0: none */
    char kill[32];            /* --kill rank:R|host:H, of a drill */
    int kill_in;              /* --kill-in step|save: enum drill_moment */
    int64_t kill_seed;        /* --kill-seed: when */
    char resume_from[STUDY_PATH]; /* --resume-from; "": from the generator */
    char document_end[32];        /* --document-end auto|none|TOKEN (workloads/input_file.h) */
    double padding;               /* --padding share */
    char device[16];              /* --device auto|cpu */
    char comm[16];                /* --comm auto|mpi */
    char topology[STUDY_TEXT];    /* --topology NAME|FILE.yaml|"node:16 gpu:8"; "": none */
    bool emulate_nodes;           /* --emulate-nodes */
    int64_t warm_up;              /* -w, --warm-up steps, at least */
    double settle;                /* --settle share: half-width of the interval of capacity */
    bool require_settled;
    int64_t min_steps, max_steps; /* timed full steps of a point */
    double max_seconds;           /* timed section of one point, all variants */
    bool check;                   /* -c, --check on|off */
    int64_t stamps;               /* --stamps 0|1|2 */
    int64_t block;                /* --block: timed steps of a block of the alternation */
    int scratch;                  /* --scratch copy|recreate: state that the variants run on */
    int64_t threads;              /* --threads: BLAS threads a rank; 0: cores of the rank */
    double timeout;               /* -T, --timeout seconds; watchdog; 0: off */
    int64_t seed;
    char study_file[STUDY_PATH]; /* --study FILE.yaml */
    char out[STUDY_PATH];        /* --out; "": scalestudy-<UTC time>.h5 */
    bool resume;
    bool anonymous;
    bool drill;               /* --drill, or "scalestudy drill": one launch is killed */
    bool graph;               /* --graph: blocks of steps that are launched as graphs too */
    bool deterministic;       /* --deterministic */
    bool gemm_search;         /* --gemm-search */
    int64_t gemm_margin;      /* --gemm-margin */
    bool comm_tune;           /* --comm-tune */
    char comm_setup[32];      /* --comm-setup MEMORY[,BLOCKS] (collectives/comm.h) */
    double comm_tune_seconds; /* --comm-tune-seconds */
    bool sequence_parallel;   /* --sequence-parallel: rows are split over tp between its parts */
    bool pinned;    /* --pinned: batches are copied to the device from page-locked memory */
    bool telemetry; /* --telemetry: clocks, power, energy and errors of GPUs, through NVML */
    bool audit;     /* --audit: steps under the profiler after the timed ones, beside the stamps */
    char topology_out[STUDY_PATH]; /* --topology-out FILE.yaml of "scalestudy calibrate" */
    bool version;
    bool show_map;     /* --show-map: print host, rank and affinity, then go on */
    bool validate;     /* --validate: check everything, run nothing, exit */
    double test_delay; /* --test-delay seconds: planted in one collective of one rank (tests only;
                          shown as such) */
    int64_t
        test_throttle; /* --test-throttle bytes/s of a checkpoint's writer (tests only), 0: none */
    int64_t test_drop_op; /* --test-drop-op i: delete op i of the plan before running it (tests
                             only), -1: none */
};

extern const struct opt study_options[];
extern const size_t study_n_options;

/*
 * Defaults, then --study FILE.yaml if argv names one, then argv (whose order is left as it is).
 * FAIL_USAGE, or FAIL_ABSENT by name for what this version does not have. *help: --help was asked
 * for; then, and with --version, nothing else need be right.
 */
int study_parse(struct study *study, int argc, char **argv, bool *help);

/* Whether all gradients are reduced while backward still runs (--overlap); whether `what` of
 * "grad", "param", "tp", "cp", "ep", "pp" overlaps. */
bool study_overlaps_gradients(const struct study *study);
bool study_overlaps(const struct study *study, const char *what);

/* One point to measure. */
struct point {
    int index; /* in the order asked for */
    int nodes, ranks_per_node, ranks;
    struct degrees degrees; /* resolved, order included */
    char parallel[64];      /* text of the degrees asked for, "" for none */
    int64_t global_batch, micro_batch, sequence;
    char input[STUDY_PATH];
    int copies; /* of the point that run at once, one per node, and are measured on the first; 1 */
};

struct points {
    int n;
    struct point *point;       /* [n], owned */
    int nodes, ranks_per_node; /* of the allocation, from --layout */
    int64_t gate_batch;        /* samples a step of the gate: the smallest number that gives every
                                  replica of every point at least 2 pp, equally; 0 with --check off */
    struct gate_shape gate;    /* tp: of the tp degrees of all points, tp * cp where heads are
                                  exchanged over cp; rows: of tp * 2 cp; layers: of pp * v */
};

/*
 * Expand to points: powers of two up to N and N itself (or --nodes / --points) x --parallel x
 * --micro-batch x --sequence x --input. Strong: the global batch is the same everywhere:
 * --global-batch, else the model file's, else the smallest that splits over every point with >= 2
 * pp micro-batches a replica. Weak: that batch belongs to the smallest point and grows with the
 * ranks. FAIL_USAGE, both numbers said, when something does not fit, split or multiply.
 */
int study_points(const struct study *study, const struct model *model, struct points *out);
void points_release(struct points *points);

/*
 * A node that works alone may have memory bandwidth, clocks or a fabric to itself that it has not
 * when its neighbours work too. --base loaded adds, for each full-node point of one node, the same
 * point on all nodes at once: the other base of efficiency. Auto: when declared nodes share a host.
 */
int study_add_loaded(struct points *points, const struct study *study, bool emulated);

/* "2x8" of `length` bytes: two whole numbers from 1 whose product is an int. 0, or -1. */
int study_parse_pair(const char *text, size_t length, int *nodes, int *ranks_per_node);

/* Is this row a term of the study? */
bool study_is_term(const struct opt *row);

/* The text of a term as it stands in digest and file: opt_text(), but for the model and for files of
 * --input their names (a file may move; what it says is hashed too). */
void study_term(const struct study *study, const struct model *model, const struct opt *row,
                char *text, size_t size);

/* All terms as "name=value" lines in the order of the table, then "[model]" and model_text(): this
 * is what the study digest is the SHA-256 of. `size` must be at least STUDY_CANONICAL. */
void study_text(const struct study *study, const struct model *model, char *text, size_t size);

/* The order in which points are measured: a seeded shuffle, a pure function of (seed, launch, n).
 */
void study_order(uint64_t seed, int launch, int n, int *order);

#endif
