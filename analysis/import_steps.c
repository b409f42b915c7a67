#include "analysis/import_steps.h"

#include <stdlib.h>

#include "base/err.h"

static void halve(struct import_steps *steps)
{
    for (int64_t i = 0; i < steps->n / 2; i++)
        steps->x[i] = 0.5 * (steps->x[2 * i] + steps->x[2 * i + 1]);
    steps->n /= 2;
    steps->group *= 2;
}

void import_steps_add(struct import_steps *steps, double step_s)
{
    if (steps->group == 0)
        steps->group = 1;
    steps->sum += step_s;
    if (++steps->filled < steps->group)
        return;
    if (steps->n == IMPORT_STEPS)
        halve(steps);
    if (steps->filled < steps->group) /* this sample is half of a larger one now */
        return;
    if (steps->n == steps->room) {
        steps->room = steps->room > 0 ? 2 * steps->room : 64;
        steps->x = must_grow(steps->x, (size_t)steps->room, sizeof *steps->x);
    }
    steps->x[steps->n++] = steps->sum / (double)steps->group;
    steps->sum = 0.0;
    steps->filled = 0;
}

void import_steps_release(struct import_steps *steps)
{
    free(steps->x);
    *steps = (struct import_steps){0};
}
