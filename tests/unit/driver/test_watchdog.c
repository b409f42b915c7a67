/* Whatever hangs is named once and ends the process with 4 within its deadline; what goes on is left. */
#include "driver/watchdog.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "tests/test.h"

enum { MS = 1000000 };

struct outcome {
    int status; /* exit code, or -signal */
    double seconds;
    char text[2048]; /* what it wrote on stderr */
};

static pid_t begin(void (*story)(void), int *from_child)
{
    int ends[2];
    if (pipe(ends) != 0)
        die(FAIL_INTERNAL, "pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        story();
        _exit(0);
    }
    close(ends[1]);
    *from_child = ends[0];
    return child;
}

static struct outcome finish(pid_t child, int from_child, int64_t start_ns)
{
    struct outcome outcome = {0};
    size_t used = 0;
    ssize_t n;
    int status;
    while ((n = read(from_child, outcome.text + used, sizeof outcome.text - 1 - used)) > 0)
        used += (size_t)n;
    close(from_child);
    waitpid(child, &status, 0);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    outcome.seconds = 1e-9 * (double)(units_now_ns() - start_ns);
    return outcome;
}

static struct outcome play(void (*story)(void))
{
    int from_child;
    int64_t start_ns = units_now_ns();
    pid_t child = begin(story, &from_child);
    return finish(child, from_child, start_ns);
}

static void hangs(void)
{
    watchdog_start(0.2, 13, "node7"); /* and not 0.3: up to two looks more are as many tenths */
    watchdog_at("forward", 3, NULL);
    watchdog_at("all_reduce", 12, "dp 1 of 4: ranks 1, 9");
    units_sleep_ns(60000LL * MS);
}

static void test_hang(void)
{
    struct outcome outcome = play(hangs);
    CHECK_EQ(outcome.status, FAIL_TIMEOUT);
    CHECK_HAS(outcome.text, "scalestudy: timeout: host node7 rank 13: all_reduce 12 (dp 1 of 4: "
                            "ranks 1, 9) for 0.2 s, deadline 0.2 s\n");
    CHECK(strchr(outcome.text, '\n') == outcome.text + strlen(outcome.text) - 1); /* one line */
    CHECK(outcome.seconds >= 0.2 && outcome.seconds < 30);                        /* of 60 */
    printf("deadline 0.2 s, ended after %.3f s\n", outcome.seconds);
}

static void hangs_alone(void)
{
    watchdog_start(0.05, 0, "h");
    watchdog_at("step", -1, NULL);
    units_sleep_ns(5000LL * MS);
}

static void test_no_peer(void)
{
    struct outcome outcome = play(hangs_alone);
    CHECK_EQ(outcome.status, FAIL_TIMEOUT);
    CHECK_HAS(outcome.text, "host h rank 0: step -1 for 0.1 s, deadline 0.1 s\n");
}

static void says_at_great_length(void)
{
    static char what[5000], peer[5000];
    memset(what, 'w', sizeof what - 1);
    memset(peer, 'p', sizeof peer - 1);
    watchdog_start(0.05, 0, what);
    watchdog_at(what, INT64_MAX, peer);
    units_sleep_ns(5000LL * MS);
}

static void test_long_words(void)
{
    struct outcome outcome = play(says_at_great_length);
    CHECK_EQ(outcome.status, FAIL_TIMEOUT);
    CHECK_HAS(outcome.text, "9223372036854775807");
    CHECK_HAS(outcome.text, "deadline 0.1 s\n");
}

/* The same words again are news too: what counts is that something was said. */
static void goes_on(void)
{
    watchdog_start(0.8, 0, "h"); /* of which a busy machine may take much from each sleep */
    for (int i = 0; i < 40; i++) {
        watchdog_at("all_reduce", 1, "dp");
        units_sleep_ns(30 * MS);
    }
    watchdog_stop();
}

static void waits_idle(void)
{
    watchdog_start(0.1, 0, "h");
    units_sleep_ns(250 * MS); /* nothing said yet */
    watchdog_at("step", 1, NULL);
    watchdog_pause();
    units_sleep_ns(400 * MS);
    watchdog_stop();
}

static void stops(void)
{
    watchdog_stop(); /* never started */
    int64_t least_ns = INT64_MAX;
    for (int i = 0; i < 8 && least_ns > 60 * MS;
         i++) { /* where the machine is busy, not each time */
        watchdog_start(8, 0, "h");
        units_sleep_ns(30 * MS);
        int64_t start_ns = units_now_ns();
        watchdog_stop();
        int64_t took_ns = units_now_ns() - start_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    if (least_ns > 120 * MS) /* a look is 250 ms */
        fputs("a stop waits for the next look\n", stderr);
    watchdog_start(0.1, 0, "h");
    watchdog_at("step", 1, NULL);
    watchdog_stop();
    units_sleep_ns(300 * MS);
    watchdog_stop();
}

static void is_off(void)
{
    watchdog_start(0, 0, "h");
    watchdog_at("step", 1, NULL);
    units_sleep_ns(100 * MS);
    watchdog_stop();
}

static void test_left_alone(void)
{
    static void (*const stories[])(void) = {goes_on, waits_idle, stops, is_off};
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++) {
        struct outcome outcome = play(stories[i]);
        CHECK_EQ(outcome.status, 0);
        CHECK(outcome.text[0] == '\0');
        if (outcome.status != 0 || outcome.text[0] != '\0')
            printf("  story %zu: %s\n", i, outcome.text);
    }
}

static void resumes(void)
{
    watchdog_start(5, 0, "h");
    watchdog_stop();
    watchdog_start(0.2, 2, "again");
    watchdog_pause();
    units_sleep_ns(300 * MS);
    watchdog_at("send", 7, "pp");
    units_sleep_ns(60000LL * MS);
}

static void test_after_pause(void)
{
    struct outcome outcome = play(resumes);
    CHECK_EQ(outcome.status, FAIL_TIMEOUT);
    CHECK_HAS(outcome.text, "host again rank 2: send 7 (pp) for 0.2 s");
    CHECK(outcome.seconds >= 0.5 && outcome.seconds < 30); /* of 60 */
}

static void pauses_long(void)
{
    watchdog_start(1, 0, "h");
    watchdog_at("step", 1, NULL);
    units_sleep_ns(250 * MS);
    watchdog_stop();
}

/* Stopped for twice the deadline in the middle of a step, it goes on as if nothing had been. */
static void test_sigstop(void)
{
    int from_child;
    int64_t start_ns = units_now_ns();
    pid_t child = begin(pauses_long, &from_child);
    units_sleep_ns(100 * MS);
    kill(child, SIGSTOP);
    units_sleep_ns(2000 * MS);
    kill(child, SIGCONT);
    struct outcome outcome = finish(child, from_child, start_ns);
    CHECK_EQ(outcome.status, 0);
    CHECK(outcome.text[0] == '\0');
}

/* A few stores: cheap enough to be called for every operation of a step. */
static void test_cheap(void)
{
    enum { CALLS = 1000000 };
    CHECK_EQ(watchdog_start(10, 0, "h"), 0);
    clock_t start = clock(); /* of the processor: others may hold it meanwhile */
    for (int i = 0; i < CALLS; i++)
        watchdog_at("step", i, "dp");
    double each_ns = 1e9 * (double)(clock() - start) / CLOCKS_PER_SEC / CALLS;
    watchdog_stop();
    printf("watchdog_at: %.1f ns\n", each_ns);
    CHECK(each_ns < 200);
}

int main(void)
{
    test_hang();
    test_no_peer();
    test_long_words();
    test_left_alone();
    test_after_pause();
    test_sigstop();
    test_cheap();
    return test_end();
}
