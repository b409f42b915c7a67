/* The first failure of a process is the one that is kept, whichever thread it comes from, and die()
 * ends the process with its code. */
#include "base/err.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

static void test_first_is_kept(void)
{
    CHECK_EQ(strlen(fail_message()), 0);
    CHECK_EQ(fail(FAIL_USAGE, "layout: wanted %d, found %d", 4, 3), FAIL_USAGE);
    CHECK_EQ(fail(FAIL_FILE, "second"), FAIL_FILE);
    CHECK(strcmp(fail_message(), "layout: wanted 4, found 3") == 0);
    fail_clear();
    CHECK_EQ(strlen(fail_message()), 0);
    fail(FAIL_FILE, "third");
    CHECK(strcmp(fail_message(), "third") == 0);
    fail_clear();
}

static void test_one_line_of_limited_length(void)
{
    char long_text[3000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    fail(FAIL_USAGE, "%s", long_text);
    CHECK_EQ(strlen(fail_message()), 1023);
    fail_clear();
    fail(FAIL_USAGE, "a\nb\x1b[2Jc\xc3\xa9");
    CHECK(strcmp(fail_message(), "a?b?[2Jc\xc3\xa9") == 0);
    fail_clear();
}

static void test_words(void)
{
    int values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    for (int i = 0; i < 12; i++)
        CHECK(strcmp(fail_words(values[i]), "unknown failure") != 0);
    CHECK(strcmp(fail_words(FAIL_USAGE), "usage") == 0);
    CHECK(strcmp(fail_words(FAIL_FILE), "file error") == 0);
    CHECK(strcmp(fail_words(13), "unknown failure") == 0);
    CHECK_EQ(FAIL_USAGE, 6); /* exit codes are a promise to scripts */
    CHECK_EQ(FAIL_WRONG, 7);
    CHECK_EQ(FAIL_PENDING, 10);
    CHECK_EQ(FAIL_STOPPED, 11);
    CHECK_EQ(FAIL_UNSAVED, 12);
}

enum { THREADS = 8, ROUNDS = 200 };
static pthread_barrier_t together;

static void *shout(void *arg)
{
    int *me = arg;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&together);
        fail(FAIL_INTERNAL, "thread %d says %d%d%d%d%d%d", *me, *me, *me, *me, *me, *me, *me);
        pthread_barrier_wait(&together); /* the main thread looks */
        pthread_barrier_wait(&together);
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    int names[THREADS];
    pthread_barrier_init(&together, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        names[i] = i;
        pthread_create(&threads[i], NULL, shout, &names[i]);
    }
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&together);
        pthread_barrier_wait(&together);
        char expected[64];
        int who = fail_message()[7] - '0';
        snprintf(expected, sizeof expected, "thread %d says %d%d%d%d%d%d", who, who, who, who, who,
                 who, who);
        CHECK(strcmp(fail_message(), expected) == 0);
        fail_clear();
        pthread_barrier_wait(&together);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
}

static void leave_with_40(int code)
{
    _exit(code + 40);
}

static void do_nothing(int code)
{
    (void)code;
}

static void bug(void)
{
    BUG("plan has %d ops", 3);
}

static void exhaust(void)
{
    must_grow(NULL, SIZE_MAX / 2, 16);
}

static void die_plainly(void)
{
    die(FAIL_COMM, "lost rank %d", 3);
}

static void die_by_handler(void)
{
    die_handler(leave_with_40);
    die_plainly();
}

static void die_by_bad_handler(void)
{
    die_handler(do_nothing);
    die_plainly();
}

/* Run in a child; its exit status, and what it wrote on stderr. */
static int in_child(void (*what)(void), char *text, size_t size)
{
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        return -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        what();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t n;
    while (used + 1 < size && (n = read(ends[0], text + used, size - used - 1)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_die(void)
{
    char text[1024];
    CHECK_EQ(in_child(die_plainly, text, sizeof text), FAIL_COMM);
    CHECK(strcmp(text, "scalestudy: lost rank 3\n") == 0);
    CHECK_EQ(in_child(die_by_handler, text, sizeof text), FAIL_COMM + 40);
    CHECK_HAS(text, "lost rank 3");
    CHECK_EQ(in_child(die_by_bad_handler, text, sizeof text), FAIL_COMM);
    CHECK_EQ(in_child(bug, text, sizeof text), FAIL_INTERNAL);
    CHECK_HAS(text, "test_err.c:");
    CHECK_HAS(text, ": plan has 3 ops");
    CHECK_EQ(in_child(exhaust, text, sizeof text), FAIL_INTERNAL);
    CHECK_HAS(text, "out of memory");
}

static int step(int *made, int code)
{
    int rc = 0;
    TRY(code);
    (*made)++;
out:
    return rc;
}

static void test_memory_and_try(void)
{
    int made = 0;
    CHECK_EQ(step(&made, 0), 0);
    CHECK_EQ(step(&made, FAIL_FILE), FAIL_FILE);
    CHECK_EQ(made, 1);

    unsigned char *bytes = must_alloc(100, 3);
    bool zero = true;
    for (int i = 0; i < 300; i++)
        zero = zero && bytes[i] == 0;
    CHECK(zero);
    bytes[299] = 7;
    bytes = must_grow(bytes, 1000, 3);
    CHECK_EQ(bytes[299], 7);
    free(bytes);
    void *nothing = must_alloc(0, 8);
    CHECK(nothing != NULL);
    free(nothing);
}

int main(void)
{
    test_first_is_kept();
    test_one_line_of_limited_length();
    test_words();
    test_threads();
    test_die();
    test_memory_and_try();
    return test_end();
}
