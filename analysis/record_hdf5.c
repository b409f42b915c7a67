#include "analysis/record_hdf5.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/record_publish.h"
#include "base/err.h"

/* An attribute has to fit into an object header of 64 KiB; a longer text is a data set. */
enum { ATTRIBUTE_MOST = 60000 };

_Static_assert(sizeof(hid_t) == sizeof(int64_t), "HDF5 1.10 or newer");

void record_hdf5_quiet(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

/* The innermost frame names the cause; the system's words stand in quotes inside it. */
static herr_t take_words(unsigned depth, const H5E_error2_t *frame, void *words)
{
    static const char quote[] = "error message = '";
    const char *text = frame->desc != NULL ? frame->desc : "";
    const char *system = strstr(text, quote);
    char *end;
    if (depth > 0 && system == NULL)
        return 0;
    snprintf(words, 128, "%s", system != NULL ? system + sizeof quote - 1 : text);
    if (system != NULL && (end = strchr(words, '\'')) != NULL)
        *end = '\0';
    return system != NULL; /* stop there */
}

void record_hdf5_words(char *words, size_t size)
{
    char text[128] = "HDF5 gives no reason";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_words, text);
    snprintf(words, size, "%s", text);
}

hid_t record_column_type(const struct record_column *column, int in_file)
{
    hid_t type;
    switch (column->kind) {
    case RECORD_I32:
        return H5Tcopy(in_file ? H5T_STD_I32LE : H5T_NATIVE_INT32);
    case RECORD_I64:
        return H5Tcopy(in_file ? H5T_STD_I64LE : H5T_NATIVE_INT64);
    case RECORD_F64:
        return H5Tcopy(in_file ? H5T_IEEE_F64LE : H5T_NATIVE_DOUBLE);
    case RECORD_TEXT:
        break;
    }
    type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, column->size);
    H5Tset_strpad(type, H5T_STR_NULLTERM);
    return type;
}

/* Offsets in the file are those in memory: on this machine's byte order nothing is converted. */
static hid_t row_type(const struct record_table *table, int in_file)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, table->row_size);
    for (int i = 0; i < table->n_columns; i++) {
        hid_t column = record_column_type(&table->columns[i], in_file);
        herr_t bad = H5Tinsert(type, table->columns[i].name, table->columns[i].offset, column);
        H5Tclose(column);
        if (bad < 0) {
            H5Tclose(type);
            return -1;
        }
    }
    return type;
}

static hid_t timeless(hid_t class)
{
    hid_t list = H5Pcreate(class);
    H5Pset_obj_track_times(list, false);
    return list;
}

int64_t record_make_group(int64_t parent, const char *name)
{
    hid_t list = timeless(H5P_GROUP_CREATE);
    hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Pclose(list);
    return group;
}

void record_close_group(int64_t group)
{
    if (group >= 0)
        H5Gclose(group);
}

static hid_t make_dataset(hid_t group, const char *name, hid_t type, hid_t space)
{
    hid_t list = timeless(H5P_DATASET_CREATE);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    hid_t set = H5Dcreate2(group, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Pclose(list);
    return set;
}

static int put_rows(hid_t group, const char *name, const struct record_table *table,
                    const void *rows, int64_t n)
{
    int rc = -1;
    hsize_t length = (hsize_t)n;
    hid_t space = H5Screate_simple(1, &length, NULL);
    hid_t in_file = row_type(table, 1), in_memory = row_type(table, 0);
    hid_t set = make_dataset(group, name, in_file, space);
    if (set >= 0)
        rc = n == 0 ? 0 : H5Dwrite(set, in_memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows);
    if (set >= 0 && H5Dclose(set) < 0)
        rc = -1;
    H5Tclose(in_memory);
    H5Tclose(in_file);
    H5Sclose(space);
    return rc < 0 ? -1 : 0;
}

static int put_integer(hid_t object, const char *name, int64_t value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    int rc = H5Awrite(attribute, H5T_NATIVE_INT64, &value) < 0 ? -1 : 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Sclose(space);
    return rc;
}

static int put_text(hid_t object, const char *name, const char *text)
{
    int rc = -1;
    size_t size = strlen(text) + 1;
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, size);
    H5Tset_cset(type, H5T_CSET_UTF8);
    if (size <= ATTRIBUTE_MOST) {
        hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        rc = H5Awrite(attribute, type, text);
        if (attribute >= 0)
            H5Aclose(attribute);
    } else {
        hid_t set = make_dataset(object, name, type, space);
        rc = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text);
        if (set >= 0)
            H5Dclose(set);
    }
    H5Tclose(type);
    H5Sclose(space);
    return rc < 0 ? -1 : 0;
}

struct column_row {
    char name[32], unit[16], meaning[128];
};

static int put_columns(hid_t group, const struct record_table *table)
{
    static const struct record_column columns[] = {
        {"name", "", "", RECORD_TEXT, offsetof(struct column_row, name), 32},
        {"unit", "", "", RECORD_TEXT, offsetof(struct column_row, unit), 16},
        {"meaning", "", "", RECORD_TEXT, offsetof(struct column_row, meaning), 128}};
    const struct record_table shape = {"columns", sizeof(struct column_row), 3, columns};
    struct column_row *rows = must_alloc((size_t)table->n_columns, sizeof *rows);
    char name[64];
    snprintf(name, sizeof name, "%s.columns", table->name);
    for (int i = 0; i < table->n_columns; i++) {
        snprintf(rows[i].name, sizeof rows[i].name, "%s", table->columns[i].name);
        snprintf(rows[i].unit, sizeof rows[i].unit, "%s", table->columns[i].unit);
        snprintf(rows[i].meaning, sizeof rows[i].meaning, "%s", table->columns[i].meaning);
    }
    int rc = put_rows(group, name, &shape, rows, table->n_columns);
    free(rows);
    hid_t set = rc == 0 ? H5Dopen2(group, name, H5P_DEFAULT) : -1;
    if (set < 0)
        return -1;
    rc = put_integer(set, "formula_version", RECORD_FORMULAS);
    return H5Dclose(set) < 0 ? -1 : rc;
}

/* What the timed section was, where the times are. */
static int put_method(hid_t group, const char *name)
{
    hid_t set = H5Dopen2(group, name, H5P_DEFAULT);
    int rc = put_text(set, "boundary",
                      "a step is from its first op to its last op on a rank's compute stream; "
                      "allocation, set-up, gate, gather and the time between blocks are outside");
    if (rc == 0)
        rc =
            put_text(set, "method",
                     "blocks of steps alternate in mirrored cycles F C M I, I M C F; stamps on the "
                     "device's streams, read after the block; clocks of hosts set by the smallest "
                     "round trip before and after the point");
    if (set >= 0)
        H5Dclose(set);
    return rc;
}

int record_put_table(int64_t group, const struct record_table *table, const void *rows, int64_t n)
{
    int rc = put_rows(group, table->name, table, rows, n);
    if (rc == 0 && strcmp(table->name, "steps") == 0)
        rc = put_method(group, table->name);
    return rc == 0 ? put_columns(group, table) : rc;
}

int record_put_identity(int64_t file, const struct record_head *head)
{
    int rc;
    TRY(put_text(file, "format", RECORD_FORMAT));
    TRY(put_integer(file, "schema", head->schema));
    TRY(put_integer(file, "formula_version", RECORD_FORMULAS));
    TRY(put_text(file, "study_digest", head->study_digest));
    TRY(put_integer(file, "t0_unix_ns", head->t0_unix_ns));
out:
    return rc;
}

static int put_attribute(hid_t file, const struct record_attribute *attribute)
{
    htri_t there = H5Lexists(file, attribute->group, H5P_DEFAULT);
    hid_t group = there > 0 ? H5Gopen2(file, attribute->group, H5P_DEFAULT)
                            : record_make_group(file, attribute->group);
    int rc = put_text(group, attribute->name, attribute->text);
    if (group >= 0)
        H5Gclose(group);
    return rc;
}

int record_put_head(int64_t file, const struct record_head *head)
{
    struct record_table hosts = record_table(TABLE_hosts), ranks = record_table(TABLE_ranks);
    struct record_table ceilings = record_table(TABLE_ceilings);
    int rc;
    hid_t machine = -1, points = -1;
    TRY(record_put_identity(file, head));
    for (int64_t i = 0; i < head->n_attributes; i++)
        TRY(put_attribute(file, &head->attributes[i]));
    machine = record_make_group(file, "machine");
    points = record_make_group(file, "points");
    rc = machine < 0 || points < 0 ? -1 : 0;
    if (rc == 0)
        TRY(record_put_table(machine, &hosts, head->hosts, head->n_hosts));
    if (rc == 0)
        TRY(record_put_table(machine, &ranks, head->ranks, head->n_ranks));
    if (rc == 0)
        TRY(record_put_table(machine, &ceilings, head->ceilings, head->n_ceilings));
out:
    if (points >= 0)
        H5Gclose(points);
    if (machine >= 0)
        H5Gclose(machine);
    return rc;
}

int record_put_point(int64_t file, const struct record_point *point, const char *name)
{
    hid_t points = H5Lexists(file, "points", H5P_DEFAULT) > 0
                       ? H5Gopen2(file, "points", H5P_DEFAULT)
                       : record_make_group(file, "points");
    hid_t group = record_make_group(points, name);
    int rc = group < 0 ? -1 : 0;
    for (int which = TABLE_point; which < TABLE_COUNT && rc == 0; which++) {
        int64_t n;
        const void *rows = record_point_rows(point, (enum record_table_index)which, &n);
        struct record_table table = record_table((enum record_table_index)which);
        rc = record_put_table(group, &table, rows, n);
    }
    if (group >= 0)
        H5Gclose(group);
    if (points >= 0)
        H5Gclose(points);
    return rc;
}
