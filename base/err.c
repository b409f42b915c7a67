#include "base/err.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { MESSAGE_BYTES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static char message[MESSAGE_BYTES];
static bool kept;
static _Atomic(void (*)(int)) handler_of_die;

/* Messages quote what users and files say: keep them one line, and harmless to a terminal. */
static void one_line(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

int fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&lock);
    if (!kept) {
        vsnprintf(message, sizeof message, format, args);
        one_line(message);
        kept = true;
    }
    pthread_mutex_unlock(&lock);
    va_end(args);
    return code;
}

const char *fail_message(void)
{
    /* Once kept, the buffer does not change until fail_clear(): it may be read without the lock. */
    pthread_mutex_lock(&lock);
    const char *text = kept ? message : "";
    pthread_mutex_unlock(&lock);
    return text;
}

void fail_clear(void)
{
    pthread_mutex_lock(&lock);
    kept = false;
    pthread_mutex_unlock(&lock);
}

const char *fail_words(int code)
{
    switch (code) {
#define FAIL_WORDS(name, value, words)                                                             \
    case value:                                                                                    \
        return words;
        FAIL_LIST(FAIL_WORDS)
#undef FAIL_WORDS
    case FAIL_NONE:
        return "success";
    default:
        return "unknown failure";
    }
}

void die_handler(void (*handler)(int code))
{
    atomic_store(&handler_of_die, handler);
}

_Noreturn void die(int code, const char *format, ...)
{
    /* One fprintf of the whole line, so that lines of several ranks do not mix. */
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "scalestudy: %s\n", text);

    void (*handler)(int) = atomic_load(&handler_of_die);
    if (handler == NULL)
        exit(code);
    handler(code);
    _Exit(code); /* the handler broke its promise */
}

void *must_alloc(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (memory == NULL)
        die(FAIL_INTERNAL, "out of memory: wanted %zu elements of %zu bytes", count, size);
    return memory;
}

void *must_grow(void *old, size_t count, size_t size)
{
    void *memory = NULL;
    if (size == 0 || count <= SIZE_MAX / size)
        memory = realloc(old, count * size > 0 ? count * size : 1);
    if (memory == NULL)
        die(FAIL_INTERNAL, "out of memory: wanted %zu elements of %zu bytes", count, size);
    return memory;
}
