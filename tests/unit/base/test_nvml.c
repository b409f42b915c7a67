/* What NVML answers arrives in our units, what it does not tell is no error, and a machine without it is
 * refused in one sentence. The library is one of the tests' own. */
#include "base/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "tests/test.h"

static const char bus[] = "0000:1a:00.0";
static unsigned long long *(*setting)(const char *name);

static void test_refusals(void)
{
    struct nvml *nvml;
    CHECK_EQ(nvml_open(&nvml, "/nowhere/libnvidia-ml.so.1", bus), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "telemetry: /nowhere/libnvidia-ml.so.1 cannot be loaded");
    CHECK(nvml == NULL);
    fail_clear();
    CHECK_EQ(nvml_open(&nvml, FAKE_NVML, "0000:ff:00.0"), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "GPU 0000:ff:00.0: Not Found (6)");
    fail_clear();
    *setting("fails_to_start") = 1;
    CHECK_EQ(nvml_open(&nvml, FAKE_NVML, bus), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "does not start");
    fail_clear();
    *setting("fails_to_start") = 0;
    CHECK_EQ(*setting("open"), 0ULL); /* whatever was started was shut down */
    CHECK_EQ(nvml_open(&nvml, "libm.so.6", bus), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "libm.so.6 has no nvmlInit_v2");
    fail_clear();
    nvml_close(NULL);
}

static void test_sample(struct nvml *nvml)
{
    struct nvml_sample sample;
    struct nvml_limits limits;
    nvml_sample(nvml, &sample);
    CHECK_NEAR(sample.sm_mhz, 1755, 0);
    CHECK_NEAR(sample.memory_mhz, 3201, 0);
    CHECK_NEAR(sample.power_w, 612.5, 1e-12);
    CHECK_NEAR(sample.temperature_c, 61, 0);
    CHECK_EQ(sample.reasons, 0);
    nvml_limits(nvml, &limits);
    CHECK_NEAR(limits.sm_mhz, 1980, 0);
    CHECK_NEAR(limits.power_w, 700, 0);
}

static void test_counters(struct nvml *nvml)
{
    struct nvml_counters from, to, d;
    *setting("power_step_ns") = 3000;
    nvml_counters(nvml, 1, &from);
    *setting("ecc_uncorrected") = 2;
    *setting("replays") = 12;
    nvml_counters(nvml, 1, &to);
    nvml_since(&from, &to, &d);
    CHECK_NEAR(d.energy_j, 2.5, 1e-12);
    CHECK_EQ(d.power_limited_ns, 3000);
    CHECK_EQ(d.thermal_limited_ns, 0);
    CHECK_EQ(d.ecc_corrected, 0);
    CHECK_EQ(d.ecc_uncorrected, 2);
    CHECK_EQ(d.nvlink_errors, 5); /* and not the field that was not told */
    nvml_since(&to, &from, &d);   /* a counter that went back says nothing */
    CHECK(isnan(d.energy_j));
    CHECK_EQ(d.power_limited_ns, -1);
    nvml_counters(nvml, 0, &to);
    CHECK_EQ(to.nvlink_errors, -1);
    nvml_since(&from, &to, &d);
    CHECK_EQ(d.ecc_uncorrected, -1);
}

/* Not supported: not told, and never asked again. */
static void test_untold(struct nvml *nvml)
{
    struct nvml_counters c;
    *setting("free_bytes") = 12345678901;
    int64_t total;
    CHECK_EQ(nvml_free_bytes(nvml, &total), 12345678901);
    CHECK_EQ(total, 150000000000);
    *setting("no_memory") = 1;
    CHECK_EQ(nvml_free_bytes(nvml, &total), -1);
    CHECK_EQ(total, -1);
    *setting("no_memory") = 0;
    *setting("no_violation") = *setting("no_energy") = 1;
    nvml_counters(nvml, 0, &c);
    CHECK(isnan(c.energy_j));
    CHECK_EQ(c.power_limited_ns, -1);
    unsigned long long calls = *setting("calls");
    nvml_counters(nvml, 0, &c);
    CHECK_EQ(*setting("calls"), calls);
    CHECK(isnan(c.energy_j));
    *setting("no_violation") = *setting("no_energy") = 0;
}

static void test_reasons(void)
{
    char text[128];
    nvml_reasons_text(0x001 | 0x004 | 0x040, text, sizeof text); /* idle is no reason to warn */
    CHECK(strcmp(text, "power cap, thermal (hardware)") == 0);
    CHECK_EQ(nvml_throttling(0x001 | 0x002), 0);
    CHECK_EQ(nvml_throttling(0x001 | 0x080), 0x080);
    CHECK_EQ(nvml_throttling(-1), 0);
    nvml_reasons_text(-1, text, sizeof text);
    CHECK(text[0] == '\0');
}

int main(void)
{
    struct nvml *nvml = NULL;
    void *library = dlopen(FAKE_NVML, RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "fake_nvml") : NULL;
    CHECK(symbol != NULL);
    if (symbol != NULL) {
        memcpy(&setting, &symbol, sizeof symbol);
        test_refusals();
        CHECK_EQ(nvml_open(&nvml, FAKE_NVML, bus), 0);
        test_sample(nvml);
        test_counters(nvml);
        test_untold(nvml);
        nvml_close(nvml);
        CHECK_EQ(*setting("open"), 0ULL);
        test_reasons();
        dlclose(library);
    }
    return test_end();
}
