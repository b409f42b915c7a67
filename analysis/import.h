/*
 * import: tables and logs of others, as the series that a study file gives.
 *
 * A format is one row of the table in import.c: a name, how to know it, how to read it. All of them
 * read a stream in bounded memory and produce rows: what is known about one N, each figure with the
 * precision in which it was printed. Rows become series in series_group.h; tables of collectives
 * stand apart. Nothing is repaired and nothing is guessed: a figure that cannot be one (NaN, zero
 * or negative times, decimal commas, a cut line) is refused with file, line and column, and figures
 * that contradict each other are kept, with a note that has both numbers (import_check.h).
 *
 * Refusals: FAIL_FILE for what the file is, FAIL_WRONG for figures that cannot be true (a unit mixed
 * up), FAIL_USAGE for what can be asked in another way (a map, an option, another selection).
 */
#ifndef ANALYSIS_IMPORT_H
#define ANALYSIS_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/collective_table.h"
#include "analysis/import_steps.h"
#include "analysis/series.h"

/* X(constant, kind): figures of a row. Counts are whole and > 0, times and rates > 0. */
#define IMPORT_FIGURES(X)                                                                          \
    X(DEVICES, COUNT)                                                                              \
    X(NODES, COUNT)                                                                                \
    X(DEVICES_PER_NODE, COUNT)                                                                     \
    X(STEP, INDEX)      /* number of a single step */                                              \
    X(STEP_S, POSITIVE) /* s */                                                                    \
    X(STEP_LOW_S, POSITIVE)                                                                        \
    X(STEP_HIGH_S, POSITIVE)                                                                       \
    X(STEPS_MEASURED, COUNT)                                                                       \
    X(GLOBAL_BATCH, COUNT) /* sequences */                                                         \
    X(MICRO_BATCH, COUNT)                                                                          \
    X(REPLICA_BATCH, COUNT) /* sequences a step of one data-parallel replica */                    \
    X(SEQUENCE, COUNT)                                                                             \
    X(TP, COUNT)                                                                                   \
    X(PP, COUNT)                                                                                   \
    X(CP, COUNT)                                                                                   \
    X(DP, COUNT)                                                                                   \
    X(EP, COUNT)                                                                                   \
    X(EXPERTS, COUNT)                                                                              \
    X(PARAMETERS, POSITIVE)                                                                        \
    X(LAYERS, COUNT)                                                                               \
    X(HIDDEN, COUNT)                                                                               \
    X(HEADS, COUNT)                                                                                \
    X(VOCABULARY, COUNT)                                                                           \
    X(FLOPS_PER_SAMPLE, POSITIVE)                                                                  \
    X(PEAK_TFLOPS, POSITIVE)                                                                       \
    X(TOKENS_PER_S, POSITIVE)                                                                      \
    X(TOKENS_PER_S_DEVICE, POSITIVE)                                                               \
    X(SAMPLES_PER_S, POSITIVE)                                                                     \
    X(TFLOPS_DEVICE, POSITIVE)                                                                     \
    X(PFLOPS, POSITIVE)                                                                            \
    X(MFU, SHARE)                                                                                  \
    X(HFU, SHARE)                                                                                  \
    X(EFFICIENCY, SHARE)                                                                           \
    X(SPEEDUP, POSITIVE)                                                                           \
    X(DAYS, POSITIVE)                                                                              \
    X(TOKENS_TOTAL, POSITIVE)                                                                      \
    X(TOKENS_PER_STEP, POSITIVE)                                                                   \
    X(SAMPLES_TO_TARGET, POSITIVE)                                                                 \
    X(TIME_TO_WORK_S, POSITIVE)                                                                    \
    X(GOODPUT, SHARE)                                                                              \
    X(LOSS, ANY)                                                                                   \
    X(BYTES, BYTES) /* of a collective */                                                          \
    X(TIME_US, POSITIVE)                                                                           \
    X(ALGBW, RATE) /* GB/s */                                                                      \
    X(BUSBW, RATE)

enum import_figure {
#define IMPORT_CONSTANT(name, kind) IMPORT_##name,
    IMPORT_FIGURES(IMPORT_CONSTANT)
#undef IMPORT_CONSTANT
        IMPORT_N_FIGURES
};

enum import_word {
    WORD_SERIES,
    WORD_MODEL,
    WORD_DEVICE,
    WORD_PRECISION,
    WORD_FABRIC,
    WORD_MODE,
    WORD_RUN,
    WORD_CONVENTION,
    WORD_RECOMPUTE,
    WORD_PEAK_SOURCE,
    WORD_SPARSE,
    WORD_MOE,
    WORD_OPERATION,
    IMPORT_N_WORDS
};

enum { IMPORT_WORD = 64, IMPORT_ROWS = 100000 };

struct import_row {
    int file; /* index into import.paths */
    int line;
    double value[IMPORT_N_FIGURES]; /* NaN: not said */
    double half[IMPORT_N_FIGURES];  /* half a unit of the last digit printed */
    char word[IMPORT_N_WORDS][IMPORT_WORD];
    int n_launches; /* 0: no raw steps */
    struct import_steps *launches;
};

struct import_options {
    const char *map;    /* "step_s=Iter time,gpus=N"; "" */
    const char *format; /* name of a format; "auto" */
    int64_t devices;    /* for logs that do not say; 0 */
    int64_t warm_up;    /* samples of a log that are left out at least */
};

struct import {
    int n_paths, n_rows;
    char **paths; /* owned copies */
    struct import_row *rows;
    struct collective_tables collectives;
    struct series_set set; /* its notes; series_group fills its series */
};

/* Reads one more file. On failure what was read before stays. */
int import_file(struct import *import, const char *path, const struct import_options *options);
void import_release(struct import *import);

/* Of "8" (for all) or "8,16" (one for each of n files) that of file i; "": 0. FAIL_USAGE. */
int import_devices_of(const char *list, int i, int n, int64_t *out);

/* Names of the formats, in the order of the table in import.c. */
#define IMPORT_FORMATS "mlperf|nccl-tests|nccl-tests-json|llm.c|megatron|torchtitan|csv"

/* ---- for the readers ---- */

struct import_row import_row_unknown(int file);
/* FAIL_FILE when there are IMPORT_ROWS already; the row takes over its launches. */
int import_add(struct import *import, const struct import_row *row);
void import_row_release(struct import_row *row);
void import_note(struct import *import, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

typedef int import_reader(struct import *import, const char *path,
                          const struct import_options *options);
import_reader import_csv, import_nccl_text, import_nccl_json, import_megatron, import_torchtitan,
    import_llmc, import_mlperf;

#endif
