/*
 * nvml: what the driver of a GPU says of clocks, power and errors. Read only: no setting is changed.
 *
 * The library (libnvidia-ml.so.1) comes with the driver and is loaded when it is asked for; a build
 * needs nothing of it, and a machine without it answers FAIL_ABSENT with one sentence. What a GPU or
 * a driver does not tell is NAN, or -1 for counters; it is no error, and it is not asked again.
 *
 * A sample is one moment: clocks, power, temperature and the reasons that hold clocks down just then.
 * Counters only grow: two readings give what happened between them, with nothing running meanwhile
 * on the host, which is how blocks of steps are measured without a call inside them. The energy
 * counter is advanced by the driver some ten times a second (a reading is up to that much old), so
 * it belongs to stretches of a second or more, or to many short ones together.
 *
 * Calls take tens of microseconds up to a few milliseconds each and may wait for locks of the
 * driver. A struct nvml may be used by one thread at a time.
 */
#ifndef BASE_NVML_H
#define BASE_NVML_H

#include <stddef.h>
#include <stdint.h>

/* Why clocks are below what was asked for: bits of nvmlClocksEventReasons. X(bit, word, throttles):
 * some are no fault, such as having nothing to do. */
#define NVML_REASONS(X)                                                                            \
    X(0x001, "idle", 0)                                                                            \
    X(0x002, "application clocks", 0)                                                              \
    X(0x004, "power cap", 1)                                                                       \
    X(0x008, "hardware slowdown", 1)                                                               \
    X(0x010, "sync boost", 1)                                                                      \
    X(0x020, "thermal (software)", 1)                                                              \
    X(0x040, "thermal (hardware)", 1)                                                              \
    X(0x080, "power brake", 1)                                                                     \
    X(0x100, "display clocks", 0)

struct nvml_sample {
    double sm_mhz, memory_mhz, power_w, temperature_c; /* NAN: not told */
    int64_t reasons;                                   /* bits of NVML_REASONS; -1: not told */
};

struct nvml_counters { /* -1 (NAN): not told */
    double energy_j;
    int64_t power_limited_ns, thermal_limited_ns; /* clocks held down for that reason */
    int64_t ecc_corrected, ecc_uncorrected;       /* since the driver was loaded ("volatile") */
    int64_t nvlink_errors; /* CRC of flits and data, replays and recoveries, all links */
};

struct nvml_limits { /* NAN: not told */
    double sm_mhz, memory_mhz, power_w;
};

struct nvml;

/*
 * The GPU with a PCI address ("0000:1a:00.0"). `library`: a file, NULL: libnvidia-ml.so.1.
 * FAIL_ABSENT in words: no library, one that does not start, no such GPU. nvml_close(NULL) is fine.
 */
int nvml_open(struct nvml **out, const char *library, const char *bus);
void nvml_close(struct nvml *nvml);

void nvml_sample(struct nvml *nvml, struct nvml_sample *out);
void nvml_limits(struct nvml *nvml, struct nvml_limits *out);

/* Bytes of its memory that nobody holds at this moment, and all of it; -1: not told. Of a part of a GPU (MIG)
 * these are the whole one's. */
int64_t nvml_free_bytes(struct nvml *nvml, int64_t *total);

/* `errors`: also ECC and NVLink counters, which take longer; else those are -1. */
void nvml_counters(struct nvml *nvml, int errors, struct nvml_counters *out);

/* What happened from one reading to a later one. Not told, or a counter that went back: -1 (NAN). */
void nvml_since(const struct nvml_counters *from, const struct nvml_counters *to,
                struct nvml_counters *out);

/* The reasons among `bits` that throttle, as words: "power cap, thermal (hardware)"; "" for none. */
void nvml_reasons_text(int64_t bits, char *text, size_t size);
int64_t nvml_throttling(int64_t bits); /* those bits of it alone; 0 for -1 */

#endif
