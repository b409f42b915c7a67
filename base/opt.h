/*
 * opt: every option is said once, as one row of a table.
 *
 * From that row come the default, parsing of argv (getopt_long) and of a flat YAML mapping
 * (libyaml, so that a message can name file and line), range checks, --help, the canonical text
 * that is printed and stored in the study file, and reading it back. A table describes one struct;
 * a model file and the command line are two tables of the same kind. Unknown words get the nearest
 * match suggested.
 */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum opt_type {
    OPT_INT,     /* int64_t */
    OPT_BYTES,   /* int64_t, "25M" */
    OPT_REAL,    /* double */
    OPT_SHARE,   /* double, "1%" */
    OPT_SECONDS, /* double, "90s" */
    OPT_BOOL,    /* bool: on/off/true/false/yes/no/1/0; argv also takes "--x" alone, while its
                    letter always takes a value ("-c 0"), as in nccl-tests */
    OPT_CHOICE,  /* int: index into `choices` ("strong|weak") */
    OPT_TEXT,    /* char[size]; empty is allowed only when the default is empty */
    OPT_TEXTS,   /* char[size]: values of a repeatable option joined by ';', each checked only for
                    length */
};

#define OPT_NO_MAX 1e15

struct opt {
    const char *name; /* "global-batch": --global-batch on argv and the same key in YAML */
    char letter;      /* short form, or 0 */
    enum opt_type type;
    size_t offset;       /* in the struct that the table describes */
    size_t size;         /* bytes of the field (OPT_TEXT, OPT_TEXTS) */
    const char *preset;  /* default, as text; NULL: must be given (YAML tables) */
    double min, max;     /* inclusive, for numbers; both 0: unchecked; max OPT_NO_MAX: none */
    const char *choices; /* OPT_CHOICE: "strong|weak" */
    const char *unit;    /* of the value as help prints it: "NxG", "tokens", "" */
    const char *help;    /* one sentence, no full stop */
};

/* Write every default into *base. A row without default leaves its field zero. */
void opt_defaults(const struct opt *table, size_t n_rows, void *base);

/*
 * Parse argv[1..]. Non-options are left at the end of argv, *first_operand is the index of the
 * first. A repeated option counts once, as said last; an OPT_TEXTS row collects what argv says.
 * --help/-h is not a row: *help is set when it was seen (the rest is still parsed).
 * Fails with FAIL_USAGE and one sentence: the option, what was found, what is wanted.
 */
int opt_argv(const struct opt *table, size_t n_rows, void *base, int argc, char **argv,
             int *first_operand, bool *help);

/* The same, and given[i], of n_rows, becomes true where argv named row i; others are left as they are. */
int opt_argv_given(const struct opt *table, size_t n_rows, void *base, int argc, char **argv,
                   int *first_operand, bool *help, bool *given);

/* Of rows that were given, none is an empty text: FAIL_USAGE names the first. An unset variable of a shell is
 * no way to say that an option is left out. */
int opt_not_empty(const struct opt *table, size_t n_rows, const void *base, const bool *given);

/*
 * Write the defaults, then what a flat YAML mapping says (an OPT_TEXTS row also takes a list).
 * Messages begin "FILE:LINE: ". Fails with FAIL_FILE when it cannot be read or is no such mapping,
 * FAIL_USAGE for an unknown or repeated key, a wrong type, a value out of range, or a row without
 * default that is missing. `lines`, when not NULL, has n_rows entries and receives the line of each
 * key (0: not given), so that later checks can name it.
 */
int opt_yaml(const struct opt *table, size_t n_rows, void *base, const char *path, int *lines);

/* Set one row from text (shared by all readers). `where` begins the message: "--nodes" or
 * "f.yaml:3: nodes". */
int opt_set(const struct opt *row, void *base, const char *text, const char *where);

/* The same, adding to the values that an OPT_TEXTS row has already. */
int opt_add(const struct opt *row, void *base, const char *text, const char *where);

/* The canonical text of a row's value; opt_set() of it gives the same value back. */
void opt_text(const struct opt *row, const void *base, char *text, size_t size);

/* 1 for on, true, yes; 0 for off, false, no; -1 for any other word. */
int opt_switch(const char *text);

/* The row called `name`, or NULL; and the nearest name for a suggestion, or NULL. */
const struct opt *opt_find(const struct opt *table, size_t n_rows, const char *name);
const char *opt_nearest(const struct opt *table, size_t n_rows, const char *name);

/* What a row takes, for messages: "a whole number, 1 to 64"; and the range alone, "" for none. */
void opt_wanted(const struct opt *row, char *text, size_t size);
void opt_range(const struct opt *row, char *text, size_t size);

/* One line per option: letter, name, unit, help, default, range; and one for --help. */
void opt_help(const struct opt *table, size_t n_rows, FILE *to);

#endif
