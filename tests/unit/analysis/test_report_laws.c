/*
 * The report of a study says which law its curve follows, what its intervals are made of, whether a
 * launch kept its pace and who is late; and nothing of that where the points do not allow it.
 *
 * `unit_report_laws write PATH LAUNCH` writes the study instead, for tests/cli/test_report_fit.sh.
 */
#include "analysis/report_laws.h"

#include "analysis/collective_fit_text.h"
#include "analysis/fit_input.h"
#include "base/err.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

enum { POINTS = 6 };

/* From half-way on all takes a tenth longer. */
static void stretch(struct record_point *p)
{
    int64_t half = (p->steps.rows[0].start_ns + p->steps.rows[p->steps.n - 1].end_ns) / 2;
    for (int64_t i = 0; i < p->steps.n; i++) {
        int64_t *at[] = {&p->steps.rows[i].start_ns, &p->steps.rows[i].end_ns};
        for (int k = 0; k < 2; k++)
            if (*at[k] > half)
                *at[k] += (*at[k] - half) / 10;
    }
}

static void make_point(struct record_point *out, int index, int launch)
{
    struct synthetic s = synthetic_default(1 << index, 1);
    s.point = index;
    s.launch = 0;
    s.seed = (uint64_t)(10 * launch + index + 1);
    s.jitter = 0.01;
    s.global_batch = 64;
    s.compute_ns = 320e6 / (1 << index) * (1 + 0.004 * launch);
    s.slow_rank = index == 2 ? 3 : -1;
    s.slow_factor = 1.1;
    synthetic_point(out, &s);
    out->point.settled = index != 5;
    if (index == 4)
        stretch(out);
}

static void make_file(struct record_file *file, int points, int launch)
{
    *file = (struct record_file){.whole = true};
    strcpy(file->path, launch ? "again.h5" : "study.h5");
    synthetic_head(&file->head, 1 << (POINTS - 1), 1);
    file->head.t0_unix_ns += launch * 1000000000LL;
    file->n_points = points;
    file->points = calloc((size_t)points, sizeof *file->points);
    for (int i = 0; i < points; i++)
        make_point(&file->points[i], i, launch);
}

/* The report of the first `points` points in `launches` files. */
static char *report_of(int points, int launches, bool oversubscribed)
{
    struct record_file files[3];
    const struct record_file *list[3] = {NULL};
    struct scaling scaling;
    char *text = NULL;
    size_t size;
    for (int i = 0; i < launches; i++) {
        make_file(&files[i], points, i);
        for (int k = 3; oversubscribed && k < points; k++)
            files[i].points[k].point.oversubscribed = 1;
        list[i] = &files[i];
    }
    CHECK_EQ(scaling_init(&scaling, list, launches, 1), 0);
    struct report report = {.files = list, .n_files = launches, .scaling = &scaling, .seed = 1};
    FILE *to = open_memstream(&text, &size);
    report_text(to, &report);
    fclose(to);
    scaling_release(&scaling);
    for (int i = 0; i < launches; i++)
        record_file_release(&files[i]);
    return text;
}

static void test_section(void)
{
    char *text = report_of(POINTS, 1, false);
    const char *must[] = {
        "# laws    curve",
        "across nodes, 5 points, 2 to 32 devices",
        "# base    u = N / 2 devices",
        "amdahl     alpha",
        "extrapolated-x2",
        "extrapolated-x4",
        "1 point of one node in another regime",
        "# what an interval is made of",
        "4x1: one rank is late: rank 3 on host03, +9.9 % compute in 100 % of steps",
        "16x1: the step changes by +"};
    for (size_t i = 0; i < sizeof must / sizeof *must; i++)
        CHECK_HAS(text, must[i]);
    CHECK(strstr(text, " nan") == NULL && strstr(text, " inf") == NULL);
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        CHECK(strcspn(line, "\n") <= 140);
    free(text);
}

/* Four points, but one of them on one node: three across nodes are no section. */
static void test_no_section(void)
{
    char *text = report_of(4, 1, false);
    CHECK(strstr(text, "# laws") == NULL);
    free(text);
    text = report_of(POINTS, 1, true); /* what is left after points with more ranks than cores */
    CHECK(strstr(text, "# laws") == NULL);
    free(text);
}

/* With launches a level is named, and what another launch would give is another interval. */
static void test_launches(void)
{
    char *text = report_of(POINTS, 3, false), *line, level[16];
    int nodes, ranks, launches;
    double steps, independent, half[2], next, low, high;
    CHECK_HAS(text, "# what an interval is made of");
    line = strstr(text, "dominates");
    CHECK(line != NULL && (line = strchr(line, '\n')) != NULL);
    CHECK_EQ(sscanf(line, "%d %d %d %lf %lf %lf %lf %15s %lf %lf %lf", &nodes, &ranks, &launches,
                    &steps, &independent, &half[0], &half[1], level, &next, &low, &high),
             11);
    CHECK(nodes == 1 && ranks == 1 && launches == 3 && steps == 60);
    CHECK(half[0] > 0 && half[1] > 0 && low < next && next < high);
    CHECK_EQ(strcmp(level, half[1] > half[0] ? "launches" : "steps"), 0);
    CHECK_HAS(text, "3 launches");
    /* Half of the rate is lost at 32 devices, and no A/A reaches as far. */
    CHECK((line = strstr(text, "# is the loss real")) != NULL && strstr(line, " base\n") != NULL);
    CHECK(line != NULL && (line = strstr(line, "\n     32 ")) != NULL);
    CHECK(line != NULL && strstr(line, "lost\n") < strchr(line + 1, '\n'));
    free(text);
}

/* A table says whose it is, and that several groups were at it. */
static void calls_say_whose(const struct collective_table *table, const char *groups)
{
    char text[2048] = "";
    struct collective_fit fit;
    if (!CHECK(collective_fit_init(&fit, table) == 0))
        return;
    FILE *to = tmpfile();
    collective_fit_text(to, table, &fit, ALGORITHM_UNKNOWN);
    rewind(to);
    CHECK(fread(text, 1, sizeof text - 1, to) > 0);
    CHECK_HAS(text, "# collective all_reduce, 2 ranks, axis tp, study.h5 at 2x2 loaded: 3 sizes");
    CHECK_HAS(text, groups);
    fclose(to);
    collective_fit_release(&fit);
}

/* Four ranks in two groups of axis tp, the second a fifth slower; in the last call of each step axis dp. */
static void fill_calls(struct record_point *p, bool named)
{
    for (int step = 0; step < 2; step++)
        for (int size = 1; size <= 5; size++)
            for (int rank = 0; rank < 4; rank++) {
                struct call_row *c = RECORD_ADD(&p->collectives, 1);
                double slower = rank < 2 ? 1.0 : 1.2;
                c->variant = VARIANT_COMM;
                c->step = step;
                c->rank = rank;
                c->call = size;
                c->group = 2;
                c->first = named ? (size == 5 ? rank % 2 : rank / 2 * 2) : 0;
                c->bytes = size == 5 ? 1000000 : size * 1000000;
                c->duration_ns = (int64_t)(1000 * size * (step + 1) * slower) + rank % 2 * 500;
                strcpy(c->axis, size == 5 ? "dp" : "tp");
                strcpy(c->kind, size == 3 ? "all-to-all" : "all-reduce");
            }
}

/* Tables by axis, kind and group: of a call the shortest rank of its group, of a group the mean over
 * calls, of groups the slowest. */
static void test_collectives(void)
{
    struct record_point p = {.point = {.ranks = 4}};
    struct collective_tables tables = {0};
    fill_calls(&p, true);
    struct call_row *full = RECORD_ADD(&p.collectives, 1); /* under compute: not taken */
    *full = p.collectives.rows[0];
    full->variant = VARIANT_FULL;
    full->duration_ns = 1;
    static const char *const none[] = {"send", "recv", "all-to-all-v"};
    for (int i = 0; i < 3; i++) {
        struct call_row *c = RECORD_ADD(&p.collectives, 1);
        *c = p.collectives.rows[0];
        strcpy(c->kind, none[i]);
    }
    collective_tables_of_point(&tables, &p, "study.h5", "2x2 loaded");
    CHECK_EQ(tables.n, 3);
    const struct collective_table *dp = &tables.tables[0], *tp = &tables.tables[1];
    CHECK_EQ(strcmp(dp->axis, "dp"), 0);
    CHECK_EQ(dp->n_rows, 1); /* the size of a call on tp, and no row of its table */
    CHECK_EQ(strcmp(tp->source, "study.h5"), 0);
    CHECK_EQ(strcmp(tp->point, "2x2 loaded"), 0);
    CHECK_EQ(strcmp(tp->operation, "all_reduce"), 0);
    CHECK_EQ(strcmp(tables.tables[2].operation, "alltoall"), 0);
    CHECK_EQ(tp->at_once, 2);
    CHECK_EQ(tp->n_rows, 3);
    CHECK_NEAR(tp->rows[0].time_us, 1.2 * 1.5, 1e-9);
    CHECK_NEAR(tp->rows[1].time_us, 1.2 * 3.0, 1e-9);
    CHECK_NEAR(tp->apart, 1.2, 1e-9);
    CHECK_EQ(tp->ranks, 2);
    calls_say_whose(tp, "# - 2 groups make a call at once: times are those of the slowest group");
    collective_tables_release(&tables);
    record_point_release(&p);
}

/* A file that does not name groups: the shortest of all ranks, and that is said. */
static void test_groups_unnamed(void)
{
    struct record_point p = {.point = {.ranks = 4}};
    struct collective_tables tables = {0};
    fill_calls(&p, false);
    collective_tables_of_point(&tables, &p, "study.h5", "2x2 loaded");
    CHECK_NEAR(tables.tables[1].rows[0].time_us, 1.5, 1e-9);
    CHECK_EQ(tables.tables[1].at_once, 2);
    CHECK(isnan(tables.tables[1].apart));
    calls_say_whose(&tables.tables[1], "does not tell apart");
    collective_tables_release(&tables);
    record_point_release(&p);
}

static int write_file(const char *path, int launch)
{
    struct record_file file;
    struct record *record = NULL;
    int number, rc;
    make_file(&file, POINTS, launch);
    TRY(record_begin(&record, path, &file.head, false, &number, NULL, NULL));
    for (int i = 0; i < POINTS; i++)
        TRY(record_append(record, &file.points[i]));
    rc = record_finish(record);
out:
    record_file_release(&file);
    if (rc != 0)
        fprintf(stderr, "%s\n", fail_message());
    return rc;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "write") == 0)
        return write_file(argv[2], atoi(argv[3]));
    test_section();
    test_no_section();
    test_launches();
    test_collectives();
    test_groups_unnamed();
    return test_end();
}
