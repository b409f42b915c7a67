#include "analysis/report_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static char *next_cell(struct table *t)
{
    if (t->n == t->room) {
        t->room = t->room * 2 + 64;
        t->cells = must_grow(t->cells, (size_t)t->room, sizeof *t->cells);
    }
    return t->cells[t->n++];
}

void table_open(struct table *table, const char *names)
{
    *table = (struct table){0};
    while (*names != '\0') {
        int length = (int)strcspn(names, " ");
        snprintf(next_cell(table), TABLE_CELL, "%.*s", length, names);
        names += length;
        names += strspn(names, " ");
        table->n_columns++;
    }
}

void table_text(struct table *table, const char *text)
{
    snprintf(next_cell(table), TABLE_CELL, "%s", text[0] != '\0' ? text : "-");
}

void table_int(struct table *table, int64_t value)
{
    snprintf(next_cell(table), TABLE_CELL, "%" PRId64, value);
}

void table_marked(struct table *table, double value, int decimals, const char *mark)
{
    char *cell = next_cell(table);
    if (!isfinite(value)) {
        snprintf(cell, TABLE_CELL, "-");
        return;
    }
    snprintf(cell, TABLE_CELL, "%.*f%s", decimals, value, mark);
    /* What rounds to nothing has no sign. */
    if (cell[0] == '-' && strpbrk(cell, "123456789") == NULL)
        memmove(cell, cell + 1, strlen(cell));
}

void table_real(struct table *table, double value, int decimals)
{
    table_marked(table, value, decimals, "");
}

void table_digits(struct table *table, double value, int digits)
{
    double size = fabs(value);
    int whole = size > 1e-9 && isfinite(size) ? (int)floor(log10(size)) + 1 : 1;
    table_marked(table, value, digits > whole ? digits - whole : 0, "");
}

/* Digits of UTF-8 continuation do not take a place on the screen. */
static int width_of(const char *cell)
{
    int width = 0;
    for (; *cell != '\0'; cell++)
        width += ((unsigned char)*cell & 0xc0) != 0x80;
    return width;
}

static int column_width(const struct table *t, int column)
{
    int widest = 0;
    for (int64_t i = column; i < t->n; i += t->n_columns) {
        int width = width_of(t->cells[i]);
        widest = width > widest ? width : widest;
    }
    return widest;
}

void table_close(struct table *table, FILE *to)
{
    int *width = must_alloc((size_t)table->n_columns + 1, sizeof *width);
    for (int c = 0; c < table->n_columns; c++)
        width[c] = column_width(table, c);
    for (int64_t i = 0; i < table->n; i++) {
        int column = (int)(i % table->n_columns);
        if (column == 0)
            fputs(i == 0 ? "#" : " ", to);
        fprintf(to, "%*s%s", width[column] - width_of(table->cells[i]) + 1, "", table->cells[i]);
        if (column == table->n_columns - 1)
            fputc('\n', to);
    }
    free(width);
    free(table->cells);
    *table = (struct table){0};
}

void table_note(FILE *to, const char *mark, const char *text)
{
    const size_t width = 116;
    while (*text != '\0') {
        size_t length = strlen(text);
        if (length > width) {
            length = width;
            while (length > 0 && text[length] != ' ')
                length--;
            length = length > 0 ? length : width;
        }
        fprintf(to, "%s%.*s\n", mark, (int)length, text);
        text += length;
        text += *text == ' ';
        mark = "#   ";
    }
}
