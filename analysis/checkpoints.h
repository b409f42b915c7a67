/*
 * checkpoints: what saving the training state cost at a point, from the tables `checkpoints` and
 * `drains`.
 *
 * Of a save: the slowest rank's time counts. Of a mode: the median over its saves, the first one apart
 * (what is done once is in it) wherever there are others, lost ones left out.
 *
 * Inflation of a save = sum of (T_i - m) over the steps from the call until publication and five more: T_i
 * the longest of any rank, waits of updates for their copies taken off (they are blocked time), m the
 * mean quiet step of the mode. It is signed. Its interval comes from those of both means, in
 * quadrature, times the number of such steps; not detectable when it contains 0.
 *
 * NaN: not known.
 */
#ifndef ANALYSIS_CHECKPOINTS_H
#define ANALYSIS_CHECKPOINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/record.h"
#include "analysis/stats.h"

enum { CHECKPOINTS_MODES = 8 };

struct checkpoints_mode {
    char mode[16], file_system[16];
    int saves, lost, overlaps; /* saves: those that the medians are made of */
    bool direct;               /* O_DIRECT on every rank */
    double bytes;              /* of a save, all ranks */
    double call_ns, blocked_ns, staged_ns, complete_ns;
    double bytes_per_s; /* bytes / complete, all ranks */
    double first_blocked_ns, first_complete_ns;
    double first_quarter_bytes_per_s, last_quarter_bytes_per_s; /* all ranks together */
    double host_bytes;                                          /* staging memory of a node */
    struct stats_interval inflation;                            /* ns a save */
    bool detectable;
    double steps;                /* a save, that the inflation is a sum of */
    int64_t quiet, draining;     /* steps */
    struct stats_interval ratio; /* median draining (call to publication) over median quiet step */
    double ratio_p99;            /* the same of the 99th percentiles */
};

struct checkpoints_restore { /* of the ranks the slowest, all reading at once */
    int ranks;
    double bytes, ns, bytes_per_s, read_ns, verify_ns, recut_ns, upload_ns;
    int64_t trained;
    bool direct;
};

struct checkpoints {
    int n_modes; /* in the order of the file */
    struct checkpoints_mode mode[CHECKPOINTS_MODES];
    bool resumed, restored; /* from --resume-from; at the end of the section */
    struct checkpoints_restore resume, restore;
};

void checkpoints_of_point(struct checkpoints *out, const struct record_point *point, uint64_t seed);

#endif
