#include "analysis/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis/report_columns.h"

/* RFC 4180: quotes only where they are needed, doubled inside. */
static void print_text(FILE *to, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', to);
        fputc(*text, to);
    }
    fputc('"', to);
}

void report_csv_value(FILE *to, struct report_value value)
{
    if (value.kind == REPORT_INTEGER || value.kind == REPORT_TRUTH) {
        if (value.integer != REPORT_UNKNOWN)
            fprintf(to, "%" PRId64, value.integer);
    } else if (value.kind == REPORT_TEXT)
        print_text(to, value.text);
    else if (isfinite(value.real))
        fprintf(to, "%.17g", value.real);
}

void report_csv(FILE *to, const struct report *reports, int n)
{
    for (int c = 0; c < report_n_columns(); c++)
        fprintf(to, "%s%s", c > 0 ? "," : "", report_column_name(c));
    fputc('\n', to);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < reports[i].scaling->n_rows; j++) {
            for (int c = 0; c < report_n_columns(); c++) {
                if (c > 0)
                    fputc(',', to);
                report_csv_value(to, report_value(c, &reports[i], &reports[i].scaling->rows[j]));
            }
            fputc('\n', to);
        }
}
