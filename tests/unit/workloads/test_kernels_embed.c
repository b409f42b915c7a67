/*
 * OP_EMBED and OP_EMBED_GRAD: sums by token and position, the same bits every time, of a whole
 * vocabulary and of parts. A token that does not exist ends the job.
 */
#include "kernel_rig.h"

#include <setjmp.h>

enum { VOCABULARY = 11, SEQUENCE = 5, ROWS = 4 * SEQUENCE };

static void fill_tokens(struct rig *rig, int64_t width)
{
    int32_t *tokens = rig_tensor(rig, 0, ROWS * sizeof *tokens);
    for (int i = 0; i < ROWS; i++)
        tokens[i] = (int32_t)rng_below(9, (uint64_t)i, VOCABULARY);
    tokens[ROWS - 1] = VOCABULARY - 1;
    rig->op.shape.rows = (struct shape_rows){
        .rows = ROWS, .width = width, .valid = VOCABULARY, .sequence = SEQUENCE};
}

static void check_embed(int64_t width)
{
    struct rig rig = {0};
    fill_tokens(&rig, width);
    const int32_t *tokens = tensor_at(&rig.context, rig.op.t[0]);
    float *wte = rig_random(&rig, 1, VOCABULARY * width);
    float *wpe = rig_random(&rig, 2, SEQUENCE * width), *x = rig_poisoned(&rig, 3, ROWS * width);
    long wrong = 0;
    rig_run(&rig, OP_EMBED);
    for (int64_t i = 0; i < ROWS * width; i++) {
        int64_t row = i / width, j = i % width;
        wrong += !(x[i] == wte[tokens[row] * width + j] + wpe[row % SEQUENCE * width + j]);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(rig.context.work.tokens, ROWS);
    rig_run(&rig, OP_EMBED);
    CHECK_EQ(rig.context.work.tokens, 2 * ROWS);
    CHECK(rig.context.work.model_flops == 0);
    rig_release(&rig);
}

static void check_embed_grad(int64_t width, bool positions)
{
    struct rig rig = {0};
    fill_tokens(&rig, width);
    const int32_t *tokens = tensor_at(&rig.context, rig.op.t[0]);
    float *dx = rig_random(&rig, 1, ROWS * width), *dwte = rig_random(&rig, 2, VOCABULARY * width);
    float *dwpe = positions ? rig_random(&rig, 3, SEQUENCE * width) : NULL;
    double *token = rig_double(dwte, VOCABULARY * width);
    double *position = positions ? rig_double(dwpe, SEQUENCE * width) : NULL;
    for (int64_t i = 0; i < ROWS * width; i++) {
        int64_t row = i / width, j = i % width;
        token[tokens[row] * width + j] += (double)dx[i];
        if (positions)
            position[row % SEQUENCE * width + j] += (double)dx[i];
    }
    rig_run(&rig, OP_EMBED_GRAD);
    CHECK(rig_error(dwte, token, VOCABULARY * width) < 5e-7);
    if (positions)
        CHECK(rig_error(dwpe, position, SEQUENCE * width) < 5e-7);
    CHECK_EQ(rig.context.work.tokens, 0);
    free(token);
    free(position);
    rig_release(&rig);
}

/* embed is linear: its slope along a direction w is embed(w), so <r, embed(w)> = <embed_grad(r), w>. */
static void test_embed_slope(void)
{
    enum { WIDTH = 7 };
    struct rig forward = {0}, backward = {0};
    fill_tokens(&forward, WIDTH);
    fill_tokens(&backward, WIDTH);
    const float *wte = rig_random(&forward, 1, VOCABULARY * WIDTH);
    const float *wpe = rig_random(&forward, 2, SEQUENCE * WIDTH);
    const float *x = rig_poisoned(&forward, 3, ROWS * WIDTH),
                *r = rig_random(&backward, 1, ROWS * WIDTH);
    const float *dwte = rig_tensor(&backward, 2, VOCABULARY * WIDTH * sizeof *dwte);
    const float *dwpe = rig_tensor(&backward, 3, SEQUENCE * WIDTH * sizeof *dwpe);
    rig_run(&forward, OP_EMBED);
    rig_run(&backward, OP_EMBED_GRAD);
    double above = 0, slope = 0;
    for (int i = 0; i < ROWS * WIDTH; i++)
        above += (double)r[i] * (double)x[i];
    for (int i = 0; i < VOCABULARY * WIDTH; i++)
        slope += (double)dwte[i] * (double)wte[i];
    for (int i = 0; i < SEQUENCE * WIDTH; i++)
        slope += (double)dwpe[i] * (double)wpe[i];
    CHECK_NEAR(slope, above, 1e-5);
    rig_release(&forward);
    rig_release(&backward);
}

static void test_embed_grad_repeats(void)
{
    enum { WIDTH = 24 };
    struct rig rig = {0};
    fill_tokens(&rig, WIDTH);
    rig_random(&rig, 1, ROWS * WIDTH);
    float *dwte = rig_random(&rig, 2, VOCABULARY * WIDTH), before[VOCABULARY * WIDTH];
    float first[VOCABULARY * WIDTH];
    memcpy(before, dwte, sizeof before);
    rig_run(&rig, OP_EMBED_GRAD);
    memcpy(first, dwte, sizeof first);
    memcpy(dwte, before, sizeof before);
    rig_run(&rig, OP_EMBED_GRAD);
    CHECK(memcmp(first, dwte, sizeof first) == 0);
    CHECK(memcmp(first, before, sizeof first) != 0);
    rig_release(&rig);
}

/* Rows of wte in parts: the sum of what all ranks embed is the whole, positions once; gradients of
 * the parts are those of the whole. */
static void check_embed_parts(int64_t width)
{
    enum { HERE = 4, PARTS = 3 }; /* rows of a part: 4, 4 and 3 */
    struct rig whole = {0}, back = {0};
    fill_tokens(&whole, width);
    fill_tokens(&back, width);
    float *wte = rig_random(&whole, 1, VOCABULARY * width);
    float *wpe = rig_random(&whole, 2, SEQUENCE * width),
          *x = rig_poisoned(&whole, 3, ROWS * width);
    float *dx = rig_random(&back, 1, ROWS * width);
    float *dwte = rig_tensor(&back, 2, (size_t)(VOCABULARY * width) * sizeof *dwte);
    double *sum = must_alloc((size_t)(ROWS * width), sizeof *sum);
    long wrong = 0, tokens = 0;
    rig_run(&whole, OP_EMBED);
    rig_run(&back, OP_EMBED_GRAD);
    for (int64_t first = 0; first < VOCABULARY; first += HERE) {
        struct rig r = {0}, g = {0};
        int64_t here = VOCABULARY - first < HERE ? VOCABULARY - first : HERE;
        fill_tokens(&r, width);
        fill_tokens(&g, width);
        r.op.shape.rows.valid = g.op.shape.rows.valid = here;
        r.op.shape.rows.first_column = g.op.shape.rows.first_column = first;
        r.op.shape.rows.parts = g.op.shape.rows.parts = PARTS;
        size_t bytes = (size_t)(here * width) * sizeof *wte;
        memcpy(rig_tensor(&r, 1, bytes), wte + first * width, bytes);
        memcpy(rig_tensor(&r, 2, (size_t)(SEQUENCE * width) * sizeof *wpe), wpe,
               (size_t)(SEQUENCE * width) * sizeof *wpe);
        float *own = rig_poisoned(&r, 3, ROWS * width), *grad = rig_tensor(&g, 2, bytes);
        memcpy(rig_tensor(&g, 1, (size_t)(ROWS * width) * sizeof *dx), dx,
               (size_t)(ROWS * width) * sizeof *dx);
        rig_run(&r, OP_EMBED);
        rig_run(&g, OP_EMBED_GRAD);
        for (int64_t i = 0; i < ROWS * width; i++)
            sum[i] += (double)own[i];
        wrong += memcmp(grad, dwte + first * width, bytes) != 0;
        tokens += r.context.work.tokens;
        rig_release(&r);
        rig_release(&g);
    }
    CHECK(rig_error(x, sum, ROWS * width) < 2e-7);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(tokens, ROWS);
    free(sum);
    rig_release(&whole);
    rig_release(&back);
}

static jmp_buf ended;

static void jump(int code)
{
    longjmp(ended, code);
}

/* The exit code with which the op ends the job; 0 when it does not. */
static int death(struct rig *rig, enum op_kind kind)
{
    int code = setjmp(ended);
    if (code == 0)
        rig_run(rig, kind);
    return code;
}

static void test_token_that_does_not_exist(void)
{
    static const int32_t bad[] = {-1, VOCABULARY};
    for (int i = 0; i < 2; i++) {
        struct rig rig = {0};
        fill_tokens(&rig, 2);
        ((int32_t *)tensor_at(&rig.context, rig.op.t[0]))[3] = bad[i];
        for (int t = 1; t < 4; t++)
            rig_random(&rig, t, ROWS * 2);
        CHECK_EQ(death(&rig, OP_EMBED), FAIL_INTERNAL);
        CHECK_EQ(death(&rig, OP_EMBED_GRAD), FAIL_INTERNAL);
        rig_release(&rig);
    }
}

int main(void)
{
    static const int64_t widths[] = {1, 3, 7, 65, 127};
    die_handler(jump);
    for (size_t i = 0; i < RIG_COUNT(widths); i++) {
        check_embed(widths[i]);
        check_embed_grad(widths[i], true);
        check_embed_grad(widths[i], false);
        check_embed_parts(widths[i]);
    }
    test_embed_slope();
    test_embed_grad_repeats();
    test_token_that_does_not_exist();
    return test_end();
}
