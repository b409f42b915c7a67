/*
 * checkpoint: what a rank saves of the training state, and what has to be the same to go on with it.
 *
 * The state is master weights and both moments, fp32 (12 bytes a parameter), and the small state:
 * counters and the scalars of the optimizer. Gradients and activations are not state; bf16 weights
 * are the rounded masters.
 *
 * A rank's pieces of an array lie in one run of n_state elements (plan.h). Ranks that hold the same
 * run (replicas over dp and cp; with ep above 1 those of expert-data) each save one part of it, cut at multiples of CHECKPOINT_ALIGN
 * bytes: its *image*. Gaps between pieces are saved too, so that an image is copied in large pieces.
 * An image is padded to whole blocks of CHECKPOINT_ALIGN bytes.
 *
 * Elements are named by tensor and index in the whole, unsplit tensor, so that any layout can read
 * what any other has written.
 *
 * A shard is made from a plan, owned by the caller until checkpoint_shard_release.
 */
#ifndef WORKLOADS_CHECKPOINT_H
#define WORKLOADS_CHECKPOINT_H

#include <stdint.h>

#include "workloads/plan.h"

enum checkpoint_array {
    CHECKPOINT_MASTER,
    CHECKPOINT_MOMENT1,
    CHECKPOINT_MOMENT2,
    CHECKPOINT_ARRAYS
};
const char *checkpoint_array_name(int array); /* "master", "moment1", "moment2" */

enum {
    CHECKPOINT_ALIGN = 4096,                             /* bytes */
    CHECKPOINT_BLOCK = CHECKPOINT_ALIGN / sizeof(float), /* elements */
    CHECKPOINT_PATH = 1024
};

/* folder/name; a path that does not fit is a broken promise: roots are far shorter than CHECKPOINT_PATH. */
void checkpoint_path(char *out, size_t size, const char *folder, const char *name);

/* Elements first .. first + count of a tensor as held by the rank, at `offset` in its image. */
struct checkpoint_part {
    int tensor;
    int64_t first, count, offset;
};

struct checkpoint_shard {
    int rank, world;
    int n_tensors;
    struct plan_tensor *tensors; /* [n_tensors], those of the plan */
    int n_parts;
    struct checkpoint_part *parts; /* [n_parts], by offset */
    int64_t begin;                 /* element of the arenas where the image begins */
    int64_t n;                     /* elements of the image */
};

void checkpoint_shard_make(const struct plan *plan, struct checkpoint_shard *out);
void checkpoint_shard_release(struct checkpoint_shard *shard); /* safe on a zeroed struct */

/* Elements of an image with its padding: never 0. */
int64_t checkpoint_padded(const struct checkpoint_shard *shard);

/* Runs of a part in the whole tensor: row-major index there, element of the image, elements. */
void checkpoint_part_runs(const struct checkpoint_shard *shard, const struct checkpoint_part *part,
                          void (*run)(void *arg, int64_t whole_first, int64_t image_first,
                                      int64_t count),
                          void *arg);

/*
 * The small state, by value. Generators are counters, so the seed (a term, below) and what was
 * consumed are all there is of them.
 */
#define CHECKPOINT_SMALL(X)                                                                        \
    X(step, "optimizer steps and skipped ones since the beginning")                                \
    X(consumed, "samples of the study consumed, all ranks: where the input goes on")               \
    X(batches, "global batches consumed")                                                          \
    X(micro_steps, "micro-steps of this rank")                                                     \
    X(global_batch, "samples a step when it was saved")

struct checkpoint_small {
#define CHECKPOINT_FIELD(name, meaning) int64_t name;
    CHECKPOINT_SMALL(CHECKPOINT_FIELD)
#undef CHECKPOINT_FIELD
    double scalars[SCALARS]; /* optimizer steps, skipped updates, learning rate, ... */
};

/*
 * What must be the same when a checkpoint is loaded: the model's description, the optimizer, the
 * seed, the data. Name and value as text; the order is that of adding.
 */
enum { CHECKPOINT_TERMS = 48 };
struct checkpoint_term {
    char name[40], value[200];
};
struct checkpoint_terms {
    int n;
    struct checkpoint_term term[CHECKPOINT_TERMS];
};
void checkpoint_terms_add(struct checkpoint_terms *terms, const char *name, const char *value);
const char *checkpoint_terms_get(const struct checkpoint_terms *terms, const char *name);

/* Every "key: value" line of a text such as model_text(), but for `without` ("a b c"). */
void checkpoint_terms_lines(struct checkpoint_terms *terms, const char *text, const char *without);

/* The first term of `here` that is not the same there, NULL: none. */
const struct checkpoint_term *checkpoint_terms_differ(const struct checkpoint_terms *there,
                                                      const struct checkpoint_terms *here);

/* FAIL_USAGE: the first term that differs, and both values. `where` begins the sentence. */
int checkpoint_terms_compare(const struct checkpoint_terms *there,
                             const struct checkpoint_terms *here, const char *where);

#endif
