#include "workloads/input_rows.h"

#include <string.h>

#include "base/err.h"

enum { POSITION_BYTES = 2 * (int)sizeof(int32_t) + 1 };

int64_t input_rows_bytes(const struct op *op)
{
    const struct shape_input *s = &op->shape.input;
    return s->samples * cut_rows(&s->cut, s->sequence) * POSITION_BYTES;
}

int64_t input_rows_room(const struct op *op)
{
    const struct shape_input *s = &op->shape.input;
    return s->cut.runs == 0 ? 0 : s->samples * s->sequence * POSITION_BYTES;
}

int64_t input_rows_most_room(const struct plan *plan)
{
    int64_t most = 0;
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == OP_INPUT && input_rows_room(&plan->ops[i]) > most)
            most = input_rows_room(&plan->ops[i]);
    return most;
}

/* The runs of every sample, one behind the other. */
static void keep(const struct shape_input *s, const void *from, void *to, size_t size)
{
    const unsigned char *sample = from;
    unsigned char *out = to;
    size_t bytes = (size_t)s->cut.rows * size;
    for (int64_t i = 0; i < s->samples; i++, sample += (size_t)s->sequence * size)
        for (int run = 0; run < s->cut.runs; run++, out += bytes)
            memcpy(out, sample + (size_t)s->cut.first[run] * size, bytes);
}

void input_rows(const struct op *op, const struct kernel_context *context, void *room,
                int32_t *tokens, int32_t *targets, uint8_t *mask)
{
    const struct shape_input *s = &op->shape.input;
    int64_t first = context->first_sample + s->first, positions = s->samples * s->sequence;
    if (context->input->sequence != s->sequence)
        BUG("the input makes sequences of %lld, the plan wants %lld",
            (long long)context->input->sequence, (long long)s->sequence);
    if (s->cut.runs == 0) {
        input_fill(context->input, first, s->samples, tokens, targets, mask);
        return;
    }
    int32_t *whole = room;
    uint8_t *whole_mask = (uint8_t *)(whole + 2 * positions);
    input_fill(context->input, first, s->samples, whole, whole + positions, whole_mask);
    keep(s, whole, tokens, sizeof *tokens);
    keep(s, whole + positions, targets, sizeof *targets);
    keep(s, whole_mask, mask, sizeof *mask);
}
