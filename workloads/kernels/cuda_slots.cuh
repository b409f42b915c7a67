/*
 * cuda_slots: tiles on their way to shared memory by Hopper's copy unit (TMA), and barriers that tell
 * how much has arrived. A tile lies as cuda_wgmma.cuh says. For sm_90 and later.
 *
 * Two slots that tiles pass through in turn: tile i is in slot i % 2. full: it has arrived; empty:
 * every warp is done with it. One thread fills, and waits for a slot that a warp still reads.
 */
#ifndef WORKLOADS_KERNELS_CUDA_SLOTS_CUH
#define WORKLOADS_KERNELS_CUDA_SLOTS_CUH

#include "workloads/kernels/cuda_attention.cuh"
#include "workloads/kernels/cuda_tensor_map.h"
#include "workloads/kernels/cuda_wgmma.cuh"

/* ---- barriers in shared memory, and what arrives ---- */

__device__ inline unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}
__device__ inline void barrier_open(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}
/* After a thread has opened barriers: for the copy unit and, with a barrier of the block, for all. */
__device__ inline void barriers_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::
                     : "memory");
}
__device__ inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}
/* Arrives, and so many bytes must, too. */
__device__ inline void barrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}
/* Until the phase of this parity is over: 0 the first time, then 1, 0... */
__device__ inline void barrier_wait(uint64_t *barrier, int parity)
{
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
                 "@!p bra again;}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* Rows row.. of a head on their way into a tile of ROWS, all D columns; by one thread. */
template <int ROWS, int D>
__device__ inline void copy_rows(bf16 *tile, const tensor_map *map, int row, int head, int sample,
                                 uint64_t *arrived)
{
    static_assert(ROWS % 64 == 0, "boxes of 64 rows");
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
#pragma unroll
        for (int r = 0; r < ROWS; r += 64)
            asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
                         "bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
                             shared_address(tile + panel * ROWS * PANEL + r * PANEL)),
                         "l"(map), "r"(shared_address(arrived)), "r"(panel * PANEL), "r"(row + r),
                         "r"(head), "r"(sample)
                         : "memory");
}
/* Bytes of global memory on their way; everything at whole 16 bytes. By one thread. */
__device__ inline void copy_bytes(void *to, const void *from, int bytes, uint64_t *arrived)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(arrived))
        : "memory");
}

/* ---- slots ---- */

struct slots {
    uint64_t *full, *empty; /* [2] */
};
enum { SLOT_BARRIERS = 4 };

__device__ inline slots slots_open(uint64_t *barriers, int warps)
{
    slots s = {barriers, barriers + 2};
    for (int i = 0; i < 2 && threadIdx.x == 0; i++)
        barrier_open(s.full + i, 1), barrier_open(s.empty + i, warps);
    return s;
}
/* Before tile i is filled, by the thread that does. */
__device__ inline uint64_t *slot_fill(const slots &s, int i, int bytes)
{
    if (i >= 2)
        barrier_wait(s.empty + i % 2, i / 2 % 2 ^ 1);
    barrier_expect(s.full + i % 2, bytes);
    return s.full + i % 2;
}
__device__ inline void slot_wait(const slots &s, int i)
{
    barrier_wait(s.full + i % 2, i / 2 % 2);
}
__device__ inline void slot_leave(const slots &s, int i)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        barrier_arrive(s.empty + i % 2);
}

/* ---- maps of an attention op's tensors ---- */

static inline void map_queries(tensor_map *map, const attention<bf16> &a, const bf16 *at,
                               int samples)
{
    struct tensor_rows of = {at, a.row, a.q_sample, a.head, a.heads, a.queries, samples};
    cuda_tensor_map(map, &of);
}
static inline void map_keys(tensor_map *map, const attention<bf16> &a, const bf16 *at, int samples)
{
    struct tensor_rows of = {at, a.kv_row, a.kv_sample, a.head, a.kv_heads, a.keys, samples};
    cuda_tensor_map(map, &of);
}
static inline void map_results(tensor_map *map, const attention<bf16> &a, const bf16 *at,
                               int samples)
{
    struct tensor_rows of = {at, a.out_row, a.out_sample, a.head, a.heads, a.queries, samples};
    cuda_tensor_map(map, &of);
}

#endif
