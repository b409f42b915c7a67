/*
 * goodput_study: the points of study files as goodput needs them: where they ran, what a step takes, what
 * saves cost, how the run went and what its failures cost.
 *
 * A point is all launches of one index in one file. Points may stand on one curve over nodes when they
 * are of one kind: model, precision, device, topology, scaling, batch (of the job; in weak scaling of a
 * rank), micro-batch, sequence, input, tp, pp, cp, ep, ranks on a node, machine and fabric (studies.h) agree (data parallelism and
 * sharding follow N). Its text names all of it. Copies of a point (one node
 * measured while all work) are left out, and so are points that failed their gate.
 */
#ifndef ANALYSIS_GOODPUT_STUDY_H
#define ANALYSIS_GOODPUT_STUDY_H

#include "analysis/goodput_run.h"
#include "analysis/goodput_storage.h"
#include "analysis/record.h"

enum { GOODPUT_MODES = 8 };

struct goodput_point {
    const struct record_file *file;    /* borrowed from the study */
    const struct point_row *row;       /* of its newest launch */
    const struct record_point **parts; /* [n_parts] in the order of launches; owned */
    int n_parts, kind;
    struct goodput_run run;       /* owned */
    struct stats_interval step_s; /* of the run, else of the timed steps, all launches; NaN */
    bool step_of_run;
    struct stats_interval *launch_s; /* [n_launches] of timed steps, a launch each; owned */
    int n_launches;
};

struct goodput_study {
    struct record_file *files;    /* [n_files], owned */
    struct goodput_point *points; /* [n_points] by kind, nodes, then file */
    int n_files, n_points, n_kinds;
    int n_left_out; /* points that failed, or copies */
};

/* Fails as record_read, account_point and wall_account do; FAIL_USAGE for one launch named twice. */
int goodput_study_read(struct goodput_study *out, char **paths, int n, uint64_t seed);
void goodput_study_release(struct goodput_study *study); /* safe on a zeroed struct */

/* "tiny, strong scaling, fp32, cpu, 2 ranks a node, 8 samples (micro-batch 2) of 64 tokens a step, synthetic
 * input": what a kind is. */
void goodput_kind_text(const struct goodput_study *study, int kind, char *text, size_t size);
const struct goodput_point *goodput_kind_first(const struct goodput_study *study, int kind);

/* ---- what a save costs ---- */

struct goodput_save_cost { /* of one mode on one node count, all points of the kind pooled */
    char mode[16], file_system[16];
    double nodes, ranks;
    int saves; /* first ones of a launch stand apart where there are others */
    int lost;
    double bytes;                                /* of a save, all ranks */
    struct stats_interval blocked_s, complete_s; /* means over saves, slowest rank */
    struct stats_interval inflation_s;           /* signed; ends NaN: of a run, no interval */
    bool detected;                               /* the interval of the inflation leaves out 0 */
    struct stats_interval
        cost_s;  /* d_b: blocked + what inflation was detected, or has no interval */
    bool of_run; /* saves of a run; else of the section that saves between steps */
};

/* Modes of a kind in the order of the file; -> how many. */
int goodput_modes(const struct goodput_study *study, int kind, char modes[GOODPUT_MODES][16]);

/* False when nothing was saved there in this mode. */
bool goodput_save_cost(struct goodput_save_cost *out, const struct goodput_study *study, int kind,
                       const char *mode, double nodes, uint64_t seed);

/* Every published save of a kind and mode, for the fit of the storage; malloc'd, *n of them. */
struct goodput_save *goodput_saves(const struct goodput_study *study, int kind, const char *mode,
                                   int *n);

/* Node counts of a kind, ascending; -> how many, at most `room`. */
int goodput_node_counts(const struct goodput_study *study, int kind, double *out, int room);

/* Means over the failures of a kind on one node count, with a t interval; nodes 0: on all. n = 0: none
 * was seen. R of those that were noted; where none was, from the begin of the next launch's program, as the
 * time before may be that of somebody asleep; D is then not known. */
void goodput_recovery_cost(const struct goodput_study *study, int kind, double nodes,
                           struct stats_interval *detect_s, struct stats_interval *restart_s);

#endif
