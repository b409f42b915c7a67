#include "workloads/kernels/cpu.h"

#include "base/err.h"

void cpu_input(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_input *shape = &op->shape.input;
    if (context->input->sequence != shape->sequence)
        BUG("the input makes sequences of %lld, the plan wants %lld",
            (long long)context->input->sequence, (long long)shape->sequence);
    input_fill(context->input, context->first_sample + shape->first, shape->samples,
               tensor_at(context, op->t[0]), tensor_at(context, op->t[1]),
               tensor_at(context, op->t[2]));
}

static int64_t checked(int32_t token, int64_t valid)
{
    if (token < 0 || token >= valid)
        die(FAIL_INTERNAL, "embed: token %d is not below %lld", (int)token, (long long)valid);
    return token;
}

void cpu_embed(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_rows *shape = &op->shape.rows;
    const int32_t *tokens = tensor_at(context, op->t[0]);
    const float *wte = tensor_at(context, op->t[1]), *wpe = tensor_at(context, op->t[2]);
    float *restrict x = tensor_at(context, op->t[3]);
    int64_t width = shape->width;

    for (int64_t r = 0; r < shape->rows; r++, x += width) {
        const float *token = wte + checked(tokens[r], shape->valid) * width;
        const float *position = wpe + r % shape->sequence * width;
        for (int64_t j = 0; j < width; j++)
            x[j] = token[j] + position[j];
    }
    context->work.tokens += shape->rows;
}

/* Row after row on one thread: the order of every sum, so its bits, is always the same. */
void cpu_embed_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_rows *shape = &op->shape.rows;
    const int32_t *tokens = tensor_at(context, op->t[0]);
    const float *restrict dx = tensor_at(context, op->t[1]);
    float *dwte = tensor_at(context, op->t[2]), *dwpe = tensor_at(context, op->t[3]);
    int64_t width = shape->width;

    for (int64_t r = 0; r < shape->rows; r++, dx += width) {
        float *restrict token = dwte + checked(tokens[r], shape->valid) * width;
        for (int64_t j = 0; j < width; j++)
            token[j] += dx[j];
        if (dwpe == NULL)
            continue;
        float *restrict position = dwpe + r % shape->sequence * width;
        for (int64_t j = 0; j < width; j++)
            position[j] += dx[j];
    }
}
