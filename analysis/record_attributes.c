/* The child's side of reading: attributes and texts of a foreign file. */
#include "analysis/record_stream.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static bool is_object(hid_t group, const char *name, H5I_type_t wanted)
{
    H5L_info_t info;
    if (H5Lexists(group, name, H5P_DEFAULT) <= 0 ||
        H5Lget_info(group, name, &info, H5P_DEFAULT) < 0 || info.type != H5L_TYPE_HARD)
        return false;
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    bool is = object >= 0 && H5Iget_type(object) == wanted;
    if (object >= 0)
        H5Oclose(object);
    return is;
}

bool record_is_dataset(int64_t group, const char *name)
{
    return is_object(group, name, H5I_DATASET);
}

bool record_is_group(int64_t group, const char *name)
{
    return is_object(group, name, H5I_GROUP);
}

/* Bytes of the one fixed-length text of this type and space, or -1. */
static int64_t text_size(hid_t type, hid_t space)
{
    if (type < 0 || space < 0 || H5Tget_class(type) != H5T_STRING ||
        H5Tis_variable_str(type) != 0 || H5Sget_simple_extent_npoints(space) != 1)
        return -1;
    return (int64_t)H5Tget_size(type);
}

static void close_type(hid_t type, hid_t space)
{
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
}

/* malloc'd text of an open attribute, or of a data set; NULL: no such text. */
static char *attribute_text(hid_t attribute, int64_t most)
{
    char *text = NULL;
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    int64_t size = text_size(type, space);
    if (size > 0 && size <= most) {
        text = must_alloc((size_t)size + 1, 1);
        if (H5Aread(attribute, type, text) < 0)
            text[0] = '\0';
    }
    close_type(type, space);
    return text;
}

static char *dataset_text(hid_t set, int64_t most)
{
    char *text = NULL;
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);
    int64_t size = text_size(type, space);
    if (size > 0 && size <= most && H5Dget_storage_size(set) == (hsize_t)size) {
        text = must_alloc((size_t)size + 1, 1);
        if (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)
            text[0] = '\0';
    }
    close_type(type, space);
    return text;
}

bool record_get_text(int64_t object, const char *name, char *text, size_t size)
{
    hid_t attribute = H5Aexists(object, name) > 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1;
    char *found = attribute >= 0 ? attribute_text(attribute, 1 << 16) : NULL;
    bool fits = found != NULL && strlen(found) < size;
    if (fits) {
        memset(text, 0, size);
        strcpy(text, found);
    }
    free(found);
    if (attribute >= 0)
        H5Aclose(attribute);
    return fits;
}

bool record_get_integer(int64_t object, const char *name, int64_t *value)
{
    hid_t attribute = H5Aexists(object, name) > 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1;
    if (attribute < 0)
        return false;
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    bool is = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_INTEGER &&
              H5Sget_simple_extent_npoints(space) == 1 &&
              H5Aread(attribute, H5T_NATIVE_INT64, value) >= 0;
    close_type(type, space);
    H5Aclose(attribute);
    return is;
}

struct attribute_group {
    struct stream_sender *sender;
    const char *name;
};

/* Takes `text`. What is no text, or not named as ours would be, is somebody's own: passed over. */
static int send_text(const struct attribute_group *group, const char *name, char *text)
{
    struct stream_attribute attribute = {0};
    int rc = 0;
    if (text != NULL && strlen(name) < sizeof attribute.name) {
        strcpy(attribute.group, group->name);
        strcpy(attribute.name, name);
        rc = record_stream_message(group->sender, (struct stream_message){.kind = STREAM_ATTRIBUTE},
                                   &attribute, sizeof attribute, text, strlen(text));
    }
    free(text);
    return rc;
}

static herr_t send_attribute(hid_t object, const char *name, const H5A_info_t *info, void *arg)
{
    (void)info;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0)
        return -1;
    char *text = attribute_text(attribute, 1 << 16);
    H5Aclose(attribute);
    return send_text(arg, name, text);
}

static herr_t send_long_text(hid_t object, const char *name, const H5L_info_t *info, void *arg)
{
    const struct attribute_group *group = arg;
    (void)info;
    if (!record_is_dataset(object, name))
        return 0;
    hid_t set = H5Dopen2(object, name, H5P_DEFAULT);
    if (set < 0)
        return -1;
    char *text = dataset_text(set, group->sender->file_bytes);
    H5Dclose(set);
    return send_text(arg, name, text);
}

int record_stream_attributes(struct stream_sender *sender, int64_t file, const char *name)
{
    struct attribute_group group = {sender, name};
    hid_t object = H5Gopen2(file, name, H5P_DEFAULT);
    herr_t stopped = -1;
    if (object >= 0)
        stopped = H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, send_attribute, &group);
    if (stopped == 0)
        stopped = H5Literate(object, H5_INDEX_NAME, H5_ITER_INC, NULL, send_long_text, &group);
    if (object >= 0)
        H5Gclose(object);
    return stopped < 0 ? record_stream_damaged(sender, "its attributes", "cannot be read")
                       : stopped;
}
