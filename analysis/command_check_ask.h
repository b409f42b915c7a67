/*
 * command_check_ask: what both forms of `scalereport check` ask for: a layout, the order of its axes, a
 * model and its length. Rows of their option tables, AT(field) the place of a field of struct check_ask.
 */
#ifndef ANALYSIS_COMMAND_CHECK_ASK_H
#define ANALYSIS_COMMAND_CHECK_ASK_H

#include <stdint.h>

struct model;

/* clang-format off */
#define CHECK_OPTIONS(AT)                                                                          \
    {"layout", 0, OPT_TEXT, AT(layout), "", 0, 0, NULL, "NxG",                                     \
     "nodes x ranks on each node; must be given"},                                                 \
    {"order", 0, OPT_TEXT, AT(order), "tp-cp-ep-dp-pp", 0, 0, NULL, "AXES",                        \
     "axes from the fastest varying to the slowest"},                                              \
    {"model", 0, OPT_TEXT, AT(model), "tiny", 0, 0, NULL, "NAME|FILE.yaml", "the network"},        \
    {"sequence", 0, OPT_INT, AT(sequence), "0", 0, 1 << 24, NULL, "TOKENS",                        \
     "tokens of a sample; 0: the model's"}
/* clang-format on */

struct check_ask {
    char layout[32], order[32], model[512];
    int64_t sequence;
};

/* FAIL_USAGE in one sentence; and what model_load fails with. */
int check_ask_layout(const struct check_ask *ask, int *nodes, int *ranks_per_node);
int check_ask_model(const struct check_ask *ask, struct model *out);

#endif
