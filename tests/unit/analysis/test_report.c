/*
 * Every form of the report says what the rows say, and nothing where nothing is known.
 *
 * `unit_report write KIND PATH` writes a study file of known content instead:
 * tests/cli/test_report.sh reads it through scalereport. Kinds: study, other, again, invalid, parts
 * (not finished), big.
 */
#include "analysis/report.h"

#include <jansson.h>

#include "analysis/report_checkpoints.h"
#include "analysis/report_columns.h"
#include "analysis/report_floors.h"
#include "analysis/report_table.h"
#include "base/err.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

static const char *const normative[] = {"mode",
                                        "nodes",
                                        "ranks",
                                        "tp",
                                        "pp",
                                        "cp",
                                        "ep",
                                        "dp",
                                        "order",
                                        "mbs",
                                        "gbs",
                                        "seq",
                                        "step_ms_p50",
                                        "step_ms_p95",
                                        "step_ms_p99",
                                        "cv_pct",
                                        "ci_lo_ms",
                                        "ci_hi_ms",
                                        "n_iter",
                                        "tokens_per_s",
                                        "tokens_per_s_gpu",
                                        "mfu_pct",
                                        "t_compute_ms",
                                        "t_comm_ms",
                                        "exposed_ms",
                                        "wait_ms",
                                        "slowdown_ms",
                                        "hidden_pct",
                                        "dp_ms",
                                        "tp_ms",
                                        "pp_ms",
                                        "cp_ms",
                                        "ep_ms",
                                        "bubble_ms",
                                        "residual_ms",
                                        "speedup",
                                        "efficiency_pct",
                                        "inc_eff_pct",
                                        "intra_GBps",
                                        "inter_GBps",
                                        "ckpt_bytes",
                                        "ckpt_blocked_ms",
                                        "ckpt_complete_ms",
                                        "ckpt_inflation_ms",
                                        "ckpt_accurate",
                                        "goodput_pct",
                                        "wrong",
                                        "slowest_host",
                                        "status"};
enum { NORMATIVE = sizeof normative / sizeof *normative };

static void make_point(struct record_point *out, int index, int nodes, uint64_t seed)
{
    struct synthetic s = synthetic_default(nodes, 1);
    s.point = index;
    s.seed = seed + (uint64_t)index;
    s.jitter = 0.01;
    s.cycles = 6;
    s.slow_rank = nodes - 1;
    s.slow_factor = 1.03;
    synthetic_point(out, &s);
    out->point.emulated = nodes > 1;
    out->point.oversubscribed = nodes > 2;
}

static void make_invalid(struct record_point *p)
{
    struct gate_row *gate = RECORD_ADD(&p->gate, 1);
    struct event_row *event = RECORD_ADD(&p->events, 1);
    p->point.valid = 0;
    strcpy(p->point.gate, "failed");
    strcpy(p->point.why, "gradient of wte differs by \"3e-3\", allowed 1e-5");
    strcpy(gate->check, "gradient");
    strcpy(gate->subject, "wte");
    event->rank = 1;
    strcpy(event->kind, "warning");
    strcpy(event->text, "rank bound to one core, \"quoted\"");
}

/* A study in memory, as record_read would return it. */
struct study {
    struct record_file file;
    struct scaling scaling;
    const struct record_file *list[1];
    struct report report;
};

static void study_init(struct study *out, bool invalid)
{
    memset(out, 0, sizeof *out);
    strcpy(out->file.path, "study.h5");
    out->file.whole = true;
    synthetic_head(&out->file.head, 4, 1);
    out->file.n_points = 3;
    out->file.points = calloc(3, sizeof *out->file.points);
    for (int i = 0; i < 3; i++)
        make_point(&out->file.points[i], i, 1 << i, 1);
    if (invalid)
        make_invalid(&out->file.points[1]);
    out->list[0] = &out->file;
    CHECK_EQ(scaling_init(&out->scaling, out->list, 1, 1), 0);
    out->report = (struct report){out->list, 1, &out->scaling, 1, NULL, NULL};
}

static void study_release(struct study *study)
{
    scaling_release(&study->scaling);
    for (int i = 0; i < study->file.n_points; i++)
        record_point_release(&study->file.points[i]);
    free(study->file.points);
    record_head_release(&study->file.head);
}

enum form { TEXT, CSV, JSON };

static char *print(const struct study *study, enum form form)
{
    FILE *to = tmpfile();
    if (form == TEXT)
        report_text(to, &study->report);
    else if (form == CSV)
        report_csv(to, &study->report, 1);
    else
        CHECK_EQ(report_json(to, &study->report, 1), 0);
    long size = ftell(to);
    char *text = calloc((size_t)size + 1, 1);
    rewind(to);
    CHECK_EQ(fread(text, 1, (size_t)size, to), size);
    fclose(to);
    return text;
}

static struct report_value value_of(const struct study *study, int row, const char *name)
{
    for (int c = 0; c < report_n_columns(); c++)
        if (strcmp(report_column_name(c), name) == 0)
            return report_value(c, &study->report, &study->scaling.rows[row]);
    CHECK(false);
    return (struct report_value){0};
}

static double real_of(const struct study *study, int row, const char *name)
{
    return value_of(study, row, name).real;
}

static void test_names(void)
{
    for (int i = 0; i < NORMATIVE; i++)
        CHECK(strcmp(report_column_name(i), normative[i]) == 0);
    for (int i = 0; i < report_n_columns(); i++)
        for (int j = 0; j < i; j++)
            CHECK(strcmp(report_column_name(i), report_column_name(j)) != 0);
}

static void test_values(void)
{
    struct study s;
    study_init(&s, false);
    double step = real_of(&s, 2, "step_ms_mean"), first = real_of(&s, 0, "step_ms_mean");
    CHECK_NEAR(real_of(&s, 2, "tokens_per_s"), 1024e3 / step, 1e-6);
    CHECK_NEAR(real_of(&s, 2, "tokens_per_s_gpu"), 256e3 / step, 1e-6);
    CHECK_NEAR(real_of(&s, 2, "samples_per_s"), 16e3 / step, 1e-6);
    CHECK_NEAR(real_of(&s, 2, "speedup"), first / step, 1e-9);
    CHECK_NEAR(real_of(&s, 2, "efficiency_pct"), 25 * first / step, 1e-9);
    CHECK_NEAR(real_of(&s, 2, "base_tokens_per_s"), 1024e3 / first, 1e-6);
    CHECK_NEAR(real_of(&s, 2, "tflops_per_s_gpu"), 1024e6 / (step * 1e-3) / 4 / 1e12, 1e-9);
    CHECK_NEAR(real_of(&s, 2, "mfu_pct"), 100 * 1024e6 / (step * 1e-3) / 4 / 50e9, 1e-9);
    CHECK_NEAR(real_of(&s, 2, "exposed_ms"),
               real_of(&s, 2, "wait_ms") + real_of(&s, 2, "slowdown_ms"), 1e-9);
    CHECK_NEAR(real_of(&s, 2, "hidden_pct"), 100 * (1 - real_of(&s, 2, "exposed_ms") / 4), 1e-6);
    CHECK_NEAR(real_of(&s, 2, "dp_ms"), real_of(&s, 2, "exposed_stall_ms"), 1e-9);
    CHECK_EQ(value_of(&s, 2, "slowest_rank").integer, 3);
    CHECK(strcmp(value_of(&s, 2, "slowest_host").text, "host03") == 0);
    CHECK_EQ(value_of(&s, 2, "process_peak_bytes").integer, 100 << 20);
    CHECK(real_of(&s, 0, "speedup") == 1 && isnan(real_of(&s, 0, "inc_eff_pct")));
    CHECK(isnan(real_of(&s, 0, "exposed_stall_ms")) && isnan(real_of(&s, 0, "hidden_pct")));
    CHECK(isnan(real_of(&s, 2, "goodput_pct")) && isnan(real_of(&s, 2, "tp_ms")));
    CHECK_EQ(value_of(&s, 2, "n_iter").integer, 30);
    CHECK(strcmp(value_of(&s, 2, "status").text, "ok") == 0);
    study_release(&s);
}

/* What adds up in each launch adds up in the row: the bubble of both, not that of the first. */
static void test_means_of_launches(void)
{
    struct study s;
    study_init(&s, false);
    scaling_release(&s.scaling);
    record_point_release(&s.file.points[1]);
    make_point(&s.file.points[1], 2, 4, 1);
    for (int i = 1; i < 3; i++) {
        struct point_row *p = &s.file.points[i].point;
        p->launch = 2 - i;
        p->pp = 2;
        p->replay_ms = 10.0;
        p->bubble_ms = i;
        p->late_most_ms = p->gate_s = i;
    }
    CHECK_EQ(scaling_init(&s.scaling, s.list, 1, 1), 0);
    CHECK_EQ(s.scaling.n_rows, 2);
    CHECK_EQ(value_of(&s, 1, "launches").integer, 2);
    CHECK_NEAR(real_of(&s, 1, "bubble_ms"), 1.5, 1e-12);
    CHECK_NEAR(real_of(&s, 1, "bubble_step_pct"), 15, 1e-12);
    CHECK_NEAR(real_of(&s, 1, "wait_ms"),
               real_of(&s, 1, "exposed_ms") - real_of(&s, 1, "slowdown_ms") - 1.5, 1e-9);
    CHECK_NEAR(real_of(&s, 1, "gate_s"), 1.5, 1e-12);
    CHECK(isnan(real_of(&s, 1, "late_most_ms")) && isnan(real_of(&s, 0, "replay_ms")));
    for (int i = 1; i < 3; i++)
        strcpy(s.file.points[i].point.topology, "node");
    CHECK_NEAR(real_of(&s, 1, "late_most_ms"), 2, 1e-12); /* the worst, not a mean */
    study_release(&s);
}

static void add_save(struct record_point *p, int64_t bytes, int64_t blocked_ns)
{
    struct checkpoint_row *row = RECORD_ADD(&p->checkpoints, 1);
    row->bytes = bytes;
    row->blocked_ns = blocked_ns;
    strcpy(row->kind, "save");
    strcpy(row->mode, "sync");
}

/* Of two launches: an interval is that of their mean, and what saves cost is the mean of both; the text
 * has a row of each. */
static void test_intervals_of_launches(void)
{
    struct study s;
    char *text = NULL;
    size_t size;
    study_init(&s, false);
    scaling_release(&s.scaling);
    record_point_release(&s.file.points[1]);
    make_point(&s.file.points[1], 2, 4, 1);
    s.file.points[1].point.launch = 1;
    add_save(&s.file.points[1], 100, 3000000);
    add_save(&s.file.points[2], 100, 1000000);
    CHECK_EQ(scaling_init(&s.scaling, s.list, 1, 1), 0);
    struct scaling_run *runs = s.scaling.rows[1].runs;
    runs[0].account.aa_ratio = (struct stats_interval){1.02, 1.01, 1.03, 9};
    runs[1].account.aa_ratio = (struct stats_interval){0.98, 0.97, 0.99, 9};
    runs[0].account.disagreement_ns = (struct stats_interval){-1e6, -2e6, 0, 9};
    runs[1].account.disagreement_ns = (struct stats_interval){2e6, 1e6, 4e6, 9};
    CHECK_NEAR(real_of(&s, 1, "aa_ratio"), 1, 1e-12);
    CHECK_NEAR(real_of(&s, 1, "aa_ratio_lo"), 1 - 0.01 / sqrt(2), 1e-9);
    CHECK_NEAR(real_of(&s, 1, "aa_ratio_hi"), 1 + 0.01 / sqrt(2), 1e-9);
    CHECK_NEAR(real_of(&s, 1, "disagreement_ms"), 0.5, 1e-12);
    CHECK_NEAR(real_of(&s, 1, "disagreement_lo_ms"), 0.5 - sqrt(2) / 2, 1e-9);
    CHECK_NEAR(real_of(&s, 1, "disagreement_hi_ms"), 0.5 + sqrt(5) / 2, 1e-9);
    CHECK_NEAR(real_of(&s, 1, "ckpt_blocked_ms"), 2, 1e-12);
    CHECK_NEAR(real_of(&s, 1, "ckpt_bytes"), 100, 1e-12);
    CHECK_EQ(value_of(&s, 1, "ckpt_accurate").integer, 1);
    CHECK_EQ(value_of(&s, 0, "ckpt_accurate").integer, REPORT_UNKNOWN);
    FILE *to = open_memstream(&text, &size);
    report_checkpoints_text(to, &s.report);
    fclose(to);
    CHECK_HAS(text, "launch mode saves");
    CHECK(strstr(text, " 0.0 sync") != NULL && strstr(text, " 0.1 sync") != NULL);
    free(text);
    study_release(&s);
}

/* Floors of two launches are rows of each, as text and JSON. */
static void test_floors_of_launches(void)
{
    struct ceiling_row gemm = {.calls = 1, .n = 3, .flops = 2e9, .time_us = 4, .least_us = 3};
    struct record_head ceilings = {.ceilings = &gemm, .n_ceilings = 1};
    struct study s;
    char *text = NULL;
    size_t size;
    strcpy(gemm.kind, "gemm");
    study_init(&s, false);
    scaling_release(&s.scaling);
    record_point_release(&s.file.points[1]);
    make_point(&s.file.points[1], 2, 4, 1);
    s.file.points[1].point.launch = 1;
    for (int i = 1; i < 3; i++) {
        struct op_row *op = RECORD_ADD(&s.file.points[i].ops, 1);
        op->flops = 2e9;
        op->duration_ns = 1000000 * i;
        strcpy(op->kind, "gemm");
    }
    CHECK_EQ(scaling_init(&s.scaling, s.list, 1, 1), 0);
    s.report.ceilings = &ceilings;
    FILE *to = open_memstream(&text, &size);
    report_floors(to, &s.report);
    fclose(to);
    CHECK_HAS(text, " launch ");
    CHECK(strstr(text, " 0.0 ") != NULL && strstr(text, " 2.000 ") != NULL);
    CHECK(strstr(text, " 0.1 ") != NULL && strstr(text, " 1.000 ") != NULL);
    free(text);
    json_t *study = json_object(), *row;
    report_floors_json(study, &s.report);
    CHECK_EQ(json_array_size(json_object_get(study, "floors")), 4); /* a call each */
    row = json_array_get(json_object_get(study, "floors"), 2);
    CHECK_EQ(json_integer_value(json_object_get(row, "launch")), 1);
    CHECK_NEAR(json_real_value(json_object_get(row, "ms")), 1, 1e-12);
    json_decref(study);
    study_release(&s);
}

static void test_csv(void)
{
    struct study s;
    study_init(&s, true);
    char *text = print(&s, CSV), *line = text;
    int lines = 0;
    for (; *line != '\0'; lines++) {
        int commas = 0, quotes = 0;
        char *end = strchr(line, '\n');
        for (char *c = line; c < end; c++) {
            quotes += *c == '"';
            commas += *c == ',' && quotes % 2 == 0;
        }
        CHECK_EQ(commas, report_n_columns() - 1);
        line = end + 1;
    }
    CHECK_EQ(lines, 4);
    CHECK_EQ(value_of(&s, 0, "wrong").integer, 0);
    CHECK_EQ(value_of(&s, 1, "wrong").integer, 1);
    CHECK(strcmp(value_of(&s, 1, "status").text, "invalid") == 0);
    CHECK_HAS(text, "\"gradient of wte differs by \"\"3e-3\"\", allowed 1e-5\"");
    CHECK(strstr(text, ",nan") == NULL && strstr(text, ",inf") == NULL);
    free(text);
    study_release(&s);
}

static void test_json(void)
{
    struct study s;
    study_init(&s, true);
    char *text = print(&s, JSON);
    json_t *json = json_loads(text, 0, NULL);
    CHECK(json != NULL);
    CHECK_EQ(json_integer_value(json_object_get(json, "schema")), REPORT_SCHEMA);
    json_t *study = json_array_get(json_object_get(json, "studies"), 0);
    json_t *curve = json_object_get(study, "curve"), *runs = json_object_get(study, "runs");
    CHECK_EQ(json_array_size(curve), 3);
    CHECK_EQ(json_array_size(runs), 3);
    CHECK_HAS(json_string_value(json_object_get(study, "proof")), "2x1 1 of 3 gate checks");
    CHECK_HAS(json_string_value(json_object_get(study, "intervals")), "within a launch only");
    for (int c = 0; c < report_n_columns(); c++)
        CHECK(json_object_get(json_array_get(curve, 2), report_column_name(c)) != NULL);
    CHECK(json_is_null(json_object_get(json_array_get(curve, 0), "goodput_pct")));
    CHECK_EQ(json_integer_value(json_object_get(json_array_get(curve, 2), "base_ranks")), 1);
    CHECK(json_is_null(json_object_get(json_array_get(curve, 1), "base_ranks"))); /* invalid */
    CHECK(json_is_false(json_object_get(json_array_get(curve, 1), "valid")));
    CHECK(json_is_true(json_object_get(json_array_get(curve, 2), "emulated")));
    double csv = real_of(&s, 2, "tokens_per_s");
    CHECK_NEAR(json_real_value(json_object_get(json_array_get(curve, 2), "tokens_per_s")), csv, 0);
    json_t *failed = json_object_get(json_array_get(runs, 1), "failed_checks");
    CHECK_EQ(json_array_size(failed), 1);
    json_t *axes = json_object_get(json_array_get(runs, 2), "axes");
    CHECK_EQ(json_array_size(axes), 1);
    json_decref(json);
    free(text);
    study_release(&s);
}

static void test_text(void)
{
    struct study s;
    study_init(&s, true);
    char *text = print(&s, TEXT);
    const char *must[] = {"# EMULATED NODES",
                          "# OVERSUBSCRIBED",
                          "# INVALID",
                          "covers variation within a launch only",
                          "gradient of wte differs",
                          "rank bound to one core",
                          "measured rate",
                          "fp32 GEMM 512x512x512, one rank alone",
                          "3@host03",
                          "# base    of speedup, eff_dev, eff_node: 1x1, 1 device",
                          "tokens/s/dev",
                          "samples/s"};
    for (size_t i = 0; i < sizeof must / sizeof *must; i++)
        CHECK_HAS(text, must[i]);
    CHECK(strstr(text, " nan") == NULL && strstr(text, " inf") == NULL);
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        CHECK(strcspn(line, "\n") <= 140);
    free(text);
    study_release(&s);
}

/* Sets that split otherwise are told apart where they begin; one set needs no word of it. */
static void test_layouts(void)
{
    struct study s;
    study_init(&s, false);
    char *text = print(&s, TEXT);
    CHECK(strstr(text, "# layout") == NULL);
    free(text);
    scaling_release(&s.scaling);
    struct point_row *p = &s.file.points[1].point, *q = &s.file.points[2].point;
    p->tp = p->pp = p->virtual_stages = 2;
    strcpy(p->schedule, "interleaved");
    q->cp = q->shard = 2;
    strcpy(q->cp_kind, "ring");
    CHECK_EQ(scaling_init(&s.scaling, s.list, 1, 1), 0);
    CHECK_EQ(s.scaling.n_sets, 3);
    text = print(&s, TEXT);
    CHECK_HAS(text, "# layout  data parallel\n");
    CHECK_HAS(text, "# layout  tp=2, pp=2 (interleaved), 2 chunks a stage, data parallel\n");
    CHECK_HAS(text, "# layout  cp=2 (ring), data parallel, sharded\n");
    free(text);
    study_release(&s);
}

/* Without a peak there is no MFU, and the report says so. */
static void test_no_peak(void)
{
    struct study s;
    study_init(&s, false);
    for (int i = 0; i < 3; i++)
        s.file.points[i].point.peak_flops_per_rank = 0;
    scaling_release(&s.scaling);
    CHECK_EQ(scaling_init(&s.scaling, s.list, 1, 1), 0);
    CHECK(isnan(real_of(&s, 1, "mfu_pct")) && isnan(real_of(&s, 1, "peak_tflops_per_s_gpu")));
    char *text = print(&s, TEXT);
    CHECK_HAS(text, "no peak was measured");
    free(text);
    study_release(&s);
}

/* What is computed again counts in HFU alone; where the driver counted nothing of it HFU is MFU. */
static void test_hfu(void)
{
    struct study s;
    study_init(&s, false);
    CHECK_NEAR(real_of(&s, 1, "hfu_pct"), real_of(&s, 1, "mfu_pct"), 1e-12);
    char *text = print(&s, TEXT);
    CHECK_HAS(text, "# HFU     is MFU: nothing is computed again");
    CHECK_HAS(text, "TFLOP/s a device, fp32, dense (fp32 GEMM");
    CHECK(strstr(text, "HFU_%") == NULL);
    free(text);
    for (int i = 0; i < 3; i++) {
        struct work_row *again = RECORD_ADD(&s.file.points[i].work, 1);
        strcpy(again->quantity, "hardware FLOPs");
        again->formula = again->plan = again->executed =
            4.0 / 3.0 * s.file.points[i].point.model_flops_per_step;
        again->passed = 1;
    }
    CHECK_NEAR(real_of(&s, 1, "hfu_pct"), 4.0 / 3.0 * real_of(&s, 1, "mfu_pct"), 1e-9);
    text = print(&s, TEXT);
    CHECK_HAS(text, "# HFU     the same peak, with the FLOPs that are computed again");
    CHECK_HAS(text, "MFU_% HFU_%");
    free(text);
    for (int i = 0; i < 3; i++)
        s.file.points[i].work.n = 0; /* no proof, no count */
    CHECK(isnan(real_of(&s, 1, "hfu_pct")));
    study_release(&s);
}

static void test_table(void)
{
    FILE *to = tmpfile();
    struct table t;
    char line[3][64] = {"", "", ""};
    table_open(&t, "a long_name c");
    table_int(&t, 12345);
    table_real(&t, NAN, 2);
    table_text(&t, "");
    table_digits(&t, 1234567.0, 3);
    table_real(&t, -0.0001, 2);
    table_marked(&t, 1.5, 1, "u");
    table_close(&t, to);
    rewind(to);
    for (int i = 0; i < 3; i++)
        CHECK(fgets(line[i], sizeof line[i], to) != NULL);
    CHECK(strcmp(line[0], "#       a long_name    c\n") == 0);
    CHECK(strcmp(line[1], "    12345         -    -\n") == 0);
    CHECK(strcmp(line[2], "  1234567      0.00 1.5u\n") == 0);
    fclose(to);
}

/* ---- the generator ---- */

static int write_points(struct record *record, const char *kind)
{
    bool sets = strcmp(kind, "sets") == 0; /* every point is a curve of its own */
    int rc = 0;
    for (int i = 0; i < (sets ? 10 : 3) && rc == 0; i++) {
        struct record_point point;
        make_point(&point, i, sets ? 1 : 1 << i, strcmp(kind, "again") == 0 ? 100 : 1);
        if (sets)
            snprintf(point.point.input, sizeof point.point.input, "file:%d", i);
        if (i == 1 && strcmp(kind, "invalid") == 0)
            make_invalid(&point);
        rc = record_append(record, &point);
        record_point_release(&point);
    }
    return rc;
}

/* 1,024 ranks x 1,000 steps: what a report has to take in two seconds. */
static int write_big(struct record *record)
{
    struct synthetic s = synthetic_default(128, 8);
    struct record_point point;
    s.cycles = 10;
    s.block = 24;
    s.jitter = 0.01;
    s.global_batch = 1024;
    synthetic_point(&point, &s);
    point.collectives.n = 0; /* the driver keeps one step of a block */
    printf("%lld step rows, %lld stall rows\n", (long long)point.steps.n,
           (long long)point.stalls.n);
    int rc = record_append(record, &point);
    record_point_release(&point);
    return rc;
}

static int write_file(const char *kind, const char *path)
{
    struct record_head head;
    struct record *record = NULL;
    int launch, rc;
    bool big = strcmp(kind, "big") == 0;
    synthetic_head(&head, big ? 128 : 4, big ? 8 : 1);
    if (strcmp(kind, "other") == 0)
        memset(head.study_digest, 'b', 64);
    if (strcmp(kind, "again") == 0)
        head.t0_unix_ns += 1000000000;
    TRY(record_begin(&record, path, &head, false, &launch, NULL, NULL));
    TRY(big ? write_big(record) : write_points(record, kind));
    if (strcmp(kind, "parts") == 0)
        record_abandon(record);
    else
        rc = record_finish(record);
out:
    record_head_release(&head);
    if (rc != 0)
        fprintf(stderr, "%s\n", fail_message());
    return rc;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "write") == 0)
        return write_file(argv[2], argv[3]);
    test_names();
    test_values();
    test_means_of_launches();
    test_intervals_of_launches();
    test_floors_of_launches();
    test_csv();
    test_json();
    test_text();
    test_layouts();
    test_no_peak();
    test_hfu();
    test_table();
    return test_end();
}
