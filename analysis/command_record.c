#include "analysis/command.h"

#include "analysis/run_record.h"
#include "base/err.h"

int command_record(int argc, char **argv)
{
    int rc = 0;
    if (argc < 2)
        return fail(FAIL_USAGE, "record: no study file was named: scalereport record FILE.h5");
    for (int i = 1; i < argc && rc == 0; i++) {
        struct record_file file = {0};
        rc = record_read(&file, argv[i]);
        if (rc == 0)
            rc = run_record_print(stdout, &file);
        record_file_release(&file);
    }
    return rc;
}
