#include <math.h>
#include <string.h>

#include "analysis/import_log.h"
#include "base/err.h"

/* What the reader remembers in log->state: facts that make the dense GPT formula wrong. */
enum { STATE_OTHER_MLP, STATE_FP8, STATE_BF16, STATE_FP16, STATE_SEEN };

/* "  hidden_size ............. 4096" */
static int read_argument(struct import_log *log, const char *line)
{
    static const struct {
        const char *name;
        enum import_figure figure;
    } arguments[] = {{"num_layers .", IMPORT_LAYERS},
                     {"hidden_size .", IMPORT_HIDDEN},
                     {"num_attention_heads .", IMPORT_HEADS},
                     {"seq_length .", IMPORT_SEQUENCE},
                     {"micro_batch_size .", IMPORT_MICRO_BATCH},
                     {"padded_vocab_size .", IMPORT_VOCABULARY},
                     {"expert_model_parallel_size .", IMPORT_EP},
                     {"num_experts .", IMPORT_EXPERTS}};
    const char *dots = strstr(line, " ..");
    if (dots == NULL)
        return 0;
    const char *value = dots + 1 + strspn(dots + 1, ".");
    const char *name = line + strspn(line, " ");
    value += strspn(value, " ");
    bool is_true = strncmp(value, "True", 4) == 0, is_none = strncmp(value, "None", 4) == 0;
    if (strncmp(name, "swiglu .", 8) == 0 && is_true)
        log->state[STATE_OTHER_MLP] = 1.0;
    if (strncmp(name, "fp8 .", 5) == 0)
        log->state[STATE_FP8] = !is_none;
    if (strncmp(name, "bf16 .", 6) == 0)
        log->state[STATE_BF16] = is_true;
    if (strncmp(name, "fp16 .", 6) == 0)
        log->state[STATE_FP16] = is_true;
    if (strncmp(name, "recompute_granularity .", 23) == 0)
        snprintf(log->row.word[WORD_RECOMPUTE], IMPORT_WORD, "%.63s", is_none ? "none" : value);
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments && !is_none; i++) {
        double number;
        if (strncmp(name, arguments[i].name, strlen(arguments[i].name)) != 0)
            continue;
        int rc = import_log_number(log, value, arguments[i].name, 0, &number, NULL);
        if (rc != 0)
            return rc;
        import_log_set(log, arguments[i].figure, number);
    }
    return 0;
}

static int read_world(struct import_log *log, const char *line)
{
    static const struct {
        const char *key;
        enum import_figure figure;
    } keys[] = {{"using world size:", IMPORT_DEVICES},
                {", data-parallel size:", IMPORT_DP},
                {", context-parallel size:", IMPORT_CP},
                {", tensor-model-parallel size:", IMPORT_TP},
                {", pipeline-model-parallel size:", IMPORT_PP}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double number;
        int found = import_log_find(log, line, keys[i].key, &number);
        if (found < 0)
            return -found;
        if (found > 0)
            import_log_set(log, keys[i].figure, number);
    }
    return 0;
}

/* While the batch ramps up the work of a step is another one: what came before is left out. */
static void set_batch(struct import_log *log, double batch)
{
    struct import_row *row = &log->row;
    double before = row->value[IMPORT_GLOBAL_BATCH];
    if (!isnan(before) && fabs(before - batch) > 0.0) {
        import_note(log->import, (int)log->lines.number,
                    "the global batch changes from %.0f to %.0f: steps before are left out", before,
                    batch);
        import_row_release(row);
        log->raw_mean = 0.0;
        log->raw_n = 0;
        log->state[STATE_SEEN] = 0.0;
        log->step = -1;
    }
    import_log_set(log, IMPORT_GLOBAL_BATCH, batch);
}

static int read_iteration(struct import_log *log, const char *line, const char *at)
{
    double step, ms, batch, loss, tflops;
    int rc, found;
    TRY(import_log_number(log, at + strlen("iteration"), "iteration", 0, &step, NULL));
    if ((found = import_log_find(log, line, "elapsed time per iteration (ms):", &ms)) <= 0)
        return -found;
    if ((found = import_log_find(log, line, "global batch size:", &batch)) < 0)
        return -found;
    if (found > 0)
        set_batch(log, batch);
    TRY(import_log_step(log, (int64_t)step, ms * 1e-3));
    if (strstr(line, "lm loss: nan") == NULL && strstr(line, "lm loss: NAN") == NULL &&
        import_log_find(log, line, "lm loss:", &loss) == 1)
        log->row.value[IMPORT_LOSS] = loss;
    found = import_log_find(log, line, "throughput per GPU (TFLOP/s/GPU):", &tflops);
    log->state[STATE_SEEN] += 1.0;
    if (found > 0 && tflops > 0.0 &&
        log->state[STATE_SEEN] >
            (double)log->options->warm_up) /* of times, the costs are averaged: harmonic */
        log->raw_mean += 1.0 / tflops, log->raw_n++;
    rc = found < 0 ? -found : 0;
out:
    return rc;
}

static int read_line(struct import_log *log, char *line)
{
    const char *at = strstr(line, "iteration");
    if (strstr(line, "using world size:") != NULL)
        return read_world(log, line);
    if (at != NULL && strstr(at, "elapsed time per iteration (ms):") != NULL)
        return read_iteration(log, line, at);
    return read_argument(log, line);
}

static int finish(struct import_log *log, char *line)
{
    struct import_row *row = &log->row;
    const char *precision = log->state[STATE_FP8] > 0.0    ? "fp8"
                            : log->state[STATE_BF16] > 0.0 ? "bf16"
                            : log->state[STATE_FP16] > 0.0 ? "fp16"
                                                           : "";
    (void)line;
    snprintf(row->word[WORD_PRECISION], IMPORT_WORD, "%s", precision);
    if (log->state[STATE_OTHER_MLP] > 0.0 || row->value[IMPORT_EXPERTS] > 1.0)
        row->value[IMPORT_HIDDEN] = NAN; /* another FLOP count than a dense GPT's */
    if (log->raw_n > 0)
        import_log_set(log, IMPORT_TFLOPS_DEVICE, (double)log->raw_n / log->raw_mean);
    row->half[IMPORT_TFLOPS_DEVICE] = 0.05;
    return 0;
}

int import_megatron(struct import *import, const char *path, const struct import_options *options)
{
    return import_log_read(import, path, options, "elapsed time per iteration (ms): …", read_line,
                           finish);
}
