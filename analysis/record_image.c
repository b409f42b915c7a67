#include "analysis/record_hdf5.h"

#include <hdf5.h>

#include "analysis/record_publish.h"
#include "base/err.h"

static hid_t create(const char *name, hid_t access)
{
    hid_t list = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(list, false);
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, list, access);
    H5Pclose(list);
    return file;
}

/* HDF5 looks whether the name exists even for a file in memory: this one cannot. */
int record_create_image(int64_t *file, size_t bytes)
{
    record_hdf5_quiet();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(access, bytes + (1 << 18), 0);
    *file = create("/dev/null/record", access);
    H5Pclose(access);
    return *file < 0 ? -1 : 0;
}

int record_create_file(int64_t *file, const char *path)
{
    record_hdf5_quiet();
    *file = create(path, H5P_DEFAULT);
    return *file < 0 ? -1 : 0;
}

void record_close(int64_t file)
{
    if (file >= 0)
        H5Fclose(file);
}

/* After a flush the driver's buffer is the file: no copy of what may be hundreds of MB. */
int record_publish_image(int64_t file, const char *path)
{
    char words[128];
    void **buffer = NULL;
    ssize_t size = -1;
    if (H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0 &&
        H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&buffer) >= 0)
        size = H5Fget_file_image(file, NULL, 0);
    if (size > 0)
        return record_publish(path, *buffer, (size_t)size);
    record_hdf5_words(words, sizeof words);
    return fail(FAIL_FILE, "record: cannot write %s: %s", path, words);
}
