#include <math.h>
#include <string.h>

#include "analysis/import_log.h"
#include "base/err.h"

/* Colours: ESC [ … m. */
static void strip_escapes(char *line)
{
    char *to = line;
    for (const char *at = line; *at != '\0';) {
        if (at[0] == '\x1b' && at[1] == '[') {
            at += 2 + strspn(at + 2, "0123456789;");
            at += *at != '\0';
        } else
            *to++ = *at++;
    }
    *to = '\0';
}

static void set_degree(struct import_log *log, const char *name, size_t length, double size)
{
    static const struct {
        const char *name;
        enum import_figure figure;
    } degrees[] = {{"tp", IMPORT_TP}, {"pp", IMPORT_PP},       {"cp", IMPORT_CP},
                   {"ep", IMPORT_EP}, {"dp_shard", IMPORT_DP}, {"dp_replicate", IMPORT_DP},
                   {"dp", IMPORT_DP}};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        double *value = &log->row.value[degrees[i].figure];
        if (strlen(degrees[i].name) == length && strncmp(name, degrees[i].name, length) == 0)
            *value = degrees[i].figure == IMPORT_DP && !isnan(*value) ? *value * size : size;
    }
}

/* "... mesh with ['pp', 'dp_shard'], [2, 4]" */
static int read_lists(struct import_log *log, const char *names, double *devices)
{
    const char *sizes = strstr(names, "], [");
    if (sizes == NULL)
        return 0;
    sizes += 4;
    while ((names = strchr(names, '\'')) != NULL && names < sizes) {
        double size;
        size_t length = strcspn(++names, "'");
        const char *end;
        int rc = import_log_number(log, sizes, "device mesh", 0, &size, &end);
        if (rc != 0)
            return rc;
        set_degree(log, names, length, size);
        *devices *= size;
        sizes = end + strspn(end, ", ");
        names += length;
        names += *names == '\'';
    }
    return 0;
}

/* "... mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1": ep lies inside
 * of the others. */
static int read_pairs(struct import_log *log, const char *at, double *devices)
{
    for (at += strspn(at, " "); *at != '\0' && strchr(at, '=') != NULL; at += strspn(at, ", ")) {
        double size;
        size_t length = strcspn(at, "=");
        int rc = import_log_number(log, at + length + 1, "device mesh", 0, &size, NULL);
        if (rc != 0)
            return rc;
        set_degree(log, at, length, size);
        if (!(length >= 2 && at[0] == 'e'))
            *devices *= size;
        at += length + 1;
        at += strcspn(at, ", ");
    }
    return 0;
}

static int read_mesh(struct import_log *log, const char *at)
{
    double devices = 1.0;
    const char *pairs = strstr(at, "parallelism:");
    log->row.value[IMPORT_DP] = NAN;
    int rc = pairs != NULL ? read_pairs(log, pairs + strlen("parallelism:"), &devices)
                           : read_lists(log, at, &devices);
    if (rc == 0 && devices > 1.0)
        import_log_set(log, IMPORT_DEVICES, devices);
    return rc;
}

/* "CUDA capacity: NVIDIA H100 80GB HBM3 (0) with 79.10GiB memory" */
static void read_device(struct import_log *log, const char *at)
{
    const char *end = strstr(at, " (");
    if (end != NULL)
        snprintf(log->row.word[WORD_DEVICE], IMPORT_WORD, "%.*s",
                 (int)(end - at < 63 ? end - at : 63), at);
}

/* A sample is 1 / tps here, s a token of one device; finish() makes steps of it. */
static int read_step(struct import_log *log, const char *line, const char *at)
{
    double step, tps, number;
    int rc;
    const char *rate = strstr(at, "tps:");
    if (rate == NULL)
        return 0;
    TRY(import_log_number(log, at + strlen("step:"), "step", 1, &step, NULL));
    TRY(import_log_number(log, rate + strlen("tps:"), "tps", 1, &tps, NULL));
    if (!(tps > 0.0))
        return fail(FAIL_FILE, "%s:%lld: tps of %g is zero or negative", log->lines.path,
                    (long long)log->lines.number, tps);
    TRY(import_log_step(log, (int64_t)step, 1.0 / tps));
    if (strstr(line, "loss: nan") == NULL && strstr(line, "loss:  nan") == NULL &&
        import_log_find(log, line, "loss:", &number) == 1)
        log->row.value[IMPORT_LOSS] = number;
out:
    return rc;
}

static int read_facts(struct import_log *log, const char *line)
{
    static const struct {
        const char *key;
        enum import_figure figure;
        double scale;
        int thousands;
    } facts[] = {{"local batch size ", IMPORT_MICRO_BATCH, 1.0, 0},
                 {"global batch size ", IMPORT_GLOBAL_BATCH, 1.0, 0},
                 {"sequence length ", IMPORT_SEQUENCE, 1.0, 0},
                 {"Peak FLOPS used for computing MFU: ", IMPORT_PEAK_TFLOPS, 1e-12, 0}};
    const char *at;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if ((at = strstr(line, facts[i].key)) != NULL) {
            double number;
            int rc = import_log_number(log, at + strlen(facts[i].key), facts[i].key,
                                       facts[i].thousands, &number, NULL);
            if (rc != 0)
                return rc;
            import_log_set(log, facts[i].figure, number * facts[i].scale);
        }
    if ((at = strstr(line, " size: ")) != NULL && strstr(at, "total parameters") != NULL) {
        double number;
        int rc = import_log_number(log, at + strlen(" size: "), "parameters", 1, &number, NULL);
        if (rc != 0)
            return rc;
        import_log_set(log, IMPORT_PARAMETERS, number);
    }
    return 0;
}

static int read_line(struct import_log *log, char *line)
{
    const char *at;
    strip_escapes(line);
    if ((at = strstr(line, "step:")) != NULL)
        return read_step(log, line, at);
    if ((at = strstr(line, "device mesh with ")) != NULL)
        return read_mesh(log, at);
    if ((at = strstr(line, "CUDA capacity: ")) != NULL)
        read_device(log, at + strlen("CUDA capacity: "));
    return read_facts(log, line);
}

static int finish(struct import_log *log, char *line)
{
    struct import_row *row = &log->row;
    (void)line;
    if (isnan(row->value[IMPORT_DEVICES]) && log->options->devices > 0)
        import_log_set(log, IMPORT_DEVICES, (double)log->options->devices);
    double tokens = row->value[IMPORT_GLOBAL_BATCH] * row->value[IMPORT_SEQUENCE];
    if (isnan(row->value[IMPORT_DEVICES]) || isnan(tokens))
        return fail(FAIL_USAGE,
                    "%s does not say its %s: tps alone is no step time (torchtitan prints it in "
                    "\"Building device mesh\" and \"Training starts at step\"%s)",
                    log->lines.path,
                    isnan(tokens) ? "global batch size and sequence length" : "devices",
                    isnan(tokens) ? "" : "; or give --devices");
    for (int i = 0; i < row->n_launches; i++)
        for (int64_t j = 0; j < row->launches[i].n; j++)
            row->launches[i].x[j] *= tokens / row->value[IMPORT_DEVICES];
    return 0;
}

int import_torchtitan(struct import *import, const char *path, const struct import_options *options)
{
    return import_log_read(import, path, options, "step: 10  loss: …  tps: 5,847", read_line,
                           finish);
}
