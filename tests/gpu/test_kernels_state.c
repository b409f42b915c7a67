/* Initial values, sums and digests of the training state where it lies: the bits of the host. */
#include "tests/gpu/gpu_rig.h"

enum { MOST = 3000017 };

static void *stream_of(struct gpu_rig *rig)
{
    return rig->device.type->native(&rig->device, 0);
}

static void fetch(struct gpu_rig *rig, float *to, const float *from, int64_t n)
{
    rig->device.type->download(&rig->device, 0, to, from, (size_t)n * sizeof *to);
    rig->device.type->sync(&rig->device);
}

static void test_fill(struct gpu_rig *rig, float *there, int64_t n, uint64_t first, float sigma)
{
    float *got = malloc((size_t)n * sizeof *got), *want = malloc((size_t)n * sizeof *want);
    uint64_t key = rng_key(7, "h.3.attn.qkv.weight");
    CHECK(got != NULL && want != NULL);
    kernels_cuda.fill(there, n, key, first, sigma, stream_of(rig));
    fetch(rig, got, there, n);
    rng_fill_normal(want, n, key, first, sigma);
    for (int64_t i = 0; i < n && sigma < 0; i++)
        want[i] = 1;
    CHECK(memcmp(got, want, (size_t)n * sizeof *got) == 0);
    free(got);
    free(want);
}

/* 1e-13: partial sums of 3e6 terms in fp64, against long double. */
static void test_sums(struct gpu_rig *rig, float *there, int64_t n)
{
    float *host = malloc((size_t)n * sizeof *host);
    long double want[2] = {0, 0};
    double sums[2], again[2];
    CHECK(host != NULL);
    kernels_cuda.fill(there, n, 11, 0, 0.5f, stream_of(rig));
    fetch(rig, host, there, n);
    for (int64_t i = 0; i < n; i++) {
        want[0] += (long double)host[i] * (long double)host[i];
        want[1] += (long double)rng_sign(99, (uint64_t)i) * (long double)host[i];
    }
    kernels_cuda.sums(there, n, 99, sums, stream_of(rig));
    kernels_cuda.sums(there, n, 99, again, stream_of(rig));
    CHECK_NEAR(sums[0], (double)want[0], 1e-13 * (double)want[0]);
    CHECK_NEAR(sums[1], (double)want[1], 1e-13 * (double)want[0]);
    CHECK(memcmp(sums, again, sizeof sums) == 0);
    free(host);
}

/* One bit anywhere, or two elements that change places. */
static void test_digest(struct gpu_rig *rig, float *there, int64_t n)
{
    uint32_t word, other;
    unsigned char *bytes = (unsigned char *)there;
    size_t size = (size_t)n * sizeof *there;
    uint64_t before = kernels_cuda.digest(there, (int64_t)size, stream_of(rig));
    CHECK(kernels_cuda.digest(there, (int64_t)size, stream_of(rig)) == before);
    for (size_t at = 0; at < size; at += size / 4 * 4 / 7 / 4 * 4 + 4) {
        fetch(rig, (float *)(void *)&word, (const float *)(const void *)(bytes + at), 1);
        other = word ^ 1;
        rig->device.type->upload(&rig->device, 0, bytes + at, &other, sizeof other);
        rig->device.type->sync(&rig->device);
        CHECK(kernels_cuda.digest(there, (int64_t)size, stream_of(rig)) != before);
        rig->device.type->upload(&rig->device, 0, bytes + at, &word, sizeof word);
        rig->device.type->sync(&rig->device);
    }
    CHECK(kernels_cuda.digest(there, (int64_t)size, stream_of(rig)) == before);
    uint32_t pair[2], swapped[2];
    fetch(rig, (float *)(void *)pair, there, 2);
    swapped[0] = pair[1], swapped[1] = pair[0];
    rig->device.type->upload(&rig->device, 0, there, swapped, sizeof swapped);
    rig->device.type->sync(&rig->device);
    CHECK(kernels_cuda.digest(there, (int64_t)size, stream_of(rig)) != before);
}

int main(void)
{
    static const int64_t sizes[] = {2, 255, 4096, 262145, MOST};
    struct gpu_rig rig;
    void *there = NULL;
    int rc = gpu_rig_open(&rig);
    if (rc != 0)
        return rc;
    gpu_must(rig.device.type->alloc(&rig.device, DEVICE_TEMPORARIES, MOST * sizeof(float), &there));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        test_fill(&rig, there, sizes[i], 0, 0.02f);
        test_fill(&rig, there, sizes[i], UINT64_C(5000000000), 0.011f);
        test_fill(&rig, there, sizes[i], 3, -1);
        test_sums(&rig, there, sizes[i]);
        test_digest(&rig, there, sizes[i]);
    }
    rig.device.type->free(&rig.device, DEVICE_TEMPORARIES, there, MOST * sizeof(float));
    gpu_rig_close(&rig);
    return test_end();
}
