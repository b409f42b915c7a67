#include "driver/preempt.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

static volatile sig_atomic_t seen;
static char words[640];

static void note(int signal_number)
{
    if (seen == 0)
        seen = signal_number;
}

static void leave(int signal_number)
{
    if (words[0]) {
        ssize_t ignored = write(STDERR_FILENO, words, strlen(words));
        (void)ignored;
    }
    _exit(signal_number == SIGTERM ? FAIL_STOPPED : 128 + signal_number);
}

void preempt_watch(bool run, const char *farewell)
{
    struct sigaction at_once = {.sa_handler = leave};
    struct sigaction noted = {.sa_handler = note, .sa_flags = SA_RESTART};
    snprintf(words, sizeof words, "%s", farewell);
    sigaction(SIGINT, &at_once, NULL);
    sigaction(SIGTERM, run ? &noted : &at_once, NULL);
    sigaction(SIGUSR1, &noted, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader of stdout that left ends no measurement */
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then a failed write, with its sentence */
}

void preempt_say_nothing(void)
{
    words[0] = '\0';
}

int preempt_seen(void)
{
    return seen;
}

int preempt_check(const char *out)
{
    if (seen == 0)
        return 0;
    return fail(
        FAIL_STOPPED,
        "study: stopped by %s: finished points are in %s.parts, the one under way is measured "
        "again: --resume goes on",
        preempt_name(seen), out);
}

const char *preempt_name(int signal_number)
{
    return signal_number == SIGTERM ? "SIGTERM" : signal_number == SIGUSR1 ? "SIGUSR1" : "a signal";
}
