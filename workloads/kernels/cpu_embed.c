#include "workloads/kernels/cpu.h"

#include <string.h>

#include "base/err.h"
#include "workloads/input_rows.h"
#include "workloads/kernels/cpu_bf16.h"

void cpu_input(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    input_rows(op, context, cpu_room(context), tensor_at(context, op->t[0]),
               tensor_at(context, op->t[1]), tensor_at(context, op->t[2]));
}

/* The row of wpe of a row of the batch. */
static int64_t position_of(const struct shape_rows *shape, int64_t r)
{
    int64_t row = shape->first_row + r;
    return cut_position(&shape->cut, row % cut_rows(&shape->cut, shape->sequence));
}

/* The row of wte that a token has here; -1: it is another rank's. */
static int64_t row_of(int32_t token, const struct shape_rows *shape)
{
    int64_t row = token - shape->first_column;
    if (row >= 0 && row < shape->valid)
        return row;
    if (shape->parts <= 1 || token < 0)
        die(FAIL_INTERNAL, "embed: token %d is not below %lld", (int)token,
            (long long)shape->valid);
    return -1;
}

void cpu_embed(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_rows *shape = &op->shape.rows;
    const int32_t *tokens = tensor_at(context, op->t[0]);
    const float *wte = tensor_at(context, op->t[1]), *wpe = tensor_at(context, op->t[2]);
    float *restrict x = tensor_at(context, op->t[3]);
    int64_t width = shape->width;
    size_t bytes = (size_t)width * sizeof *x;

    for (int64_t r = 0; r < shape->rows; r++, x += width) {
        int64_t row = row_of(tokens[r], shape);
        if (row >= 0)
            memcpy(x, wte + row * width, bytes);
        else
            memset(x, 0, bytes);
        if (wpe == NULL || shape->first_column > 0)
            continue;
        const float *position = wpe + position_of(shape, r) * width;
        for (int64_t j = 0; j < width; j++)
            x[j] += position[j];
    }
    context->work.tokens += shape->first_column == 0 ? shape->rows : 0;
}

static void add_row(float *restrict sum, const float *restrict x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        sum[j] += x[j];
}

/* Row after row on one thread: the order of every sum, so its bits, is always the same. */
void cpu_embed_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_rows *shape = &op->shape.rows;
    const int32_t *tokens = tensor_at(context, op->t[0]);
    const float *dx = tensor_at(context, op->t[1]);
    float *dwte = tensor_at(context, op->t[2]), *dwpe = tensor_at(context, op->t[3]);
    int64_t width = shape->width;

    for (int64_t r = 0; r < shape->rows; r++, dx += width) {
        int64_t row = row_of(tokens[r], shape);
        if (row >= 0)
            add_row(dwte + row * width, dx, width);
        if (dwpe != NULL)
            add_row(dwpe + position_of(shape, r) * width, dx, width);
    }
}
