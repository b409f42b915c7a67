/*
 * command: what `scalereport WORD …` can do.
 *
 * Each subcommand is one file, command_<word>.c, and one row of the table in scalereport.c; the
 * report of study files is what happens without a word. A command gets argv from its own word on,
 * prints its result to stdout, and returns 0 or a FAIL_* whose sentence is in fail_message(); main
 * prints that. Command files alone may join analysis with the pure parts of the other branch
 * (layout, coll, plan, cost): arithmetic, no MPI, no device.
 */
#ifndef ANALYSIS_COMMAND_H
#define ANALYSIS_COMMAND_H

#include <stdbool.h>

typedef int command_run(int argc, char **argv);

struct command {
    const char *word;
    command_run *run;
    const char *usage; /* one line of --help: "schema            tables and columns of …" */
};

command_run command_check;
command_run command_compare;
command_run command_check_fit; /* check --fit */
command_run command_import;
command_run command_schema;

/* What `scalereport TABLE.csv` does: import without a map. */
int command_import_plain(char **paths, int n, bool csv, bool json);
command_run command_fit;
command_run command_goodput;
command_run command_record;

#endif
