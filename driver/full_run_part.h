/*
 * full_run_part: what the files of full_run share. Nobody else includes it.
 */
#ifndef DRIVER_FULL_RUN_PART_H
#define DRIVER_FULL_RUN_PART_H

#include "driver/checkpoint_ask.h"
#include "driver/drill.h"
#include "driver/full_run.h"
#include "driver/full_run_log.h"

#define FULL_RUN_BLOCK_NS INT64_C(1000000000)
#define FULL_RUN_SAVING_BLOCK_NS INT64_C(250000000) /* the end of a save is seen behind a block */
#define FULL_RUN_PIECE_NS INT64_C(30000000000)
#define FULL_RUN_POLL_NS INT64_C(100000) /* of looking after saves: shorter ones get no row */
enum { FULL_RUN_BEHIND = 5 };            /* steps behind a save that are not quiet yet */

/* One rank's run of a point. Times of its own clock but where said. */
struct full_run {
    const struct full_run_at *at;
    struct measure *m;
    struct checkpoint_ask ask;
    char root[CHECKPOINT_PATH]; /* of the checkpoints */
    struct saver saver;
    struct drill drill;
    struct run_log log;       /* rank 0 */
    struct run_log_past past; /* the same on all ranks */
    int64_t first, target;    /* steps at the begin of this launch; to reach */
    int64_t steps;            /* done in this launch */
    int64_t warm_up;          /* of them, to be flagged */
    int64_t called_step;      /* steps when the last save was called, or when the run began */
    int64_t called_ns;        /* rank 0's clock, the same on all ranks */
    int64_t covered_ns;       /* rank 0: end of the last row that takes time */
    int64_t books_ns; /* rank 0: since when no step is made but books are kept; 0: not yet */
    int64_t end_ns;   /* rank 0's clock: end of the last block, the same on all ranks */
    int64_t step_ns;  /* of the last block, 0: not known yet */
    int64_t behind;   /* steps until quiet, after a save */
    int64_t piece_ns; /* when the last piece was published: end_ns of then */
    int pieces;
    int saves; /* called so far in this launch */
    struct full_run_save {
        int save, flags;
        int64_t wait_ns;
    } pending[SAVER_SLOTS]; /* of a slot */
    bool stretch;           /* the next block begins a new stretch of step rows */
    int last_kind;          /* of the stretch */
    int failed;  /* rank 0: the log could not be written; all leave behind the next block */
    int signal;  /* that some rank has seen */
    bool unlike; /* ranks have had other losses or norms, and it was said */
};

/* What a block was, the same on all ranks. */
struct full_run_block {
    int64_t begin_ns, end_ns; /* rank 0's clock */
    int64_t signal, failed;
};

bool full_run_is_first(const struct full_run *x); /* rank 0 */
int64_t full_run_done(const struct full_run *x);

/* A row of intervals, by rank 0's clock; on rank 0. */
void full_run_row(struct full_run *x, struct interval_row *row);
void full_run_interval(struct full_run *x, const char *kind, int64_t begin_ns, int64_t end_ns,
                       int64_t first_step, int flags, const char *text);
/*
 * A row "record": from rank 0's end of the last block until then its stamps were read and books kept. None when
 * `block_ns`, the block that follows, is 2,000 times as long. Rows that take time within it keep theirs.
 */
void full_run_books(struct full_run *x, int64_t until_ns, int64_t block_ns);

/* The row of the launch's begin, written when its target is known: rows of loads may be before it. */
void full_run_start_up(struct full_run *x, int64_t begin_ns, int64_t end_ns, const char *text);

/* ---- full_run_block.c: steps ---- */
int full_run_block(struct full_run *x, int n, bool calls);

/* ---- full_run_same.c: what ranks must have to the bit ---- */
/* Of a block: a hash of losses and gradient norms, >= 0; the same on all ranks. */
int64_t full_run_trained(const struct full_run *x, const struct execute_samples *s);
/* Collective, where they are not: the first step and rank, an event "warning" and on stderr; once in a launch. */
int full_run_say_unlike(struct full_run *x, const struct execute_samples *s);

/* ---- full_run_save.c: checkpoints ---- */
int full_run_saver_open(struct full_run *x);
int full_run_before_block(struct full_run *x, bool *calls); /* is a save due, and is there room? */
int64_t full_run_until_call(const struct full_run *x);      /* steps, INT64_MAX: not by steps */
int full_run_after_block(struct full_run *x);               /* collect and poll */
int full_run_save_now(struct full_run *x);                  /* without a step, to its end */
int full_run_wait(struct full_run *x);                      /* for what is on its way */
/* In a drill every event is said when it happens: what an observer with a clock of his own hears. */
void full_run_say(const struct full_run *x, const char *what, int64_t step);

/* ---- full_run_load.c: the state to begin with ---- */
int full_run_load(struct full_run *x);

/* ---- full_run_piece.c: rows ---- */
int full_run_piece(struct full_run *x);
int full_run_last_rows(struct full_run *x); /* intervals, account, recoveries */

#endif
