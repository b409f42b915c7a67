#include "analysis/import_check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "analysis/flops.h"

#define V(name) row->value[IMPORT_##name]

static void note_row(struct import *import, const struct import_row *row, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void note_row(struct import *import, const struct import_row *row, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    series_set_note(&import->set, import->paths[row->file], row->line, "%s", text);
}

static double first_known(double a, double b)
{
    return isnan(a) ? b : a;
}

double import_devices(const struct import_row *row)
{
    return first_known(V(DEVICES), V(NODES) * V(DEVICES_PER_NODE));
}

double import_batch(const struct import_row *row)
{
    return first_known(V(GLOBAL_BATCH), V(REPLICA_BATCH) * V(DP));
}

double import_tokens_per_step(const struct import_row *row)
{
    return first_known(import_batch(row) * V(SEQUENCE), V(TOKENS_PER_STEP));
}

double import_peak(const struct import_row *row, const char **source)
{
    *source =
        row->word[WORD_PEAK_SOURCE][0] != '\0' ? row->word[WORD_PEAK_SOURCE] : "as the table says";
    if (!isnan(V(PEAK_TFLOPS)))
        return V(PEAK_TFLOPS);
    return flops_peak(row->word[WORD_DEVICE], row->word[WORD_PRECISION], source);
}

static struct flops_gpt shape_of(const struct import_row *row)
{
    return (struct flops_gpt){.layers = V(LAYERS),
                              .hidden = V(HIDDEN),
                              .vocabulary = V(VOCABULARY),
                              .sequence = V(SEQUENCE),
                              .batch = import_batch(row)};
}

double import_flops(const struct import_row *row, const char **convention)
{
    struct flops_gpt shape = shape_of(row);
    double given = V(FLOPS_PER_SAMPLE) * import_batch(row);
    *convention = row->word[WORD_CONVENTION];
    if (!isnan(given)) {
        if (**convention == '\0')
            *convention = "FLOPs a sequence as printed";
        return given;
    }
    *convention = "dense GPT, full attention, logits, no recompute";
    return flops_gpt(&shape, RECOMPUTE_NONE);
}

double import_counted_flops(const struct import_row *row)
{
    const char *convention, *recompute = row->word[WORD_RECOMPUTE];
    bool none = recompute[0] == '\0' || strcasecmp(recompute, "none") == 0;
    return none ? import_flops(row, &convention) : import_hardware_flops(row);
}

double import_hardware_flops(const struct import_row *row)
{
    struct flops_gpt shape = shape_of(row);
    const char *recompute = row->word[WORD_RECOMPUTE];
    if (strcasecmp(recompute, "selective") == 0)
        return flops_gpt(&shape, RECOMPUTE_SELECTIVE);
    if (strcasecmp(recompute, "full") == 0)
        return flops_gpt(&shape, RECOMPUTE_FULL);
    return NAN;
}

static double peak_of(const struct import_row *row)
{
    const char *source;
    return import_peak(row, &source);
}

static double flops_of(const struct import_row *row)
{
    const char *convention;
    return import_flops(row, &convention);
}

/* Left sides. */
static double tokens_rate(const struct import_row *row)
{
    return import_tokens_per_step(row) / V(STEP_S);
}
static double samples_rate(const struct import_row *row)
{
    return import_batch(row) / V(STEP_S);
}
static double devices_rate(const struct import_row *row)
{
    return V(TOKENS_PER_S_DEVICE) * import_devices(row);
}
static double degrees(const struct import_row *row)
{
    return V(TP) * V(PP) * first_known(V(CP), 1.0) * V(DP);
}
static double node_devices(const struct import_row *row)
{
    return V(NODES) * V(DEVICES_PER_NODE);
}
static double replica_batches(const struct import_row *row)
{
    return V(REPLICA_BATCH) * V(DP);
}
static double step_tokens(const struct import_row *row)
{
    return import_batch(row) * V(SEQUENCE);
}
static double aggregate(const struct import_row *row)
{
    return V(TFLOPS_DEVICE) * import_devices(row) / 1e3;
}
/* Hardware FLOPs count against the HFU; without recompute they are the model's. */
static double mfu_of_rate(const struct import_row *row)
{
    return row->word[WORD_RECOMPUTE][0] == '\0' ||
                   strcasecmp(row->word[WORD_RECOMPUTE], "none") == 0
               ? V(TFLOPS_DEVICE) / peak_of(row)
               : (double)NAN;
}
static double hfu_of_rate(const struct import_row *row)
{
    return V(TFLOPS_DEVICE) / peak_of(row);
}
static double mfu_of_step(const struct import_row *row)
{
    return flops_of(row) / (V(STEP_S) * import_devices(row) * peak_of(row) * 1e12);
}
static double hfu_of_step(const struct import_row *row)
{
    return import_hardware_flops(row) / (V(STEP_S) * import_devices(row) * peak_of(row) * 1e12);
}
static double mfu_of_aggregate(const struct import_row *row)
{
    return V(PFLOPS) * 1e3 / (import_devices(row) * peak_of(row));
}
static double days_of_rate(const struct import_row *row)
{
    double rate = first_known(V(TOKENS_PER_S), tokens_rate(row));
    return V(TOKENS_TOTAL) / rate / 86400.0;
}
/* The FLOPs of all tokens at the printed rate, with recompute where there was any. */
static double days_of_flops(const struct import_row *row)
{
    return V(TOKENS_TOTAL) / import_tokens_per_step(row) * import_counted_flops(row) /
           (import_devices(row) * V(TFLOPS_DEVICE) * 1e12) / 86400.0;
}

/* Names of the figures that go into the left side, for their printed digits. */
struct identity {
    double (*left)(const struct import_row *row);
    int right;
    int parts[5]; /* figures + 1; 0 ends */
    double scale; /* of both sides in the message */
    const char *words;
};
#define P(name) (IMPORT_##name + 1)

static const struct identity identities[] = {
    {tokens_rate,
     IMPORT_TOKENS_PER_S,
     {P(STEP_S), P(TOKENS_PER_STEP)},
     1.0,
     "tokens/s is not batch x sequence / step time"},
    {devices_rate,
     IMPORT_TOKENS_PER_S,
     {P(TOKENS_PER_S_DEVICE)},
     1.0,
     "tokens/s is not that of a device times devices"},
    {samples_rate, IMPORT_SAMPLES_PER_S, {P(STEP_S)}, 1.0, "samples/s is not batch / step time"},
    {degrees, IMPORT_DEVICES, {0}, 1.0, "tp x pp x cp x dp is not the number of devices"},
    {node_devices, IMPORT_DEVICES, {0}, 1.0, "nodes x devices a node is not the number of devices"},
    {replica_batches,
     IMPORT_GLOBAL_BATCH,
     {0},
     1.0,
     "batch of a replica x dp is not the global batch"},
    {step_tokens, IMPORT_TOKENS_PER_STEP, {0}, 1.0, "batch x sequence is not the tokens of a step"},
    {aggregate,
     IMPORT_PFLOPS,
     {P(TFLOPS_DEVICE)},
     1.0,
     "TFLOP/s of a device x devices is not the aggregate in PFLOP/s"},
    {mfu_of_rate,
     IMPORT_MFU,
     {P(TFLOPS_DEVICE), P(PEAK_TFLOPS)},
     100.0,
     "MFU % is not TFLOP/s of a device / peak"},
    {hfu_of_rate,
     IMPORT_HFU,
     {P(TFLOPS_DEVICE), P(PEAK_TFLOPS)},
     100.0,
     "HFU % is not TFLOP/s of a device / peak"},
    {mfu_of_aggregate,
     IMPORT_MFU,
     {P(PFLOPS), P(PEAK_TFLOPS)},
     100.0,
     "MFU % is not aggregate PFLOP/s / (devices x peak)"},
    {mfu_of_step,
     IMPORT_MFU,
     {P(STEP_S), P(FLOPS_PER_SAMPLE), P(PEAK_TFLOPS)},
     100.0,
     "MFU % is not model FLOPs / (step time x devices x peak)"},
    {hfu_of_step,
     IMPORT_HFU,
     {P(STEP_S), P(PEAK_TFLOPS)},
     100.0,
     "HFU % is not hardware FLOPs / (step time x devices x peak)"},
    {days_of_rate,
     IMPORT_DAYS,
     {P(TOKENS_PER_S), P(STEP_S)},
     1.0,
     "days is not tokens in total / tokens/s"},
    {days_of_flops,
     IMPORT_DAYS,
     {P(TFLOPS_DEVICE)},
     1.0,
     "days is not FLOPs of all tokens / (devices x TFLOP/s of a device)"},
};

/* Beyond the printed digits: of our own arithmetic and constants. */
static const double rounding = 1e-4;

/* Share by which printed digits alone may move the left side. */
static double slack_of(const struct import_row *row, const struct identity *identity)
{
    double slack = 0.0;
    for (int i = 0; i < 5 && identity->parts[i] != 0; i++) {
        int part = identity->parts[i] - 1;
        if (!isnan(row->value[part]))
            slack += row->half[part] / fabs(row->value[part]);
    }
    return slack;
}

static void say_mfu(struct import *import, const struct import_row *row, double left, double right)
{
    double ratio = left / right;
    if (fabs(ratio - 2.0) < 0.03)
        note_row(import, row,
                 "the printed MFU is half of what a dense peak gives: it was taken against the "
                 "2:4-sparse peak");
    else if (fabs(ratio - 0.5) < 0.0075)
        import_note(
            import, row->line,
            "the printed MFU is twice what this peak gives: the peak is the 2:4-sparse one");
}

static int check_identity(struct import *import, const struct import_row *row,
                          const struct identity *identity)
{
    double left = identity->left(row), right = row->value[identity->right];
    double allowed = fabs(left) * (slack_of(row, identity) + rounding) + row->half[identity->right];
    bool counts = identity->left == degrees || identity->left == node_devices ||
                  identity->left == replica_batches;
    if (isnan(left) || isnan(right) || fabs(left - right) <= (counts ? 0.0 : allowed))
        return 0;
    note_row(import, row, "%s: %.6g from its parts, %.6g printed", identity->words,
             identity->scale * left, identity->scale * right);
    if (identity->right == IMPORT_MFU)
        say_mfu(import, row, left, right);
    return 1;
}

static int check_range(struct import *import, const struct import_row *row, int figure,
                       const char *name)
{
    double value = row->value[figure];
    if (!(value > 1.0))
        return 0;
    note_row(import, row,
             "%s of %.4g %% is above 100 %%: another peak or another FLOP "
             "count than its name says",
             name, 100.0 * value);
    return 1;
}

int import_check_row(struct import *import, const struct import_row *row)
{
    int violated = check_range(import, row, IMPORT_MFU, "MFU");
    violated += check_range(import, row, IMPORT_HFU, "HFU");
    if (V(MFU) > V(HFU) + row->half[IMPORT_HFU] + row->half[IMPORT_MFU]) {
        note_row(import, row, "MFU %.4g %% is above HFU %.4g %%, which counts more work",
                 100.0 * V(MFU), 100.0 * V(HFU));
        violated++;
    }
    if (mfu_of_step(row) > 1.0 && isnan(V(MFU))) {
        note_row(import, row, "model FLOPs / (step time x devices x peak) is %.4g %%",
                 100.0 * mfu_of_step(row));
        violated++;
    }
    for (size_t i = 0; i < sizeof identities / sizeof *identities; i++)
        violated += check_identity(import, row, &identities[i]);
    return violated;
}
