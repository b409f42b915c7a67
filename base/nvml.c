/* NVML by its function names: the few declarations that are needed, after the published interface. */
#include "base/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

typedef void *gpu_handle;

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0, POLICY_POWER = 0, POLICY_THERMAL = 1 };
enum { ECC_CORRECTED = 0, ECC_UNCORRECTED = 1, ECC_VOLATILE = 0 };

struct violation { /* nvmlViolationTime_t */
    unsigned long long reference_us, violation_ns;
};

struct memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};
struct field { /* nvmlFieldValue_t */
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, status;
    union {
        double real;
        unsigned narrow;
        unsigned long plain;
        unsigned long long wide;
        long long whole;
    } value;
};
enum { VALUE_REAL, VALUE_NARROW, VALUE_PLAIN, VALUE_WIDE, VALUE_WHOLE };

/* Totals over all links: CRC of flits, CRC of data, replays, recoveries. */
static const unsigned nvlink_fields[] = {38, 45, 52, 59};
enum { NVLINK_FIELDS = sizeof nvlink_fields / sizeof *nvlink_fields };

/* X(member, name of the library, required, parameters). All return 0 for success. */
#define FUNCTIONS(X)                                                                               \
    X(init, "nvmlInit_v2", true, (void))                                                           \
    X(shutdown, "nvmlShutdown", true, (void))                                                      \
    X(find, "nvmlDeviceGetHandleByPciBusId_v2", true, (const char *bus, gpu_handle *out))          \
    X(clock, "nvmlDeviceGetClockInfo", false, (gpu_handle, int which, unsigned *mhz))              \
    X(most_clock, "nvmlDeviceGetMaxClockInfo", false, (gpu_handle, int which, unsigned *mhz))      \
    X(power, "nvmlDeviceGetPowerUsage", false, (gpu_handle, unsigned *mw))                         \
    X(power_limit, "nvmlDeviceGetEnforcedPowerLimit", false, (gpu_handle, unsigned *mw))           \
    X(temperature, "nvmlDeviceGetTemperature", false, (gpu_handle, int sensor, unsigned *celsius)) \
    X(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons", false,                                 \
      (gpu_handle, unsigned long long *bits))                                                      \
    X(event_reasons, "nvmlDeviceGetCurrentClocksEventReasons", false, /* its name since 2023 */    \
      (gpu_handle, unsigned long long *bits))                                                      \
    X(energy, "nvmlDeviceGetTotalEnergyConsumption", false, (gpu_handle, unsigned long long *mj))  \
    X(violation, "nvmlDeviceGetViolationStatus", false,                                            \
      (gpu_handle, int policy, struct violation *out))                                             \
    X(ecc, "nvmlDeviceGetTotalEccErrors", false,                                                   \
      (gpu_handle, int kind, int counter, unsigned long long *out))                                \
    X(fields, "nvmlDeviceGetFieldValues", false, (gpu_handle, int n, struct field *fields))        \
    X(memory, "nvmlDeviceGetMemoryInfo", false, (gpu_handle, struct memory * out))

struct functions {
#define FUNCTION_MEMBER(member, name, required, parameters) int(*member) parameters;
    FUNCTIONS(FUNCTION_MEMBER)
#undef FUNCTION_MEMBER
    const char *(*error)(int);
};

struct nvml {
    void *library;
    bool started;
    struct functions call;
    gpu_handle gpu;
};

/* ISO C has no cast from a data pointer to a function's; POSIX has dlsym, and means its bytes. */
static bool take(void *library, const char *name, void *function, size_t size)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, size < sizeof symbol ? size : sizeof symbol);
    return symbol != NULL;
}

static int take_functions(struct nvml *nvml, const char *library)
{
#define FUNCTION_TAKE(member, name, required, parameters)                                          \
    if (!take(nvml->library, name, &nvml->call.member, sizeof nvml->call.member) && (required))    \
        return fail(FAIL_ABSENT, "telemetry: %s has no %s", library, name);
    FUNCTIONS(FUNCTION_TAKE)
#undef FUNCTION_TAKE
    take(nvml->library, "nvmlErrorString", &nvml->call.error, sizeof nvml->call.error);
    return 0;
}

static const char *words(const struct nvml *nvml, int status)
{
    return nvml->call.error != NULL ? nvml->call.error(status) : "no words for it";
}

int nvml_open(struct nvml **out, const char *library, const char *bus)
{
    struct nvml *nvml = must_alloc(1, sizeof *nvml);
    int rc = 0, status;

    *out = NULL;
    library = library != NULL ? library : "libnvidia-ml.so.1";
    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL) {
        rc = fail(FAIL_ABSENT, "telemetry: %s cannot be loaded: %s", library, dlerror());
        goto out;
    }
    TRY(take_functions(nvml, library));
    status = nvml->call.init();
    nvml->started = status == 0;
    if (status == 0)
        status = nvml->call.find(bus, &nvml->gpu);
    if (status != 0)
        rc = fail(FAIL_ABSENT, "telemetry: %s: %s %s: %s (%d)", library,
                  nvml->started ? "GPU" : "does not start for GPU", bus, words(nvml, status),
                  status);
out:
    if (rc != 0)
        nvml_close(nvml);
    else
        *out = nvml;
    return rc;
}

void nvml_close(struct nvml *nvml)
{
    if (nvml == NULL)
        return;
    if (nvml->started)
        nvml->call.shutdown();
    if (nvml->library != NULL)
        dlclose(nvml->library);
    free(nvml);
}

/* ---- one value each; what fails once is not asked again ---- */

#define ASK(nvml, member, ...)                                                                     \
    ((nvml)->call.member != NULL &&                                                                \
     ((nvml)->call.member((nvml)->gpu, __VA_ARGS__) == 0 || ((nvml)->call.member = NULL, false)))

static double clock_mhz(struct nvml *nvml, int which)
{
    unsigned mhz = 0;
    return ASK(nvml, clock, which, &mhz) ? (double)mhz : (double)NAN;
}

static int64_t limited_ns(struct nvml *nvml, int policy)
{
    struct violation violation = {0, 0};
    return ASK(nvml, violation, policy, &violation) ? (int64_t)violation.violation_ns : -1;
}

static int64_t ecc_errors(struct nvml *nvml, int kind)
{
    unsigned long long count = 0;
    return ASK(nvml, ecc, kind, ECC_VOLATILE, &count) ? (int64_t)count : -1;
}

static int64_t count_of(const struct field *field)
{
    switch (field->type) {
    case VALUE_REAL:
        return (int64_t)field->value.real;
    case VALUE_NARROW:
        return (int64_t)field->value.narrow;
    case VALUE_PLAIN:
        return (int64_t)field->value.plain;
    default:
        return (int64_t)field->value.wide;
    }
}

static int64_t nvlink_errors(struct nvml *nvml)
{
    struct field fields[NVLINK_FIELDS];
    int64_t sum = -1;

    memset(fields, 0, sizeof fields);
    for (int i = 0; i < NVLINK_FIELDS; i++)
        fields[i].id = nvlink_fields[i];
    if (!ASK(nvml, fields, NVLINK_FIELDS, fields))
        return -1;
    for (int i = 0; i < NVLINK_FIELDS; i++)
        if (fields[i].status == 0)
            sum = (sum < 0 ? 0 : sum) + count_of(&fields[i]);
    return sum;
}

/* ---- readings ---- */

int64_t nvml_free_bytes(struct nvml *nvml, int64_t *total)
{
    struct memory memory;
    bool told = ASK(nvml, memory, &memory);
    *total = told ? (int64_t)memory.total : -1;
    return told ? (int64_t)memory.free : -1;
}

void nvml_sample(struct nvml *nvml, struct nvml_sample *out)
{
    unsigned mw = 0, celsius = 0;
    unsigned long long bits = 0;

    out->sm_mhz = clock_mhz(nvml, CLOCK_SM);
    out->memory_mhz = clock_mhz(nvml, CLOCK_MEMORY);
    out->power_w = ASK(nvml, power, &mw) ? (double)mw / 1e3 : (double)NAN;
    out->temperature_c =
        ASK(nvml, temperature, SENSOR_GPU, &celsius) ? (double)celsius : (double)NAN;
    bool told = ASK(nvml, event_reasons, &bits) || ASK(nvml, reasons, &bits);
    out->reasons = told ? (int64_t)bits : -1;
}

void nvml_limits(struct nvml *nvml, struct nvml_limits *out)
{
    unsigned sm = 0, memory = 0, mw = 0;

    out->sm_mhz = ASK(nvml, most_clock, CLOCK_SM, &sm) ? (double)sm : (double)NAN;
    out->memory_mhz = ASK(nvml, most_clock, CLOCK_MEMORY, &memory) ? (double)memory : (double)NAN;
    out->power_w = ASK(nvml, power_limit, &mw) ? (double)mw / 1e3 : (double)NAN;
}

void nvml_counters(struct nvml *nvml, int errors, struct nvml_counters *out)
{
    unsigned long long mj = 0;

    out->energy_j = ASK(nvml, energy, &mj) ? (double)mj / 1e3 : (double)NAN;
    out->power_limited_ns = limited_ns(nvml, POLICY_POWER);
    out->thermal_limited_ns = limited_ns(nvml, POLICY_THERMAL);
    out->ecc_corrected = errors ? ecc_errors(nvml, ECC_CORRECTED) : -1;
    out->ecc_uncorrected = errors ? ecc_errors(nvml, ECC_UNCORRECTED) : -1;
    out->nvlink_errors = errors ? nvlink_errors(nvml) : -1;
}

static int64_t grown(int64_t from, int64_t to)
{
    return from >= 0 && to >= from ? to - from : -1;
}

void nvml_since(const struct nvml_counters *from, const struct nvml_counters *to,
                struct nvml_counters *out)
{
    double energy = to->energy_j - from->energy_j;

    *out = (struct nvml_counters){
        .energy_j = energy >= 0 ? energy : (double)NAN,
        .power_limited_ns = grown(from->power_limited_ns, to->power_limited_ns),
        .thermal_limited_ns = grown(from->thermal_limited_ns, to->thermal_limited_ns),
        .ecc_corrected = grown(from->ecc_corrected, to->ecc_corrected),
        .ecc_uncorrected = grown(from->ecc_uncorrected, to->ecc_uncorrected),
        .nvlink_errors = grown(from->nvlink_errors, to->nvlink_errors)};
}

/* ---- reasons ---- */

static const struct {
    int64_t bit;
    const char *word;
    bool throttles;
} reasons[] = {
#define REASON_ROW(bit, word, throttles) {bit, word, throttles},
    NVML_REASONS(REASON_ROW)
#undef REASON_ROW
};
enum { N_REASONS = sizeof reasons / sizeof *reasons };

int64_t nvml_throttling(int64_t bits)
{
    int64_t out = 0;

    for (int i = 0; i < N_REASONS && bits > 0; i++)
        out |= reasons[i].throttles ? bits & reasons[i].bit : 0;
    return out;
}

void nvml_reasons_text(int64_t bits, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    bits = nvml_throttling(bits);
    for (int i = 0; i < N_REASONS && used < size; i++)
        if (bits & reasons[i].bit)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     reasons[i].word);
}
