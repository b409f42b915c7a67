/* What is read beside blocks of steps becomes rows of those blocks, moments are read while a block asks
 * for them and at no other time, and nothing is left running. The library is one of the tests' own. */
#include "driver/telemetry.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "analysis/energy.h"
#include "base/err.h"
#include "base/units.h"
#include "driver/point_watch.h"
#include "tests/test.h"

static unsigned long long *(*setting)(const char *name);

static const struct telemetry_row *row_of(const struct record_point *rows, const char *kind,
                                          int block)
{
    for (int64_t i = 0; i < rows->telemetry.n; i++)
        if (strcmp(rows->telemetry.rows[i].kind, kind) == 0 &&
            rows->telemetry.rows[i].block == block)
            return &rows->telemetry.rows[i];
    return NULL;
}

static int64_t count(const struct record_point *rows, const char *kind)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rows->telemetry.n; i++)
        n += strcmp(rows->telemetry.rows[i].kind, kind) == 0;
    return n;
}

/* Whoever asks for moments has the time that nobody else wants: on a busy machine not in a period. */
static void wait_for_moment(unsigned long long calls, int64_t begin_ns)
{
    units_sleep_ns(3 * TELEMETRY_PERIOD_NS + TELEMETRY_PERIOD_NS / 2);
    while (*setting("calls") == calls && units_now_ns() - begin_ns < 60 * INT64_C(1000000000))
        units_sleep_ns(TELEMETRY_PERIOD_NS / 10);
}

/* Readings of the energy counter move it by 2.5 J: a block is one reading after another. */
static void test_blocks(struct telemetry *t, struct record_point *rows)
{
    *setting("power_step_ns") = 7;
    telemetry_section(t);
    telemetry_block(t, false);
    telemetry_block_end(t, 3, rows);
    *setting("reasons") = 0x4;
    int64_t begin_ns = units_now_ns();
    telemetry_block(t, true);
    wait_for_moment(*setting("calls"), begin_ns);
    telemetry_block_end(t, 4, rows);
    int64_t most = (units_now_ns() - begin_ns) / TELEMETRY_PERIOD_NS + 1;
    telemetry_section_end(t, rows);
    CHECK_EQ(count(rows, "block"), 2);
    CHECK_EQ(count(rows, "section"), 1);
    const struct telemetry_row *block = row_of(rows, "block", 3);
    CHECK(block != NULL && row_of(rows, "moment", 3) == NULL);
    CHECK_NEAR(block->energy_j, 2.5, 1e-12);
    CHECK_EQ(block->power_limited_ns, 7);
    CHECK_EQ(block->ecc_corrected, -1); /* asked of the section alone */
    CHECK(isnan(block->sm_mhz));
    CHECK_EQ(block->rank, 1);
    const struct telemetry_row *moment = row_of(rows, "moment", 4);
    CHECK(moment != NULL);
    CHECK(count(rows, "moment") >= 1 && count(rows, "moment") <= most);
    if (moment != NULL) {
        CHECK_NEAR(moment->sm_mhz, 1755, 0);
        CHECK_NEAR(moment->power_w, 612.5, 1e-12);
        CHECK_EQ(moment->reasons, 0x4);
        CHECK(moment->start_ns > row_of(rows, "block", 4)->start_ns);
        CHECK(isnan(moment->energy_j));
    }
    const struct telemetry_row *section = row_of(rows, "section", 0);
    CHECK_NEAR(section->energy_j, 5 * 2.5, 1e-12); /* five readings after its first */
    CHECK_EQ(section->ecc_corrected, 0);
    CHECK_NEAR(section->sm_mhz, 1980, 0);
    CHECK_NEAR(section->power_w, 700, 0);
}

/* The rows together with the steps of the block are joules of a token. */
static void test_summary(struct record_point *rows)
{
    struct energy e;
    rows->point.ranks = 1;
    for (int64_t i = 0; i < rows->telemetry.n; i++)
        rows->telemetry.rows[i].rank = 0;
    for (int s = 0; s < 5; s++) {
        struct step_row *step = RECORD_ADD(&rows->steps, 1);
        *step = (struct step_row){.block = 3, .step = s, .valid_tokens = 50};
    }
    energy_of_point(&e, rows, 1);
    CHECK_NEAR(e.joules_per_token.value, 0.01, 1e-12);
    CHECK(energy_throttled(&e));
    CHECK_NEAR(e.limit_w, 700, 0);
}

static void test_quiet(struct telemetry *t, struct record_point *rows)
{
    int64_t n = rows->telemetry.n;
    unsigned long long calls = *setting("calls");
    units_sleep_ns(2 * TELEMETRY_PERIOD_NS);
    CHECK_EQ(*setting("calls"), calls); /* between blocks nobody asks */
    telemetry_block(NULL, true);
    telemetry_block_end(NULL, 0, rows);
    telemetry_section(NULL);
    telemetry_section_end(NULL, rows);
    CHECK_EQ(rows->telemetry.n, n);
    telemetry_block(t, true);
    telemetry_close(t); /* within a block: the thread ends all the same */
    CHECK_EQ(*setting("open"), 0ULL);
}

/* A GPU that no library knows: one line of chatter of the whole study, which goes on. */
static int probe_nothing(struct device_unit *units, int max, int *n)
{
    (void)units, (void)max;
    *n = 0;
    return 0;
}

static void test_without(void)
{
    static struct job job;
    static const struct device_type gpu = {.name = "gpu", .probe = probe_nothing};
    struct discover_rank me = {.device_bus = "ffff:ff:00.0"};
    char text[512] = "", *end;
    FILE *kept = stderr, *said = tmpfile();
    job.study.telemetry = true;
    job.backend.device = &gpu;
    job.found.ranks = &me;
    stderr = said;
    CHECK(point_watch_open(&job, 0) == NULL);
    CHECK(point_watch_open(&job, 0) == NULL);
    stderr = kept;
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    fclose(said);
    CHECK_HAS(text, "the study goes on without telemetry\n");
    end = strchr(text, '\n');
    CHECK(end != NULL && end[1] == '\0');
    CHECK(strcmp(fail_message(), "") == 0); /* no failure of the study */
    job.study.telemetry = false;
    job.without_telemetry = false;
    CHECK(point_watch_open(&job, 0) == NULL && !job.without_telemetry);
}

int main(void)
{
    struct telemetry *t = NULL;
    struct record_point rows = {0};
    void *library = dlopen(FAKE_NVML, RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "fake_nvml") : NULL;
    CHECK(symbol != NULL);
    CHECK_EQ(telemetry_open(&t, "/nowhere.so", "0000:1a:00.0", 1), FAIL_ABSENT);
    CHECK(t == NULL);
    fail_clear();
    telemetry_close(NULL);
    test_without();
    if (symbol != NULL) {
        memcpy(&setting, &symbol, sizeof symbol);
        CHECK_EQ(telemetry_open(&t, FAKE_NVML, "0000:1a:00.0", 1), 0);
        test_blocks(t, &rows);
        test_summary(&rows);
        test_quiet(t, &rows);
        dlclose(library);
    }
    record_point_release(&rows);
    return test_end();
}
