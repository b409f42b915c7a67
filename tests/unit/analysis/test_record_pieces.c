/* A long run is published in pieces; readers see one point, whatever was cut off. */
#include "analysis/record_parts.h"
#include "tests/record_folder.h"

static void names(void)
{
    struct record_part part;
    record_part_name_piece(&part, 3, 2, 17);
    CHECK(strcmp(part.name, "003.launch2.part000017") == 0);
    CHECK(record_part_parse(&part, "003.launch2.part000017") && part.piece == 17 &&
          part.launch == 2);
    CHECK(record_part_parse(&part, "003.launch2") && part.piece == 0);
    CHECK(!record_part_parse(&part, "003.launch2.part17"));
    CHECK(!record_part_parse(&part, "003.part000017"));
    CHECK(!record_part_parse(&part, "003.launch2.part000000"));
}

/* Step indices below the rows of the whole, so that a reader takes them. */
static int piece_of(struct record *record, int piece, int first_step)
{
    struct record_point rows;
    fill_point(&rows, 0, 25, 7);
    for (int64_t i = 0; i < rows.steps.n; i++)
        rows.steps.rows[i].step = (i32)(first_step + i / 4);
    for (int64_t i = 0; i < rows.stalls.n; i++)
        rows.stalls.rows[i].step = first_step;
    for (int64_t i = 0; i < rows.collectives.n; i++)
        rows.collectives.rows[i].step = first_step;
    for (int64_t i = 0; i < rows.ops.n; i++)
        rows.ops.rows[i].step = first_step;
    for (int64_t i = 0; i < rows.inputs.n; i++)
        rows.inputs.rows[i].step = first_step;
    rows.point.order = piece;
    int rc = piece > 0 ? record_append_piece(record, &rows, piece) : record_append(record, &rows);
    record_point_release(&rows);
    return rc;
}

static void check_pieces(const char *path, int pieces, int part)
{
    struct record_file file;
    CHECK_EQ(record_read(&file, path), 0);
    CHECK_EQ(file.n_points, 1);
    if (file.n_points != 1)
        return;
    const struct record_point *p = &file.points[0];
    CHECK_EQ(file.n_parts, pieces);
    CHECK_EQ(p->steps.n, 100 * pieces);
    CHECK_EQ(p->intervals.n, 25 * pieces);
    CHECK_EQ(p->point.part, part);
    CHECK_EQ(p->point.order, part);
    bool in_order = true;
    for (int64_t i = 0; i < p->steps.n; i++)
        in_order &= p->steps.rows[i].step == i / 4;
    CHECK(in_order);
    record_file_release(&file);
}

/* Cut off behind the second piece, then gone on with: a launch of its own, and the point is done. */
static void run_in_pieces(void)
{
    struct record *record;
    int launch, *done = NULL, n_done;
    CHECK_EQ(begin(&record, at("long.h5"), false, &launch, NULL, NULL), 0);
    CHECK_EQ(piece_of(record, 1, 0), 0);
    CHECK_EQ(piece_of(record, 2, 25), 0);
    CHECK_EQ(piece_of(record, 2, 25), FAIL_INTERNAL); /* published already */
    CHECK_HAS(fail_message(), "piece 2 is published already");
    fail_clear();
    record_abandon(record);
    check_pieces(at("long.h5"), 2, 2);
    CHECK_EQ(begin(&record, at("long.h5"), true, &launch, &done, &n_done), 0);
    CHECK_EQ(launch, 1);
    CHECK_EQ(n_done, 0); /* what was cut off is not done */
    free(done);
    CHECK_EQ(piece_of(record, 1, 0), 0);
    CHECK_EQ(piece_of(record, 0, 25), 0);
    record_abandon(record);
    CHECK_EQ(begin(&record, at("long.h5"), true, &launch, &done, &n_done), 0);
    CHECK(n_done == 1 && done[0] == 0);
    free(done);
    CHECK_EQ(record_finish(record), 0);
    struct record_file file;
    CHECK_EQ(record_read(&file, at("long.h5")), 0);
    CHECK_EQ(file.n_points, 2);
    CHECK_EQ(file.n_parts, 4);
    CHECK(file.n_points == 2 && file.points[0].point.part == 2 && file.points[1].point.part == 0);
    CHECK(file.n_points == 2 && file.points[1].steps.n == 200);
    record_file_release(&file);
}

static void whole_at_once(void)
{
    struct record *record;
    CHECK_EQ(begin(&record, at("whole.h5"), false, NULL, NULL, NULL), 0);
    CHECK_EQ(piece_of(record, 1, 0), 0);
    CHECK_EQ(piece_of(record, 2, 25), 0);
    CHECK_EQ(piece_of(record, 0, 50), 0);
    check_pieces(at("whole.h5"), 3, 0); /* from the parts */
    CHECK_EQ(record_finish(record), 0);
    check_pieces(at("whole.h5"), 3, 0);
    CHECK(!exists(at("whole.h5.parts")));
}

/* A piece that is missing in the middle leaves steps without rows: refused, not believed. */
static void missing_piece(void)
{
    struct record *record;
    struct record_file file;
    CHECK_EQ(begin(&record, at("hole.h5"), false, NULL, NULL, NULL), 0);
    CHECK_EQ(piece_of(record, 5, 100), 0);
    record_abandon(record);
    CHECK_EQ(record_read(&file, at("hole.h5")), FAIL_FILE);
    CHECK_HAS(fail_message(), "step");
    fail_clear();
}

int main(void)
{
    if (!folder_make())
        return test_end();
    names();
    run_in_pieces();
    whole_at_once();
    missing_piece();
    folder_remove();
    return test_end();
}
