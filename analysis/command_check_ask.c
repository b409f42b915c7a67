#include "analysis/command_check_ask.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "workloads/model.h"

int check_ask_layout(const struct check_ask *ask, int *nodes, int *ranks_per_node)
{
    char copy[sizeof ask->layout];
    int64_t n = 0, ranks = 0;
    snprintf(copy, sizeof copy, "%s", ask->layout);
    char *x = strchr(copy, 'x');
    if (x != NULL)
        *x = '\0';
    if (x == NULL || units_parse_int(copy, &n) != 0 || units_parse_int(x + 1, &ranks) != 0 ||
        n < 1 || ranks < 1 || n > INT_MAX || ranks > INT_MAX / n)
        return fail(FAIL_USAGE, "--layout: found \"%s\", wanted nodes x ranks such as 64x8",
                    ask->layout);
    *nodes = (int)n;
    *ranks_per_node = (int)ranks;
    return 0;
}

int check_ask_model(const struct check_ask *ask, struct model *out)
{
    int rc = model_load(out, ask->model);
    if (rc != 0)
        return rc;
    if (ask->sequence > out->sequence)
        return fail(FAIL_USAGE, "--sequence: %lld is more than the %lld positions of model %s",
                    (long long)ask->sequence, (long long)out->sequence, out->name);
    if (ask->sequence > 0)
        out->sequence = ask->sequence;
    return 0;
}
