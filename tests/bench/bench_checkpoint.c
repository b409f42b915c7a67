/*
 * mpirun -np N bench_checkpoint [DEVICE=cpu] [MODEL=tiny] [SAVES=12] [DIR=.] [SHARD=1]
 *
 * What each mode of saving costs beside what it must cost: blocked against the copy that the mode must
 * make (measured here), completion against the larger of copy and disk, steps while draining against
 * quiet ones. Medians of ratios with 95 % intervals from order statistics; modes take turns, forth and
 * back, and the first save of each is left out.
 */
#define _GNU_SOURCE /* fallocate */
#include "tests/bench/bench_checkpoint_rig.h"

#include <mpi.h>

#include "driver/checkpoint_save.h"
#include "workloads/transformer.h"

static MPI_Comm world;
static int rank, size;

struct train {
    struct model model;
    struct layout layout;
    struct plan plan;
    struct input input;
    struct execute execute;
    struct saver saver;
};

static void train_open(struct train *t, const char *device, const char *name, int shard,
                       const char *dir)
{
    struct degrees degrees = {0};
    struct policy policy;
    char text[32] = "";
    struct backend backend = {.local_rank = rank};
    memset(t, 0, sizeof *t);
    must(device_find(device, &backend.device));
    must(comm_find_for(backend.device, "auto", &backend.comm));
    must(kernels_find(device, &backend.kernels));
    kernels_blas_threads(1);
    must(model_load(&t->model, name));
    policy_defaults(&policy, &t->model);
    policy.micro_batch = 1;
    policy.global_batch = size;
    policy.dtype = backend.device->runs_host_tasks ? DTYPE_F32 : DTYPE_BF16;
    policy.copy_stream = !backend.device->runs_host_tasks;
    if (shard > 1)
        snprintf(text, sizeof text, "shard=%d", shard);
    must(layout_parse(text, &degrees));
    must(layout_init(&t->layout, 1, size, rank, &degrees));
    must(transformer_plan(&t->plan, &t->model, &t->layout, &policy));
    must(input_open(&t->input, "synthetic", 1, t->model.vocabulary, t->model.sequence, 0, 0));
    struct execute_config config = {.plan = &t->plan,
                                    .backend = &backend,
                                    .input = &t->input,
                                    .parent = &world,
                                    .max_steps = 4,
                                    .fault = {.drop_op = -1},
                                    .save_stamps = saver_stamps(&t->plan, backend.device),
                                    .save_tasks = saver_tasks(&t->plan, backend.device)};
    must(execute_open(&t->execute, &config));
    execute_reset(&t->execute, 1);
    struct saver_config saves = {
        .execute = &t->execute, .parent = &world, .root = dir, .needs_snapshot = true, .keep = 1};
    must(saver_open(&t->saver, &saves));
}

/* The longest of any rank. */
static double slowest(double ns)
{
    MPI_Allreduce(MPI_IN_PLACE, &ns, 1, MPI_DOUBLE, MPI_MAX, world);
    return ns;
}

static double one_step(struct train *t)
{
    struct execute_samples samples;
    execute_block(&t->execute, VARIANT_FULL, 0, 1, -1, &samples);
    double ns = (double)(samples.step[0].end_ns - samples.step[0].start_ns);
    execute_samples_release(&samples);
    return slowest(ns);
}

/* The bytes of a save from the device to host memory, and within the device: what must be paid. */
static void floors(struct train *t, double *copy, double *within, int n)
{
    struct execute *e = &t->execute;
    struct saver *s = &t->saver;
    const struct device_type *type = e->device.type;
    static const int buffers[] = {BUFFER_MASTER, BUFFER_MOMENT1, BUFFER_MOMENT2};
    size_t bytes = (size_t)s->shard.n * sizeof(float);
    for (int i = 0; i < n; i++) {
        int64_t stamps[3];
        type->sync(&e->device);
        MPI_Barrier(world);
        for (int which = 0; which < 2; which++) {
            type->stamp(&e->device, DEVICE_COMPUTE, e->save_stamp + 2 * which);
            for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
                int buffer = a == 0 ? t->plan.master : buffers[a];
                const unsigned char *from = e->memory[buffer] + s->shard.begin * 4;
                if (which == 0)
                    type->download(&e->device, DEVICE_COMPUTE, s->slot[0].staging[a], from, bytes);
                else
                    type->upload(&e->device, DEVICE_COMPUTE, s->snapshot[a], from, bytes);
            }
            type->stamp(&e->device, DEVICE_COMPUTE, e->save_stamp + 2 * which + 1);
        }
        type->sync(&e->device);
        for (int k = 0; k < 2; k++)
            stamps[k] = type->when(&e->device, e->save_stamp + 2 * k + 1) -
                        type->when(&e->device, e->save_stamp + 2 * k);
        copy[i] = slowest((double)stamps[0]);
        within[i] = slowest((double)stamps[1]);
    }
}

struct figures {
    double blocked[SAMPLES], complete[SAMPLES], quiet[SAMPLES], drain[SAMPLES];
    int saves, n_quiet, n_drain;
};

static void save_once(struct train *t, enum save_mode mode, struct figures *f, bool keep)
{
    int ended = -1, over;
    for (int i = 0; i < 6; i++) {
        double ns = one_step(t);
        if (f->n_quiet < SAMPLES && keep && i > 0)
            f->quiet[f->n_quiet++] = ns;
    }
    saver_want(&t->saver, 0, mode);
    for (bool first = true; first || saver_under_way(&t->saver) > 0; first = false) {
        double ns = one_step(t);
        int called = saver_collect(&t->saver);
        if (called >= 0)
            ns -= slowest((double)t->saver.slot[called].held_ns);
        if (called >= 0 && t->saver.slot[called].state >= SAVE_PUBLISHED)
            ended = called;
        if (f->n_drain < SAMPLES && keep)
            f->drain[f->n_drain++] = ns;
        must(saver_poll(&t->saver, &over));
        ended = over >= 0 ? over : ended;
    }
    double blocked = slowest((double)t->saver.slot[ended].blocked_ns);
    double complete = slowest((double)t->saver.slot[ended].complete_ns);
    if (keep && f->saves < SAMPLES) {
        f->blocked[f->saves] = blocked;
        f->complete[f->saves++] = complete;
    }
    must(saver_poll(&t->saver, NULL));
}

static void scaled(double *to, const double *from, int n, double by)
{
    for (int i = 0; i < n; i++)
        to[i] = from[i] / by;
}

static void print_mode(int mode, const struct figures *f, double floor_ns, double complete_floor)
{
    double values[SAMPLES];
    char what[96];
    struct stats_interval d, q;
    printf("# %s\n", save_mode_name(mode));
    print_ms("blocked", f->blocked, f->saves);
    if (floor_ns > 0) {
        scaled(values, f->blocked, f->saves, floor_ns);
        print_ratio("blocked / the copy it must make", values, f->saves);
    }
    print_ms("complete", f->complete, f->saves);
    scaled(values, f->complete, f->saves, complete_floor);
    print_ratio("complete / max(copy, disk)", values, f->saves);
    stats_quantile_interval(f->drain, f->n_drain, 0.5, 0.95, &d);
    stats_quantile_interval(f->quiet, f->n_quiet, 0.5, 0.95, &q);
    snprintf(what, sizeof what, "median step draining (%d) / quiet (%d)", f->n_drain, f->n_quiet);
    printf("%-58s %8.4f  %8.4f .. %8.4f   p99 %.3f, blocked/step %.4f\n", what, d.value / q.value,
           d.low / q.high, d.high / q.low,
           stats_quantile(f->drain, f->n_drain, 0.99) / stats_quantile(f->quiet, f->n_quiet, 0.99),
           stats_median(f->blocked, f->saves) / q.value);
}

static void modes(const char *device, const char *name, int saves, const char *dir, int shard)
{
    static struct train t;
    static struct figures figures[SAVE_MODES];
    double copy[21], within[21], disk[5];
    char path[CHECKPOINT_PATH], file[48];
    train_open(&t, device, name, shard, dir);
    floors(&t, copy, within, 21);
    snprintf(file, sizeof file, "bench_checkpoint.raw.%d", rank);
    checkpoint_path(path, sizeof path, dir, file);
    int64_t bytes = CHECKPOINT_ARRAYS * checkpoint_padded(&t.saver.shard) * 4;
    for (int i = 0; i < 5; i++) {
        MPI_Barrier(world);
        disk[i] = slowest(raw_write(path, t.saver.slot[0].memory, bytes, true));
    }
    for (int i = 0; i <= saves; i++)
        for (int mode = 0; mode < SAVE_MODES; mode++)
            save_once(&t, (enum save_mode)(i % 2 ? SAVE_MODES - 1 - mode : mode),
                      &figures[i % 2 ? SAVE_MODES - 1 - mode : mode], i > 0);
    double to_host = stats_median(copy, 21), to_disk = stats_median(disk, 5);
    double floor_of[SAVE_MODES] = {0, to_host, stats_median(within, 21), 0};
    if (rank == 0) {
        printf("# %s on %s, %d ranks, %.4f GB a rank, %d saves behind the first\n", name, device,
               size, (double)bytes / 1e9, saves);
        printf(
            "# floors: to host memory %.3f ms (%.2f GB/s), within the device %.3f ms (%.1f GB/s), "
            "disk %.2f ms (%.3f GB/s a rank)\n",
            to_host / 1e6, (double)bytes / to_host, floor_of[SAVE_SNAPSHOT] / 1e6,
            (double)bytes / floor_of[SAVE_SNAPSHOT], to_disk / 1e6, (double)bytes / to_disk);
        for (int mode = 0; mode < SAVE_MODES; mode++)
            print_mode(mode, &figures[mode], floor_of[mode], to_host > to_disk ? to_host : to_disk);
    }
    saver_close(&t.saver);
    execute_close(&t.execute);
    input_close(&t.input);
    plan_release(&t.plan);
}

int main(int argc, char **argv)
{
    int provided;
    char root[CHECKPOINT_PATH];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    checkpoint_path(root, sizeof root, argc > 4 ? argv[4] : ".", "bench_checkpoint.d");
    modes(argc > 1 ? argv[1] : "cpu", argc > 2 ? argv[2] : "tiny", argc > 3 ? atoi(argv[3]) : 12,
          root, argc > 5 ? atoi(argv[5]) : 1);
    MPI_Comm_free(&world);
    MPI_Finalize();
    return 0;
}
