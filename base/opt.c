#include "base/opt.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/units.h"

enum { NUMBER_BYTES = 32, WORDS_BYTES = 160, NAME_MAX_BYTES = 64 };

static void number_text(enum opt_type type, double value, char *text, size_t size)
{
    if (type == OPT_BYTES && value >= 0.0 && value < 0x1p63)
        units_format_bytes(text, size, (int64_t)value);
    else if (type == OPT_SHARE)
        units_format_share(text, size, value);
    else if (type == OPT_SECONDS)
        units_format_seconds(text, size, value);
    else
        units_format_real(text, size, value);
}

static bool has_range(const struct opt *row)
{
    return row->type <= OPT_SECONDS && (row->min != 0.0 || row->max != 0.0);
}

void opt_range(const struct opt *row, char *text, size_t size)
{
    char min[NUMBER_BYTES], max[NUMBER_BYTES];
    if (!has_range(row)) {
        snprintf(text, size, "%s", "");
        return;
    }
    number_text(row->type, row->min, min, sizeof min);
    number_text(row->type, row->max, max, sizeof max);
    if (row->max < OPT_NO_MAX)
        snprintf(text, size, "%s to %s", min, max);
    else
        snprintf(text, size, "at least %s", min);
}

static bool may_be_empty(const struct opt *row)
{
    return row->preset != NULL && row->preset[0] == '\0';
}

void opt_wanted(const struct opt *row, char *text, size_t size)
{
    static const char *const words[] = {
        [OPT_INT] = "a whole number",
        [OPT_BYTES] = "a size such as 25M",
        [OPT_REAL] = "a number",
        [OPT_SHARE] = "a share such as 1%",
        [OPT_SECONDS] = "a time such as 90s",
        [OPT_BOOL] = "on or off",
        [OPT_CHOICE] = "one of ",
        [OPT_TEXT] = "a text",
        [OPT_TEXTS] = "a text",
    };
    char range[WORDS_BYTES];
    opt_range(row, range, sizeof range);
    if (row->type == OPT_TEXT || row->type == OPT_TEXTS)
        snprintf(text, size, "a text%s%s%s of %d to %zu bytes", row->unit[0] != '\0' ? " (" : "",
                 row->unit, row->unit[0] != '\0' ? ")" : "",
                 row->type == OPT_TEXTS || !may_be_empty(row), row->size - 1);
    else
        snprintf(text, size, "%s%s%s", words[row->type],
                 row->type == OPT_CHOICE ? row->choices
                 : range[0] != '\0'      ? ", "
                                         : "",
                 range);
}

static int refuse(const struct opt *row, const char *text, const char *where)
{
    char wanted[512];
    opt_wanted(row, wanted, sizeof wanted);
    return fail(FAIL_USAGE, "%s: found \"%.200s\", wanted %s", where, text, wanted);
}

static bool in_range(const struct opt *row, double value)
{
    return !has_range(row) || (value >= row->min && (value <= row->max || row->max >= OPT_NO_MAX));
}

static int set_whole(const struct opt *row, void *field, const char *text, const char *where)
{
    int64_t value;
    int rc =
        row->type == OPT_BYTES ? units_parse_bytes(text, &value) : units_parse_int(text, &value);
    if (rc != 0 || !in_range(row, (double)value))
        return refuse(row, text, where);
    memcpy(field, &value, sizeof value);
    return 0;
}

static int set_real(const struct opt *row, void *field, const char *text, const char *where)
{
    double value;
    int rc = row->type == OPT_SHARE     ? units_parse_share(text, &value)
             : row->type == OPT_SECONDS ? units_parse_seconds(text, &value)
                                        : units_parse_real(text, &value);
    if (rc != 0 || !in_range(row, value))
        return refuse(row, text, where);
    memcpy(field, &value, sizeof value);
    return 0;
}

int opt_switch(const char *text)
{
    static const char *const words[] = {"off", "on", "false", "true", "no", "yes"};
    for (int i = 0; i < 6; i++)
        if (strcasecmp(text, words[i]) == 0)
            return i % 2;
    return -1;
}

static int set_bool(const struct opt *row, void *field, const char *text, const char *where)
{
    /* "-c 0" and "-c 1" are what nccl-tests' users type. */
    int found = strcmp(text, "0") == 0 ? 0 : strcmp(text, "1") == 0 ? 1 : opt_switch(text);
    if (found < 0)
        return refuse(row, text, where);
    bool value = found;
    memcpy(field, &value, sizeof value);
    return 0;
}

/* The length of the first of "a|b|c". */
static size_t choice_length(const char *choices)
{
    return strcspn(choices, "|");
}

static const char *choice_next(const char *choice)
{
    choice += choice_length(choice);
    return *choice == '|' ? choice + 1 : choice;
}

static int set_choice(const struct opt *row, void *field, const char *text, const char *where)
{
    int value = 0;
    for (const char *choice = row->choices; *choice != '\0'; choice = choice_next(choice), value++)
        if (strlen(text) == choice_length(choice) &&
            strncmp(text, choice, choice_length(choice)) == 0) {
            memcpy(field, &value, sizeof value);
            return 0;
        }
    return refuse(row, text, where);
}

static int set_text(const struct opt *row, void *field, const char *text, const char *where)
{
    if (strlen(text) >= row->size || (text[0] == '\0' && !may_be_empty(row)))
        return refuse(row, text, where);
    memset(field, 0, row->size); /* equal options are equal bytes */
    memcpy(field, text, strlen(text));
    return 0;
}

int opt_set(const struct opt *row, void *base, const char *text, const char *where)
{
    void *field = (char *)base + row->offset;
    switch (row->type) {
    case OPT_INT:
    case OPT_BYTES:
        return set_whole(row, field, text, where);
    case OPT_REAL:
    case OPT_SHARE:
    case OPT_SECONDS:
        return set_real(row, field, text, where);
    case OPT_BOOL:
        return set_bool(row, field, text, where);
    case OPT_CHOICE:
        return set_choice(row, field, text, where);
    case OPT_TEXT:
    case OPT_TEXTS:
        return set_text(row, field, text, where);
    }
    BUG("option %s has type %d", row->name, (int)row->type);
}

int opt_add(const struct opt *row, void *base, const char *text, const char *where)
{
    char *field = (char *)base + row->offset;
    size_t used = strlen(field);
    if (text[0] == '\0' || used + (used > 0) + strlen(text) >= row->size)
        return refuse(row, text, where);
    if (used > 0)
        field[used++] = ';';
    memcpy(field + used, text, strlen(text) + 1);
    return 0;
}

static void choice_text(const struct opt *row, int value, char *text, size_t size)
{
    const char *choice = row->choices;
    for (int i = 0; i < value && *choice != '\0'; i++)
        choice = choice_next(choice);
    snprintf(text, size, "%.*s", (int)choice_length(choice), choice);
}

void opt_text(const struct opt *row, const void *base, char *text, size_t size)
{
    const void *field = (const char *)base + row->offset;
    int64_t whole = 0;
    double real = 0.0;
    int choice = 0;
    switch (row->type) {
    case OPT_INT:
    case OPT_BYTES:
        memcpy(&whole, field, sizeof whole);
        if (row->type == OPT_BYTES)
            units_format_bytes(text, size, whole);
        else
            snprintf(text, size, "%lld", (long long)whole);
        return;
    case OPT_REAL:
    case OPT_SHARE:
    case OPT_SECONDS:
        memcpy(&real, field, sizeof real);
        number_text(row->type, real, text, size);
        return;
    case OPT_BOOL:
        snprintf(text, size, "%s", *(const bool *)field ? "on" : "off");
        return;
    case OPT_CHOICE:
        memcpy(&choice, field, sizeof choice);
        choice_text(row, choice, text, size);
        return;
    case OPT_TEXT:
    case OPT_TEXTS:
        snprintf(text, size, "%s", (const char *)field);
        return;
    }
}

void opt_defaults(const struct opt *table, size_t n_rows, void *base)
{
    for (size_t i = 0; i < n_rows; i++) {
        const struct opt *row = &table[i];
        if (row->preset != NULL && opt_set(row, base, row->preset, row->name) != 0)
            BUG("default of a row: %s", fail_message());
    }
}

const struct opt *opt_find(const struct opt *table, size_t n_rows, const char *name)
{
    for (size_t i = 0; i < n_rows; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

/* Letters to insert, delete, replace or swap with a neighbour (optimal string alignment). */
static size_t distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    size_t d[3][NAME_MAX_BYTES + 1]; /* rows i-2, i-1, i of the table, i modulo 3 */
    if (n_a > NAME_MAX_BYTES || n_b > NAME_MAX_BYTES)
        return SIZE_MAX;
    for (size_t j = 0; j <= n_b; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *now = d[i % 3], *last = d[(i + 2) % 3], *before = d[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = before[j - 2] + 1 < best ? before[j - 2] + 1 : best;
            now[j] = best;
        }
    }
    return d[n_a % 3][n_b];
}

const char *opt_nearest(const struct opt *table, size_t n_rows, const char *name)
{
    size_t length = strlen(name), limit = length / 3 > 2 ? length / 3 : 2;
    if (limit >= length)
        limit = length > 0 ? length - 1 : 0; /* some letter of it is left */
    size_t best = limit + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < n_rows; i++) {
        size_t d = distance(name, table[i].name);
        if (d < best) {
            best = d;
            nearest = table[i].name;
        }
    }
    return nearest;
}
