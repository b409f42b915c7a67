/* The child's side of reading: one foreign table, checked and sent in slices. */
#include "analysis/record_stream.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/record_child.h"
#include "analysis/record_hdf5.h"
#include "base/err.h"

enum { SLICE_BYTES = 256 << 10 }; /* stays in the cache between file, child and pipe */

/* What is wrong with how the table is stored, or NULL; *n is its number of rows. */
static const char *storage_wrong(const struct stream_sender *sender, hid_t set, hid_t type,
                                 hid_t space, int64_t *n)
{
    hsize_t rows = 0;
    hid_t list = H5Dget_create_plist(set);
    H5D_layout_t layout = H5Pget_layout(list);
    int n_filters = H5Pget_nfilters(list), n_external = H5Pget_external_count(list);
    H5Pclose(list);
    if (n_external != 0 || layout == H5D_VIRTUAL || layout < 0)
        return "keeps its rows in other files";
    if (n_filters != 0)
        return "is compressed (h5repack -f NONE undoes it)";
    if (H5Tget_class(type) != H5T_COMPOUND || H5Sget_simple_extent_ndims(space) != 1 ||
        H5Sget_simple_extent_dims(space, &rows, NULL) != 1)
        return "is not a table";
    size_t row_size = H5Tget_size(type);
    if (row_size == 0 || row_size > 1 << 20 || rows > (hsize_t)sender->file_bytes / row_size ||
        (rows > 0 && H5Dget_storage_size(set) < rows * row_size))
        return "is larger than the file";
    *n = (int64_t)rows;
    return NULL;
}

static bool same_class(hid_t found, const struct record_column *column)
{
    H5T_class_t class = H5Tget_class(found);
    if (column->kind == RECORD_TEXT)
        return class == H5T_STRING && H5Tis_variable_str(found) == 0;
    return class == (column->kind == RECORD_F64 ? H5T_FLOAT : H5T_INTEGER);
}

/* Our row with those columns that the file has; texts in the file's character set, since HDF5
 * converts no others. -1 and `why` when a column is of another kind. */
static hid_t common_type(const struct record_table *table, hid_t in_file, const char **why)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, table->row_size);
    for (int i = 0; i < table->n_columns && *why == NULL; i++) {
        const struct record_column *column = &table->columns[i];
        int index = H5Tget_member_index(in_file, column->name);
        if (index < 0)
            continue; /* an older schema */
        hid_t found = H5Tget_member_type(in_file, (unsigned)index);
        hid_t wanted = record_column_type(column, 0);
        if (column->kind == RECORD_TEXT && found >= 0)
            H5Tset_cset(wanted, H5Tget_cset(found));
        if (found < 0 || !same_class(found, column) ||
            H5Tinsert(type, column->name, column->offset, wanted) < 0)
            *why = "has a column of another type";
        H5Tclose(wanted);
        if (found >= 0)
            H5Tclose(found);
    }
    if (*why == NULL && H5Tget_nmembers(type) == 0)
        *why = "has no column that is known";
    return type;
}

static int send_slice(const struct stream_sender *sender, hid_t set, hid_t type, hid_t space,
                      hsize_t first, hsize_t count, void *buffer, size_t bytes)
{
    hid_t slice = H5Screate_simple(1, &count, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &count, NULL);
    herr_t bad = H5Dread(set, type, slice, space, H5P_DEFAULT, buffer);
    H5Sclose(slice);
    /* The rows were announced: there is no way to say now what is wrong, the end says it. */
    return bad < 0 || !record_child_write(sender->fd, buffer, bytes);
}

static int send_rows(const struct stream_sender *sender, const struct record_table *table,
                     enum record_table_index which, hid_t set, hid_t type, hid_t space, int64_t n)
{
    int64_t most = SLICE_BYTES / (int64_t)table->row_size;
    struct stream_message message = {.kind = STREAM_TABLE, .table = (int32_t)which, .n = n};
    int rc = record_stream_message(sender, message, NULL, 0, NULL, 0);
    char *buffer = must_alloc((size_t)(n < most ? n : most) + 1, table->row_size);
    for (int64_t i = 0; i < n && rc == 0; i += most) {
        int64_t count = n - i < most ? n - i : most;
        rc = send_slice(sender, set, type, space, (hsize_t)i, (hsize_t)count, buffer,
                        (size_t)count * table->row_size);
    }
    free(buffer);
    return rc;
}

static int check_and_send(const struct stream_sender *sender, const struct record_table *table,
                          enum record_table_index which, hid_t set)
{
    int64_t n = 0;
    int rc = 0;
    hid_t in_file = H5Dget_type(set), space = H5Dget_space(set), type = -1;
    const char *why = in_file < 0 || space < 0 ? "cannot be read"
                                               : storage_wrong(sender, set, in_file, space, &n);
    if (why == NULL)
        type = common_type(table, in_file, &why);
    if (why == NULL && which == TABLE_point && n != 1)
        why = "has not one row";
    if (why != NULL)
        rc = record_stream_damaged(sender, table->name, why);
    else if (sender->rows || which <= TABLE_point)
        rc = send_rows(sender, table, which, set, type, space, n);
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    if (in_file >= 0)
        H5Tclose(in_file);
    return rc;
}

int record_stream_table(struct stream_sender *sender, int64_t group, enum record_table_index which)
{
    struct record_table table = record_table(which);
    if (!record_is_dataset(group, table.name)) {
        bool may_lack = sender->schema < RECORD_SCHEMA && which != TABLE_point;
        return may_lack ? 0 : record_stream_damaged(sender, table.name, "is not there");
    }
    hid_t set = H5Dopen2(group, table.name, H5P_DEFAULT);
    if (set < 0)
        return record_stream_damaged(sender, table.name, "cannot be read");
    int rc = check_and_send(sender, &table, which, set);
    H5Dclose(set);
    return rc;
}
