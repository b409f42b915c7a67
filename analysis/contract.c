#include "analysis/contract.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/run_record.h"
#include "base/err.h"
#include "base/units.h"

enum { VALUE = 256, KNOWN = 4096 };

const char *contract_kind_name(int kind)
{
    static const char *const names[CONTRACT_KINDS] = {"work",   "layout",  "policy",
                                                      "window", "machine", "software"};
    return names[kind];
}

/* ---- what a point says of itself ---- */

typedef void field_text(const struct record_head *head, const struct point_row *p, char *text);

#define SAYS(name_, format_, ...)                                                                  \
    static void say_##name_(const struct record_head *head, const struct point_row *p, char *text) \
    {                                                                                              \
        (void)head;                                                                                \
        (void)p;                                                                                   \
        snprintf(text, VALUE, format_, __VA_ARGS__);                                               \
    }

static const char *asked(const struct record_head *head, const char *name)
{
    const char *text = record_head_get(head, "study", name);
    return text != NULL ? text : "";
}

SAYS(model, "%.64s", p->model)
SAYS(model_sha256, "%.16s", asked(head, "model_sha256"))
SAYS(parameters, "%" PRId64, p->parameters)
SAYS(gbs, "%" PRId64, p->global_batch)
SAYS(seq, "%" PRId64, p->sequence)
SAYS(precision, "%.16s", p->dtype)
SAYS(padding, "%s", asked(head, "padding"))
SAYS(input, "%.64s", p->input)
SAYS(shape, "%dx%d", p->nodes, p->ranks_per_node)
SAYS(parallelism, "%.32s", p->parallel)
SAYS(order, "%s", asked(head, "order"))
SAYS(mbs, "%" PRId64, p->micro_batch)
SAYS(accumulation, "%" PRId64, p->micro_steps)
SAYS(device, "%.16s", p->device)
SAYS(communicator, "%.16s", p->comm)
SAYS(topology, "%.64s", p->topology)
SAYS(emulated, "%s", p->emulated ? "yes" : "no")
SAYS(oversubscribed, "%s", p->oversubscribed ? "yes" : "no")

static void say_window(const struct record_head *head, const struct point_row *p, char *text)
{
    (void)p;
    run_record_rule(head, text, VALUE);
}

/* A node without its name, and the device of a rank. */
static void say_machine(const struct record_head *head, const struct point_row *p, char *text)
{
    const char *gpu = head->n_ranks > 0 ? head->ranks[0].device : "";
    snprintf(text, VALUE, "unknown");
    for (int64_t i = 0; i < head->n_hosts; i++) {
        const struct host_row *host = &head->hosts[i];
        if (host->launch != p->launch)
            continue;
        snprintf(text, VALUE, "%.64s, %d core%s, %.0f GiB%s%.64s", host->processor, host->cores,
                 units_s(host->cores), (double)host->memory_bytes / 1073741824.0,
                 gpu[0] != '\0' ? ", " : "", gpu);
        return;
    }
}

static const struct {
    const char *name;
    enum contract_kind kind;
    field_text *say;
    bool key; /* equal for all that is ranked together */
} fields[] = {
    {"model", CONTRACT_WORK, say_model, true},
    {"model_sha256", CONTRACT_WORK, say_model_sha256, true},
    {"parameters", CONTRACT_WORK, say_parameters, true},
    {"gbs", CONTRACT_WORK, say_gbs, true},
    {"seq", CONTRACT_WORK, say_seq, true},
    {"precision", CONTRACT_WORK, say_precision, true},
    {"padding", CONTRACT_WORK, say_padding, true},
    {"nodes x ranks", CONTRACT_LAYOUT, say_shape, false},
    {"parallelism", CONTRACT_LAYOUT, say_parallelism, false},
    {"order", CONTRACT_LAYOUT, say_order, false},
    {"mbs", CONTRACT_LAYOUT, say_mbs, false},
    {"accumulation", CONTRACT_LAYOUT, say_accumulation, false},
    {"input", CONTRACT_POLICY, say_input, false},
    {"window", CONTRACT_WINDOW, say_window, false},
    {"device", CONTRACT_MACHINE, say_device, true},
    {"topology", CONTRACT_MACHINE, say_topology, true},
    {"machine", CONTRACT_MACHINE, say_machine, false},
    {"communicator", CONTRACT_MACHINE, say_communicator, false},
    {"emulated", CONTRACT_MACHINE, say_emulated, false},
    {"oversubscribed", CONTRACT_MACHINE, say_oversubscribed, false},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* ---- the list ---- */

static struct contract_field *field_of(struct contract *c, const char *name,
                                       enum contract_kind kind)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->fields[i].name, name) == 0)
            return &c->fields[i];
    if (c->n == c->room) {
        c->room = 2 * c->room + 32;
        c->fields = must_grow(c->fields, (size_t)c->room, sizeof *c->fields);
    }
    struct contract_field *f = &c->fields[c->n++];
    *f = (struct contract_field){.kind = kind};
    snprintf(f->name, sizeof f->name, "%s", name);
    f->values = must_alloc((size_t)c->n_studies, sizeof *f->values);
    for (int i = 0; i < c->n_studies; i++)
        f->values[i] = must_alloc(1, 1);
    return f;
}

static bool holds(const char *list, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = list; (at = strstr(at, value)) != NULL; at += length > 0 ? length : 1) {
        bool begins = at == list || (at >= list + 2 && memcmp(at - 2, ", ", 2) == 0);
        bool ends = at[length] == '\0' || strncmp(at + length, ", ", 2) == 0;
        if (begins && ends)
            return true;
        if (length == 0)
            return list[0] == '\0';
    }
    return false;
}

static void add_value(struct contract_field *f, int study, const char *value)
{
    const char *shown = value[0] != '\0' ? value : "-";
    char *old = f->values[study];
    size_t size = strlen(old) + strlen(shown) + 3;
    if (holds(old, shown) || size > KNOWN)
        return;
    char *joined = must_alloc(size, 1);
    snprintf(joined, size, "%s%s%s", old, old[0] != '\0' ? ", " : "", shown);
    free(old);
    f->values[study] = joined;
}

/* ---- what a study says: every attribute that is not said above or is a launch's own ---- */

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* Not a contract: what was asked of points is in their rows. */
static const char *const said[] = {"layout",        "nodes",
                                   "points",        "parallel",
                                   "order",         "model",
                                   "dtype",         "padding",
                                   "input",         "global-batch",
                                   "micro-batch",   "sequence",
                                   "warm-up",       "block",
                                   "min-steps",     "max-steps",
                                   "settle",        "model_sha256",
                                   "model_text",    "topology_text",
                                   "topology_name", "topology",
                                   "device",        "comm",
                                   "anonymous",     NULL};
static const char *const of_window[] = {"stamps", "graph", "scratch", "check",
                                        "seed",   "base",  NULL};
static const char *const of_machine[] = {"threads", "launcher", "os", "container", NULL};

static bool is_setting(const char *name)
{
    static const char *const prefixes[] = {"env.NCCL_", "env.UCX_", "env.CUDA_", "env.OMPI_MCA_"};
    if (strncmp(name, "env.", 4) != 0)
        return strcmp(name, "argv") != 0;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return strstr(name, "wdir") == NULL && strcmp(name, "env.CUDA_HOME") != 0;
    return false;
}

static void add_attributes(struct contract *c, int study, const struct record_head *head)
{
    for (int64_t i = 0; i < head->n_attributes; i++) {
        const struct record_attribute *a = &head->attributes[i];
        bool of_study = strcmp(a->group, "study") == 0;
        enum contract_kind kind = of_study ? CONTRACT_POLICY : CONTRACT_SOFTWARE;
        if (of_study ? is_one_of(a->name, said)
                     : strcmp(a->group, "provenance") != 0 || !is_setting(a->name))
            continue;
        if (is_one_of(a->name, of_window))
            kind = CONTRACT_WINDOW;
        if (is_one_of(a->name, of_machine))
            kind = CONTRACT_MACHINE;
        add_value(field_of(c, a->name, kind), study, a->text);
    }
}

/* An attribute that only some of the studies have is no difference that anybody asked about: older
 * versions lack it. */
static bool differs(const struct contract *c, const struct contract_field *f)
{
    const char *first = NULL;
    for (int i = 0; i < c->n_studies; i++) {
        const char *value = f->values[i];
        if (value[0] == '\0')
            continue;
        if (strstr(value, ", ") != NULL && f->kind <= CONTRACT_POLICY)
            return true;
        if (first != NULL && strcmp(first, value) != 0)
            return true;
        first = first != NULL ? first : value;
    }
    return false;
}

static int kind_order(const void *left, const void *right)
{
    const struct contract_field *a = left, *b = right;
    return a->kind != b->kind ? (int)a->kind - (int)b->kind : strcmp(a->name, b->name);
}

void contract_init(struct contract *out, const struct report *studies, int n)
{
    char text[VALUE];
    *out = (struct contract){.n_studies = n};
    for (int i = 0; i < n; i++) {
        const struct scaling *s = studies[i].scaling;
        for (int r = 0; r < s->n_runs; r++)
            for (int f = 0; f < N_FIELDS; f++) {
                fields[f].say(&s->runs[r].file->head, &s->runs[r].account.record->point, text);
                add_value(field_of(out, fields[f].name, fields[f].kind), i, text);
            }
        for (int j = 0; j < studies[i].n_files; j++)
            add_attributes(out, i, &studies[i].files[j]->head);
    }
    for (int i = 0; i < out->n; i++)
        out->fields[i].differs = differs(out, &out->fields[i]);
    qsort(out->fields, (size_t)out->n, sizeof *out->fields, kind_order);
}

void contract_release(struct contract *contract)
{
    for (int i = 0; i < contract->n; i++) {
        for (int j = 0; j < contract->n_studies; j++)
            free(contract->fields[i].values[j]);
        free(contract->fields[i].values);
    }
    free(contract->fields);
    *contract = (struct contract){0};
}

int contract_differs(const struct contract *contract, enum contract_kind kind)
{
    int n = 0;
    for (int i = 0; i < contract->n; i++)
        n += contract->fields[i].kind == kind && contract->fields[i].differs;
    return n;
}

bool contract_equal_work(const struct record_head *a_head, const struct point_row *a,
                         const struct record_head *b_head, const struct point_row *b,
                         struct contract_difference *out)
{
    char left[VALUE], right[VALUE];
    for (int f = 0; f < N_FIELDS; f++) {
        if (!fields[f].key)
            continue;
        fields[f].say(a_head, a, left);
        fields[f].say(b_head, b, right);
        if (strcmp(left, right) == 0)
            continue;
        out->field = fields[f].name;
        snprintf(out->left, sizeof out->left, "%.127s", left);
        snprintf(out->right, sizeof out->right, "%.127s", right);
        return false;
    }
    out->field = "devices";
    snprintf(out->left, sizeof out->left, "%d", a->ranks);
    snprintf(out->right, sizeof out->right, "%d", b->ranks);
    return a->ranks == b->ranks;
}
