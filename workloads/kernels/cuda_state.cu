#include "workloads/kernels/cuda_kernel.cuh"

/*
 * The training state where it lies: initial values, sums and digests. Integer arithmetic as base/rng
 * defines it, so that the bits are those of the host. These run outside every fence and wait.
 */
enum { STATE_THREADS = 256, STATE_BLOCKS = 1024 };

static __device__ const uint64_t ODD = 0x9e3779b97f4a7c15;

__device__ inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

__device__ inline int parts(uint64_t bits)
{
    return (int)(bits & 0xffff) + (int)(bits >> 16 & 0xffff) + (int)(bits >> 32 & 0xffff) +
           (int)(bits >> 48);
}

/* sigma < 0: ones. */
template <typename T>
__global__ void fill_values(T *out, int64_t n, uint64_t key, uint64_t first, float sigma)
{
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        uint64_t x = key + (3 * (first + (uint64_t)i) + 1) * ODD;
        int sum = parts(mix(x)) + parts(mix(x + ODD)) + parts(mix(x + 2 * ODD));
        from_float(&out[i], sigma < 0 ? 1.0f : sigma * ((float)(sum - 6 * 65535) * 0x1p-16f));
    }
}

template <typename T>
static void fill(T *out, int64_t n, uint64_t key, uint64_t first, float sigma, void *native)
{
    int64_t most = STATE_BLOCKS, blocks = ceil_div(n, STATE_THREADS);
    fill_values<<<(unsigned)(blocks < most ? blocks : most), STATE_THREADS, 0, NATIVE(native)>>>(
        out, n, key, first, sigma);
    cuda_launched("normals");
}

void cuda_state_fill(float *out, int64_t n, uint64_t key, uint64_t first, float sigma, void *native)
{
    fill(out, n, key, first, sigma, native);
}

void cuda_fill_normals(void *to, enum dtype dtype, int64_t n, void *native)
{
    if (dtype == DTYPE_BF16)
        fill((bf16 *)to, n, 0, 0, 1, native);
    else
        fill((float *)to, n, 0, 0, 1, native);
}

/* ---- sums over blocks, added up on the host in their order ---- */

struct partial {
    double squares, dot;
    uint64_t digest;
};

__global__ void sum_values(const float *x, int64_t n, uint64_t key, struct partial *out)
{
    __shared__ double slots[2][WARP];
    double squares = 0, dot = 0;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        double v = (double)x[i];
        squares += v * v;
        dot += mix(key + ((uint64_t)i + 1) * ODD) >> 63 ? -v : v;
    }
    squares = block_sum(squares, slots[0]);
    dot = block_sum(dot, slots[1]);
    if (threadIdx.x == 0)
        out[blockIdx.x].squares = squares, out[blockIdx.x].dot = dot;
}

__global__ void digest_words(const uint32_t *x, int64_t n, struct partial *out)
{
    __shared__ unsigned long long total;
    unsigned long long sum = 0;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    for (int64_t i = thread_index(); i < n; i += thread_count())
        sum += mix((((uint64_t)i + 1) * ODD) ^ x[i]);
    atomicAdd(&total, sum); /* whole numbers: any order */
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x].digest = total;
}

static void fetch(struct partial *host, struct partial *device, void *native)
{
    cuda_must((int)cudaMemcpyAsync(host, device, STATE_BLOCKS * sizeof *host,
                                   cudaMemcpyDeviceToHost, NATIVE(native)),
              "state: copy of sums");
    cuda_must((int)cudaStreamSynchronize(NATIVE(native)), "state: sums");
    cuda_must((int)cudaFree(device), "state: memory of sums");
}

static struct partial *take_partials(void)
{
    struct partial *device = NULL;
    cuda_must((int)cudaMalloc(&device, STATE_BLOCKS * sizeof *device), "state: memory of sums");
    return device;
}

void cuda_state_sums(const float *x, int64_t n, uint64_t key, double sums[2], void *native)
{
    struct partial host[STATE_BLOCKS], *device = take_partials();
    sum_values<<<STATE_BLOCKS, STATE_THREADS, 0, NATIVE(native)>>>(x, n, key, device);
    cuda_launched("sums of the state");
    fetch(host, device, native);
    sums[0] = sums[1] = 0;
    for (int b = 0; b < STATE_BLOCKS; b++) {
        sums[0] += host[b].squares;
        sums[1] += host[b].dot;
    }
}

uint64_t cuda_state_digest(const void *x, int64_t bytes, void *native)
{
    struct partial host[STATE_BLOCKS], *device = take_partials();
    digest_words<<<STATE_BLOCKS, STATE_THREADS, 0, NATIVE(native)>>>((const uint32_t *)x, bytes / 4,
                                                                     device);
    cuda_launched("digest of the state");
    fetch(host, device, native);
    uint64_t sum = 0;
    for (int b = 0; b < STATE_BLOCKS; b++)
        sum += host[b].digest;
    return sum;
}
