/* Whatever is in a file, reading it gives a study or one sentence: never a crash, a hang or rows
 * that index past what they name. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/record_child.h"
#include "analysis/record_hdf5.h"
#include "analysis/record_parts.h"
#include "analysis/record_stream.h"
#include "base/units.h"
#include "tests/record_folder.h"

static void make_study(const char *path, bool finish, char digest)
{
    struct record *record;
    struct record_head head;
    fill_head(&head, 4, 1);
    head.study_digest[0] = digest;
    CHECK_EQ(record_begin(&record, path, &head, false, NULL, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct record_point point;
        fill_point(&point, i, 5, 7);
        CHECK_EQ(record_append(record, &point), 0);
        record_point_release(&point);
    }
    if (finish)
        CHECK_EQ(record_finish(record), 0);
    else
        record_abandon(record);
    record_head_release(&head);
}

/* Reading fails with FAIL_FILE and these words. */
static void refuses(const char *path, const char *words)
{
    struct record_file file;
    CHECK_EQ(record_read(&file, path), FAIL_FILE);
    CHECK_HAS(fail_message(), words);
    CHECK(file.points == NULL && file.n_points == 0);
    fail_clear();
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *to = fopen(path, "wb");
    CHECK(to != NULL && fwrite(bytes, 1, size, to) == size && fclose(to) == 0);
}

static char *read_bytes(const char *path, size_t *size)
{
    struct stat found;
    CHECK_EQ(stat(path, &found), 0);
    *size = (size_t)found.st_size;
    char *bytes = must_alloc(*size + 1, 1);
    FILE *from = fopen(path, "rb");
    CHECK(from != NULL && fread(bytes, 1, *size, from) == *size && fclose(from) == 0);
    return bytes;
}

/* Reads, or refuses in one line. Returns whether it was read. */
static bool survives(const char *path)
{
    struct record_file file;
    int rc = record_read(&file, path);
    CHECK(rc == 0 || (rc == FAIL_FILE && strchr(fail_message(), '\n') == NULL &&
                      strstr(fail_message(), path) != NULL));
    fail_clear();
    if (rc == 0)
        record_file_release(&file);
    return rc == 0;
}

static void test_truncated(const char *bytes, size_t size)
{
    int n_read = 0;
    for (uint64_t i = 0; i < 200; i++) {
        write_file(at("cut.h5"), bytes, (size_t)(rng_bits(3, i) % size));
        n_read += survives(at("cut.h5"));
    }
    CHECK_EQ(n_read, 0); /* HDF5 knows how long its file is */
}

/* One to eight bytes changed; half of the copies among the first 8 KB, where the structure is. */
static void test_flipped(char *bytes, size_t size, int copies)
{
    int n_read = 0;
    for (uint64_t i = 0; i < (uint64_t)copies; i++) {
        char *copy = must_alloc(size, 1);
        memcpy(copy, bytes, size);
        size_t among = i % 2 == 0 || size < 8192 ? size : 8192;
        for (uint64_t k = 0; k <= i % 8; k++)
            copy[rng_bits(5, 16 * i + k) % among] ^= (char)(1 + rng_below(6, 16 * i + k, 255));
        write_file(at("flip.h5"), copy, size);
        free(copy);
        n_read += survives(at("flip.h5"));
    }
    printf("%d of %d damaged copies could be read\n", n_read, copies);
}

static void test_flipped_part(int copies)
{
    size_t size;
    make_study(at("p.h5"), false, 'a');
    char *bytes = read_bytes(at("p.h5.parts/001.h5"), &size);
    for (uint64_t i = 0; i < (uint64_t)copies; i++) {
        size_t where = rng_bits(9, i) % size;
        bytes[where] ^= (char)0x55;
        write_file(at("p.h5.parts/001.h5"), bytes, size);
        bytes[where] ^= (char)0x55;
        survives(at("p.h5.parts"));
    }
    write_file(at("p.h5.parts/001.h5"), bytes, size);
    CHECK(survives(at("p.h5.parts")));
    write_file(at("p.h5.parts/003.h5"), bytes, size);
    refuses(at("p.h5.parts"), "003.h5: damaged file: 003 is not a point");
    unlink(at("p.h5.parts/003.h5"));
    free(bytes);
}

static void test_foreign_part(void)
{
    make_study(at("q.h5"), false, 'a');
    make_study(at("r.h5"), false, 'b');
    CHECK(survives(at("q.h5.parts")));
    CHECK_EQ(rename(at("r.h5.parts/001.h5"), at("q.h5.parts/001.h5")), 0);
    refuses(at("q.h5.parts"), "q.h5.parts/001.h5: part of another study");
}

static void test_names(void)
{
    const char *good[] = {"000", "012", "1234", "007.launch3"};
    const char *bad[] = {"1",   "0001",         "-01",          "+01",
                         " 01", "001x",         "001.launch",   "head",
                         "",    "001.launch-1", "001.launch01", "99999999999999999999"};
    struct record_part part;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(record_part_parse(&part, good[i]));
    CHECK(part.point == 7 && part.launch == 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!record_part_parse(&part, bad[i]));
}

static void test_not_ours(void)
{
    int64_t file;
    refuses(at("missing.h5"), "missing.h5: No such file or directory");
    refuses("/dev/zero", "neither a file nor a folder");
    write_file(at("text.h5"), "not what it says", 16);
    refuses(at("text.h5"), "text.h5: not an HDF5 file");
    write_file(at("empty.h5"), "", 0);
    refuses(at("empty.h5"), "empty.h5: not an HDF5 file");
    CHECK_EQ(record_create_file(&file, at("other.h5")), 0);
    record_close(file);
    refuses(at("other.h5"), "other.h5: not a scalestudy study");
    CHECK_EQ(mkdir(at("folder"), 0777), 0);
    refuses(at("folder"), "holds no study (no head.h5)");
}

static void test_newer_schema(void)
{
    int64_t file;
    char words[64];
    struct record_head head;
    fill_head(&head, 4, 1);
    head.schema = RECORD_SCHEMA + 41;
    CHECK_EQ(record_create_file(&file, at("newer.h5")), 0);
    CHECK_EQ(record_put_head(file, &head), 0);
    record_close(file);
    record_head_release(&head);
    snprintf(words, sizeof words, "has schema %d, this program reads up to %d", RECORD_SCHEMA + 41,
             RECORD_SCHEMA);
    refuses(at("newer.h5"), words);
}

/* A study whose one point has its steps table as given, the others empty. */
static void make_odd(const char *path, const struct record_table *odd, const void *rows, int64_t n)
{
    int64_t file, group;
    struct record_head head;
    struct record_point point = {.point = {.ranks = 4}};
    fill_head(&head, 4, 1);
    CHECK_EQ(record_create_file(&file, path), 0);
    CHECK_EQ(record_put_head(file, &head), 0);
    group = record_make_group(file, "points/000");
    CHECK(group >= 0);
    for (int which = TABLE_point; which < TABLE_COUNT; which++) {
        int64_t count;
        const void *own = record_point_rows(&point, (enum record_table_index)which, &count);
        struct record_table table = record_table((enum record_table_index)which);
        bool is_odd = which == TABLE_steps;
        CHECK_EQ(
            record_put_table(group, is_odd ? odd : &table, is_odd ? rows : own, is_odd ? n : count),
            0);
    }
    record_close_group(group);
    record_close(file);
    record_head_release(&head);
}

/* Fewer columns, in another order and of other widths, and one that nobody knows. */
static void test_older_columns(void)
{
    struct old_row {
        int64_t rank;
        double unknown, loss;
        int32_t end_ns, step;
    };
    static const struct record_column columns[] = {
        {"rank", "", "", RECORD_I64, offsetof(struct old_row, rank), 8},
        {"unknown", "", "", RECORD_F64, offsetof(struct old_row, unknown), 8},
        {"loss", "", "", RECORD_F64, offsetof(struct old_row, loss), 8},
        {"end_ns", "", "", RECORD_I32, offsetof(struct old_row, end_ns), 4},
        {"step", "", "", RECORD_I32, offsetof(struct old_row, step), 4}};
    const struct record_table table = {"steps", sizeof(struct old_row), 5, columns};
    const struct old_row rows[] = {{3, 1.5, 2.5, 77, 0}, {2, 1.5, 3.5, 78, 1}};
    struct record_file file;
    make_odd(at("older.h5"), &table, rows, 2);
    if (!CHECK_EQ(record_read(&file, at("older.h5")), 0))
        return;
    const struct step_row wanted[] = {{.rank = 3, .loss = 2.5, .end_ns = 77},
                                      {.rank = 2, .loss = 3.5, .end_ns = 78, .step = 1}};
    CHECK_EQ(file.points[0].steps.n, 2);
    CHECK(same_rows(TABLE_steps, wanted, file.points[0].steps.rows, 2));
    record_file_release(&file);
}

static void test_hostile_columns(void)
{
    static const struct record_column text[] = {{"rank", "", "", RECORD_TEXT, 0, 16}};
    static const struct record_column narrow[] = {{"rank", "", "", RECORD_I32, 0, 4}};
    static const struct record_column none[] = {{"nothing", "", "", RECORD_I32, 0, 4}};
    const struct record_table as_text = {"steps", 16, 1, text}, as_int = {"steps", 4, 1, narrow};
    const struct record_table unknown = {"steps", 4, 1, none};
    const int32_t past = 4, negative = -1;
    make_odd(at("odd1.h5"), &as_text, "0123456789abcdef", 1);
    refuses(at("odd1.h5"), "damaged file: steps has a column of another type");
    make_odd(at("odd2.h5"), &as_int, &past, 1);
    refuses(at("odd2.h5"), "damaged file: point 0: steps row 0: rank is 4, not within 0 to 3");
    make_odd(at("odd3.h5"), &as_int, &negative, 1);
    refuses(at("odd3.h5"), "rank is -1, not within 0 to 3");
    make_odd(at("odd4.h5"), &unknown, &past, 1);
    refuses(at("odd4.h5"), "damaged file: steps has no column that is known");
}

static int hang(void *arg, int fd)
{
    (void)arg;
    (void)fd;
    for (volatile unsigned i = 0;; i++)
        ;
    return 0;
}

/* Takes no CPU time, and ends by itself in the end. */
static int linger(void *arg, int fd)
{
    (void)arg;
    (void)fd;
    units_sleep_ns(200000000000);
    return 3;
}

static int eat(void *arg, int fd)
{
    (void)fd;
    char *much = malloc((size_t)1 << 30);
    *(char **)arg = much;
    return much == NULL ? 3 : 0;
}

static int crash(void *arg, int fd)
{
    (void)fd;
    return *(volatile int *)arg; /* NULL */
}

/* The limits of the child are real. */
static void test_limits(void)
{
    const struct record_limits limits = {(size_t)64 << 20, 1, 20}, short_wall = {1 << 26, 20, 1};
    struct record_child child;
    char byte, *pointer = NULL;
    CHECK_EQ(record_child_start(&child, hang, NULL, &limits), 0);
    CHECK(!record_child_read(&child, &byte, 1));
    CHECK_EQ(record_child_end(&child, false), -1);
    CHECK_EQ(record_child_start(&child, linger, NULL, &short_wall), 0);
    CHECK_EQ(record_child_end(&child, false), -1); /* ended, it has not */
    CHECK_EQ(record_child_start(&child, eat, &pointer, &limits), 0);
    int status = record_child_end(&child, false);
    CHECK(status == 3 || record_child_unlimited());
    CHECK_EQ(record_child_start(&child, crash, NULL, &limits), 0);
    status = record_child_end(&child, false);
    CHECK(status != 0);
}

int main(void)
{
    size_t size;
    if (!folder_make())
        return 1;
    make_study(at("good.h5"), true, 'a');
    CHECK(survives(at("good.h5")));
    char *bytes = read_bytes(at("good.h5"), &size);
    test_names();
    test_foreign_part();
    test_not_ours();
    test_newer_schema();
    test_older_columns();
    test_hostile_columns();
    test_limits();
    test_truncated(bytes, size);
    test_flipped(bytes, size, 500);
    test_flipped_part(50);
    free(bytes);
    folder_remove();
    return test_end();
}
