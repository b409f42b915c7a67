/* What layers of experts send each other, micro-batch by micro-batch. */
#include "base/err.h"
#include "base/rng.h"
#include "workloads/counts.h"
#include "workloads/expert.h"

/* What member `m` of the expert group routes: whose rows, from where in the global batch. */
static struct shape_route route_of(const struct build *b, int m, int layer, int micro)
{
    const struct expert *x = b->expert;
    const struct layout *here = &b->plan->layout;
    const struct policy *p = b->policy;
    struct layout other = *here;
    struct shape_route r = {.rows = x->rows,
                            .all_rows = b->policy->micro_batch * b->model->sequence,
                            .contexts = b->cp.n,
                            .runs = b->cp.cut.runs,
                            .sequence = b->model->sequence,
                            .parts = x->own_rows ? b->tp : 1,
                            .experts = x->n,
                            .top_k = x->top_k,
                            .kind = p->routing.kind,
                            .threshold = x->layer[layer].threshold,
                            .key = x->layer[layer].key,
                            .balance = p->routing.balance};
    if (m != x->ep_me && layout_init(&other, here->nodes, here->ranks_per_node,
                                     group_rank(&here->group[AXIS_EP], m), &here->degrees) != 0)
        BUG("member %d of an expert group has no layout", m);
    int64_t replica = other.group[AXIS_DP].me;
    r.context = other.group[AXIS_CP].me;
    r.part = x->own_rows ? other.group[AXIS_TP].me : 0;
    r.lead = x->own_rows ? x->rows / p->tp_chunks : b->rows;
    r.counted = x->own_rows || b->tp_me == 0;
    r.capacity = routing_capacity(&p->routing, r.sequence, r.experts, r.top_k);
    r.first_token = (replica * b->plan->micro_batches + micro) * p->micro_batch * r.sequence;
    return r;
}

/*
 * Counts are asked for by every rank of an expert group, and of tp beside it: whoever plans for all
 * ranks of a point, one after another, finds them here. Pure values, and as many as there is room.
 */
enum { KNOWN = 4096 };

static struct {
    uint64_t name; /* of all that the counts depend on; 0: nothing is known */
    int32_t counts[EXPERTS_MOST];
} known[KNOWN];

static uint64_t name_of(const struct shape_route *r)
{
    uint64_t name = r->key | 1;
    const int64_t words[] = {r->rows,  r->all_rows, r->sequence, r->lead,       r->parts,
                             r->part,  r->contexts, r->context,  r->runs,       r->experts,
                             r->top_k, r->kind,     r->capacity, r->first_token};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        name = rng_bits(name, (uint64_t)words[i]);
    for (int e = 0; r->threshold != NULL && e < r->experts; e++)
        name = rng_bits(name, r->threshold[e]);
    return name | 1;
}

static void counts_of(const struct shape_route *r, int64_t *counts)
{
    uint64_t name = name_of(r);
    int at = (int)(name >> 1 & (KNOWN - 1));
    if (known[at].name != name) {
        routing_counts(r, counts);
        for (int e = 0; e < r->experts; e++)
            known[at].counts[e] = (int32_t)counts[e];
        known[at].name = name;
    }
    for (int e = 0; e < r->experts; e++)
        counts[e] = known[at].counts[e];
}

/* Rows that each member sends to each expert, counts[ep][E]. */
static void count_rows(const struct build *b, int layer, int micro, int64_t *counts)
{
    const struct expert *x = b->expert;
    for (int m = 0; m < x->ep; m++) {
        struct shape_route r = route_of(b, m, layer, micro);
        int64_t *to = counts + m * x->n, each = r.capacity * b->policy->micro_batch;
        int64_t run = r.contexts > 1 ? r.sequence / r.contexts / r.runs : r.sequence;
        bool balanced = r.kind == ROUTING_BALANCED && r.parts == 1 &&
                        run * r.top_k % r.experts == 0; /* and nothing is dropped */
        each = each < x->rows ? each : x->rows;
        if (balanced)
            each = x->rows * x->top_k / x->n;
        if (routing_is_dropless(&b->policy->routing))
            counts_even(x->rows * x->top_k, x->n, to);
        else if (r.kind != ROUTING_LEARNED && !balanced)
            counts_of(&r, to);
        else
            for (int e = 0; e < x->n; e++)
                to[e] = each;
    }
}

static int64_t part_rows(const struct expert *x, const int64_t *counts, int from, int to)
{
    int64_t rows = 0;
    for (int e = 0; e < x->local; e++)
        rows += counts[from * x->n + to * x->local + e];
    return rows;
}

/* The largest total of a member, either way; are all parts equal? */
static void measure_parts(const struct expert *x, const int64_t *counts, int64_t width,
                          struct expert_exchange *out)
{
    int64_t first = part_rows(x, counts, 0, 0);
    out->even = true;
    for (int m = 0; m < x->ep; m++) {
        int64_t sent = 0, received = 0;
        for (int other = 0; other < x->ep; other++) {
            sent += part_rows(x, counts, m, other);
            received += part_rows(x, counts, other, m);
            out->even = out->even && part_rows(x, counts, m, other) == first;
        }
        int64_t most = (sent > received ? sent : received) * width;
        out->count = most > out->count ? most : out->count;
    }
    if (out->even)
        out->count = first * width;
}

static void list_blocks(const struct expert *x, const int64_t *counts, struct expert_exchange *out)
{
    for (int m = 0; m < x->ep; m++)
        for (int e = 0; e < x->local; e++) {
            int64_t rows = counts[m * x->n + x->ep_me * x->local + e];
            int last = out->blocks - 1;
            out->received += rows;
            if (last >= 0 &&
                out->which[last] == e) { /* one expert: all ranks' rows are one block */
                out->rows[last] += rows;
                continue;
            }
            out->rows[out->blocks] = rows;
            out->which[out->blocks++] = e;
        }
}

/* What comes is counted in every step: room for the most, and so far what even routing gives. */
static void count_later(struct build *b, struct expert_exchange *out)
{
    const struct expert *x = b->expert;
    out->now = plan_keep(b->plan, sizeof *out->now);
    *out->now = out->received;
    out->received = counts_most(x->rows, x->top_k, x->n, x->ep);
    out->count = out->sent * b->h;
    out->even = false;
}

void expert_take_counts(struct build *b)
{
    struct expert *x = b->expert;
    int micros = b->plan->micro_batches;
    int64_t bytes = x->n * (int64_t)sizeof(int32_t);
    for (int i = 0; i < (int)b->model->layers * micros; i++) {
        struct expert_exchange *e = &x->exchange[i];
        if (e->now == NULL || !pipeline_holds(b, i / micros))
            continue;
        e->counts = plan_take(b->plan, BUFFER_TEMPORARY, bytes);
        e->arrived = x->ep > 1 ? plan_take(b->plan, BUFFER_TEMPORARY, bytes) : e->counts;
    }
}

void expert_make_exchange(struct build *b, int layer, int micro, int64_t *counts)
{
    struct expert *x = b->expert;
    struct expert_exchange *out = &x->exchange[layer * b->plan->micro_batches + micro];
    const int64_t *mine = counts + x->ep_me * x->n;
    size_t ep = (size_t)x->ep, blocks = ep * (size_t)x->local;
    count_rows(b, layer, micro, counts);
    out->first = plan_keep(b->plan, (size_t)x->n * sizeof *out->first);
    out->send = plan_keep(b->plan, 2 * ep * sizeof *out->send);
    out->receive = out->send + ep;
    out->rows = plan_keep(b->plan, blocks * sizeof *out->rows);
    out->which = plan_keep(b->plan, blocks * sizeof *out->which);
    for (int e = 0; e < x->n; e++) {
        out->first[e] = (int32_t)out->sent;
        out->sent += mine[e];
    }
    for (int m = 0; m < x->ep; m++) {
        out->send[m] = part_rows(x, counts, x->ep_me, m) * b->h;
        out->receive[m] = part_rows(x, counts, m, x->ep_me) * b->h;
    }
    measure_parts(x, counts, b->h, out);
    list_blocks(x, counts, out);
    bool exact = b->policy->routing.kind != ROUTING_LEARNED && b->policy->routing.capacity == 0;
    out->rows_valid = exact ? out->received : x->rows * x->top_k;
    if (routing_is_dropless(&b->policy->routing))
        count_later(b, out);
    x->most_sent = out->sent > x->most_sent ? out->sent : x->most_sent;
    x->most_received = out->received > x->most_received ? out->received : x->most_received;
}

struct expert_exchange *expert_exchange_of(const struct build *b)
{
    return &b->expert->exchange[b->layer * b->plan->micro_batches + b->micro];
}

struct shape_route expert_route(const struct build *b)
{
    return route_of(b, b->expert->ep_me, b->layer, b->micro);
}
