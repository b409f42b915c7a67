/*
 * coll: what a collective is, without communicating: kinds, byte counts, factors, expected values.
 *
 * `count` follows nccl-tests: the elements of the *send* buffer for all-gather (per-rank share),
 * of the *receive* share for reduce-scatter, of the whole buffer for all-reduce, broadcast, reduce
 * and send/recv, of one peer's part for all-to-all, and the most that any member sends or receives for
 * all-to-all-v. With n ranks and elements of size e:
 *
 *   kind             S (bytes)   busbw factor   bytes a rank sends at least (mean over the group)
 *   all-reduce       count e     2(n-1)/n       2(n-1)/n S
 *   all-gather       count e n   (n-1)/n        (n-1)/n S
 *   reduce-scatter   count e n   (n-1)/n        (n-1)/n S
 *   all-to-all       count e n   (n-1)/n        (n-1)/n S
 *   all-to-all-v     count e     (n-1)/n        what it sends to others, by its own table
 *   broadcast        count e     1              (n-1)/n S
 *   reduce           count e     1              (n-1)/n S
 *   sendrecv         count e     1              S
 *   send / recv      count e     1              S / 0
 *
 * sendrecv is nccl-tests' ring: every member sends to the next one (the last to the first) and
 * receives from the one before, as one group of two calls.
 *
 * algbw = S / t, busbw = algbw * factor (nccl-tests doc/PERFORMANCE.md). With n = 1 nothing moves
 * and a bandwidth is undefined, not 0.
 */
#ifndef COLLECTIVES_COLL_H
#define COLLECTIVES_COLL_H

#include <stddef.h>
#include <stdint.h>

#define COLL_LIST(X)                                                                               \
    X(COLL_ALL_REDUCE, "all-reduce")                                                               \
    X(COLL_REDUCE_SCATTER, "reduce-scatter")                                                       \
    X(COLL_ALL_GATHER, "all-gather")                                                               \
    X(COLL_ALL_TO_ALL, "all-to-all")                                                               \
    X(COLL_ALL_TO_ALL_V, "all-to-all-v")                                                           \
    X(COLL_BROADCAST, "broadcast")                                                                 \
    X(COLL_REDUCE, "reduce")                                                                       \
    X(COLL_SENDRECV, "sendrecv")                                                                   \
    X(COLL_SEND, "send")                                                                           \
    X(COLL_RECV, "recv")

enum coll_kind {
#define COLL_ENUM(name, text) name,
    COLL_LIST(COLL_ENUM)
#undef COLL_ENUM
        COLL_KINDS
};

#define DTYPE_LIST(X)                                                                              \
    X(DTYPE_F32, "fp32", 4)                                                                        \
    X(DTYPE_F64, "fp64", 8)                                                                        \
    X(DTYPE_I32, "int32", 4)                                                                       \
    X(DTYPE_U8, "uint8", 1)                                                                        \
    X(DTYPE_BF16, "bf16", 2)

enum dtype {
#define DTYPE_ENUM(name, text, size) name,
    DTYPE_LIST(DTYPE_ENUM)
#undef DTYPE_ENUM
        DTYPES
};

/*
 * One call. A sum is the only reduction that the step needs; reductions are always sums. All-to-all-v
 * takes for each member how many elements go there and come from there, one part behind the other;
 * the tables are the caller's and live as long as the call.
 */
struct coll {
    enum coll_kind kind;
    enum dtype dtype;
    int64_t count; /* elements, as above */
    int peer; /* root of broadcast/reduce, other side of send/recv: index in the group; else -1 */
    const int64_t *send, *recv; /* [n_ranks] of all-to-all-v, else NULL */
    int64_t away;               /* of all-to-all-v: elements that go to other members */
};

const char *coll_name(int kind);
const char *dtype_name(int dtype);
size_t dtype_size(int dtype);

/* S of the table, and the factor of the table (0 for n = 1 where it is (n-1)/n). */
int64_t coll_bytes(const struct coll *coll, int n_ranks);
double coll_busbw_factor(enum coll_kind kind, int n_ranks);

/* Bytes that one rank sends at least (last column), averaged over the group: exact in double. */
double coll_wire_bytes(const struct coll *coll, int n_ranks);

/* The call of member `me` whose tables are these; `count` is the same on all members. */
struct coll coll_all_to_all_v(enum dtype dtype, int64_t count, int n_ranks, int me,
                              const int64_t *send, const int64_t *recv);

/* Elements of the send and receive buffers. */
int64_t coll_send_count(const struct coll *coll, int n_ranks);
int64_t coll_recv_count(const struct coll *coll, int n_ranks);

/*
 * Exact verification: the input element i of rank r in trial t is a whole number below 256, so that
 * sums of up to 2^16 ranks are exact in fp32, and uint8 in its modular arithmetic (sums in bf16, which
 * has 8 bits, are of 0 and 1 from the first 256 ranks); ranks of
 * neighbouring numbers always differ, and SEND and RECV of one transfer draw the same values.
 * coll_expected is what member `me` must hold at element i of its receive buffer afterwards,
 * computed in closed form or by a loop over ranks, never by communicating. Elements outside the
 * receive buffer keep the poison that the checker wrote.
 */
double coll_input(const struct coll *coll, int rank, int64_t i, int trial);
double coll_expected(const struct coll *coll, int n_ranks, int me, int64_t i, int trial);

#endif
