#include "driver/preempt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

static volatile sig_atomic_t seen;
static char where[640];                  /* of the study: what words point at once there is one */
static _Atomic(const char *) words = ""; /* changed in one store: a signal may come to any thread */
static atomic_int ended = -1;            /* with this code; -1: not yet */

static void note(int signal_number)
{
    if (seen == 0)
        seen = signal_number;
}

static void leave(int signal_number)
{
    int code = atomic_load(&ended);
    const char *farewell = atomic_load(&words);
    if (code >= 0)
        _exit(code);
    if (farewell[0]) {
        ssize_t ignored = write(STDERR_FILENO, farewell, strlen(farewell));
        (void)ignored;
    }
    _exit(signal_number == SIGINT ? 128 + SIGINT : FAIL_STOPPED);
}

static const struct sigaction at_once = {.sa_handler = leave};
static const struct sigaction noted = {.sa_handler = note, .sa_flags = SA_RESTART};

void preempt_begin(bool study, bool speaks)
{
    if (speaks)
        atomic_store(&words, study
                                 ? "scalestudy: interrupted while starting: nothing was measured\n"
                                 : "scalestudy: interrupted: of a calibration nothing is kept\n");
    sigaction(SIGINT, &at_once, NULL);
    sigaction(SIGTERM, &at_once, NULL);
    sigaction(SIGUSR1, study ? &noted : &at_once, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader of stdout that left ends no measurement */
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then a failed write, with its sentence */
}

void preempt_watch(bool run, const char *out)
{
    if (out != NULL)
        snprintf(where, sizeof where,
                 "scalestudy: interrupted; finished points are in %s.parts, --resume goes on\n",
                 out);
    atomic_store(&words, where);
    if (run)
        sigaction(SIGTERM, &noted, NULL);
}

void preempt_say_nothing(void)
{
    atomic_store(&words, "");
}

void preempt_end(int code)
{
    atomic_store(&ended, code);
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
