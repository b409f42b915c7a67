/* What "nccl" is given before it starts, and which versions it takes: without any GPU. */
#include "collectives/comm_nccl.h"

#include <stdlib.h>

#include "base/err.h"
#include "tests/test.h"

#ifdef SCALESTUDY_HAVE_CUDA

static const char *value(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? text : "(none)";
}

static void forget(void)
{
    unsetenv("NCCL_HOSTID");
    unsetenv("NCCL_ALGO");
    unsetenv("NCCL_PAT_ENABLE");
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    unsetenv("NCCL_PROFILER_PLUGIN");
}

static void versions(void)
{
    CHECK_EQ(comm_nccl_check_version(NCCL_OLDEST), 0);
    CHECK_EQ(comm_nccl_check_version(22809), 0);
    CHECK_EQ(comm_nccl_check_version(21703), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "NCCL 2.17.3 is loaded and 2.18 or later is wanted");
    fail_clear();
}

static void where_it_is(void)
{
    forget();
    comm_nccl_environment(22809, NULL);
    CHECK(strcmp(value("NCCL_LAUNCH_ORDER_IMPLICIT"), "1") == 0);
    CHECK(strcmp(value("NCCL_PROFILER_PLUGIN"), "STATIC_PLUGIN") == 0);
    CHECK(strcmp(value("NCCL_HOSTID"), "(none)") == 0);
    CHECK(strcmp(value("NCCL_ALGO"), "(none)") == 0);
    forget();
    comm_nccl_environment(21805, NULL); /* has neither of the two */
    CHECK(strcmp(value("NCCL_LAUNCH_ORDER_IMPLICIT"), "(none)") == 0);
    CHECK(strcmp(value("NCCL_PROFILER_PLUGIN"), "(none)") == 0);
}

/* A pretended host is given its name whatever was there; algorithms are pinned unless the user did. */
static void where_it_pretends_to_be(void)
{
    forget();
    setenv("NCCL_HOSTID", "old", 1);
    comm_nccl_environment(22809, "node-1");
    CHECK(strcmp(value("NCCL_HOSTID"), "node-1") == 0);
    CHECK(strcmp(value("NCCL_PAT_ENABLE"), "0") == 0);
    CHECK(strcmp(value("NCCL_ALGO"), "Ring,Tree") == 0);
    forget();
    setenv("NCCL_ALGO", "Tree", 1);
    comm_nccl_environment(22809, "node-1");
    CHECK(strcmp(value("NCCL_ALGO"), "Tree") == 0);
}

int main(void)
{
    versions();
    where_it_is();
    where_it_pretends_to_be();
    return test_end();
}

#else

int main(void)
{
    printf("skipped: a build without NCCL, %s\n", comm_nccl_version());
    return 77;
}

#endif
