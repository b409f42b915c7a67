#include <math.h>
#include <string.h>

#include <jansson.h>

#include "analysis/import_log.h"
#include "base/err.h"

/* In log->state: times in ms, 0 when there is none, and whether the run missed the target. */
enum { RUN_START_MS, RUN_STOP_MS, RUN_FAILED };

static double number_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL ? text : "";
}

static void read_figure(struct import_log *log, const char *key, const json_t *value)
{
    static const struct {
        const char *key;
        enum import_figure figure;
    } figures[] = {{"global_batch_size", IMPORT_GLOBAL_BATCH},
                   {"max_sequence_length", IMPORT_SEQUENCE},
                   {"number_of_nodes", IMPORT_NODES},
                   {"num_nodes", IMPORT_NODES},
                   {"accelerators_per_node", IMPORT_DEVICES_PER_NODE},
                   {"number_of_ranks", IMPORT_DEVICES},
                   {"world_size", IMPORT_DEVICES}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (strcmp(key, figures[i].key) == 0)
            import_log_set(log, figures[i].figure, floor(number_of(value)));
    if (strcmp(key, "submission_benchmark") == 0)
        snprintf(log->row.word[WORD_MODEL], IMPORT_WORD, "%.63s", text_of(value));
}

/* Samples so far, from the metadata of an evaluation or of the end. */
static void read_samples(struct import_log *log, const json_t *metadata)
{
    double samples = number_of(json_object_get(metadata, "samples_count"));
    if (isnan(samples))
        samples = number_of(json_object_get(metadata, "step"));
    import_log_set(log, IMPORT_SAMPLES_TO_TARGET, samples);
}

static int read_stats(struct import_log *log, const json_t *value, const json_t *metadata)
{
    double seconds = number_of(json_object_get(value, "train_step_time"));
    double samples = number_of(json_object_get(metadata, "step"));
    double rate = number_of(json_object_get(value, "throughput"));
    double batch = log->row.value[IMPORT_GLOBAL_BATCH];
    if (isnan(seconds) && rate > 0.0 && !isnan(batch))
        seconds = batch / rate;
    if (json_object_get(value, "train_step_time") == NULL && isnan(seconds))
        return 0;
    if (isnan(samples))
        samples = (double)(log->step + 1);
    if (!(fabs(samples) < 9e15))
        return fail(FAIL_FILE, "%s:%lld: step %g is no count of samples", log->lines.path,
                    (long long)log->lines.number, samples);
    return import_log_step(log, (int64_t)samples, seconds);
}

static int read_event(struct import_log *log, const json_t *event)
{
    const char *key = text_of(json_object_get(event, "key"));
    const json_t *value = json_object_get(event, "value");
    const json_t *metadata = json_object_get(event, "metadata");
    double time_ms = number_of(json_object_get(event, "time_ms"));
    if (strcmp(key, "tracked_stats") == 0)
        return read_stats(log, value, metadata);
    if (strcmp(key, "run_start") == 0)
        log->state[RUN_START_MS] = time_ms;
    else if (strcmp(key, "run_stop") == 0) {
        const char *status = text_of(json_object_get(metadata, "status"));
        log->state[RUN_STOP_MS] = time_ms;
        log->state[RUN_FAILED] = strcmp(status, "success") != 0;
        if (!isnan(number_of(json_object_get(metadata, "samples_count"))))
            read_samples(log, metadata);
    } else if (strcmp(key, "eval_accuracy") == 0)
        read_samples(log, metadata);
    else
        read_figure(log, key, value);
    return 0;
}

static int read_line(struct import_log *log, char *line)
{
    json_error_t error;
    const char *at = strstr(line, ":::MLLOG");
    if (at == NULL)
        return 0;
    if (log->lines.overlong)
        return 0; /* free text in a value; none of the keys that are read has any */
    json_t *event = json_loads(at + strlen(":::MLLOG"), JSON_DISABLE_EOF_CHECK, &error);
    if (event == NULL)
        return fail(FAIL_FILE, "%s:%lld: the JSON behind :::MLLOG is damaged: %s", log->lines.path,
                    (long long)log->lines.number, error.text);
    int rc = json_is_object(event) ? read_event(log, event) : 0;
    json_decref(event);
    return rc;
}

static int finish(struct import_log *log, char *line)
{
    double start_ms = log->state[RUN_START_MS], stop_ms = log->state[RUN_STOP_MS];
    bool failed = log->state[RUN_FAILED] > 0.0, complete = start_ms > 0.0 && stop_ms > 0.0;
    (void)line;
    if (failed || !complete) {
        import_note(log->import, 0, "%s: no time to the target",
                    failed             ? "the run did not reach it"
                    : !(stop_ms > 0.0) ? "the log has no run_stop"
                                       : "the log has no run_start");
        log->row.value[IMPORT_SAMPLES_TO_TARGET] = NAN;
    } else if (!(stop_ms > start_ms))
        return fail(FAIL_FILE, "%s: run_stop is not after run_start (%g s)", log->lines.path,
                    (stop_ms - start_ms) * 1e-3);
    else
        import_log_set(log, IMPORT_TIME_TO_WORK_S, (stop_ms - start_ms) * 1e-3);
    return 0;
}

int import_mlperf(struct import *import, const char *path, const struct import_options *options)
{
    return import_log_read(import, path, options, "tracked_stats with train_step_time", read_line,
                           finish);
}
