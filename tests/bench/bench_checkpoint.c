/*
 * mpirun -np N bench_checkpoint [DEVICE=cpu [MODEL=tiny]] [WORD=VALUE]...
 *
 *   dir=.  saves=12  shard=1  batch=1 (of a rank)
 *   modes=sync,staged,snapshot,lazy
 *   raw=on     a raw write before and after each save; off: no completion floor, saves alone
 *   drain=0    instead of the above: until so many steps beside a draining save and so many quiet ones
 *   throttle=0 bytes/s of the writer
 *
 * What each mode of saving costs beside what it must cost. Blocked against the copy that the mode must
 * make, measured in this launch. Completion against the larger of that copy and the mean of the raw
 * writes just before and behind it: O_DIRECT, several under way, fsync, the same bytes into as many
 * files by as many processes; A/A is raw against raw. Modes take turns, forth and back, and the first
 * save of each is left out. Every save has a line as soon as it is over, with where its time went.
 * Medians with 95 % intervals from order statistics.
 */
#define _GNU_SOURCE /* fallocate */
#include "tests/bench/bench_checkpoint_train.h"

/* ---- what must be paid ---- */

/* The longest of any rank. */
static double slowest(double ns)
{
    MPI_Allreduce(MPI_IN_PLACE, &ns, 1, MPI_DOUBLE, MPI_MAX, world);
    return ns;
}

/* The bytes of a save from the device to host memory (which 0), or within the device. */
static double copied(struct train *t, int which)
{
    static const int buffers[] = {BUFFER_MASTER, BUFFER_MOMENT1, BUFFER_MOMENT2};
    struct execute *e = &t->execute;
    struct saver *s = &t->saver;
    const struct device_type *type = e->device.type;
    size_t bytes = (size_t)s->shard.n * sizeof(float);
    type->sync(&e->device);
    MPI_Barrier(world);
    type->stamp(&e->device, DEVICE_COMPUTE, e->save_stamp);
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
        int buffer = a == 0 ? t->plan.master : buffers[a];
        const unsigned char *from = e->memory[buffer] + s->shard.begin * 4;
        if (which == 0)
            type->download(&e->device, DEVICE_COMPUTE, s->slot[0].staging[a], from, bytes);
        else
            type->upload(&e->device, DEVICE_COMPUTE, s->snapshot[a], from, bytes);
    }
    type->stamp(&e->device, DEVICE_COMPUTE, e->save_stamp + 1);
    type->sync(&e->device);
    return slowest((double)(type->when(&e->device, e->save_stamp + 1) -
                            type->when(&e->device, e->save_stamp)));
}

static double raw(const struct train *t, const struct ask *ask)
{
    char path[CHECKPOINT_PATH], file[48];
    snprintf(file, sizeof file, "raw.%d", rank);
    checkpoint_path(path, sizeof path, ask->dir, file);
    MPI_Barrier(world);
    return slowest(raw_write(path, t->block, t->bytes, true));
}

/* ---- steps and saves ---- */

static double one_step(struct train *t)
{
    struct execute_samples samples;
    execute_block(&t->execute, VARIANT_FULL, 0, 1, -1, &samples);
    double ns = (double)(samples.step[0].end_ns - samples.step[0].start_ns);
    execute_samples_release(&samples);
    return slowest(ns);
}

struct series {
    double x[SAMPLES];
    int n;
};

static void put(struct series *s, double x)
{
    if (s->n < SAMPLES)
        s->x[s->n++] = x;
}

struct figures { /* of one mode */
    struct series blocked, held, complete, floor, aa, call, quiet, drain, windows;
};

/* Where the time of a save went, ns, the slowest rank's of each; what follows the notes is rank 0's. */
enum part { WOKEN, STAGED, POSTED, LANDED, SYNCED, NOTED, TOGETHER, PUBLISHED, PARTS };
static const char *const part_names[PARTS] = {"woken",   "staged", "posted",   "landed",
                                              "fsynced", "noted",  "together", "published"};

static void parts(const struct saver_slot *slot, double *ns)
{
    const struct checkpoint_save *w = &slot->save;
    double at[PARTS] = {(double)(w->begin_ns - slot->call_begin_ns),
                        (double)slot->staged_ns,
                        (double)(w->posted_ns - slot->call_begin_ns),
                        (double)(w->landed_ns - slot->call_begin_ns),
                        (double)(w->end_ns - slot->call_begin_ns),
                        (double)(slot->noted_ns - slot->call_begin_ns),
                        rank == 0 ? (double)(slot->together_ns - slot->call_begin_ns) : 0,
                        (double)slot->complete_ns};
    MPI_Allreduce(at, ns, PARTS, MPI_DOUBLE, MPI_MAX, world);
}

struct one {
    double blocked, held, complete, at[PARTS];
};

/* Quiet steps, the call and its step, steps until it is over. f may be NULL. */
static void save_once(struct train *t, enum save_mode mode, int quiet, struct figures *f,
                      struct one *one)
{
    int ended = -1, over, n_drain = 0, from = f ? f->drain.n : 0;
    struct series window = {.n = 0};
    for (int i = 0; i < quiet; i++) {
        double ns = one_step(t);
        if (f != NULL && i > 0)
            put(&f->quiet, ns), put(&window, ns);
    }
    saver_want(&t->saver, 0, mode);
    double ns = one_step(t);
    int called = saver_collect(&t->saver);
    one->held = slowest((double)t->saver.slot[called].held_ns);
    if (f != NULL)
        put(&f->call, ns - one->held);
    if (t->saver.slot[called].state >= SAVE_PUBLISHED)
        ended = called;
    while (saver_under_way(&t->saver) > 0) {
        must(saver_poll(&t->saver, &over));
        ended = over >= 0 ? over : ended;
        if (saver_under_way(&t->saver) == 0)
            break;
        ns = one_step(t);
        if (f != NULL)
            put(&f->drain, ns), n_drain++;
    }
    const struct saver_slot *slot = &t->saver.slot[ended];
    if (slot->state == SAVE_LOST)
        die(FAIL_FILE, "%s", slot->why);
    one->blocked = slowest((double)slot->blocked_ns);
    one->complete = slowest((double)slot->complete_ns);
    parts(slot, one->at);
    if (n_drain > 0 && window.n > 0)
        put(&f->windows,
            stats_median(f->drain.x + from, f->drain.n - from) / stats_median(window.x, window.n));
    must(saver_poll(&t->saver, NULL));
}

static void say_save(int mode, int i, const struct one *one, double copy, double floor_ns)
{
    if (rank != 0)
        return;
    printf("%-8s %3d  blocked %9.3f ms", save_mode_name(mode), i, one->blocked / 1e6);
    if (copy > 0)
        printf(" (%.3f of the copy)", one->blocked / copy);
    printf("  complete %9.2f ms", one->complete / 1e6);
    if (floor_ns > 0)
        printf(" (%.3f of %.2f)", one->complete / floor_ns, floor_ns / 1e6);
    printf(" ");
    for (int p = 0; p < PARTS; p++)
        printf(" %s %.1f", part_names[p], one->at[p] / 1e6);
    printf("\n");
    fflush(stdout);
}

/* ---- modes in turn ---- */

static void scaled(double *to, const struct series *from, const double *by, double all)
{
    for (int i = 0; i < from->n; i++)
        to[i] = from->x[i] / (by ? by[i] : all);
}

static void print_steps(const struct figures *f, const char *what)
{
    char line[96];
    struct stats_interval d, q;
    if (f->drain.n == 0)
        return;
    stats_quantile_interval(f->drain.x, f->drain.n, 0.5, 0.95, &d);
    stats_quantile_interval(f->quiet.x, f->quiet.n, 0.5, 0.95, &q);
    snprintf(line, sizeof line, "%s: median of %d steps / %d quiet", what, f->drain.n, f->quiet.n);
    printf("%-58s %8.4f  %8.4f .. %8.4f   p99 %.4f, quiet step %.3f ms\n", line, d.value / q.value,
           d.low / q.high, d.high / q.low,
           stats_quantile(f->drain.x, f->drain.n, 0.99) /
               stats_quantile(f->quiet.x, f->quiet.n, 0.99),
           q.value / 1e6);
    print_ratio("  the same, each save against the quiet steps before it", f->windows.x,
                f->windows.n);
    printf("%-58s %8.4f\n", "  step of the call, without what it was held",
           stats_median(f->call.x, f->call.n) / q.value);
}

static void print_mode(int mode, const struct figures *f, double copy)
{
    static double values[SAMPLES];
    printf("# %s\n", save_mode_name(mode));
    print_ms("blocked", f->blocked.x, f->blocked.n);
    if (copy > 0) {
        scaled(values, &f->blocked, NULL, copy);
        print_ratio("blocked / the copy it must make", values, f->blocked.n);
    }
    scaled(values, &f->blocked, NULL, stats_median(f->quiet.x, f->quiet.n));
    print_ratio("blocked / quiet step", values, f->blocked.n);
    print_ms("complete", f->complete.x, f->complete.n);
    if (f->floor.n > 0) {
        scaled(values, &f->complete, f->floor.x, 0);
        print_ratio("complete / max(copy, raw)", values, f->complete.n);
        print_ratio("  A/A: raw behind / raw before", f->aa.x, f->aa.n);
    }
    print_steps(f, "draining");
    fflush(stdout);
}

struct floors {
    double copy[SAVE_MODES]; /* what a mode cannot but make; 0: none */
    double to_host;
};

static void measure_floors(struct train *t, struct floors *floors)
{
    enum { COPIES = 11 };
    double host[COPIES], within[COPIES];
    for (int i = 0; i < COPIES; i++) {
        host[i] = copied(t, 0);
        within[i] = copied(t, 1);
    }
    memset(floors, 0, sizeof *floors);
    floors->copy[SAVE_STAGED] = floors->to_host = stats_median(host, COPIES);
    floors->copy[SAVE_SNAPSHOT] = stats_median(within, COPIES);
    if (rank == 0)
        printf("# floors: to host memory %.3f ms (%.2f GB/s), within the device %.3f ms (%.1f "
               "GB/s)\n",
               floors->to_host / 1e6, (double)t->bytes / floors->to_host,
               floors->copy[SAVE_SNAPSHOT] / 1e6, (double)t->bytes / floors->copy[SAVE_SNAPSHOT]);
    fflush(stdout);
}

static void in_turn(struct train *t, const struct ask *ask, const struct floors *floors)
{
    static struct figures figures[SAVE_MODES];
    double before = ask->raw ? raw(t, ask) : 0;
    for (int i = 0; i <= ask->saves; i++)
        for (int k = 0; k < ask->n_modes; k++) {
            int mode = ask->mode[i % 2 ? ask->n_modes - 1 - k : k];
            struct figures *f = &figures[mode];
            struct one one;
            save_once(t, (enum save_mode)mode, 6, i > 0 ? f : NULL, &one);
            double behind = ask->raw ? raw(t, ask) : 0, disk = (before + behind) / 2;
            double floor_ns = disk > floors->to_host || disk <= 0 ? disk : floors->to_host;
            say_save(mode, i, &one, floors->copy[mode], floor_ns);
            if (i > 0) {
                put(&f->blocked, one.blocked);
                put(&f->complete, one.complete);
            }
            if (i > 0 && ask->raw) {
                put(&f->floor, floor_ns);
                put(&f->aa, behind / before);
            }
            before = behind;
        }
    for (int k = 0; k < ask->n_modes && rank == 0; k++)
        print_mode(ask->mode[k], &figures[ask->mode[k]], floors->copy[ask->mode[k]]);
}

/* ---- steps beside a draining save ---- */

static void draining(struct train *t, const struct ask *ask, const struct floors *floors)
{
    for (int k = 0; k < ask->n_modes; k++) {
        static struct figures f;
        struct one one;
        int mode = ask->mode[k], quiet = 20;
        memset(&f, 0, sizeof f);
        save_once(t, (enum save_mode)mode, 10, NULL, &one);
        for (int i = 1; f.drain.n < ask->drain || f.quiet.n < ask->drain; i++) {
            int had = f.drain.n;
            save_once(t, (enum save_mode)mode, quiet, &f, &one);
            quiet = f.drain.n - had < 20 ? 20 : f.drain.n - had + 1;
            say_save(mode, i, &one, floors->copy[mode], 0);
            if (f.drain.n == had && i >= 20)
                break; /* saves of this mode are over before a step is */
        }
        if (rank == 0)
            print_steps(&f, save_mode_name(mode));
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static struct train t;
    struct floors floors;
    int provided;
    struct ask ask = {.device = argc > 1 ? argv[1] : "cpu",
                      .model = argc > 2 ? argv[2] : "tiny",
                      .saves = 12,
                      .shard = 1,
                      .batch = 1,
                      .raw = true};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    checkpoint_path(ask.dir, sizeof ask.dir, ".", "bench_checkpoint.d");
    read_modes(&ask, "sync,staged,snapshot,lazy");
    for (int i = 3; i < argc; i++)
        read_word(&ask, argv[i]);
    train_open(&t, &ask);
    if (rank == 0)
        printf("# %s on %s, %d ranks, %.4f GB a rank, %d saves behind the first\n", ask.model,
               ask.device, size, (double)t.bytes / 1e9, ask.saves);
    measure_floors(&t, &floors);
    if (ask.drain > 0)
        draining(&t, &ask, &floors);
    else
        in_turn(&t, &ask, &floors);
    train_close(&t);
    MPI_Comm_free(&world);
    MPI_Finalize();
    return 0;
}
