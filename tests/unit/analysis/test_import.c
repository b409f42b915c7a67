/* Published tables and logs give the figures that their authors printed, and the errors in them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/curve.h"
#include "analysis/flops.h"
#include "analysis/import.h"
#include "analysis/import_group.h"
#include "analysis/import_names.h"
#include "analysis/import_number.h"
#include "analysis/import_steps.h"
#include "base/err.h"
#include "tests/test.h"

#define GOLDEN TEST_SOURCE_DIR "/golden/"

static int load_as(struct import *import, const char *path, const char *mode, int64_t devices)
{
    struct import_options options = {.map = "", .format = "auto", .devices = devices, .warm_up = 1};
    fail_clear();
    int rc = import_file(import, path, &options);
    return rc != 0 ? rc : import_group(import, mode);
}

static void load(struct import *import, const char *path)
{
    *import = (struct import){0};
    CHECK_EQ(load_as(import, path, "auto", 0), 0);
}

static const struct series *series_called(const struct import *import, const char *name)
{
    for (int i = 0; i < import->set.n_series; i++)
        if (strcmp(import->set.series[i].name, name) == 0)
            return &import->set.series[i];
    printf("no series %s\n", name);
    return NULL;
}

static bool noted(const struct import *import, int line, const char *words)
{
    for (int i = 0; i < import->set.n_notes; i++)
        if (import->set.notes[i].line == line && strstr(import->set.notes[i].text, words) != NULL)
            return true;
    return false;
}

/* Efficiency in percent of the last point. */
static double last_efficiency(const struct series *s)
{
    struct curve_point *curve = curve_of(s, 1);
    double value = 100.0 * curve[s->n_points - 1].efficiency.value;
    free(curve);
    return value;
}

/* V1: the iteration times that follow from the rates; the model grows, and that is said. */
static void test_growing_model(void)
{
    static const double step_s[] = {3.53,  3.70,  3.70,  9.40,  14.45,
                                    16.06, 24.82, 37.61, 54.08, 102.63};
    static const double of_peak[] = {43.9, 44.2, 45.5, 43.3, 44.2, 44.9, 47.4, 49.7, 52.2, 52.2};
    struct import import;
    load(&import, GOLDEN "tables/v1_megatron_sc21_weak.csv");
    CHECK_EQ(import.set.n_series, 1);
    const struct series *s = &import.set.series[0];
    const char *why;
    CHECK_EQ(s->mode, SERIES_WORK);
    CHECK(s->best_layout);
    CHECK(!series_fittable(s, &why));
    CHECK_EQ(s->n_points, 10);
    for (int i = 0; i < 10 && i < s->n_points; i++) {
        const struct series_point *p = &s->points[i];
        struct flops_gpt shape = {(double)p->layers, (double)p->hidden, (double)p->vocabulary,
                                  (double)p->sequence, 1.0};
        CHECK_NEAR(p->step_s.value, step_s[i], 0.006);
        CHECK_NEAR(100.0 * p->hfu, of_peak[i], 0.06);
        CHECK_NEAR(flops_gpt_parameters(&shape) / 1e9, p->parameters / 1e9, 0.1);
    }
    CHECK(noted(&import, 4, "the model grows with N"));
    CHECK(noted(&import, 4, "best-layout"));
    CHECK_EQ(import.set.n_notes, 2);
    struct curve_point *curve = curve_of(s, 1);
    CHECK(isnan(curve[9].speedup.value));
    CHECK(curve[9].efficiency.value > 1.0); /* which is why it must be said */
    free(curve);
    import_release(&import);
}

/* V1b: fixed batch, days for the same tokens. Doubling GPUs may buy nothing. */
static void test_strong(void)
{
    struct import import;
    load(&import, GOLDEN "tables/v1b_megatron_sc21_strong.csv");
    CHECK_EQ(import.set.n_series, 5); /* one row has a batch of its own */
    CHECK_EQ(import.set.n_notes, 0);  /* days, FLOPs and rates agree */
    const struct series *s = series_called(&import, "ZeRO-3 174.6B");
    struct curve_point *curve = curve_of(s, 1);
    CHECK_EQ(s->mode, SERIES_STRONG);
    CHECK_NEAR(curve[1].speedup.value, 1.22, 0.005);
    CHECK_NEAR(100.0 * curve[1].efficiency.value, 60.8, 0.06);
    CHECK_NEAR(100.0 * curve[2].efficiency.value, 30.4, 0.06);
    CHECK_NEAR(curve[2].marginal.value, 0.0, 1e-9);
    CHECK_NEAR(curve[2].ratio.value, 0.5, 1e-9);
    CHECK_NEAR(curve[2].time_to_work, curve[2].efficiency.value, 1e-12);
    CHECK_NEAR(curve[0].hours_to_work, 90.0 * 24.0, 1e-6);
    CHECK(isnan(curve[0].ratio.value) && isnan(curve[1].efficiency.low));
    free(curve);
    s = series_called(&import, "PTD-P 174.6B");
    CHECK_NEAR(last_efficiency(s), 91.3, 0.06);
    s = series_called(&import, "PTD-P 529.6B");
    CHECK_NEAR(last_efficiency(s), 92.9, 0.06);
    CHECK_EQ(import.set.series[3].n_points, 2);
    CHECK_NEAR(last_efficiency(&import.set.series[3]), 48.9, 0.06);
    curve = curve_of(&import.set.series[2], 1); /* the one point of batch 2560 */
    CHECK_EQ(import.set.series[2].n_points, 1);
    CHECK(isnan(curve[0].efficiency.value) && isnan(curve[0].speedup.value));
    free(curve);
    CHECK(import.set.series[0].points[0].exact);
    import_release(&import);
    import = (struct import){0}; /* the changed batch is not strong when strong was asked for */
    CHECK_EQ(load_as(&import, GOLDEN "tables/v1b_megatron_sc21_strong.csv", "strong", 0),
             FAIL_USAGE);
    CHECK_HAS(fail_message(), "global_batch is 2560 at N = 640 and 2240 at N = 1120");
    import_release(&import);
}

/* V2: MFU and HFU from the formulas within 0.2 points. */
static void test_utilisation(void)
{
    static const double mfu[] = {41.5, 51.4, 56.0, 56.3}, hfu[] = {43.7, 52.8, 57.0, 57.0};
    struct import import;
    load(&import, GOLDEN "tables/v2_korthikanti.csv");
    CHECK_EQ(import.set.n_series, 4);
    for (int i = 0; i < 4 && i < import.set.n_series; i++) {
        const struct series_point *p = &import.set.series[i].points[0];
        CHECK_NEAR(100.0 * p->mfu, mfu[i], 0.2);
        CHECK_NEAR(100.0 * p->hfu, hfu[i], 0.2);
        CHECK_NEAR(import.set.series[i].peak_tflops, 312.0, 0.0);
    }
    CHECK_EQ(import.set.n_notes, 0);
    import_release(&import);
    const char *source;
    CHECK_NEAR(flops_peak("NVIDIA H100 80GB HBM3", "bf16", &source), 989.0, 0.0);
    CHECK_NEAR(flops_peak("H100", "FP8", &source), 1979.0, 0.0);
    CHECK_NEAR(flops_peak("TPU v5e", "bf16", &source), 197.0, 0.0);
    CHECK(isnan(flops_peak("A1000", "bf16", &source)) && source[0] == '\0');
}

/* V3: the printed "Scaling" is that of parameters times sequences a step, within 0.3 points. */
static void test_work_normalised(void)
{
    struct import import;
    load(&import, GOLDEN "tables/v3_megatron_2020.csv");
    CHECK_EQ(import.set.n_series, 3);
    for (int i = 0; i < import.set.n_series; i++) {
        const struct series *s = &import.set.series[i];
        struct curve_point *curve = curve_of(s, 1);
        CHECK_EQ(s->mode, SERIES_WORK);
        for (int j = 0; j < s->n_points; j++)
            CHECK_NEAR(100.0 * curve[j].efficiency.value,
                       100.0 * s->points[j].printed[PRINTED_EFFICIENCY], 0.3);
        free(curve);
    }
    import_release(&import);
}

static void test_weak(void)
{
    static const struct {
        const char *name;
        double efficiency;
    } v7[] = {{"16B", 89.4}, {"32B", 90.3}, {"64B", 83.8}, {"128B", 82.5}},
      v8[] = {{"Nemotron4 15B", 97.4}, {"Nemotron4 340B", 95.25},   {"Nemotron4 340B FP8", 90.5},
              {"Llama3.1 70B", 98.45}, {"Llama3.1 70B FP8", 95.2},  {"Llama3.1 8B", 97.1},
              {"Llama3.1 405B", 98.9}, {"MaxText Llama3 70B", 97.9}};
    struct import import;
    load(&import, GOLDEN "tables/v7_maxtext_v5e.csv");
    for (size_t i = 0; i < sizeof v7 / sizeof *v7; i++) {
        const struct series *s = series_called(&import, v7[i].name);
        CHECK_EQ(s->mode, SERIES_WEAK);
        CHECK_EQ(s->rate, SERIES_TFLOPS);
        CHECK_NEAR(last_efficiency(s), v7[i].efficiency, 0.06);
    }
    CHECK_EQ(import.set.n_notes, 0);
    import_release(&import);
    load(&import, GOLDEN "tables/v8_dgxc_h100.csv");
    for (size_t i = 0; i < sizeof v8 / sizeof *v8; i++) {
        const struct series *s = series_called(&import, v8[i].name);
        CHECK_EQ(s->mode, SERIES_WEAK);
        CHECK(!s->best_layout);
        CHECK_NEAR(last_efficiency(s), v8[i].efficiency, 0.06);
        for (int j = 0; j < s->n_points; j++) {
            const struct series_point *p = &s->points[j];
            CHECK_NEAR(100.0 * p->mfu, 100.0 * p->printed[PRINTED_MFU], 0.1);
            CHECK_NEAR(p->rate.value / p->printed[PRINTED_TOKENS_PER_S], 1.0, 0.001);
        }
    }
    CHECK_EQ(import.set.n_notes, 0); /* tokens/s, MFU and days agree in all 43 rows */
    import_release(&import);
}

/* V10: three errors of the first print are shown, and nothing is repaired. */
static void test_printed_errors(void)
{
    struct import import;
    load(&import, GOLDEN "tables/v10_llama3_405b.csv");
    CHECK(noted(&import, 6,
                "tp x pp x cp x dp is not the number of devices: 8192 from its parts, "
                "16384 printed"));
    CHECK(noted(&import, 6, "batch x sequence is not the tokens of a step"));
    CHECK(noted(&import, 5, "MFU % is not TFLOP/s of a device / peak: 40.4"));
    CHECK(!noted(&import, 4, ""));
    CHECK_EQ(import.set.n_notes, 3);
    const struct series *s = series_called(&import, "sequence 8192");
    CHECK_NEAR(last_efficiency(s), 93.0, 0.05);
    s = series_called(&import, "sequence 131072");
    CHECK_EQ(s->points[0].devices, 16384);
    CHECK_EQ(s->points[0].dp, 4);
    import_release(&import);
    import = (struct import){0}; /* fewer layers on fewer GPUs are no scaling series */
    CHECK_EQ(load_as(&import, GOLDEN "tables/v8_proxies.csv", "auto", 0), FAIL_USAGE);
    CHECK_HAS(fail_message(), "layers change with N (7 at N = 32, 42 at N = 192)");
    import_release(&import);
}

/* V9: 4 GiB take 10.15 ms on one node and 22.05 ms on four, 36.52 GB/s an accelerator. */
static void test_collectives(void)
{
    struct import import;
    load(&import, GOLDEN "tables/v9_allreduce_b200.csv");
    CHECK_EQ(import.collectives.n, 2);
    for (int i = 0; i < 2 && i < import.collectives.n; i++) {
        const struct collective_table *t = &import.collectives.tables[i];
        CHECK_EQ(t->ranks, i == 0 ? 8 : 32);
        CHECK_EQ(t->nodes, i == 0 ? 1 : 4);
        CHECK_EQ(t->n_rows, 20);
        CHECK_NEAR(t->rows[17].bytes, 4294967296.0, 0.0);
        CHECK_NEAR(t->rows[17].time_us * 1e-3, i == 0 ? 10.15 : 22.05, 0.005);
    }
    import_release(&import);
    load(&import, GOLDEN "logs/nccl_tests_2xh200_sockets.txt");
    CHECK_EQ(import.collectives.n, 3);
    const struct collective_table *t = &import.collectives.tables[2];
    CHECK(strcmp(t->operation, "alltoall") == 0);
    CHECK_EQ(t->ranks, 2);
    CHECK_EQ(t->n_rows, 7); /* the row of 0 bytes moved nothing */
    CHECK_NEAR(t->rows[6].time_us, 3285.13, 1e-9);
    CHECK_NEAR(t->rows[6].in_place_busbw_GBps, 2.53, 1e-9);
    CHECK_EQ(import.set.n_notes, 0);
    import_release(&import);
    load(&import, GOLDEN "logs/nccl_tests.json");
    t = &import.collectives.tables[0];
    CHECK(strcmp(t->operation, "all_reduce") == 0);
    CHECK_EQ(t->ranks, 2);
    CHECK_EQ(t->nodes, 1);
    CHECK_NEAR(t->rows[2].busbw_GBps, 285.24, 1e-9);
    import_release(&import);
    CHECK_NEAR(collective_busbw_factor("all_reduce", 8), 1.75, 1e-15);
    CHECK_NEAR(collective_busbw_factor("all_gather", 8), 0.875, 1e-15);
    CHECK(isnan(collective_busbw_factor("all_reduce", 1)));
}

static void test_logs(void)
{
    struct import import = {0};
    CHECK_EQ(load_as(&import, GOLDEN "logs/llmc_gpt2_124m_2xh200.txt", "auto", 0), 0);
    const struct series_point *p = &import.set.series[0].points[0];
    CHECK_EQ(p->devices, 2);
    CHECK_EQ(p->global_batch, 128);
    CHECK_EQ(p->launches[0].n, 29);
    CHECK_NEAR(p->step_s.value, 0.144201186, 1e-6); /* as llm.c says in its last line */
    CHECK(p->step_s.low < p->step_s.value && p->step_s.high > p->step_s.value);
    CHECK(!p->exact);
    import_release(&import);
    import = (struct import){0};
    CHECK_EQ(load_as(&import, GOLDEN "logs/megatron_16.log", "auto", 0), 0);
    p = &import.set.series[0].points[0];
    CHECK_EQ(p->devices, 16);
    CHECK_EQ(p->tp, 2);
    CHECK_EQ(p->dp, 4);
    CHECK_NEAR(p->step_s.value, 2.1, 0.021);
    CHECK_NEAR(p->flops_per_step / p->step_s.value / 16e12 / p->printed[PRINTED_TFLOPS_DEVICE], 1.0,
               0.002);
    import_release(&import);
    import = (struct import){0};
    CHECK_EQ(load_as(&import, GOLDEN "logs/torchtitan_8.log", "auto", 0), 0);
    p = &import.set.series[0].points[0];
    CHECK_EQ(p->devices, 8);
    CHECK_EQ(p->dp, 4);
    CHECK_NEAR(p->rate.value / 8.0, 5847.0, 58.0);
    CHECK_NEAR(p->step_s.value, 64.0 * 8192.0 / p->rate.value, 1e-6);
    CHECK_NEAR(p->parameters, 8030261248.0, 0.0);
    import_release(&import);
}

/* The factors of the time to a target multiply to it; runtime goodput is what the steps left. */
static void test_time_to_work(void)
{
    struct import_options options = {.map = "", .format = "auto", .devices = 1024, .warm_up = 1};
    struct import import = {0};
    CHECK_EQ(import_file(&import, GOLDEN "logs/mlperf_1.log", &options), 0);
    options.devices = 2048;
    CHECK_EQ(import_file(&import, GOLDEN "logs/mlperf_2.log", &options), 0);
    CHECK_EQ(import_group(&import, "auto"), 0);
    const struct series *s = &import.set.series[0];
    CHECK_EQ(s->n_points, 2);
    struct curve_point *curve = curve_of(s, 1);
    CHECK_NEAR(curve[1].samples_factor, 0.5, 1e-12);
    CHECK_NEAR(curve[1].time_to_work,
               curve[1].throughput_factor * curve[1].samples_factor * curve[1].goodput_factor,
               1e-12);
    CHECK_NEAR(curve[1].time_to_work,
               s->points[0].time_to_work_s * 1024.0 / (s->points[1].time_to_work_s * 2048.0),
               1e-12);
    CHECK(curve[1].efficiency.low < curve[1].efficiency.value);
    free(curve);
    import_release(&import);
}

/* Marginal and ratio increments of exact and measured points, and a base that is not the first. */
static void test_increments(void)
{
    struct series_set set = {0};
    struct series *s = series_set_add(&set, "made up", "here");
    const double n[] = {1, 2, 4, 8}, rate[] = {100, 180, 300, 330};
    for (int i = 0; i < 4; i++) {
        struct series_point p = series_point_unknown();
        p.n = n[i];
        p.rate = (struct stats_interval){rate[i], 0.99 * rate[i], rate[i] / 0.99, 10};
        p.valid = i != 0;
        series_add(s, &p);
    }
    series_find_base(s);
    CHECK_EQ(s->base, 1);
    struct curve_point *curve = curve_of(s, 1);
    CHECK(isnan(curve[0].efficiency.value) && curve[0].base == -1);
    CHECK_NEAR(curve[1].efficiency.low, 1.0, 0.0);
    CHECK_NEAR(curve[3].efficiency.value, 330.0 / 8.0 / 90.0, 1e-12);
    CHECK_NEAR(curve[3].ratio.value, 330.0 / 300.0 / 2.0, 1e-12);
    CHECK_NEAR(curve[3].marginal.value, 0.1, 1e-12);
    CHECK_NEAR(log(curve[3].efficiency.high / curve[3].efficiency.value), sqrt(2.0) * -log(0.99),
               1e-12);
    CHECK_NEAR((1.0 + curve[3].marginal.low) / 2.0, curve[3].ratio.low, 1e-12);
    free(curve);
    series_set_release(&set);
}

static void test_numbers(void)
{
    static const struct {
        const char *text;
        double value, half;
    } good[] = {{"12.50", 12.5, 0.005},
                {"1.4e3", 1400.0, 50.0},
                {"-7", -7.0, 0.5},
                {".5", 0.5, 0.05},
                {"4.34e14", 4.34e14, 5e11}};
    static const char *const bad[] = {"1,5", "1,500", "nan", "inf",   "0x1F", "12 ms", "1..2",
                                      "--3", "1e",    "5%",  "1e400", "e5",   "1 000"};
    static const char *const absent[] = {"", "-", "n/a", "None", "NULL"};
    struct import_number number;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(import_number(good[i].text, &number) == NULL);
        CHECK_NEAR(number.value, good[i].value, fabs(good[i].value) * 1e-15);
        CHECK_NEAR(number.half, good[i].half, good[i].half * 1e-12);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!CHECK(import_number(bad[i], &number) != NULL))
            printf("%s\n", bad[i]);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        CHECK(import_number(absent[i], &number) == NULL);
        CHECK(isnan(number.value));
    }
    CHECK(import_bytes("4GiB", &number) == NULL && number.value == 4294967296.0);
    CHECK_HAS(import_bytes("4GB", &number), "decimal or binary");
}

static void test_names(void)
{
    static const struct {
        const char *column;
        int figure;
        double scale;
    } names[] = {{"Step time (s)", IMPORT_STEP_S, 1.0},
                 {"step_ms", IMPORT_STEP_S, 1e-3},
                 {"Tokens/s/GPU", IMPORT_TOKENS_PER_S_DEVICE, 1.0},
                 {"MFU %", IMPORT_MFU, 0.01},
                 {"busbw_GBps", IMPORT_BUSBW, 1.0},
                 {"busbw (Gbit/s)", IMPORT_BUSBW, 0.125},
                 {"algbw (GiB/s)", IMPORT_ALGBW, 1.073741824}};
    struct import_name name;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(import_name(names[i].column, &name) == NULL);
        CHECK_EQ(name.target, IMPORT_A_FIGURE);
        CHECK_EQ(name.index, names[i].figure);
        CHECK_NEAR(name.scale, names[i].scale, 1e-12);
    }
    CHECK_HAS(import_name("busbw_gbps", &name), "bits or bytes");
    CHECK(import_name("favourite colour", &name) == NULL && name.target == IMPORT_NOTHING);
}

/* The node shape is part of a series, given either way. */
static void test_shape(void)
{
    static const char *const tables[] = {
        "gpus,nodes,step_s,global_batch\n8,1,1,64\n16,2,0.6,64\n",
        "gpus,gpus_per_node,step_s,global_batch,moe\n8,8,1,64,true\n16,8,0.6,64,true\n"};
    for (int i = 0; i < 2; i++) {
        struct import import;
        char path[64];
        snprintf(path, sizeof path, "shape.%d.csv", i);
        FILE *file = fopen(path, "w");
        CHECK(file != NULL && fputs(tables[i], file) >= 0 && fclose(file) == 0);
        load(&import, path);
        CHECK_EQ(import.set.series[0].devices_per_node, 8);
        CHECK_EQ(import.set.series[0].points[1].nodes, 2);
        CHECK_EQ(import.set.series[0].moe, i == 1);
        import_release(&import);
        remove(path);
    }
}

/* Long logs stay small and keep their mean. */
static void test_bounded_steps(void)
{
    struct import_steps steps = {0};
    double sum = 0.0, kept = 0.0;
    int64_t n = 5 * (int64_t)IMPORT_STEPS;
    for (int64_t i = 0; i < n; i++) {
        double x = 1.0 + 1e-3 * (double)(i % 1000);
        import_steps_add(&steps, x);
        sum += x;
    }
    CHECK(steps.n <= IMPORT_STEPS && steps.room <= IMPORT_STEPS);
    CHECK_EQ(steps.group, 8);
    CHECK_EQ(steps.n * steps.group + steps.filled, n);
    for (int64_t i = 0; i < steps.n; i++)
        kept += steps.x[i];
    CHECK_NEAR(kept * (double)steps.group + steps.sum, sum, 1e-6);
    import_steps_release(&steps);
}

int main(void)
{
    test_growing_model();
    test_strong();
    test_utilisation();
    test_work_normalised();
    test_weak();
    test_printed_errors();
    test_collectives();
    test_logs();
    test_time_to_work();
    test_increments();
    test_numbers();
    test_names();
    test_bounded_steps();
    test_shape();
    return test_end();
}
