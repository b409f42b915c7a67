#include "base/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

void streams_hold(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int streams_written(const char *what, const char *kept)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    int why = errno != 0
                  ? errno
                  : EIO; /* of an earlier write the stream keeps no more than that it failed */
    return fail(FAIL_FILE, "%s could not be written to standard output: %s%s%s%s", what,
                strerror(why), kept != NULL ? "; " : "", kept != NULL ? kept : "",
                kept != NULL ? " is complete" : "");
}
