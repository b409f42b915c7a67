#include "analysis/command.h"

#include <stdio.h>

#include "analysis/record.h"
#include "base/err.h"

int command_schema(int argc, char **argv)
{
    if (argc > 1)
        return fail(FAIL_USAGE, "schema: takes no argument, found \"%s\"", argv[1]);
    record_schema(stdout);
    return 0;
}
