#include "workloads/kernels/cpu_bf16.h"

#include <stdlib.h>

#include "base/bf16.h"
#include "base/err.h"
#include "workloads/input_rows.h"
#include "workloads/kernels/cpu.h"
#include "workloads/touch.h"

struct shadow {
    float *memory;
    int64_t n; /* floats */
    void *room;
};

/* Floats that an op's bf16 tensors take, each from a multiple of 16 on. */
static int64_t shadow_size(const struct touch *touch, int n)
{
    int64_t size = 0;
    for (int i = 0; i < n; i++)
        if (touch[i].dtype == DTYPE_BF16)
            size += (touch[i].n + 15) / 16 * 16;
    return size;
}

int cpu_open(struct kernel_context *context, const struct plan *plan, struct device *device)
{
    (void)device;
    struct shadow *shadow = must_alloc(1, sizeof *shadow);
    context->state = shadow;
    for (int i = 0; i < plan->n_ops; i++) {
        struct touch touch[TOUCHES];
        if (plan->ops[i].kind == OP_COLLECTIVE)
            continue;
        int64_t size = shadow_size(touch, touch_op(plan, &plan->ops[i], touch));
        shadow->n = size > shadow->n ? size : shadow->n;
    }
    if (shadow->n > 0)
        shadow->memory = must_alloc((size_t)shadow->n, sizeof(float));
    if (input_rows_most_room(plan) > 0)
        shadow->room = must_alloc(1, (size_t)input_rows_most_room(plan));
    return 0;
}

void cpu_close(struct kernel_context *context)
{
    struct shadow *shadow = context->state;
    if (shadow != NULL) {
        free(shadow->memory);
        free(shadow->room);
    }
    free(shadow);
    context->state = NULL;
}

void *cpu_room(const struct kernel_context *context)
{
    const struct shadow *shadow = context->state;
    return shadow != NULL ? shadow->room : NULL;
}

void cpu_cast(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_cast *shape = &op->shape.cast;
    const void *x = tensor_at(context, op->t[0]);
    void *y = tensor_at(context, op->t[1]);
    const float *wide = x;
    const uint16_t *narrow = x;

    if (shape->from == shape->to)
        memcpy(y, x, (size_t)shape->n * dtype_size((int)shape->to));
    else if (shape->to == DTYPE_BF16)
        for (int64_t i = 0; i < shape->n; i++)
            ((uint16_t *)y)[i] = bf16_of(wide[i]);
    else
        for (int64_t i = 0; i < shape->n; i++)
            ((float *)y)[i] = bf16_to_float(narrow[i]);
}

/* A buffer that no tensor of the op is in: its base may point elsewhere meanwhile. */
static int unused_buffer(const struct op *op)
{
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        bool used = false;
        for (int i = 0; i < OP_TENSORS; i++)
            used = used || op->t[i].buffer == b;
        if (!used)
            return b;
    }
    BUG("an op of %d tensors uses all buffers", OP_TENSORS);
}

/* Touches of one place share a shadow, as tensors that are updated in place must. */
static void place(struct op *op, const struct touch *touch, int n, int buffer)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        int same = -1;
        if (touch[i].dtype != DTYPE_BF16)
            continue;
        for (int j = 0; j < i; j++)
            if (touch[j].dtype == DTYPE_BF16 && touch[j].t.buffer == touch[i].t.buffer &&
                touch[j].t.offset == touch[i].t.offset)
                same = touch[j].index;
        if (same >= 0) {
            op->t[touch[i].index] = op->t[same];
            continue;
        }
        op->t[touch[i].index] = (struct tensor){buffer, at * (int64_t)sizeof(float)};
        at += (touch[i].n + 15) / 16 * 16;
    }
}

static void read_in(struct kernel_context *context, const struct op *wide, const struct touch *t)
{
    const uint16_t *from = tensor_at(context, t->t);
    float *to = tensor_at(context, wide->t[t->index]);
    for (int64_t i = 0; i < t->n; i++)
        to[i] = bf16_to_float(from[i]);
}

static void write_back(struct kernel_context *context, const struct op *wide, const struct touch *t)
{
    const float *from = tensor_at(context, wide->t[t->index]);
    uint16_t *to = tensor_at(context, t->t);
    for (int64_t i = 0; i < t->n; i++)
        to[i] = bf16_of(from[i]);
}

void cpu_bf16(const struct op *op, struct kernel_context *context, void *native, kernel_run *run)
{
    struct shadow *shadow = context->state;
    struct touch touch[TOUCHES];
    int n = touch_op(NULL, op, touch), buffer = unused_buffer(op);
    if (shadow == NULL || shadow_size(touch, n) > shadow->n)
        BUG("%s in bf16 needs kernels that were opened with its plan", op_name((int)op->kind));
    struct op wide = *op;
    unsigned char *base = context->base[buffer];
    context->base[buffer] = (unsigned char *)shadow->memory;
    wide.dtype = DTYPE_F32;
    place(&wide, touch, n, buffer);
    for (int i = 0; i < n; i++)
        if (touch[i].dtype == DTYPE_BF16 &&
            (touch[i].reads || op->kind == OP_ADAMW)) /* a skipped update writes nothing */
            read_in(context, &wide, &touch[i]);
    run(&wide, context, native);
    for (int i = 0; i < n; i++)
        if (touch[i].dtype == DTYPE_BF16 && touch[i].writes)
            write_back(context, &wide, &touch[i]);
    context->base[buffer] = base;
}
