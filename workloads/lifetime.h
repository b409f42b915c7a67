/*
 * lifetime: how long the values in a plan's arenas live, and which of them never live together.
 *
 * A *web* is a run of ops that hand values to each other through the same bytes: from the first that
 * writes them to the last that reads them. The same bytes may carry several webs one after the other
 * (a temporary of every layer, a place that gathered weights take in turn); between two of them nothing
 * is handed on, so they may as well lie elsewhere. Webs are found from what ops read and write
 * (touch.h): two accesses belong to one web when a read needs what a write, or the web before it, left.
 *
 * Two webs may share bytes when every op of one happens before every op of the other, in the step and,
 * the other way round, from the step to the next. "Happens before" is what streams and waits say, never
 * the order in which the host gives ops out; calls that are posted as one are not ordered.
 *
 * Some webs are *fixed* and share with nobody:
 *   - what is read before the step has written it (it comes from the step before);
 *   - integers and doubles: batches, tables of routing. In a compute-only variant nothing may make an
 *     index of them that was not one;
 *   - what the host reads (plan.load), and what a compute-only variant reads though only communication
 *     writes it. There it finds what was left by the last full step, and it should go on finding that:
 *     values of another kind could be huge or no numbers, and arithmetic on those costs other time. Sums
 *     of gradients are left out of this: fp32 that is added, squared and given to AdamW, to which any
 *     activation or gradient will do; and gathered weights share among themselves alone.
 * Other webs of bytes that one of these has stay there with it.
 *
 * Gradients that AdamW reads live on to the end of the step: gates compare them there.
 */
#ifndef WORKLOADS_LIFETIME_H
#define WORKLOADS_LIFETIME_H

#include "workloads/plan.h"

enum {
    LIFETIME_GRAIN = 64
}; /* bytes: webs begin and end at multiples, as what plan_take gives out */

struct lifetime_web {
    int buffer;
    int64_t begin, end; /* bytes of the arena */
    int first, last;    /* ops; first: of what a product can do at once (fuse.h), the product */
    int group; /* webs of the same bytes in the same place of a micro-batch are one group */
    bool fixed;
    bool called; /* communication touches it */
    bool kept;   /* to the end of the step */
};

struct lifetime {
    const struct plan *plan; /* borrowed */
    int n_streams;
    int n_webs, n_groups;
    struct lifetime_web *web; /* [n_webs], by the first op */
    int (*of)
        [OP_TENSORS]; /* [n_ops] web of each tensor; -1: none, or in an arena that was left out */
    int load;         /* web of plan.load, -1 */
    /* [n_webs][n_streams] ops of streams: the last of the web; and of those before all ops of the web,
     * in a first step and, counting on from n_ops, in a second: the latest; -1: none. `floor`: the
     * least of entry of this web and all later ones. */
    int *last, *entry, *again, *floor;
    int *soonest; /* [n_streams] the least of again */
};

/* `in` says which arenas are looked at. */
void lifetime_find(struct lifetime *out, const struct plan *plan, const bool in[PLAN_BUFFERS]);
void lifetime_release(struct lifetime *lifetime); /* safe on a zeroed struct */

/* May webs share bytes? `a` begins no later than `b`. Fixed webs may not. */
bool lifetime_apart(const struct lifetime *lifetime, int a, int b);

/* Is all of web `a` before every web from `b` on, in the order of webs? Has web `b` not ended for certain
 * when any web of the next step begins? */
bool lifetime_past(const struct lifetime *lifetime, int a, int b);
bool lifetime_is_late(const struct lifetime *lifetime, int b);

/* Fill last, entry, again, floor and soonest: of lifetime.c alone. */
void lifetime_order(struct lifetime *lifetime);

#endif
