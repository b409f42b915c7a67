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
    unsetenv("NCCL_PROTO");
    unsetenv("NCCL_MIN_NCHANNELS");
    unsetenv("NCCL_MAX_NCHANNELS");
    unsetenv("NCCL_WIN_ENABLE");
    unsetenv("NCCL_NVLS_ENABLE");
    unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
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
    CHECK(!comm_nccl_orders_itself());
    comm_nccl_environment(22809, NULL);
    CHECK(comm_nccl_orders_itself());
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

/* Nothing that decides the order of a sum is left to NCCL, on a pretended host neither; what the user
 * has set stays. */
static void deterministic(void)
{
    struct comm_promise promise = {.deterministic = true};
    forget();
    setenv("NCCL_PROTO", "LL", 1);
    CHECK_EQ(comm_nccl_promise(&promise, 21800), 0);
    comm_nccl_environment(22809, "node-1");
    CHECK(strcmp(value("NCCL_ALGO"), "Ring") == 0);
    CHECK(strcmp(value("NCCL_PROTO"), "LL") == 0);
    CHECK(strcmp(value("NCCL_MIN_NCHANNELS"), value("NCCL_MAX_NCHANNELS")) == 0);
    CHECK(atoi(value("NCCL_MIN_NCHANNELS")) > 0);
    CHECK(strcmp(value("NCCL_WIN_ENABLE"), "0") == 0);
    CHECK(strcmp(value("NCCL_GRAPH_MIXING_SUPPORT"), "(none)") == 0);
}

static void graphs(void)
{
    struct comm_promise promise = {.graph = true};
    forget();
    CHECK_EQ(comm_nccl_promise(&promise, 22809), 0);
    CHECK(strcmp(value("NCCL_GRAPH_MIXING_SUPPORT"), "0") == 0);
    comm_nccl_environment(22809, NULL);
    CHECK(!comm_nccl_orders_itself());
    CHECK(strcmp(value("NCCL_ALGO"), "(none)") == 0);
    CHECK_EQ(comm_nccl_promise(&promise, 22505), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "NCCL 2.25.5 is loaded and --graph wants 2.26 or later");
    fail_clear();
}

int main(void)
{
    deterministic();
    graphs();
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
