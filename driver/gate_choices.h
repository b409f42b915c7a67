/*
 * gate_choices: what the router of a point chose, so that its reference can choose the same.
 *
 * A learned router takes the largest logits. Where two are closer than rounding, the point and its
 * reference take different experts, both rightly, and gradients then differ by whole tokens: no bound
 * says anything. So the experts of every token of step 1 are kept; the reference takes them over where
 * they are as good by its own logits but for what rounding makes of those (struct kernel_told), and a
 * choice that is worse than that counts as wrong. Everything else is compared as it always is.
 *
 * Used by gate.c alone.
 */
#ifndef DRIVER_GATE_CHOICES_H
#define DRIVER_GATE_CHOICES_H

#include "driver/execute.h"

struct gate_choice {
    const struct op *op;
    int32_t *experts; /* [rows][top_k] of this rank */
};
struct gate_choices {
    struct execute *execute;
    struct gate_choice *list; /* [most] in the order of the plan */
    int n, most;
};

/* Have a full step of `execute` keep what each OP_ROUTE chooses: of the first step from here on, there
 * when its block has ended. `choices` stays where it is until then. */
void gate_choices_keep(struct gate_choices *choices, struct execute *execute);
void gate_choices_release(struct gate_choices *choices); /* safe on a zeroed struct */

/*
 * Collective over the point. On rank 0 *table is [layers][tokens][top_k], to be freed, by index in the
 * global batch, -1 where no rank had the token, and *known says of how many tokens (each layer for
 * itself) some rank had it; elsewhere NULL and 0. FAIL_* as agree_gather.
 */
int gate_choices_gather(const struct gate_choices *choices, int64_t layers, int64_t tokens,
                        int64_t top_k, const void *parent, int32_t **table, int64_t *known);

#endif
