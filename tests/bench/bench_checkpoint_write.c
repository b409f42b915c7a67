/*
 * bench_checkpoint_write [MIB=256] [PAIRS=21] [DIR=.]
 *
 * The path of a checkpoint (HDF5 layout, writer's thread, hash, O_DIRECT, fsync) against raw O_DIRECT
 * writes and fsync of the same size and depth, alternating; the first pair is left out. Beside it raw
 * against raw (A/A), the same with plain pwrite, and the first and last quarter. Medians of ratios with
 * 95 % intervals from order statistics.
 */
#define _GNU_SOURCE /* fallocate */
#include "tests/bench/bench_checkpoint_rig.h"

#include "base/rng.h"
#include "workloads/checkpoint_write.h"

static unsigned char *noise(size_t bytes)
{
    unsigned char *memory = aligned_alloc(CHECKPOINT_ALIGN, bytes);
    if (memory == NULL)
        die(FAIL_USAGE, "no memory for %zu bytes", bytes);
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t bits = rng_bits(1, i);
        memcpy(memory + 8 * i, &bits, sizeof bits);
    }
    return memory;
}

struct path { /* of one rank, without a plan: one tensor of three arrays */
    struct checkpoint_shard shard;
    struct checkpoint_save save;
    struct checkpoint_writer *writer;
    struct plan_tensor tensor;
    struct checkpoint_part part;
    unsigned char *small;
    uint64_t hash[CHECKPOINT_ARRAYS];
    double made_ns; /* the layout, before the clock */
};

static void path_open(struct path *p, unsigned char *data, int64_t bytes)
{
    int64_t n = bytes / CHECKPOINT_ARRAYS / CHECKPOINT_ALIGN * CHECKPOINT_BLOCK;
    int chunks = 0;
    memset(p, 0, sizeof *p);
    p->tensor = (struct plan_tensor){.name = "all",
                                     .rows = n,
                                     .columns = 1,
                                     .whole_rows = n,
                                     .whole_columns = 1,
                                     .n_spans = 1,
                                     .span = {{0, n}}};
    p->part = (struct checkpoint_part){0, 0, n, 0};
    p->shard = (struct checkpoint_shard){
        .world = 1, .n_tensors = 1, .tensors = &p->tensor, .n_parts = 1, .parts = &p->part, .n = n};
    struct checkpoint_chunk *list =
        must_alloc((size_t)(CHECKPOINT_ARRAYS * (n * 4 / CHUNK + 1)), sizeof *list);
    for (int64_t at = 0, step = CHUNK / 4; at < n; at += step)
        for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
            list[chunks++] = (struct checkpoint_chunk){a, at, n - at < step ? n - at : step,
                                                       (float *)(void *)data + a * n + at};
    p->small = aligned_alloc(CHECKPOINT_ALIGN, CHECKPOINT_ALIGN);
    memset(p->small, 0, CHECKPOINT_ALIGN);
    p->save.shard = &p->shard;
    p->save.chunks = list;
    p->save.n_chunks = chunks;
    p->save.small = p->small;
    p->save.hash = p->hash;
    p->save.direct = true;
    must(checkpoint_writer_start(&p->writer, 0));
}

static double path_write(struct path *p, const char *path)
{
    int64_t begin = units_now_ns();
    snprintf(p->save.path, sizeof p->save.path, "%s", path);
    must(checkpoint_file_create(path, false, &p->shard, 1, &p->save.place));
    p->made_ns = (double)(units_now_ns() - begin);
    begin = units_now_ns();
    checkpoint_writer_give(p->writer, &p->save);
    for (int i = 0; i < p->save.n_chunks; i++)
        checkpoint_writer_ready(p->writer, &p->save);
    checkpoint_save_wait(p->writer, &p->save);
    int64_t end = units_now_ns();
    unlink(path);
    if (p->save.code != 0)
        die(FAIL_FILE, "%s", p->save.why);
    return (double)(end - begin);
}

static void write_pairs(int64_t bytes, int pairs, const char *dir)
{
    double path_ns[SAMPLES], raw[SAMPLES], plain[SAMPLES], ratio[SAMPLES], aa[SAMPLES],
        with[SAMPLES], first[SAMPLES], last[SAMPLES], plain_ratio[SAMPLES];
    char name[CHECKPOINT_PATH], other[CHECKPOINT_PATH];
    unsigned char *data = noise((size_t)bytes + CHUNK);
    struct path p;
    checkpoint_path(name, sizeof name, dir, "bench_checkpoint.h5");
    checkpoint_path(other, sizeof other, dir, "bench_checkpoint.raw");
    path_open(&p, data, bytes);
    int64_t all = CHECKPOINT_ARRAYS * p.shard.n * 4;
    int n = 0;
    for (int i = 0; i < pairs; i++) { /* A B B' C and back: drift falls on all alike */
        double a = 0, b = 0, b2 = 0, c = 0;
        for (int k = 0; k < 4; k++) {
            int which = i % 2 ? 3 - k : k;
            if (which == 0)
                a = path_write(&p, name);
            else if (which == 1)
                b = raw_write(other, data, all, true);
            else if (which == 2)
                b2 = raw_write(other, data, all, true);
            else
                c = raw_write(other, data, all, false);
        }
        if (i == 0)
            continue;
        path_ns[n] = a, raw[n] = b, plain[n] = c;
        ratio[n] = 2 * b * b2 / (b + b2) / a; /* speed of the path over that of raw */
        aa[n] = b2 / b;
        plain_ratio[n] = c / a;
        with[n] = b / (a + p.made_ns);
        first[n] = (double)all / 4 / (double)(p.save.quarter_ns - p.save.begin_ns);
        last[n++] = (double)all / 4 / (double)(p.save.end_ns - p.save.three_quarters_ns);
    }
    printf("# %.1f MiB, %d pairs behind the first, O_DIRECT %s\n", (double)all / 1048576, n,
           p.save.was_direct ? "yes" : "NO");
    print_ms("checkpoint path", path_ns, n);
    print_ms("raw, several under way", raw, n);
    print_ms("raw, plain pwrite", plain, n);
    print_ratio("speed of the path / raw, several under way", ratio, n);
    print_ratio("  A/A: raw / raw", aa, n);
    print_ratio("speed of the path / raw, plain pwrite", plain_ratio, n);
    print_ratio("speed with making the layout / raw", with, n);
    print_ratio("GB/s of the first quarter", first, n);
    print_ratio("GB/s of the last quarter, fsync included", last, n);
    checkpoint_writer_stop(p.writer);
    free((void *)(uintptr_t)p.save.chunks);
    free(p.small);
    free(data);
}

int main(int argc, char **argv)
{
    int64_t mib = argc > 1 ? atoll(argv[1]) : 256;
    int pairs = argc > 2 ? atoi(argv[2]) : 21;
    write_pairs(mib << 20, pairs < SAMPLES ? pairs : SAMPLES, argc > 3 ? argv[3] : ".");
    return 0;
}
