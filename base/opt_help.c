#include "base/opt.h"

#include <string.h>

/* What stands after the name: "NxG", "strong|weak", "[on|off]". */
static const char *placeholder(const struct opt *row)
{
    if (row->unit != NULL && row->unit[0] != '\0')
        return row->unit;
    switch (row->type) {
    case OPT_INT:
        return "N";
    case OPT_BYTES:
        return "SIZE";
    case OPT_REAL:
        return "X";
    case OPT_SHARE:
        return "SHARE";
    case OPT_SECONDS:
        return "TIME";
    case OPT_BOOL:
        return "[on|off]";
    case OPT_CHOICE:
        return row->choices;
    case OPT_TEXT:
    case OPT_TEXTS:
        break;
    }
    return "TEXT";
}

static void help_row(const struct opt *row, FILE *to)
{
    char left[160], letter[] = "    ", range[128];
    if (row->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", row->letter);
    snprintf(left, sizeof left, "  %s--%s %s", letter, row->name, placeholder(row));
    opt_range(row, range, sizeof range);
    fprintf(to, "%-36s %s", left, row->help);
    const char *preset = row->preset == NULL ? "" : row->preset;
    const char *again = row->type == OPT_TEXTS ? "; may be repeated" : "";
    if (preset[0] != '\0' || range[0] != '\0' || again[0] != '\0')
        fprintf(to, " (%s%s%s%s%s)", preset[0] != '\0' ? "default " : "", preset,
                preset[0] != '\0' && range[0] != '\0' ? "; " : "", range,
                preset[0] == '\0' && range[0] == '\0' ? again + 2 : again);
    fputc('\n', to);
}

void opt_help(const struct opt *table, size_t n_rows, FILE *to)
{
    for (size_t i = 0; i < n_rows; i++)
        help_row(&table[i], to);
    fprintf(to, "%-36s %s\n", "  -h, --help", "print this list");
}
