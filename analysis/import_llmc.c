#include <ctype.h>
#include <math.h>
#include <string.h>

#include "analysis/import_log.h"
#include "base/err.h"

/* A row "| key | value |" of the table that llm.c prints first. */
static bool split_cell(char *line, char **key, char **value)
{
    char *bar = line[0] == '|' ? strchr(line + 1, '|') : NULL, *end;
    if (bar == NULL)
        return false;
    *key = line + 1 + strspn(line + 1, " ");
    *value = bar + 1 + strspn(bar + 1, " ");
    for (end = bar; end > *key && end[-1] == ' ';)
        end--;
    *end = '\0';
    *bar = '\0';
    if ((end = strchr(*value, '|')) == NULL)
        return false;
    while (end > *value && end[-1] == ' ')
        end--;
    *end = '\0';
    return true;
}

static int read_cell(struct import_log *log, const char *key, const char *value)
{
    static const struct {
        const char *key;
        enum import_figure figure;
    } cells[] = {{"micro batch size B", IMPORT_MICRO_BATCH},
                 {"sequence length T", IMPORT_SEQUENCE},
                 {"total batch size", IMPORT_TOKENS_PER_STEP},
                 {"num_layers L", IMPORT_LAYERS},
                 {"num_heads NH", IMPORT_HEADS},
                 {"channels C", IMPORT_HIDDEN},
                 {"vocab_size V", IMPORT_VOCABULARY},
                 {"num_parameters", IMPORT_PARAMETERS},
                 {"num_processes", IMPORT_DEVICES}};
    if (strcmp(key, "device") == 0)
        snprintf(log->row.word[WORD_DEVICE], IMPORT_WORD, "%.63s", value);
    if (strcmp(key, "precision") == 0)
        for (int i = 0; i < 15 && value[i] != '\0'; i++)
            log->row.word[WORD_PRECISION][i] = (char)tolower((unsigned char)value[i]);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        double number;
        if (strcmp(key, cells[i].key) != 0)
            continue;
        int rc = import_log_number(log, value, key, 0, &number, NULL);
        if (rc != 0)
            return rc;
        if (!(number >= 1.0))
            return fail(FAIL_FILE, "%s:%lld: %s is \"%s\"", log->lines.path,
                        (long long)log->lines.number, key, value);
        import_log_set(log, cells[i].figure, number);
    }
    return 0;
}

/* step  25/30 | loss 10.85 (+nanz)| norm ... | 141.50 ms | -100.0% bf16 MFU | 910732 tok/s */
static int read_step(struct import_log *log, char *line)
{
    double step, ms, loss, rate;
    int rc;
    char *end = strstr(line, " ms |"), *from = end;
    if (end == NULL || isspace((unsigned char)line[strspn(line, " ")]))
        return 0;
    TRY(import_log_number(log, line + strlen("step"), "step", 0, &step, NULL));
    while (from > line && from[-1] != '|')
        from--;
    TRY(import_log_number(log, from, "step time", 0, &ms, NULL));
    TRY(import_log_step(log, (int64_t)step, ms * 1e-3));
    if (strstr(line, "| loss nan") == NULL && strstr(line, "| loss -nan") == NULL &&
        import_log_find(log, line, "| loss", &loss) == 1)
        log->row.value[IMPORT_LOSS] = loss;
    if ((from = strstr(end, "MFU |")) != NULL &&
        import_log_number(log, from + strlen("MFU |"), "tok/s", 0, &rate, NULL) == 0)
        log->raw_mean = rate; /* a running mean: the last one is compared */
out:
    return rc;
}

static int read_line(struct import_log *log, char *line)
{
    char *key, *value;
    if (strncmp(line, "step ", 5) == 0)
        return read_step(log, line);
    return split_cell(line, &key, &value) ? read_cell(log, key, value) : 0;
}

static double mean_step(const struct import_row *row)
{
    double sum = 0.0;
    int64_t n = 0;
    for (int i = 0; i < row->n_launches; i++)
        for (int64_t j = 1; j < row->launches[i].n; j++, n++) /* the first one is warm-up */
            sum += row->launches[i].x[j];
    return sum / (double)n;
}

static int finish(struct import_log *log, char *line)
{
    struct import_row *row = &log->row;
    double tokens = row->value[IMPORT_TOKENS_PER_STEP];
    (void)line;
    import_log_set(log, IMPORT_GLOBAL_BATCH, floor(tokens / row->value[IMPORT_SEQUENCE]));
    row->value[IMPORT_DP] = row->value[IMPORT_DEVICES];
    snprintf(row->word[WORD_RECOMPUTE], IMPORT_WORD, "none");
    if (fabs(log->raw_mean * mean_step(row) / tokens - 1.0) > 0.05)
        import_note(log->import, row->line,
                    "tokens/s is not tokens a step / step time: %.6g from its parts, %.6g printed "
                    "(a running mean)",
                    tokens / mean_step(row), log->raw_mean);
    return 0;
}

int import_llmc(struct import *import, const char *path, const struct import_options *options)
{
    return import_log_read(import, path, options, "step 1/10 | … | 141.50 ms | …", read_line,
                           finish);
}
