#include "workloads/build.h"

#include "base/err.h"

static const struct tensor no_tensor;

static int key_of(const struct build *b, const struct schedule_slot *slot)
{
    return slot->micro * b->pipe.schedule.chunks + slot->chunk;
}

/* ---- what is at work ---- */

bool pipeline_embeds(const struct build *b)
{
    return b->pipe.first && b->pipe.chunk == 0;
}

bool pipeline_has_head(const struct build *b)
{
    return b->pipe.last && b->pipe.chunk == b->pipe.schedule.chunks - 1;
}

bool pipeline_takes_batch(const struct build *b)
{
    return pipeline_embeds(b) || (pipeline_has_head(b) && !b->pipe.first);
}

bool pipeline_delays(const struct build *b)
{
    bool again =
        b->policy->recompute != RECOMPUTE_NONE && b->layer % b->policy->recompute_every == 0;
    return b->pipe.delays && b->layer >= 0 && !again;
}

static int place_of(const struct build *b, enum pipeline_place place, int key)
{
    return b->pipe.held[place][key];
}

/* Point what layers and the head use to the memory of a slot. */
static void enter(struct build *b, const struct schedule_slot *slot)
{
    struct build_pipeline *p = &b->pipe;
    int key = key_of(b, slot), layers, at = place_of(b, PLACE_LAYERS, key);
    b->micro = slot->micro;
    b->first_micro = slot->micro == 0;
    b->last_micro = slot->micro == p->schedule.micro_batches - 1;
    p->chunk = slot->chunk;
    pipeline_layers(b, slot->chunk, &p->layer_first, &p->layer_end);
    layers = p->layer_end - p->layer_first;
    for (int i = 0; i < layers; i++) {
        b->act[p->layer_first + i] = p->layers[(ptrdiff_t)at * p->most_layers + i];
        expert_enter_layer(b, p->layer_first + i, at);
    }
    b->act[p->layer_first].x = p->input[place_of(b, PLACE_INPUT, key)];
    if (slot->part == PART_BACKWARD)
        b->dx = p->gradients[place_of(b, PLACE_GRADIENTS, key)];
    if (pipeline_has_head(b)) {
        const struct head_activations *head = &p->head[place_of(b, PLACE_HEAD, key)];
        b->x_out = head->x_out;
        b->ln_f = head->ln_f;
        b->mean_f = head->mean_f;
        b->rstd_f = head->rstd_f;
        b->logits = head->logits;
    }
}

/* Places that a slot has used are read until here. */
static void leave(struct build *b, const struct schedule_slot *slot)
{
    struct build_pipeline *p = &b->pipe;
    int key = key_of(b, slot);
    p->reader[PLACE_INPUT][place_of(b, PLACE_INPUT, key)] = b->last;
    if (slot->part == PART_BACKWARD)
        p->reader[PLACE_GRADIENTS][place_of(b, PLACE_GRADIENTS, key)] = b->last;
}

/* ---- transfers ---- */

/* The layer before which the model is cut where a transfer goes over: both ends name the same one. */
static int boundary(const struct build *b, const struct schedule_item *item)
{
    int first, end;
    pipeline_layers(b, item->slot.chunk, &first, &end);
    return (item->act == ACT_SEND) == (item->direction == SCHEDULE_DOWN) ? end : first;
}

/* A call that moves what a slot made or will use. Without overlap what computes next waits for what was
 * sent; receives stay posted ahead, so that nobody waits for more than that. */
static int transfer(struct build *b, const struct schedule_item *item, struct tensor at, int after)
{
    bool sends = item->act == ACT_SEND;
    struct build_call call = {.kind = sends ? COLL_SEND : COLL_RECV,
                              .axis = AXIS_PP,
                              .direction = item->direction,
                              .dtype = b->plan->dtype,
                              .count = b->local_rows * b->h,
                              .peer = item->peer,
                              .phase =
                                  item->direction == SCHEDULE_DOWN ? PHASE_FORWARD : PHASE_BACKWARD,
                              .send = sends ? at : no_tensor,
                              .receive = sends ? no_tensor : at};
    b->micro = item->slot.micro;
    b->layer = -1;
    int op = build_collective(b, &call, after);
    b->plan->ops[op].with_next = item->with_next && b->policy->overlap_pipeline;
    b->plan->ops[op].layer = boundary(b, item);
    if (sends && !b->policy->overlap_pipeline)
        build_await(b, op);
    return op;
}

static void receive(struct build *b, const struct schedule_item *item)
{
    struct build_pipeline *p = &b->pipe;
    bool down = item->direction == SCHEDULE_DOWN;
    int key = key_of(b, &item->slot);
    int place = place_of(b, down ? PLACE_INPUT : PLACE_GRADIENTS, key);
    struct tensor at = (down ? p->input : p->gradients)[place];
    int after = p->reader[down ? PLACE_INPUT : PLACE_GRADIENTS][place];
    p->received[item->direction][key] = transfer(b, item, at, after);
}

static void send(struct build *b, const struct schedule_item *item)
{
    struct build_pipeline *p = &b->pipe;
    if (item->direction == SCHEDULE_DOWN) {
        int output = p->next_output++ % PIPELINE_OUTPUTS;
        p->sent[output] = transfer(b, item, p->output[output], b->last);
        return;
    }
    int place = place_of(b, PLACE_GRADIENTS, key_of(b, &item->slot));
    p->sender[place] = p->last_up = transfer(b, item, p->gradients[place], b->last);
}

/* The chunk's output, x_2 + narrow of its last layer, for the next stage. */
void pipeline_output(struct build *b)
{
    struct build_pipeline *p = &b->pipe;
    int output = p->next_output % PIPELINE_OUTPUTS;
    build_await(b, p->sent[output]);
    build_vector_op(b, OP_ADD, b->narrow, b->act[p->layer_end - 1].x_2, p->output[output],
                    b->local_rows * b->h);
}

/* ---- the step ---- */

static void begin(struct build *b)
{
    struct build_pipeline *p = &b->pipe;
    int all = p->schedule.micro_batches * p->schedule.chunks;
    for (int place = 0; place < PLACES; place++)
        for (int i = 0; i < p->n[place]; i++)
            p->reader[place][i] = b->last;
    for (int i = 0; i < p->n[PLACE_GRADIENTS]; i++)
        p->sender[i] = -1;
    for (int i = 0; i < all; i++)
        p->received[SCHEDULE_DOWN][i] = p->received[SCHEDULE_UP][i] = -1;
    for (int i = 0; i < PIPELINE_OUTPUTS; i++)
        p->sent[i] = -1;
    p->last_up = -1;
}

static void compute(struct build *b, const struct schedule_slot *slot)
{
    struct build_pipeline *p = &b->pipe;
    int key = key_of(b, slot);
    enter(b, slot);
    bool completes = slot->part == (p->delays ? PART_WEIGHTS : PART_BACKWARD);
    b->hand_over = completes && b->split->hand_over(b);
    p->arrived = slot->part == PART_BACKWARD ? p->received[SCHEDULE_UP][key] : -1;
    if (slot->part == PART_FORWARD) {
        build_await(b, p->received[SCHEDULE_DOWN][key]);
        build_forward(b);
    } else if (slot->part == PART_BACKWARD) {
        build_await(b, p->arrived);
        build_await(b, p->sender[place_of(b, PLACE_GRADIENTS, key)]);
        build_backward(b);
    } else {
        build_weights(b);
    }
    leave(b, slot);
}

/* The tied embedding's gradient of first and last stage, before replicas sum it. */
static void sum_tied(struct build *b)
{
    const struct build_pipeline *p = &b->pipe;
    if (!p->tied_apart)
        return;
    struct tensor at = build_gradient(b, b->wte);
    int after[1 + PLAN_CHANNELS];
    struct build_call call = {.kind = COLL_ALL_REDUCE,
                              .axis = AXIS_EMBED,
                              .dtype = DTYPE_F32,
                              .count = build_tensor_count(&b->plan->tensors[b->wte]),
                              .phase = PHASE_REDUCE,
                              .send = at,
                              .receive = at};
    build_after(b, b->wte, after);
    int op = build_collective(b, &call, after[0]);
    for (int stream = 1; stream <= PLAN_CHANNELS; stream++)
        if (after[stream] >= 0)
            plan_wait(b->plan, op, after[stream]);
    build_finished(b, b->wte, op);
    b->hand_over = b->last_micro = true;
    b->reported = b->wte;
    build_report(b, b->wte);
}

void pipeline_step(struct build *b)
{
    struct build_pipeline *p = &b->pipe;
    begin(b);
    for (int i = 0, slot = 0; i < p->n_items; i++) {
        const struct schedule_item *item = &p->items[i];
        b->slot = item->act == ACT_COMPUTE ? ++slot : 0;
        if (item->act == ACT_COMPUTE)
            compute(b, &item->slot);
        else
            (item->act == ACT_SEND ? send : receive)(b, item);
    }
    b->slot = 0;
    b->layer = -1;
    b->micro = p->schedule.micro_batches - 1;
    build_await(b, p->last_up); /* what it sent is written again in the next step */
    sum_tied(b);
}

/* ---- channels ---- */

static int rank_of(const struct plan_channel *channel)
{
    return (int)channel->axis * 4 + channel->direction;
}

/* Stages make different calls, and communicators are opened together: the same channels in the same
 * order on all. */
void pipeline_channels(struct build *b)
{
    struct plan *plan = b->plan;
    int to[1 + PLAN_CHANNELS], n = plan->n_channels;
    struct plan_channel before[PLAN_CHANNELS];
    if (b->pipe.schedule.stages == 1)
        return;
    enum axis dense = context_dense_axis(&plan->layout);
    if (plan->layout.group[dense].size > 1)
        plan_channel(plan, dense, 0);
    if (b->model->tied)
        plan_channel(plan, AXIS_EMBED, 0);
    n = plan->n_channels;
    for (int i = 0; i < n; i++)
        before[i] = plan->channel[i];
    for (int i = 0; i < n; i++) {
        int place = 0;
        for (int j = 0; j < n; j++)
            place += rank_of(&before[j]) < rank_of(&before[i]);
        to[1 + i] = 1 + place;
        plan->channel[place] = before[i];
    }
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].stream > 0 && plan->ops[i].stream <= n)
            plan->ops[i].stream = to[plan->ops[i].stream];
}
