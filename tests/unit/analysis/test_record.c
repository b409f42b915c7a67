/* A record written is the record read, bit for bit. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/record.h"
#include "tests/record_folder.h"

static void test_table(void)
{
    struct record_point point = {0};
    for (int i = 0; i < 1000; i++) {
        struct step_row *row = RECORD_ADD(&point.steps, 1 + i % 3);
        CHECK(row->step == 0 && row->loss == 0);
        row->step = i;
    }
    CHECK_EQ(point.steps.n, 1999); /* 334 + 2 * 333 + 3 * 333 */
    CHECK_EQ(point.steps.rows[0].step, 0);
    CHECK_EQ(point.steps.rows[1].step, 1);
    CHECK_EQ(point.steps.rows[3].step, 2);
    CHECK(sizeof(struct step_row) <= 160);
    record_point_release(&point);
    CHECK(point.steps.rows == NULL && point.steps.n == 0);
    record_point_release(&point);
}

static void test_head(void)
{
    struct record_head head = {0};
    record_head_set(&head, "study", "model", "tiny");
    record_head_set(&head, "provenance", "model", "other");
    record_head_set(&head, "study", "model", "large");
    CHECK_EQ(head.n_attributes, 2);
    CHECK(strcmp(record_head_get(&head, "study", "model"), "large") == 0);
    CHECK(strcmp(record_head_get(&head, "provenance", "model"), "other") == 0);
    CHECK(record_head_get(&head, "study", "layout") == NULL);
    record_head_release(&head);
    record_head_release(&head);
}

static void check_head(const struct record_head *head)
{
    struct record_head wanted;
    fill_head(&wanted, 4, 1);
    CHECK_EQ(head->schema, RECORD_SCHEMA);
    CHECK(strcmp(head->study_digest, wanted.study_digest) == 0);
    CHECK_EQ(head->t0_unix_ns, wanted.t0_unix_ns);
    CHECK(head->n_hosts == 2 && same_rows(TABLE_hosts, head->hosts, wanted.hosts, 2));
    CHECK(head->n_ranks == 4 && same_rows(TABLE_ranks, head->ranks, wanted.ranks, 4));
    for (int64_t i = 0; i < wanted.n_attributes; i++) {
        const struct record_attribute *attribute = &wanted.attributes[i];
        const char *text = record_head_get(head, attribute->group, attribute->name);
        CHECK(text != NULL && strcmp(text, attribute->text) == 0);
    }
    record_head_release(&wanted);
}

/* Tables of 0, 1, 3 and 40,000 rows; the last is read in several slices. */
static void test_round_trip(void)
{
    const int64_t sizes[] = {0, 1, 3, 10000};
    struct record *record;
    struct record_file file;
    int launch = -1;
    if (!CHECK_EQ(begin(&record, at("a.h5"), false, &launch, NULL, NULL), 0))
        return;
    CHECK_EQ(launch, 0);
    for (int i = 3; i >= 0; i--)
        CHECK_EQ(append(record, i, sizes[i]), 0);
    for (int merged = 0; merged < 2; merged++) {
        if (merged)
            CHECK_EQ(record_finish(record), 0);
        CHECK_EQ(exists(at("a.h5")), merged);
        CHECK_EQ(exists(at("a.h5.parts")), !merged);
        if (!CHECK_EQ(record_read(&file, at("a.h5")), 0))
            return;
        CHECK_EQ(file.whole, merged);
        CHECK_EQ(file.n_points, 4);
        check_head(&file.head);
        for (int i = 0; i < 4; i++)
            CHECK(holds(&file, i, i, sizes[i]));
        record_file_release(&file);
    }
    CHECK_EQ(record_read(&file, at("a.h5.parts")), FAIL_FILE);
    fail_clear();
}

/* The same content gives the same bytes: nothing in the file is a time of writing. */
static void test_same_bytes(void)
{
    char command[512];
    struct record *record;
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(begin(&record, at(i ? "same2.h5" : "same1.h5"), false, NULL, NULL, NULL), 0);
        CHECK_EQ(append(record, 0, 5), 0);
        CHECK_EQ(record_finish(record), 0);
        if (i == 0)
            sleep(1); /* HDF5's times have seconds */
    }
    snprintf(command, sizeof command, "cmp %s %s", at("same1.h5"), at("same2.h5"));
    CHECK_EQ(system(command), 0);
}

static void test_long_text(void)
{
    struct record_head head;
    struct record_file file;
    struct record *record;
    char *text = must_alloc(200001, 1);
    memset(text, 'x', 200000);
    fill_head(&head, 4, 1);
    record_head_set(&head, "provenance", "model text", text);
    CHECK_EQ(record_begin(&record, at("long.h5"), &head, false, NULL, NULL, NULL), 0);
    CHECK_EQ(record_finish(record), 0);
    CHECK_EQ(record_read(&file, at("long.h5")), 0);
    const char *found = record_head_get(&file.head, "provenance", "model text");
    CHECK(found != NULL && strcmp(found, text) == 0);
    record_file_release(&file);
    record_head_release(&head);
    free(text);
}

/* Values that a reader would refuse are not written. */
static void test_wrong_rows(void)
{
    struct record *record;
    struct record_point point;
    CHECK_EQ(begin(&record, at("g.h5"), false, NULL, NULL, NULL), 0);
    fill_point(&point, 0, 3, 7);
    point.steps.rows[5].rank = 4;
    CHECK_EQ(record_append(record, &point), FAIL_INTERNAL);
    CHECK_HAS(fail_message(), "steps row 5: rank is 4, not within 0 to 3");
    fail_clear();
    point.steps.rows[5].rank = 3;
    memset(point.stalls.rows[1].axis, 'x', sizeof point.stalls.rows[1].axis);
    CHECK_EQ(record_append(record, &point), FAIL_INTERNAL);
    CHECK_HAS(fail_message(), "stalls row 1: axis does not end");
    fail_clear();
    point.stalls.rows[1].axis[15] = '\0';
    CHECK_EQ(record_append(record, &point), 0);
    record_point_release(&point);
    record_abandon(record);
}

static void test_schema(void)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    record_schema(to);
    fclose(to);
    for (int which = 0; which < TABLE_COUNT; which++) {
        struct record_table table = record_table((enum record_table_index)which);
        CHECK_HAS(text, table.name);
        for (int i = 0; i < table.n_columns; i++) {
            const struct record_column *column = &table.columns[i];
            CHECK_HAS(text, column->name);
            CHECK_HAS(text, column->meaning);
            if (!CHECK(strlen(column->name) < 32 && strlen(column->unit) < 16 &&
                       strlen(column->meaning) < 128))
                printf("%s.%s\n", table.name, column->name);
        }
    }
    free(text);
}

int main(void)
{
    if (!folder_make())
        return 1;
    test_table();
    test_head();
    test_round_trip();
    test_same_bytes();
    test_long_text();
    test_wrong_rows();
    test_schema();
    folder_remove();
    return test_end();
}
