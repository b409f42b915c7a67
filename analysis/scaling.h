/*
 * scaling: the points of one study as a curve.
 *
 * Files of one study digest are launches of one study: their points are matched, and a row is one
 * point with all its runs. Rows that may be compared (same work, same way of splitting it, same
 * kind of machine) form a set; within a set a row is compared with rows of its own node shape, or
 * with smaller parts of one node: 2x8 and 4x4 are never joined.
 *
 * A run whose gate or work proof failed stays visible with its reason, but enters no curve and is
 * never a base. A row of several copies (one node measured while all nodes did the same) is no point
 * of the curve either: it is the second base of efficiency. Every ratio names its base. A ratio whose two sides share no launch is `unpaired`.
 * With fewer than three launches intervals cover variation within a launch only.
 */
#ifndef ANALYSIS_SCALING_H
#define ANALYSIS_SCALING_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/account.h"
#include "analysis/launches.h"
#include "analysis/record.h"
#include "analysis/stats.h"

enum { SCALING_LAUNCHES_ENOUGH = 3 };

/* One point in one launch. */
struct scaling_run {
    const struct record_file *file; /* borrowed */
    int file_index;                 /* with point.launch it names the launch */
    struct account account;
};

struct scaling_ratio {
    struct stats_interval ratio;
    int base;                 /* row, -1: no such point, the ratio is NaN */
    double base_tokens_per_s; /* of the base in the launches of the ratio */
    bool unpaired;
    bool partial; /* one of its sides has launches that the other one lacks */
};

struct scaling_row {
    const struct point_row *point; /* of its first run that is used */
    int set;                       /* rows of one set may be compared */
    struct scaling_run *runs;      /* [n_runs], the used ones first */
    int n_runs, n_used;            /* used: valid; all of them when none is */
    bool valid;
    double tokens_per_step;             /* valid tokens */
    struct stats_interval step_ns;      /* mean period: capacity */
    struct launches_levels levels;      /* what its interval is made of */
    struct stats_interval next_ns;      /* where the mean period of one more launch falls */
    struct stats_interval tokens_per_s; /* all ranks */
    double p50_ns, p95_ns, p99_ns, cv;  /* longest rank's step, runs pooled */
    double peak_flops;                  /* of a device: the largest of the set's runs; NaN */
    double peak_lowest_flops;           /* the smallest: a launch may have been disturbed */
    const char *peak_source;            /* of the largest, "": none */
    struct scaling_ratio speedup;       /* against the smallest comparable row */
    struct scaling_ratio efficiency;    /* the same per rank */
    struct scaling_ratio eff_device;    /* per rank, against one device */
    struct scaling_ratio eff_node;      /* per rank, against one node of the same shape */
    struct scaling_ratio incremental;   /* per rank, against the next smaller row */
    struct scaling_ratio eff_loaded;    /* per rank, against one node while all nodes worked */
};

struct scaling {
    int n_rows, n_runs, n_sets, n_launches;
    struct scaling_row *rows; /* by set, then ranks, then nodes */
    struct scaling_run *runs; /* owned; rows point into it */
};

/* `files` have one digest and stay as they are while `out` is used. Fails as account_point does. */
int scaling_init(struct scaling *out, const struct record_file *const *files, int n_files,
                 uint64_t seed);

/*
 * The same in parts, for many files: `out` is zeroed, files are added one by one in the order of
 * file_index, then joined. Between the two the caller may drop the rows of a file that only its
 * accounts need, as scaling_drop_steps does: all step rows but one of most skipped updates, unless
 * the point has rows of inputs, which are read beside the steps.
 */
int scaling_add(struct scaling *out, const struct record_file *file, int file_index, uint64_t seed);
void scaling_join(struct scaling *out, uint64_t seed);
void scaling_drop_steps(struct record_file *file);

void scaling_release(struct scaling *scaling);

/*
 * Node shapes of a set, which share no curve: does row `first` begin one (a shape that is only a part of
 * another one's node has none of its own); is a row a point of the curve of a shape: with so many
 * ranks on a node, or a smaller part of one node?
 */
bool scaling_opens_shape(const struct scaling *scaling, int first);
bool scaling_has_shape(const struct scaling_row *row, int set, int ranks_per_node);

/* Whether a ratio of `row`, whichever, has two sides that share no launch. */
bool scaling_unpaired(const struct scaling_row *row);

/* Whether one of the used runs of `row` is of the launch of `run`. */
bool scaling_shares(const struct scaling_row *row, const struct scaling_run *run);

/* Mean over the used runs of a figure of their accounts; NaN where it is NaN in all of them. */
double scaling_mean(const struct scaling_row *row, double (*figure)(const struct account *));

/* The same of a figure that has an interval in each launch (launches_join). */
struct stats_interval
scaling_mean_interval(const struct scaling_row *row,
                      struct stats_interval (*figure)(const struct account *));

#endif
