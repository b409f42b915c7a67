#include "base/opt.h"

#include <getopt.h>
#include <string.h>

#include "base/err.h"

enum { LONG = 256, HELP = 255 }; /* getopt's value of row i is LONG + i; letters are below 128 */

struct words {
    struct option *options; /* [n_rows + 2] */
    char *letters;          /* ":w:T:" */
};

/* A switch takes "--x", "--x=off" and "--x off"; its letter always takes a value, as in nccl-tests. */
static void words_make(const struct opt *table, size_t n_rows, struct words *out)
{
    out->options = must_alloc(n_rows + 2, sizeof *out->options);
    out->letters = must_alloc(2 * n_rows + 3, 1);
    char *letter = out->letters;
    *letter++ = ':'; /* tell a missing value from an unknown option */
    bool h_is_free = true;
    for (size_t i = 0; i < n_rows; i++) {
        out->options[i] = (struct option){.name = table[i].name,
                                          .has_arg = table[i].type == OPT_BOOL ? optional_argument
                                                                               : required_argument,
                                          .val = LONG + (int)i};
        if (table[i].letter != 0) {
            *letter++ = table[i].letter;
            *letter++ = ':';
            h_is_free = h_is_free && table[i].letter != 'h';
        }
    }
    out->options[n_rows] = (struct option){.name = "help", .has_arg = no_argument, .val = HELP};
    if (h_is_free)
        *letter = 'h';
}

static void words_release(struct words *words)
{
    free(words->options);
    free(words->letters);
}

/* The row that getopt's answer stands for, or NULL. */
static const struct opt *row_of(const struct opt *table, size_t n_rows, int value)
{
    if (value >= LONG)
        return (size_t)(value - LONG) < n_rows ? &table[value - LONG] : NULL;
    for (size_t i = 0; i < n_rows; i++)
        if (value != 0 && table[i].letter == value)
            return &table[i];
    return NULL;
}

static int refuse_unknown(const struct opt *table, size_t n_rows, const char *word)
{
    if (optopt == HELP)
        return fail(FAIL_USAGE, "--help: wanted no value, found \"%s\"", word);
    if (optopt != 0)
        return fail(FAIL_USAGE, "-%c: no such option; --help lists them", optopt);

    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    int n_meant = 0;
    for (size_t i = 0; i < n_rows; i++)
        n_meant += strncmp(table[i].name, name, strlen(name)) == 0;
    if (n_meant > 1)
        return fail(FAIL_USAGE, "--%s: could mean %d options; give the whole name", name, n_meant);
    const char *nearest = opt_nearest(table, n_rows, name);
    if (nearest != NULL)
        return fail(FAIL_USAGE, "--%s: no such option; did you mean --%s?", name, nearest);
    return fail(FAIL_USAGE, "--%s: no such option; --help lists them", name);
}

static int take(const struct opt *row, void *base, bool *seen, int argc, char **argv)
{
    const char *text = optarg;
    char where[80];
    snprintf(where, sizeof where, "--%s", row->name);
    if (text == NULL) { /* a switch without "=value" */
        bool value_follows = optind < argc && opt_switch(argv[optind]) >= 0;
        text = value_follows ? argv[optind++] : "on";
    }
    if (row->type == OPT_TEXTS && !*seen) /* argv replaces what a file said, and adds to itself */
        memset((char *)base + row->offset, 0, row->size);
    *seen = true;
    return row->type == OPT_TEXTS ? opt_add(row, base, text, where)
                                  : opt_set(row, base, text, where);
}

int opt_argv_given(const struct opt *table, size_t n_rows, void *base, int argc, char **argv,
                   int *first_operand, bool *help, bool *given)
{
    struct words words;
    words_make(table, n_rows, &words);
    bool *seen = must_alloc(n_rows, sizeof *seen);
    int rc = 0, value;
    opterr = 0;
    optind = 0; /* start afresh: a second table, a second argv */
    while (rc == 0 && (value = getopt_long(argc, argv, words.letters, words.options, NULL)) != -1) {
        const struct opt *row = row_of(table, n_rows, value == ':' ? optopt : value);
        if (value == ':' && row != NULL) {
            char wanted[256];
            opt_wanted(row, wanted, sizeof wanted);
            rc = fail(FAIL_USAGE, "--%s: found no value, wanted %s", row->name, wanted);
        } else if (row != NULL) {
            rc = take(row, base, &seen[row - table], argc, argv);
        } else if (value == '?') {
            rc = refuse_unknown(table, n_rows, argv[optind - 1]);
        } else {
            *help = true; /* 'h' or HELP */
        }
    }
    *first_operand = optind;
    for (size_t i = 0; i < n_rows; i++)
        given[i] |= seen[i];
    free(seen);
    words_release(&words);
    return rc;
}

int opt_argv(const struct opt *table, size_t n_rows, void *base, int argc, char **argv,
             int *first_operand, bool *help)
{
    bool *given = must_alloc(n_rows, sizeof *given);
    int rc = opt_argv_given(table, n_rows, base, argc, argv, first_operand, help, given);
    free(given);
    return rc;
}

int opt_not_empty(const struct opt *table, size_t n_rows, const void *base, const bool *given)
{
    for (size_t i = 0; i < n_rows; i++) {
        const struct opt *row = &table[i];
        if (given[i] && row->type == OPT_TEXT && ((const char *)base)[row->offset] == '\0')
            return fail(FAIL_USAGE, "--%s: found \"\", wanted %s; leave the option out for none",
                        row->name, row->unit[0] != '\0' ? row->unit : "a value");
    }
    return 0;
}
