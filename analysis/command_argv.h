/*
 * command_argv: what is wrong with a command line as it was typed, before its values are looked at.
 *
 * A value that is no text ("--mtbf ''", "--mtbf=") is as a rule a variable of a script that was empty; taken as not
 * given, it would be answered by a sentence about something else, or by a plan of something else. And of an option
 * that is said twice one would be ignored.
 */
#ifndef ANALYSIS_COMMAND_ARGV_H
#define ANALYSIS_COMMAND_ARGV_H

#include <stddef.h>

#include "base/opt.h"

/* Both look at argv[1..] up to "--". FAIL_USAGE in one sentence that names the option. */
int command_argv_not_empty(const struct opt *table, size_t n_rows, int argc, char **argv);
int command_argv_once(const struct opt *table, size_t n_rows, int argc, char **argv);

#endif
