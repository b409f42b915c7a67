#include "analysis/report_energy_steps.h"

#include <math.h>

#include <jansson.h>

#include "analysis/energy.h"
#include "analysis/report_columns.h"
#include "analysis/report_energy.h"
#include "analysis/report_key.h"
#include "analysis/report_table.h"

static bool has_telemetry(const struct scaling_row *row)
{
    return energy_known(row->runs[0].account.record);
}

static void kind_row(struct table *t, const struct energy_step *step, enum energy_kind kind,
                     double limit_w)
{
    table_text(t, energy_kind_name(kind));
    table_int(t, step->joules.n);
    table_digits(t, step->block_ns / 1e9, 3);
    table_digits(t, step->joules.value, 4);
    table_digits(t, step->joules.low, 4);
    table_digits(t, step->joules.high, 4);
    table_digits(t, step->most_joules, 4);
    table_real(t, step->most_rank >= 0 ? step->most_rank : (double)NAN, 0);
    table_real(t, report_ms(step->step_ns), 3);
    table_real(t, step->power_w, 1);
    table_real(t, limit_w, 0);
    table_real(t, 100.0 * step->held_share, 1);
}

static void print_kinds(FILE *to, const struct scaling *s)
{
    struct table t;
    report_key_open(&t, s,
                    "parallel kind blocks block_s J/step low high most rank ms/step watts limit "
                    "power_held_%");
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *row = &s->rows[i];
        struct energy_steps e = report_energy(row).steps;
        for (int k = 0; k < ENERGY_KINDS && has_telemetry(row); k++) {
            if (e.kind[k].joules.n == 0)
                continue;
            report_key_cells(&t, s, row->point);
            table_text(&t, row->point->parallel);
            kind_row(&t, &e.kind[k], (enum energy_kind)k, e.limit_w);
        }
    }
    table_close(&t, to);
}

void report_energy_steps_text(FILE *to, const struct scaling *s)
{
    char shape[REPORT_KEY], text[512], line[600];
    fprintf(to,
            "#\n# energy of a step, by kind of block, a GPU: gain of its counter over all steps "
            "of a block, lead-in included; most: of the\n# GPU that takes most; the counter is "
            "some 0.1 s behind, so blocks (block_s) below a second are known roughly;\n# of "
            "communication: instrumented less compute-only, neighbouring blocks\n");
    print_kinds(to, s);
    for (int i = 0; i < s->n_rows; i++) {
        struct energy_steps e = report_energy(&s->rows[i]).steps;
        if (!energy_steps_sentence(text, sizeof text, &e))
            continue;
        report_key_text(shape, s, s->rows[i].point);
        snprintf(line, sizeof line, "%s: %s", shape, text);
        table_note(to, "# - ", line);
    }
}

double report_energy_efficiency(const struct scaling *s, const struct scaling_row *row)
{
    int base = row->eff_device.base;
    if (base < 0)
        return NAN;
    return report_energy(row).tokens_per_joule / report_energy(&s->rows[base]).tokens_per_joule;
}

/* ---- JSON ---- */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *interval(const struct stats_interval *x)
{
    json_t *json = json_object();
    json_object_set_new(json, "value", real(x->value));
    json_object_set_new(json, "low", real(x->low));
    json_object_set_new(json, "high", real(x->high));
    json_object_set_new(json, "n", json_integer(x->n));
    return json;
}

static json_t *rank_or_null(int32_t rank)
{
    return rank >= 0 ? json_integer(rank) : json_null();
}

static json_t *kind_json(const struct energy_step *step)
{
    json_t *json = json_object();
    json_object_set_new(json, "joules", interval(&step->joules));
    json_object_set_new(json, "most_joules", real(step->most_joules));
    json_object_set_new(json, "most_rank", rank_or_null(step->most_rank));
    json_object_set_new(json, "step_ms", real(report_ms(step->step_ns)));
    json_object_set_new(json, "block_ms", real(report_ms(step->block_ns)));
    json_object_set_new(json, "watts", real(step->power_w));
    json_object_set_new(json, "power_held_pct", real(100.0 * step->held_share));
    return json;
}

void report_energy_steps_json(json_t *run, const struct account *a)
{
    static const char *const kinds[ENERGY_KINDS] = {"full", "instrumented", "compute_only",
                                                    "comm_only", "graph"};
    const struct energy_steps *e = &a->energy.steps;
    if (!energy_known(a->record))
        return;
    json_t *json = json_object();
    for (int k = 0; k < ENERGY_KINDS; k++)
        if (e->kind[k].joules.n > 0)
            json_object_set_new(json, kinds[k], kind_json(&e->kind[k]));
    json_object_set_new(json, "limit_watts", real(e->limit_w));
    json_object_set_new(json, "power_bound_ms", real(report_ms(e->bound_ns)));
    json_object_set_new(json, "power_bound_pct", real(100.0 * e->bound_share));
    json_object_set_new(json, "power_bound_rank", rank_or_null(e->bound_rank));
    json_object_set_new(json, "comm_joules", interval(&e->comm_joules));
    json_object_set_new(json, "comm_ms", real(report_ms(e->comm_ns)));
    json_object_set_new(run, "energy_of_a_step", json);
}
