/*
 * test.h: CHECK and friends, never compiled out. A program ends with `return test_end();`: it
 * prints "N passed, N failed" and fails when any check failed, or when none ran. cmocka-free on
 * purpose for programs that run under MPI: there every rank checks, and one failing rank fails the
 * run.
 */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static long test_passed, test_failed;

static inline bool test_note(bool ok, const char *file, int line, const char *what)
{
    if (ok) {
        test_passed++;
    } else {
        test_failed++;
        if (test_failed <= 20)
            printf("%s:%d: failed: %s\n", file, line, what);
    }
    return ok;
}

static inline bool test_equal(long long a, long long b, const char *file, int line,
                              const char *what)
{
    if (a != b && test_failed < 20)
        printf("%s:%d: %lld is not %lld\n", file, line, a, b);
    return test_note(a == b, file, line, what);
}

static inline bool test_near(double a, double b, double tolerance, const char *file, int line,
                             const char *what)
{
    bool ok = fabs(a - b) <= tolerance; /* false for NaN */
    if (!ok && test_failed < 20)
        printf("%s:%d: %.17g is not %.17g within %.3g\n", file, line, a, b, tolerance);
    return test_note(ok, file, line, what);
}

static inline bool test_has(const char *text, const char *part, const char *file, int line)
{
    bool ok = text != NULL && strstr(text, part) != NULL;
    if (!ok && test_failed < 20)
        printf("%s:%d: \"%s\" does not contain \"%s\"\n", file, line, text ? text : "(null)", part);
    return test_note(ok, file, line, "text");
}

#define CHECK(cond) test_note((cond), __FILE__, __LINE__, #cond)
#define CHECK_EQ(a, b) test_equal((long long)(a), (long long)(b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_NEAR(a, b, tolerance)                                                                \
    test_near((double)(a), (double)(b), (double)(tolerance), __FILE__, __LINE__, #a " ~ " #b)
#define CHECK_HAS(text, part) test_has((text), (part), __FILE__, __LINE__)

static inline int test_end(void)
{
    printf("%ld passed, %ld failed\n", test_passed, test_failed);
    return test_failed != 0 || test_passed == 0;
}

#endif
