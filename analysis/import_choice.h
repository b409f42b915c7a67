/*
 * import_choice: the options by which tables and logs are read, as rows of an option table, for every
 * command that takes such files. AT(field) names the place of a field of struct import_choice.
 */
#ifndef ANALYSIS_IMPORT_CHOICE_H
#define ANALYSIS_IMPORT_CHOICE_H

#include <stdint.h>

#include "analysis/import.h"

/* clang-format off */
#define IMPORT_OPTIONS(AT)                                                                         \
    {"map", 0, OPT_TEXT, AT(map), "", 0, 0, NULL, "name=column,...",                               \
     "what the columns of a CSV file are: step_s=Iter time,gpus=N"},                               \
    {"as", 0, OPT_CHOICE, AT(format), "auto", 0, 0, "auto|" IMPORT_FORMATS, "",                    \
     "format of tables and logs"},                                                                 \
    {"scaling", 0, OPT_CHOICE, AT(scaling), "auto", 0, 0, "auto|strong|weak", "",                  \
     "what a table is that has neither a batch nor a column mode; otherwise it is checked"},       \
    {"devices", 0, OPT_TEXT, AT(devices), "", 0, 0, NULL, "N[,N...]",                              \
     "of logs that do not say how many they ran on: one for all, or one for each file"},           \
    {"warm-up", 0, OPT_INT, AT(warm_up), "1", 0, 1e6, NULL, "samples",                             \
     "leading samples of a log that are left out at least"}
/* clang-format on */

struct import_choice {
    char map[1024], devices[1024];
    int format, scaling; /* index of the choice */
    int64_t warm_up;
};

#endif
