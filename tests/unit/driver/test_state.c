/* Initial values are those of the elements of the whole tensor, whatever part a rank holds and however
 * many threads make them. */
#include "driver/state.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"

/* A rank's columns of a fused tensor: rows from three places, the last of them partly padding. */
enum { ROWS = 1000, COLUMNS = 700, WHOLE_COLUMNS = 2100, FIRST_COLUMN = 1400, VALID_ROWS = 5900 };

static struct plan_tensor fused(double sigma)
{
    struct plan_tensor t = {.name = "h.0.mlp.up.weight",
                            .rows = ROWS,
                            .columns = COLUMNS,
                            .whole_rows = 6000,
                            .whole_columns = WHOLE_COLUMNS,
                            .valid_rows = VALID_ROWS,
                            .first_column = FIRST_COLUMN,
                            .n_spans = 3,
                            .span = {{0, 300}, {2000, 500}, {5800, 200}},
                            .sigma = sigma};
    return t;
}

static float wanted(const struct plan_tensor *t, uint64_t seed, int64_t element)
{
    int64_t row = element / COLUMNS, column = element % COLUMNS + FIRST_COLUMN;
    int64_t whole = row < 300 ? row : row < 800 ? 2000 + row - 300 : 5800 + row - 800;
    if (whole >= VALID_ROWS)
        return 0;
    uint64_t index = (uint64_t)(whole * WHOLE_COLUMNS + column);
    if (t->sigma < 0)
        return 1;
    return (float)t->sigma * rng_normal(rng_key(seed, t->name), index);
}

static void test_threads(double sigma, int64_t first, int64_t count)
{
    static const int threads[] = {0, 1, 3, 8, 1000};
    struct plan_tensor t = fused(sigma);
    struct plan plan = {.tensors = &t, .n_tensors = 1};
    struct plan_piece piece = {.tensor = 0, .first = first, .count = count};
    float *one = must_alloc((size_t)count, sizeof *one), *many = must_alloc((size_t)count, 4);
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++)
        one[i] = wanted(&t, 5, first + i);
    for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
        memset(many, 0xff, (size_t)count * sizeof *many);
        state_initial(&plan, &piece, 5, threads[n], many);
        wrong += memcmp(one, many, (size_t)count * sizeof *many) != 0;
    }
    CHECK_EQ(wrong, 0);
    free(one), free(many);
}

int main(void)
{
    test_threads(0.02, 0, (int64_t)ROWS * COLUMNS);
    test_threads(0.02, 123457, 543217); /* neither end at a row */
    test_threads(-1, 200001, (1 << 16) * 3 - 1);
    test_threads(0.02, (int64_t)ROWS * COLUMNS - 3, 3); /* padding */
    test_threads(0.02, 699, 1);
    return test_end();
}
