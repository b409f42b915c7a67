/* Damaged tables and logs are read, or refused in one sentence: never a crash, never a silent NaN. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/import.h"
#include "analysis/import_group.h"
#include "analysis/report_series.h"
#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"

#define GOLDEN TEST_SOURCE_DIR "/golden/"

static const char *const files[] = {
    GOLDEN "tables/v1_megatron_sc21_weak.csv",
    GOLDEN "tables/v1b_megatron_sc21_strong.csv",
    GOLDEN "tables/v3_megatron_2020.csv",
    GOLDEN "tables/v8_dgxc_h100.csv",
    GOLDEN "tables/v9_allreduce_b200.csv",
    GOLDEN "tables/v10_llama3_405b.csv",
    GOLDEN "logs/llmc_gpt2_124m_1xh200.txt",
    GOLDEN "logs/megatron_8.log",
    GOLDEN "logs/torchtitan_8.log",
    GOLDEN "logs/torchtitan_16.log",
    GOLDEN "logs/mlperf_1.log",
    GOLDEN "logs/nccl_tests_2xh200_sockets.txt",
    GOLDEN "logs/nccl_tests.json",
};
enum { N_FILES = sizeof files / sizeof *files, ROOM = 65536 };

static size_t read_whole(const char *path, char *text)
{
    FILE *file = fopen(path, "rb");
    size_t n = file != NULL ? fread(text, 1, ROOM / 2, file) : 0;
    CHECK(n > 0);
    if (file != NULL)
        fclose(file);
    return n;
}

static size_t replace(char *text, size_t n, size_t at, size_t cut, const char *with)
{
    size_t length = strlen(with);
    cut = at + cut > n ? n - at : cut;
    if (n - cut + length >= ROOM)
        return n;
    memmove(text + at + length, text + at + cut, n - at - cut);
    memcpy(text + at, with, length);
    return n - cut + length;
}

/* One change of the kind that hands, editors, disks and killed jobs make. */
static size_t mutate(char *text, size_t n, uint64_t key, uint64_t draw)
{
    static const char *const tokens[] = {
        "nan", "-",   ",", "1e308", "1e999", "0",    "\n",  "\r\n", "\"", "1,5", "|", "-1",
        "\t",  "999", "{", "}",     "[",     "%s%n", ":::", "0x7f", "e",  ".",   " ", "\x1b["};
    size_t at = rng_below(key, 3 * draw, (uint32_t)n);
    uint32_t what = rng_below(key, 3 * draw + 1, 8);
    uint32_t pick = rng_below(key, 3 * draw + 2, 1 << 20);
    const char *token = tokens[pick % (sizeof tokens / sizeof *tokens)];
    switch (what) {
    case 0:
        text[at] = (char)(pick & 0xff);
        return n;
    case 1:
        return replace(text, n, at, 1 + pick % 40, "");
    case 2:
        return at > 0 ? at : 1; /* cut */
    case 3:
        return replace(text, n, at, pick % 6, token);
    default: /* into a number, where it hurts most */
        for (size_t i = 0; i < n; i++) {
            size_t k = (at + i) % n;
            if (text[k] >= '0' && text[k] <= '9')
                return replace(text, n, k, pick % 3, token);
        }
        return n;
    }
}

static bool one_sentence(const char *message)
{
    return message[0] != '\0' && strchr(message, '\n') == NULL;
}

/* What is left in a curve is finite or unknown, rates positive. */
static bool sane(const struct series_set *set)
{
    for (int i = 0; i < set->n_series; i++)
        for (int j = 0; j < set->series[i].n_points; j++) {
            const struct series_point *p = &set->series[i].points[j];
            if (!(p->rate.value > 0.0) || !(p->n >= 1.0) || p->step_s.value <= 0.0)
                return false;
        }
    return true;
}

static void try_file(const char *path, FILE *nowhere, long counts[2])
{
    struct import_options options = {.map = "", .format = "auto", .devices = 8, .warm_up = 1};
    struct import import = {0};
    struct report_series report;
    fail_clear();
    int rc = import_file(&import, path, &options);
    if (rc == 0)
        rc = import_group(&import, "auto");
    CHECK(rc == 0 || rc == FAIL_USAGE || rc == FAIL_WRONG || rc == FAIL_FILE);
    counts[rc != 0]++;
    if (rc != 0) {
        CHECK(one_sentence(fail_message()));
    } else {
        CHECK(sane(&import.set));
        report_series_open(&report, &import.set, &import.collectives);
        report_series_text(nowhere, &report);
        report_series_csv(nowhere, &report);
        CHECK_EQ(report_series_json(nowhere, &report), 0);
        report_series_close(&report);
    }
    import_release(&import);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 25;
    uint64_t key = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    static char original[ROOM], text[ROOM];
    char path[64];
    long counts[2] = {0, 0};
    FILE *nowhere = fopen("/dev/null", "w");
    snprintf(path, sizeof path, "mutation.%d", (int)getpid());
    for (int f = 0; f < N_FILES; f++) {
        size_t size = read_whole(files[f], original);
        for (int i = 0; i < rounds; i++) {
            uint64_t draw = (uint64_t)(f * rounds + i) * 4;
            size_t n = size;
            memcpy(text, original, n);
            for (int k = 0; k <= i % 3; k++)
                n = mutate(text, n, key, draw + (uint64_t)k);
            FILE *file = fopen(path, "wb");
            CHECK(file != NULL && fwrite(text, 1, n, file) == n && fclose(file) == 0);
            try_file(path, nowhere, counts);
        }
    }
    unlink(path);
    fclose(nowhere);
    printf("# %ld read, %ld refused\n", counts[0], counts[1]);
    CHECK(counts[0] > 0 && counts[1] > 0);
    return test_end();
}
