#include "collectives/coll.h"

#include <stdbool.h>

static const char *const names[COLL_KINDS] = {
#define COLL_NAME(name, text) [name] = text,
    COLL_LIST(COLL_NAME)
#undef COLL_NAME
};

static const char *const dtype_names[DTYPES] = {
#define DTYPE_NAME(name, text, size) [name] = text,
    DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
};

static const size_t dtype_sizes[DTYPES] = {
#define DTYPE_SIZE(name, text, size) [name] = size,
    DTYPE_LIST(DTYPE_SIZE)
#undef DTYPE_SIZE
};

const char *coll_name(int kind)
{
    return kind >= 0 && kind < COLL_KINDS ? names[kind] : "unknown";
}

const char *dtype_name(int dtype)
{
    return dtype >= 0 && dtype < DTYPES ? dtype_names[dtype] : "unknown";
}

size_t dtype_size(int dtype)
{
    return dtype >= 0 && dtype < DTYPES ? dtype_sizes[dtype] : 0;
}

/* Ranks whose shares one buffer of the kind holds: on the sending and on the receiving side. */
static int64_t send_shares(enum coll_kind kind, int n_ranks)
{
    if (kind == COLL_RECV)
        return 0;
    return kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_TO_ALL ? n_ranks : 1;
}

static int64_t recv_shares(enum coll_kind kind, int n_ranks)
{
    if (kind == COLL_SEND)
        return 0;
    return kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL ? n_ranks : 1;
}

static int64_t sum_of(const int64_t *table, int n_ranks)
{
    int64_t sum = 0;
    for (int i = 0; i < n_ranks; i++)
        sum += table[i];
    return sum;
}

struct coll coll_all_to_all_v(enum dtype dtype, int64_t count, int n_ranks, int me,
                              const int64_t *send, const int64_t *recv)
{
    return (struct coll){.kind = COLL_ALL_TO_ALL_V,
                         .dtype = dtype,
                         .count = count,
                         .peer = -1,
                         .send = send,
                         .recv = recv,
                         .away = sum_of(send, n_ranks) - send[me]};
}

int64_t coll_send_count(const struct coll *coll, int n_ranks)
{
    if (coll->kind == COLL_ALL_TO_ALL_V)
        return sum_of(coll->send, n_ranks);
    return coll->count * send_shares(coll->kind, n_ranks);
}

int64_t coll_recv_count(const struct coll *coll, int n_ranks)
{
    if (coll->kind == COLL_ALL_TO_ALL_V)
        return sum_of(coll->recv, n_ranks);
    return coll->count * recv_shares(coll->kind, n_ranks);
}

int64_t coll_bytes(const struct coll *coll, int n_ranks)
{
    int64_t send = send_shares(coll->kind, n_ranks), recv = recv_shares(coll->kind, n_ranks);

    return coll->count * (int64_t)dtype_size((int)coll->dtype) * (send > recv ? send : recv);
}

double coll_busbw_factor(enum coll_kind kind, int n_ranks)
{
    double n = n_ranks;

    if (kind == COLL_ALL_REDUCE)
        return 2 * (n - 1) / n;
    if (kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL ||
        kind == COLL_ALL_TO_ALL_V)
        return (n - 1) / n;
    return 1;
}

/* Multiplied before it is divided, so that whole numbers of bytes come out whole. */
double coll_wire_bytes(const struct coll *coll, int n_ranks)
{
    double bytes = (double)coll_bytes(coll, n_ranks), n = n_ranks;

    if (coll->kind == COLL_RECV)
        return 0;
    if (coll->kind == COLL_ALL_TO_ALL_V)
        return (double)coll->away * (double)dtype_size((int)coll->dtype);
    if (coll->kind == COLL_SEND || (coll->kind == COLL_SENDRECV && n_ranks > 1))
        return bytes;
    if (coll->kind == COLL_SENDRECV)
        return 0;
    return (coll->kind == COLL_ALL_REDUCE ? 2 : 1) * (n - 1) * bytes / n;
}

/* Inputs are bytes: neighbouring ranks always differ (an odd step modulo 256), and over 256 ranks
 * in a row each value occurs once, which makes the sum over many ranks a short loop. */
enum { INPUT_VALUES = 256, RANK_STEP = 151, FULL_SUM = INPUT_VALUES * (INPUT_VALUES - 1) / 2 };

static unsigned element_bits(const struct coll *coll, int64_t i, int trial)
{
    /* the two ends of a transfer draw the same values */
    unsigned kind = coll->kind == COLL_RECV ? COLL_SEND : coll->kind;
    uint64_t x = (uint64_t)i * 8 + kind + ((uint64_t)trial << 48);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)(x >> 40);
}

static unsigned input_byte(const struct coll *coll, int rank, int64_t i, int trial)
{
    return (element_bits(coll, i, trial) + (unsigned)rank * RANK_STEP) % INPUT_VALUES;
}

/* bf16 holds whole numbers up to 256 and no more: there 256 ranks of any job give 0 or 1 to a sum. */
static bool is_small_sum(const struct coll *coll)
{
    return coll->dtype == DTYPE_BF16 &&
           (coll->kind == COLL_ALL_REDUCE || coll->kind == COLL_REDUCE ||
            coll->kind == COLL_REDUCE_SCATTER);
}

static unsigned input_bit(const struct coll *coll, int rank, int64_t i, int trial)
{
    return rank < INPUT_VALUES ? (element_bits(coll, i, trial) + (unsigned)rank) & 1u : 0;
}

static double input_sum(const struct coll *coll, int n_ranks, int64_t i, int trial)
{
    int bits = 0;

    for (int rank = 0; is_small_sum(coll) && rank < n_ranks && rank < INPUT_VALUES; rank++)
        bits += (int)input_bit(coll, rank, i, trial);
    if (is_small_sum(coll))
        return bits;
    int64_t sum = (int64_t)(n_ranks / INPUT_VALUES) * FULL_SUM;

    for (int rank = n_ranks - n_ranks % INPUT_VALUES; rank < n_ranks; rank++)
        sum += input_byte(coll, rank, i, trial);
    return (double)(coll->dtype == DTYPE_U8 ? sum % INPUT_VALUES : sum);
}

/* The member whose part element i lies in; i becomes its index there. */
static int part_of(const int64_t *table, int64_t *i)
{
    int member = 0;
    for (; *i >= table[member]; member++)
        *i -= table[member];
    return member;
}

enum { PART_BITS = 36 }; /* elements of a part, below the number of the member it goes to */

static int64_t into_part(const int64_t *table, int64_t i)
{
    int64_t member = part_of(table, &i);
    return i | member << PART_BITS;
}

double coll_input(const struct coll *coll, int rank, int64_t i, int trial)
{
    if (coll->kind == COLL_ALL_TO_ALL_V)
        i = into_part(coll->send, i);
    return is_small_sum(coll) ? input_bit(coll, rank, i, trial) : input_byte(coll, rank, i, trial);
}

double coll_expected(const struct coll *coll, int n_ranks, int me, int64_t i, int trial)
{
    int64_t share = coll->count > 0 ? i / coll->count : 0;
    int64_t rest = i - share * coll->count;

    switch (coll->kind) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
        return input_sum(coll, n_ranks, i, trial);
    case COLL_REDUCE_SCATTER:
        return input_sum(coll, n_ranks, me * coll->count + i, trial);
    case COLL_ALL_GATHER:
        return coll_input(coll, (int)share, rest, trial);
    case COLL_ALL_TO_ALL:
        return coll_input(coll, (int)share, me * coll->count + rest, trial);
    case COLL_SENDRECV:
        return coll_input(coll, (me + n_ranks - 1) % n_ranks, i, trial);
    case COLL_ALL_TO_ALL_V:
        share = part_of(coll->recv, &i);
        return input_byte(coll, (int)share, i | (int64_t)me << PART_BITS, trial);
    case COLL_BROADCAST:
    case COLL_RECV:
        return coll_input(coll, coll->peer, i, trial);
    case COLL_SEND:
    case COLL_KINDS:
        break;
    }
    return 0;
}
