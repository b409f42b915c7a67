#include "analysis/command_argv.h"

#include <string.h>

#include "base/err.h"

/* The row of a word "--name" or "--name=value", and the value in the word; NULL: none. */
static const struct opt *row_of(const struct opt *table, size_t n_rows, const char *word,
                                const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < n_rows && strncmp(word, "--", 2) == 0; i++) {
        size_t length = strlen(table[i].name);
        if (strncmp(word + 2, table[i].name, length) != 0)
            continue;
        if (word[2 + length] == '=')
            *value = word + 3 + length;
        if (word[2 + length] == '=' || word[2 + length] == '\0')
            return &table[i];
    }
    return NULL;
}

/* The option at argv[*at] (NULL: none), its value, and *at at the last word that belongs to it. A switch takes no
 * word of its own. */
static const struct opt *next(const struct opt *table, size_t n_rows, int argc, char **argv,
                              int *at, const char **value)
{
    const struct opt *row = row_of(table, n_rows, argv[*at], value);
    if (row != NULL && *value == NULL && row->type != OPT_BOOL && *at + 1 < argc)
        *value = argv[++*at];
    return row;
}

int command_argv_not_empty(const struct opt *table, size_t n_rows, int argc, char **argv)
{
    const char *value;
    for (int at = 1; at < argc && strcmp(argv[at], "--") != 0; at++) {
        const struct opt *row = next(table, n_rows, argc, argv, &at, &value);
        if (row != NULL && row->type == OPT_TEXT && value != NULL && value[0] == '\0')
            return fail(FAIL_USAGE, "--%s: found \"\", wanted %s; leave the option out for none",
                        row->name, row->unit[0] != '\0' ? row->unit : "a value");
    }
    return 0;
}

int command_argv_once(const struct opt *table, size_t n_rows, int argc, char **argv)
{
    const char *value;
    for (size_t i = 0; i < n_rows; i++) {
        int times = 0;
        for (int at = 1; at < argc && strcmp(argv[at], "--") != 0; at++)
            times += next(table, n_rows, argc, argv, &at, &value) == &table[i];
        if (times > 1)
            return fail(FAIL_USAGE, "--%s was given %d times: which of them counts? give one",
                        table[i].name, times);
    }
    return 0;
}
