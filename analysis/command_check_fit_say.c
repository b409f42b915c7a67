#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "analysis/command_check_fit.h"
#include "analysis/report_json_cell.h"
#include "analysis/report_table.h"
#include "base/err.h"
#include "base/units.h"
#include "workloads/memory_fit.h"

enum { SCHEMA = 1, ROWS_THAT_FIT = 40, ROWS_THAT_DO_NOT = 25 };
enum { LEVERED = 8 /* layouts whose changes are listed as text */ };

/* ---- text ---- */

/* Sizes of a table are in one unit, by the largest of them: what ranks hold, and what they send. */
struct unit {
    const char *name, *wire_name;
    double bytes, wire_bytes;
};

static struct unit unit_of(const struct memory_fit *fit)
{
    struct unit u;
    double most = 0, wire = 0;
    for (int i = 0; i < fit->n; i++) {
        most = fmax(most, (double)fit->choice[i].bytes);
        wire = fmax(wire, fit->choice[i].wire_bytes);
    }
    u.name = units_decimal(most, &u.bytes);
    u.wire_name = units_decimal(wire, &u.wire_bytes);
    return u;
}

/* Names of columns, with $ for the unit and @ for that of what is sent. */
static void open_table(struct table *t, const struct unit *u, const char *names)
{
    char all[400] = "";
    size_t at = 0;
    for (; *names != '\0' && at + 4 < sizeof all; names++) {
        bool held = *names == '$', sent = *names == '@';
        at += (size_t)snprintf(all + at, sizeof all - at, "%.*s", held || sent ? 2 : 1,
                               held   ? u->name
                               : sent ? u->wire_name
                                      : names);
    }
    table_open(t, all);
}

/* What is there is not printed as nothing. */
static void size_cell(struct table *t, double value, int decimals)
{
    if (value != 0 && fabs(value) < 0.5 * pow(10, -decimals))
        table_digits(t, value, 1);
    else
        table_real(t, value, decimals);
}

static void choice_row(struct table *t, const struct unit *u, const struct memory_choice *c)
{
    bool fits = c->over_bytes <= 0.0;
    table_text(t, c->parallel);
    if (c->shard_stage > 0)
        table_int(t, c->shard_stage);
    else
        table_text(t, "");
    table_text(t, memory_recompute_name((int)c->recompute));
    table_int(t, c->micro_batch);
    for (int class = 0; class < DEVICE_CLASSES; class ++)
        size_cell(t, (double)c->class_bytes[class] / u->bytes, 2);
    size_cell(t, (double)c->bytes / u->bytes, 2);
    size_cell(t, -c->over_bytes / u->bytes, 2);
    table_text(t, fits ? "PASS" : "FAIL");
    table_real(t, c->measured_s * 1e3, 2);
    table_real(t, c->modelled_s * 1e3, 2);
    size_cell(t, c->wire_bytes / u->wire_bytes, 3);
    table_real(t, 100.0 * c->extra_flops, 1);
    table_text(t, fits ? "" : c->most);
}

static void print_choices(const struct fit_answer *answer, const struct unit *u, int n_fit)
{
    struct table t;
    int shown_fit = 0, shown_not = 0;
    open_table(&t, u,
               "parallel stage recompute micro_batch params_$ grads_$ optim_$ act_$ temp_$ comm_$ "
               "rank_$ room_$ memory step_ms modelled_ms wire_@ again_% takes_most");
    for (int i = 0; i < answer->fit->n; i++) {
        const struct memory_choice *c = &answer->fit->choice[i];
        int *shown = c->over_bytes <= 0.0 ? &shown_fit : &shown_not;
        if (++*shown <= (c->over_bytes <= 0.0 ? ROWS_THAT_FIT : ROWS_THAT_DO_NOT))
            choice_row(&t, u, c);
    }
    table_close(&t, stdout);
    int more_fit = n_fit - ROWS_THAT_FIT, more_not = answer->fit->n - n_fit - ROWS_THAT_DO_NOT;
    if (more_fit > 0 || more_not > 0)
        printf("# %d more that fit and %d that do not: --csv lists all\n",
               more_fit > 0 ? more_fit : 0, more_not > 0 ? more_not : 0);
}

static void lever_row(struct table *t, const struct unit *u, const struct memory_lever *l)
{
    table_text(t, l->from->parallel);
    size_cell(t, (double)l->from->bytes / u->bytes, 2);
    size_cell(t, -l->from->over_bytes / u->bytes, 2);
    table_text(t, l->text);
    size_cell(t, (double)l->to->bytes / u->bytes, 2);
    size_cell(t, (double)(l->from->bytes - l->to->bytes) / u->bytes, 2);
    table_text(t, l->to->over_bytes <= 0.0 ? "PASS" : "FAIL");
    table_real(t, l->from->measured_s * 1e3, 2);
    table_real(t, l->to->measured_s * 1e3, 2);
    table_real(t, 100.0 * (l->to->measured_s / l->from->measured_s - 1.0), 1);
    table_real(t, 100.0 * (l->to->modelled_s / l->from->modelled_s - 1.0), 1);
}

/* Of layouts that do not fit the nearest, then those that fit. */
static void print_levers(const struct fit_answer *answer, const struct unit *u)
{
    struct memory_lever levers[MEMORY_LEVERS];
    struct table t;
    int shown = 0;
    printf("#\n# what one change to a layout as asked (%s, micro-batch %lld) buys: bytes, and step "
           "time where measured or modelled\n",
           memory_recompute_name((int)answer->ask->policy.recompute),
           (long long)answer->ask->micro_batch[0]);
    open_table(&t, u,
               "parallel rank_$ room_$ change then_$ saves_$ memory step_ms then_ms time_% "
               "modelled_%");
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < answer->fit->n && shown < LEVERED; i++) {
            const struct memory_choice *base = &answer->fit->choice[i];
            if (!base->is_base || (base->over_bytes <= 0.0) != (pass == 1))
                continue;
            int n = memory_fit_levers(answer->fit, base, levers);
            for (int j = 0; j < n; j++)
                lever_row(&t, u, &levers[j]);
            shown += n > 0;
        }
    table_close(&t, stdout);
}

static int count_fits(const struct memory_fit *fit)
{
    int n = 0;
    for (int i = 0; i < fit->n; i++)
        n += fit->choice[i].over_bytes <= 0.0;
    return n;
}

static void print_text(const struct fit_answer *answer)
{
    int n_fit = count_fits(answer->fit);
    struct unit u = unit_of(answer->fit);
    double has = answer->ask->capacity_bytes, beside = (double)answer->ask->beside_bytes, unit[2];
    const char *name[2] = {units_decimal(has, &unit[0]), units_decimal(beside, &unit[1])};
    printf("# %s on %dx%d, %s, %lld sample%s of %lld token%s a step\n", answer->ask->model->name,
           answer->ask->nodes, answer->ask->ranks_per_node,
           answer->ask->policy.tf32 ? "tf32" : dtype_name((int)answer->ask->policy.dtype),
           (long long)answer->fit->global_batch, units_s((double)answer->fit->global_batch),
           (long long)answer->ask->model->sequence, units_s((double)answer->ask->model->sequence));
    printf("# a device has %.*f %s; %.*f %s of it are kept for context, libraries and "
           "communicators\n",
           unit[0] > 1, has / unit[0], name[0], unit[1] > 1, beside / unit[1], name[1]);
    printf("# %d ways to split the ranks are legal, %d choices with shard stages, recomputation "
           "and micro-batches: %d fit\n",
           answer->fit->n_tuples, answer->fit->n, n_fit);
    if (answer->n_rows > 0)
        printf("# step_ms: %d choice%s %s measured by %d row%s of the study files\n",
               answer->n_measured, answer->n_measured == 1 ? "" : "s",
               answer->n_measured == 1 ? "is" : "are", answer->n_rows,
               answer->n_rows == 1 ? "" : "s");
    if (answer->differs[0] != '\0')
        printf("# step_ms: left out are rows of the same work under another policy: %s\n",
               answer->differs);
    printf("# rank: the rank that holds most; room: what is left, below 0 what is missing; wire: "
           "sent by a rank in a step; again: FLOPs recomputed\n");
    printf("# act: all that passes in a step and shares its bytes (--pack): gradients too where "
           "they are "
           "sharded, or made in one micro-batch\n");
    printf("# order: what fits first, by the time measured, then modelled%s, then less computed "
           "again, then fewer bytes sent; of what does not fit the nearest first\n",
           answer->ask->cost != NULL ? " (the plan replayed on the machine; not with pp)" : "");
    print_choices(answer, &u, n_fit);
    print_levers(answer, &u);
}

/* ---- CSV, JSON: one list of columns ---- */

struct column {
    const char *name;
    struct report_value value;
};
enum { COLUMNS_MOST = 32 };

static void integer(struct column **at, const char *name, int64_t value)
{
    *(*at)++ = (struct column){name, {.kind = REPORT_INTEGER, .integer = value}};
}

static void real(struct column **at, const char *name, double value)
{
    *(*at)++ = (struct column){name, {.kind = REPORT_REAL, .real = value}};
}

static void text(struct column **at, const char *name, const char *value)
{
    *(*at)++ = (struct column){name, {.kind = REPORT_TEXT, .text = value}};
}

static int columns_of(const struct fit_answer *answer, const struct memory_choice *c,
                      struct column *columns)
{
    static const char *const class_names[DEVICE_CLASSES] = {
        "parameters_bytes",  "gradients_bytes",   "optimizer_bytes",
        "activations_bytes", "temporaries_bytes", "communication_bytes"};
    struct column *at = columns;
    text(&at, "parallel", c->parallel);
    integer(&at, "tp", c->degrees.tp);
    integer(&at, "pp", c->degrees.pp);
    integer(&at, "cp", c->degrees.cp);
    integer(&at, "ep", c->degrees.ep);
    integer(&at, "dp", c->degrees.dp);
    integer(&at, "shard", c->degrees.shard);
    integer(&at, "shard_stage", c->shard_stage);
    text(&at, "recompute", memory_recompute_name((int)c->recompute));
    integer(&at, "mbs", c->micro_batch);
    integer(&at, "micro_steps", c->micro_steps);
    integer(&at, "gbs", answer->fit->global_batch);
    integer(&at, "rank", c->rank);
    for (int class = 0; class < DEVICE_CLASSES; class ++)
        integer(&at, class_names[class], c->class_bytes[class]);
    integer(&at, "bytes", c->bytes);
    real(&at, "beside_bytes", (double)answer->ask->beside_bytes);
    real(&at, "capacity_bytes", answer->ask->capacity_bytes);
    real(&at, "over_bytes", c->over_bytes);
    text(&at, "memory", c->over_bytes <= 0.0 ? "PASS" : "FAIL");
    text(&at, "takes_most", c->most);
    real(&at, "step_ms", c->measured_s * 1e3);
    real(&at, "modelled_ms", c->modelled_s * 1e3);
    real(&at, "wire_bytes", c->wire_bytes);
    real(&at, "recomputed_pct", 100.0 * c->extra_flops);
    integer(&at, "as_asked", c->is_base);
    return (int)(at - columns);
}

static void print_csv(const struct fit_answer *answer)
{
    struct column columns[COLUMNS_MOST];
    for (int i = -1; i < answer->fit->n; i++) {
        int n = columns_of(answer, &answer->fit->choice[i < 0 ? 0 : i], columns);
        for (int j = 0; j < n; j++) {
            if (j > 0)
                putchar(',');
            if (i < 0)
                printf("%s", columns[j].name);
            else
                report_csv_value(stdout, columns[j].value);
        }
        putchar('\n');
    }
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *choice_json(const struct fit_answer *answer, const struct memory_choice *c)
{
    struct column columns[COLUMNS_MOST];
    json_t *json = json_object();
    int n = columns_of(answer, c, columns);
    for (int j = 0; j < n; j++)
        json_object_set_new(json, columns[j].name, report_json_cell(columns[j].value));
    return json;
}

static void add_levers(json_t *list, const struct fit_answer *answer,
                       const struct memory_choice *base)
{
    struct memory_lever levers[MEMORY_LEVERS];
    int n = base->is_base ? memory_fit_levers(answer->fit, base, levers) : 0;
    for (int j = 0; j < n; j++) {
        const struct memory_choice *to = levers[j].to;
        json_array_append_new(
            list,
            json_pack("{s:s,s:s,s:I,s:I,s:I,s:b,s:o,s:o}", "parallel", base->parallel, "change",
                      levers[j].text, "bytes", (json_int_t)base->bytes, "then_bytes",
                      (json_int_t)to->bytes, "saves_bytes", (json_int_t)(base->bytes - to->bytes),
                      "fits", to->over_bytes <= 0.0, "step_ms", number(base->measured_s * 1e3),
                      "then_ms", number(to->measured_s * 1e3)));
    }
}

static int print_json(const struct fit_answer *answer)
{
    json_t *choices = json_array(), *levers = json_array();
    for (int i = 0; i < answer->fit->n; i++) {
        json_array_append_new(choices, choice_json(answer, &answer->fit->choice[i]));
        add_levers(levers, answer, &answer->fit->choice[i]);
    }
    json_t *all = json_pack(
        "{s:s,s:i,s:s,s:i,s:i,s:I,s:I,s:i,s:i,s:i,s:s,s:o,s:o}", "program",
        "scalereport check --fit", "schema", (int)SCHEMA, "model", answer->ask->model->name,
        "nodes", answer->ask->nodes, "ranks_per_node", answer->ask->ranks_per_node, "gbs",
        (json_int_t)answer->fit->global_batch, "seq", (json_int_t)answer->ask->model->sequence,
        "legal_splits", answer->fit->n_tuples, "fit", count_fits(answer->fit), "measured",
        answer->n_measured, "left_out", answer->differs, "choices", choices, "changes", levers);
    int bad = json_dumpf(all, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(all);
    return bad ? fail(FAIL_FILE, "check: the JSON form could not be written") : 0;
}

int fit_say(const struct fit_answer *answer)
{
    if (answer->json)
        return print_json(answer);
    if (answer->csv)
        print_csv(answer);
    else
        print_text(answer);
    return 0;
}
