/* Memory of the "cuda" device: arenas by class, and copies through pinned memory. */
#include "base/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- arenas ---- */

static int no_memory(const struct cuda *cuda, enum device_class which, size_t bytes,
                     cudaError_t error)
{
    size_t free_bytes = 0, total = 0;

    cudaGetLastError(); /* this one is answered for; it must not end a later call */
    cudaMemGetInfo(&free_bytes, &total);
    return fail(FAIL_CUDA,
                "device: GPU %d: %zu bytes for %s: %s; %.2f of %.2f GiB are free and %.2f GiB are "
                "ours: take a smaller model or micro-batch",
                cuda->index, bytes, device_class_name((int)which), cudaGetErrorString(error),
                (double)free_bytes / 1073741824.0, (double)total / 1073741824.0,
                (double)cuda->all_bytes / 1073741824.0);
}

int device_cuda_alloc(struct device *device, enum device_class which, size_t bytes, void **out)
{
    struct cuda *cuda = device->state;
    size_t taken = bytes > 0 ? bytes : 1;
    bool exported = device->exportable && device_cuda_export_alloc(cuda, taken, out);
    cudaError_t error = exported ? cudaSuccess : cudaMalloc(out, taken);

    if (error == cudaSuccess)
        error = cudaMemsetAsync(*out, 0, taken, cuda->streams[DEVICE_COMPUTE]);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cuda->streams[DEVICE_COMPUTE]);
    device->host_waits++;
    if (error != cudaSuccess)
        return no_memory(cuda, which, bytes, error);
    cuda->now_bytes[which] += (int64_t)bytes;
    if (cuda->peak_bytes[which] < cuda->now_bytes[which])
        cuda->peak_bytes[which] = cuda->now_bytes[which];
    cuda->all_bytes += (int64_t)bytes;
    if (cuda->peak_all_bytes < cuda->all_bytes)
        cuda->peak_all_bytes = cuda->all_bytes;
    return 0;
}

void device_cuda_free(struct device *device, enum device_class which, void *memory, size_t bytes)
{
    struct cuda *cuda = device->state;

    if (memory == NULL)
        return;
    cuda->now_bytes[which] -= (int64_t)bytes;
    cuda->all_bytes -= (int64_t)bytes;
    if (!device_cuda_export_free(cuda, memory))
        cudaFree(memory);
}

void device_cuda_memory(struct device *device, struct device_memory *out)
{
    struct cuda *cuda = device->state;
    size_t free_bytes = 0, total = 0;

    device_cuda_must(cuda, cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
    memcpy(out->peak_bytes, cuda->peak_bytes, sizeof out->peak_bytes);
    out->reserved_bytes = cuda->peak_all_bytes;
    out->process_bytes = (int64_t)(total - free_bytes);
    out->capacity_bytes = (int64_t)total;
}

/* ---- the pinned ring ---- */

int device_cuda_ring_open(struct cuda *cuda)
{
    struct cuda_ring *ring = &cuda->ring;
    void *memory = NULL;
    cudaError_t error = cudaHostAlloc(&memory, CUDA_RING_BYTES, cudaHostAllocDefault);

    for (int i = 0; i < CUDA_RING_PIECES && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&ring->pieces[i].event, cudaEventDisableTiming);
    ring->memory = memory;
    if (error != cudaSuccess)
        return fail(FAIL_CUDA, "device: GPU %d: %d bytes of pinned host memory: %s", cuda->index,
                    CUDA_RING_BYTES, cudaGetErrorString(error));
    return 0;
}

void device_cuda_ring_close(struct cuda *cuda)
{
    struct cuda_ring *ring = &cuda->ring;

    for (int i = 0; i < CUDA_RING_PIECES; i++)
        if (ring->pieces[i].event != NULL)
            cudaEventDestroy(ring->pieces[i].event);
    if (ring->memory != NULL)
        cudaFreeHost(ring->memory);
    ring->memory = NULL;
}

/* The oldest piece has been copied: what it brought goes where it was wanted. */
static void retire(struct cuda_ring *ring)
{
    struct cuda_piece *piece = &ring->pieces[ring->first % CUDA_RING_PIECES];

    if (piece->to != NULL)
        memcpy(piece->to, piece->from, piece->bytes);
    ring->freed = piece->end;
    ring->first++;
}

static void wait_for_oldest(struct device *device)
{
    struct cuda *cuda = device->state;
    struct cuda_ring *ring = &cuda->ring;
    cudaEvent_t event = ring->pieces[ring->first % CUDA_RING_PIECES].event;

    if (cudaEventQuery(event) != cudaSuccess) {
        cudaGetLastError(); /* not ready is no error, and yet kept as the last one */
        device->host_waits++;
        device_cuda_must(cuda, cudaEventSynchronize(event), "cudaEventSynchronize");
    }
    retire(ring);
}

void device_cuda_ring_settle(struct device *device)
{
    struct cuda *cuda = device->state;

    while (cuda->ring.first < cuda->ring.next)
        retire(&cuda->ring);
}

/* Room for `bytes` in one run; *where is in the ring. The end of the ring is skipped, not split. */
static struct cuda_piece *take(struct device *device, size_t bytes, unsigned char **where)
{
    struct cuda *cuda = device->state;
    struct cuda_ring *ring = &cuda->ring;
    size_t at = ring->taken % CUDA_RING_BYTES;
    size_t begin = at + bytes <= CUDA_RING_BYTES ? ring->taken : ring->taken + CUDA_RING_BYTES - at;
    struct cuda_piece *piece;

    while (ring->first < ring->next && (begin + bytes - ring->freed > CUDA_RING_BYTES ||
                                        ring->next - ring->first == CUDA_RING_PIECES))
        wait_for_oldest(device);
    if (ring->first == ring->next)
        ring->freed = begin;
    *where = ring->memory + begin % CUDA_RING_BYTES;
    ring->taken = begin + (bytes + 255) / 256 * 256;
    piece = &ring->pieces[ring->next++ % CUDA_RING_PIECES];
    piece->end = ring->taken;
    piece->to = NULL;
    return piece;
}

enum { PIECE_BYTES = CUDA_RING_BYTES / 8 };

/* Whether the runtime can copy from or to this memory without a stop: pinned, or on a device. */
static bool is_known(const struct cuda *cuda, const void *memory)
{
    struct cudaPointerAttributes attributes;

    device_cuda_must(cuda, cudaPointerGetAttributes(&attributes, memory),
                     "cudaPointerGetAttributes");
    return attributes.type != cudaMemoryTypeUnregistered;
}

static void copy(const struct cuda *cuda, int stream, void *to, const void *from, size_t bytes)
{
    device_cuda_must(cuda,
                     cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda->streams[stream]),
                     "cudaMemcpyAsync");
}

static void record(const struct cuda *cuda, int stream, const struct cuda_piece *piece)
{
    device_cuda_must(cuda, cudaEventRecord(piece->event, cuda->streams[stream]), "cudaEventRecord");
}

void device_cuda_upload(struct device *device, int stream, void *to, const void *from, size_t bytes)
{
    struct cuda *cuda = device->state;
    bool direct = bytes > 0 && is_known(cuda, from);

    if (direct)
        copy(cuda, stream, to, from, bytes);
    for (size_t done = 0, n; done < bytes && !direct; done += n) {
        unsigned char *where;
        struct cuda_piece *piece;
        n = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        piece = take(device, n, &where);
        memcpy(where, (const unsigned char *)from + done, n);
        copy(cuda, stream, (unsigned char *)to + done, where, n);
        record(cuda, stream, piece);
    }
}

void device_cuda_download(struct device *device, int stream, void *to, const void *from,
                          size_t bytes)
{
    struct cuda *cuda = device->state;
    bool direct = bytes > 0 && is_known(cuda, to);

    if (direct)
        copy(cuda, stream, to, from, bytes);
    for (size_t done = 0, n; done < bytes && !direct; done += n) {
        unsigned char *where;
        struct cuda_piece *piece;
        n = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        piece = take(device, n, &where);
        piece->from = where;
        piece->bytes = n;
        copy(cuda, stream, where, (const unsigned char *)from + done, n);
        record(cuda, stream, piece);
        piece->to = (unsigned char *)to + done;
    }
}

void device_cuda_fill(struct device *device, int stream, void *memory, int byte, size_t bytes)
{
    struct cuda *cuda = device->state;

    if (bytes > 0)
        device_cuda_must(cuda, cudaMemsetAsync(memory, byte, bytes, cuda->streams[stream]),
                         "cudaMemsetAsync");
}
