/*
 * fit_input: what the user named, study files and tables alike, as series and tables of
 * collectives.
 *
 * A folder or a file with the signature of HDF5 is a study file; files of one digest, machine and fabric are
 * joined as launches, and one that is named twice is refused. All else goes through import.
 */
#ifndef ANALYSIS_FIT_INPUT_H
#define ANALYSIS_FIT_INPUT_H

#include "analysis/import.h"

struct fit_input {
    struct series_set studies;      /* series of study files */
    struct import import;           /* and of tables, with collectives and notes */
    struct collective_tables calls; /* of study files */
};

/* `devices` as in import_devices_of, for the tables and logs among the paths, and `scaling` ("auto",
 * "strong", "weak") for tables that do not say. */
int fit_input_read(struct fit_input *out, char **paths, int n, const struct import_options *how,
                   const char *devices, const char *scaling, uint64_t seed);
void fit_input_release(struct fit_input *input);

/* Series i of both kinds together, or NULL at the end. */
const struct series *fit_input_series(const struct fit_input *input, int i);

/* Adds a table per axis, kind and group size of what the collectives of a point took, of comm-only steps where
 * there are some: of a call the shortest rank of its group, of a group the mean over its calls, and of groups
 * the slowest, at whose pace a step goes. Groups of a file that does not name them are taken together: the
 * shortest of all their ranks, which is said. Not of send and recv, of all-to-all-v. `name`: of the point and its launch. */
void collective_tables_of_point(struct collective_tables *out, const struct record_point *point,
                                const char *source, const char *name);

#endif
