/*
 * A GPU that does not exist, behind the names of NVML: for machines without one. Its values are what a
 * test sets; counters move by a step with every reading.
 */
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

struct violation {
    unsigned long long reference_us, violation_ns;
};
struct field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, status;
    union {
        double real;
        unsigned narrow;
        unsigned long long wide;
    } value;
};

struct setting {
    const char *name;
    unsigned long long value;
};
static struct setting settings[] = {
    {"sm_mhz", 1755},       {"memory_mhz", 3201},   {"most_mhz", 1980},
    {"power_mw", 612500},   {"limit_mw", 700000},   {"celsius", 61},
    {"reasons", 0},         {"energy_mj", 5000000}, {"energy_step_mj", 2500},
    {"power_ns", 0},        {"power_step_ns", 0},   {"thermal_ns", 0},
    {"thermal_step_ns", 0}, {"ecc_corrected", 4},   {"ecc_uncorrected", 0},
    {"replays", 7},         {"no_violation", 0},    {"no_energy", 0},
    {"calls", 0},           {"fails_to_start", 0},  {"open", 0},
    {"free_bytes", 0},      {"no_memory", 0},
};

SHOWN unsigned long long *fake_nvml(const char *name);
unsigned long long *fake_nvml(const char *name)
{
    for (unsigned i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(settings[i].name, name) == 0)
            return &settings[i].value;
    return NULL;
}

static unsigned long long get(const char *name)
{
    return *fake_nvml(name);
}

#define SETTER(name, ...)                                                                          \
    SHOWN int name(__VA_ARGS__);                                                                   \
    int name(__VA_ARGS__)

SHOWN const char *nvmlErrorString(int status);
const char *nvmlErrorString(int status)
{
    return status == NOT_FOUND ? "Not Found" : status == INVALID ? "Driver Not Loaded" : "Success";
}

SETTER(nvmlInit_v2, void)
{
    *fake_nvml("open") += !get("fails_to_start");
    return get("fails_to_start") ? INVALID : SUCCESS;
}

SETTER(nvmlShutdown, void)
{
    *fake_nvml("open") -= 1;
    return SUCCESS;
}

SETTER(nvmlDeviceGetHandleByPciBusId_v2, const char *bus, void **out)
{
    *out = settings;
    return strcmp(bus, "0000:1a:00.0") == 0 ? SUCCESS : NOT_FOUND;
}

SETTER(nvmlDeviceGetClockInfo, void *gpu, int which, unsigned *mhz)
{
    (void)gpu;
    *fake_nvml("calls") += 1;
    *mhz = (unsigned)get(which == 2 ? "memory_mhz" : "sm_mhz");
    return which == 1 || which == 2 ? SUCCESS : INVALID;
}

SETTER(nvmlDeviceGetMaxClockInfo, void *gpu, int which, unsigned *mhz)
{
    (void)gpu;
    *mhz = (unsigned)get(which == 2 ? "memory_mhz" : "most_mhz");
    return SUCCESS;
}

SETTER(nvmlDeviceGetPowerUsage, void *gpu, unsigned *mw)
{
    (void)gpu;
    *mw = (unsigned)get("power_mw");
    return SUCCESS;
}

SETTER(nvmlDeviceGetEnforcedPowerLimit, void *gpu, unsigned *mw)
{
    (void)gpu;
    *mw = (unsigned)get("limit_mw");
    return SUCCESS;
}

SETTER(nvmlDeviceGetTemperature, void *gpu, int sensor, unsigned *celsius)
{
    (void)gpu;
    *celsius = (unsigned)get("celsius");
    return sensor == 0 ? SUCCESS : INVALID;
}

SETTER(nvmlDeviceGetCurrentClocksThrottleReasons, void *gpu, unsigned long long *bits)
{
    (void)gpu;
    *bits = get("reasons");
    return SUCCESS;
}

SETTER(nvmlDeviceGetMemoryInfo, void *gpu, unsigned long long out[3])
{
    (void)gpu;
    out[0] = out[2] = 150000000000;
    out[1] = get("free_bytes");
    return get("no_memory") ? NOT_SUPPORTED : SUCCESS;
}

SETTER(nvmlDeviceGetTotalEnergyConsumption, void *gpu, unsigned long long *mj)
{
    (void)gpu;
    *fake_nvml("calls") += 1;
    *mj = *fake_nvml("energy_mj") += get("energy_step_mj");
    return get("no_energy") ? NOT_SUPPORTED : SUCCESS;
}

SETTER(nvmlDeviceGetViolationStatus, void *gpu, int policy, struct violation *out)
{
    (void)gpu;
    *fake_nvml("calls") += 1;
    const char *counter = policy == 0 ? "power_ns" : "thermal_ns";
    *fake_nvml(counter) += get(policy == 0 ? "power_step_ns" : "thermal_step_ns");
    *out = (struct violation){1, get(counter)};
    return get("no_violation") ? NOT_SUPPORTED : SUCCESS;
}

SETTER(nvmlDeviceGetTotalEccErrors, void *gpu, int kind, int counter, unsigned long long *out)
{
    (void)gpu;
    *out = get(kind == 1 ? "ecc_uncorrected" : "ecc_corrected");
    return counter == 0 ? SUCCESS : INVALID;
}

/* CRC of data (45) is not told; replays (52) are of a narrow type. */
SETTER(nvmlDeviceGetFieldValues, void *gpu, int n, struct field *fields)
{
    (void)gpu;
    for (int i = 0; i < n; i++) {
        fields[i].status = fields[i].id == 45 ? NOT_SUPPORTED : SUCCESS;
        fields[i].type = fields[i].id == 52 ? 1 : 3;
        fields[i].value.wide = 0;
        if (fields[i].id == 52)
            fields[i].value.narrow = (unsigned)get("replays");
        else if (fields[i].id == 45)
            fields[i].value.wide = 1000;
    }
    return SUCCESS;
}
