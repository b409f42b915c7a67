/* Facts as text: numbers with units, and a topology as YAML. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "topologies/topology.h"

struct unit {
    enum fact_unit kind;
    const char *text;
    double factor;
};

static const struct unit units[] = {
    {UNIT_FLOPS, "FLOP/s", 1},
    {UNIT_FLOPS, "GFLOP/s", 1e9},
    {UNIT_FLOPS, "TFLOP/s", 1e12},
    {UNIT_FLOPS, "PFLOP/s", 1e15},
    {UNIT_RATE, "B/s", 1},
    {UNIT_RATE, "MB/s", 1e6},
    {UNIT_RATE, "GB/s", 1e9},
    {UNIT_RATE, "TB/s", 1e12},
    {UNIT_RATE, "Mbit/s", 1e6 / 8},
    {UNIT_RATE, "Gbit/s", 1e9 / 8},
    {UNIT_BYTES, "B", 1},
    {UNIT_BYTES, "MB", 1e6},
    {UNIT_BYTES, "GB", 1e9},
    {UNIT_BYTES, "TB", 1e12},
    {UNIT_BYTES, "MiB", 1048576.0},
    {UNIT_BYTES, "GiB", 1073741824.0},
    {UNIT_BYTES, "TiB", 1099511627776.0},
    {UNIT_TIME, "ns", 1e-9},
    {UNIT_TIME, "us", 1e-6},
    {UNIT_TIME, "ms", 1e-3},
    {UNIT_TIME, "s", 1},
    {UNIT_SHARE, "%", 0.01},
};

int fact_parse(const char *text, enum fact_unit kind, double *out)
{
    char number[64];
    size_t length = strspn(text, "+-.0123456789eE");
    if (length == 0 || length >= sizeof number)
        return -1;
    memcpy(number, text, length);
    number[length] = '\0';
    const char *unit = text + length + strspn(text + length, " ");
    if (units_parse_real(number, out) != 0 || !(*out > 0.0))
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].kind == kind && strcmp(unit, units[i].text) == 0) {
            *out *= units[i].factor;
            return kind == UNIT_SHARE && *out > 1.0 ? -1 : 0;
        }
    return -1;
}

struct text {
    char *at;
    size_t size, used;
};

static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *format, ...)
{
    va_list list;
    if (t->used >= t->size)
        return;
    va_start(list, format);
    t->used += (size_t)vsnprintf(t->at + t->used, t->size - t->used, format, list);
    va_end(list);
}

static void add_fact(struct text *t, const char *key, enum fact_unit kind, const struct fact *fact)
{
    static const char *const in[] = {
#define UNIT_TEXT(name, text, example) text,
        FACT_UNITS(UNIT_TEXT)
#undef UNIT_TEXT
    };
    char number[40];
    units_format_real(number, sizeof number, kind == UNIT_SHARE ? 100 * fact->value : fact->value);
    add(t, "%s: {value: %s %s, source: %s, from: \"%s\"}", key, number, in[kind],
        fact_source_name(fact->source), fact->from);
}

void topology_text(const struct topology *topology, char *text, size_t size)
{
    static const enum fact_unit unit_of[] = {
#define UNIT_OF(name, key, unit, required, help) unit,
        FACT_LIST(UNIT_OF)
#undef UNIT_OF
    };
    struct text t = {text, size, 0};
    add(&t, "device: \"%s\"\nlevels:\n", topology->device);
    for (int i = 0; i < topology->n_levels; i++) {
        const struct topology_level *level = &topology->level[i];
        add(&t, "  - name: %s\n    ranks: %d\n    ", level->name, level->ranks);
        add_fact(&t, "latency", UNIT_TIME, &level->latency);
        add(&t, "\n    ");
        add_fact(&t, "bandwidth", UNIT_RATE, &level->bandwidth);
        add(&t, "\n");
    }
    for (int i = 0; i < FACTS; i++)
        if (topology->fact[i].source != SOURCE_NONE) {
            add_fact(&t, fact_key(i), unit_of[i], &topology->fact[i]);
            add(&t, "\n");
        }
}
