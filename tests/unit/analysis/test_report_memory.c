/* The memory table has a row per point and class, however many launches are merged: of the launch and rank
 * that hold most, or of all where all hold as much. */
#include <stdlib.h>
#include <string.h>

#include "analysis/report_memory.h"
#include "analysis/scaling.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

enum { LAUNCHES = 3 };

static void add_class(struct record_point *p, const char *class, int rank, int64_t mib)
{
    struct memory_row *row = RECORD_ADD(&p->memory, 1);
    snprintf(row->class, sizeof row->class, "%s", class);
    row->rank = rank;
    row->peak_bytes = mib << 20;
    row->predicted_bytes = mib << 20;
}

/* Arenas are those of the plan in every launch; the process grows, most in launch 1. */
static void fill(struct record_file *file, struct record_point *points, int launch)
{
    static const int64_t process[LAUNCHES] = {200, 230, 210};
    synthetic_head(&file->head, 2, 1);
    file->head.t0_unix_ns += launch;
    file->points = points;
    for (int i = 0; i < 2; i++) {
        struct synthetic s = synthetic_default(1 + i, 1);
        s.point = i;
        synthetic_point(&points[i], &s);
        points[i].memory.n = 0;
        for (int rank = 0; rank <= i; rank++) {
            add_class(&points[i], "parameters", rank, 10 + rank);
            add_class(&points[i], "process", rank, process[launch] - rank);
        }
    }
    file->n_points = 2;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

static char *table(const struct record_file *const *files, int n)
{
    struct scaling scaling;
    char *text = NULL;
    size_t size = 0;
    CHECK_EQ(scaling_init(&scaling, files, n, 1), 0);
    FILE *to = open_memstream(&text, &size);
    report_memory(to, &scaling, n > 1);
    fclose(to);
    scaling_release(&scaling);
    return text;
}

int main(void)
{
    static struct record_point points[LAUNCHES][2];
    static struct record_file files[LAUNCHES];
    const struct record_file *list[LAUNCHES];
    for (int i = 0; i < LAUNCHES; i++) {
        fill(&files[i], points[i], i);
        list[i] = &files[i];
    }
    char *one = table(list, 1), *all = table(list, LAUNCHES);
    CHECK_EQ(count(one, " parameters "), 2);
    CHECK_EQ(count(all, " parameters "), 2); /* not six */
    CHECK_EQ(count(all, " process "), 2);
    CHECK_EQ(count(all, " all "), 2);
    CHECK_EQ(count(all, " 1.0 "), 2); /* launch 0 of the second file */
    CHECK_HAS(all, "230.00");
    CHECK(strstr(all, "210.00") == NULL);
    CHECK_HAS(all, "11.00"); /* rank 1 of two holds most */
    free(one);
    free(all);
    for (int i = 0; i < LAUNCHES; i++) {
        record_head_release(&files[i].head);
        for (int k = 0; k < 2; k++)
            record_point_release(&points[i][k]);
    }
    return test_end();
}
