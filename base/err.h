/*
 * err: one failure path for the whole project.
 *
 * A function that can fail returns 0 or a FAIL_* code. `return fail(FAIL_USAGE, "layout: ...")`
 * keeps the first message of the process and prints nothing: who owns the story prints it (main in
 * a serial command, agree() in an MPI one). The codes are exit codes; 1 to 7 mean what nccl-tests
 * means by them. Messages are lower case: what was wanted, what was found, what to do.
 *
 * Inside the timed fence nobody can be asked: die() prints one line and ends the whole job through
 * the handler that the driver installs (MPI_Abort); without a handler it exits this process.
 * All functions here may be called from any thread.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdio.h>
#include <stdlib.h>

#define FAIL_LIST(X)                                                                               \
    X(FAIL_INTERNAL, 1, "internal error")                                                          \
    X(FAIL_CUDA, 2, "CUDA error")                                                                  \
    X(FAIL_COMM, 3, "communication error")                                                         \
    X(FAIL_TIMEOUT, 4, "timeout")                                                                  \
    X(FAIL_ABSENT, 5, "not in this build")                                                         \
    X(FAIL_USAGE, 6, "usage")                                                                      \
    X(FAIL_WRONG, 7, "wrong result")                                                               \
    X(FAIL_FILE, 8, "file error")                                                                  \
    X(FAIL_UNSETTLED, 9, "did not settle")                                                         \
    X(FAIL_PENDING, 10, "gate pending")                                                            \
    X(FAIL_STOPPED, 11, "stopped by a signal")                                                     \
    X(FAIL_UNSAVED, 12, "the end of a run is not saved")

enum fail_code {
    FAIL_NONE = 0,
#define FAIL_ENUM(name, value, words) name = value,
    FAIL_LIST(FAIL_ENUM)
#undef FAIL_ENUM
};

/* Keep the first message of this process; returns `code`. Messages are cut at 1023 bytes. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The first message kept, or "" when there is none. Owned by err; valid until fail_clear(). */
const char *fail_message(void);

/* Forget the message, so that the next fail() is the first again (tests; retried operations). */
void fail_clear(void);

/* The words for a code: "usage", "file error"; "unknown failure" for a code not in the list. */
const char *fail_words(int code);

/* What die() calls after printing; it must not return. NULL restores exit(code). */
void die_handler(void (*handler)(int code));
_Noreturn void die(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A promise of our own was broken: prints file, line and words, then die(FAIL_INTERNAL). */
#define BUG(...) die(FAIL_INTERNAL, "bug at " __FILE__ ":" ERR_TEXT(__LINE__) ": " __VA_ARGS__)
#define ERR_TEXT(x) ERR_TEXT_(x)
#define ERR_TEXT_(x) #x

/* Allocation that cannot fail: zeroed memory, or die(). Release with free(). */
void *must_alloc(size_t count, size_t size);
void *must_grow(void *old, size_t count, size_t size); /* realloc; the new part is not zeroed */

/* `rc` and the label `out` belong to the calling function. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        if ((rc = (expr)) != 0)                                                                    \
            goto out;                                                                              \
    } while (0)

#endif
