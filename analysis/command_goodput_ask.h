/*
 * command_goodput_ask: what `scalereport goodput` was asked: a failure law, what is assumed, what to plan for.
 *
 * Every option counts once: said twice it is refused, since one of two laws would be ignored. What only a plan
 * uses is refused without a failure law, which a plan needs; and a time says its unit.
 */
#ifndef ANALYSIS_COMMAND_GOODPUT_ASK_H
#define ANALYSIS_COMMAND_GOODPUT_ASK_H

#include "analysis/goodput_plan.h"

struct goodput_ask {
    struct goodput_law law;
    struct goodput_given given;
    struct goodput_asked intervals;
    double nodes[GOODPUT_COUNTS];
    int n_nodes;
    double run_s; /* NaN: not said */
    int ranks_per_node;
    char mode[16], plot[1024], title[256];
    bool csv, json, help;
};

/* Operands are left at the end of argv, from *first_operand on. FAIL_USAGE in one sentence; with help it is
 * printed. */
int goodput_ask_read(struct goodput_ask *out, int argc, char **argv, int *first_operand);

#endif
