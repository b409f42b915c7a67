/* F_SETPIPE_SZ: a larger pipe, where there is one, halves the time of reading a study. */
#define _GNU_SOURCE
#include "analysis/record_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/err.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

bool record_child_unlimited(void)
{
    return SANITIZED;
}

/* The parent's mappings (MPI, CUDA) are inherited and must not count. */
static void limit_memory(size_t more_bytes)
{
    unsigned long pages = 0;
    FILE *statm = SANITIZED ? NULL : fopen("/proc/self/statm", "r");
    if (statm == NULL)
        return;
    int found = fscanf(statm, "%lu", &pages);
    fclose(statm);
    rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more_bytes;
    struct rlimit limit = {bytes, bytes};
    if (found == 1)
        setrlimit(RLIMIT_AS, &limit);
}

static void limit(const struct record_limits *limits)
{
    struct rlimit cpu = {limits->cpu_s, limits->cpu_s}, core = {0, 0};
    limit_memory(limits->memory_bytes);
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_CORE, &core);
    alarm(limits->wall_s);
}

/* Handlers of the parent (MPI prints backtraces) must not speak; Ctrl-C is the parent's business.
 */
static void become_quiet(pid_t parent)
{
    const int dying[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGXCPU, SIGPIPE};
    const int deaf[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXFSZ};
    sigset_t none;
    for (size_t i = 0; i < sizeof dying / sizeof *dying; i++)
        signal(dying[i], SIG_DFL);
    for (size_t i = 0; i < sizeof deaf / sizeof *deaf; i++)
        signal(deaf[i], SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent)
        _exit(255);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
}

/* The parent's handler may be MPI_Abort, and exit() would run what the parent left for its own end.
 */
static void leave(int code)
{
    _exit(code);
}

int record_child_start(struct record_child *child, int (*body)(void *arg, int fd), void *arg,
                       const struct record_limits *limits)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe(ends) != 0)
        return fail(FAIL_FILE, "record: cannot start a reader: %s", strerror(errno));
#ifdef F_SETPIPE_SZ
    fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
#endif
    child->pid = fork();
    if (child->pid == 0) {
        close(ends[0]);
        die_handler(leave);
        become_quiet(parent);
        limit(limits);
        _exit(body(arg, ends[1]));
    }
    int code = errno;
    close(ends[1]);
    child->fd = ends[0];
    if (child->pid > 0)
        return 0;
    close(ends[0]);
    return fail(FAIL_FILE, "record: cannot start a reader: %s", strerror(code));
}

bool record_child_read(const struct record_child *child, void *bytes, size_t size)
{
    for (char *at = bytes; size > 0;) {
        ssize_t n = read(child->fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

bool record_child_write(int fd, const void *bytes, size_t size)
{
    for (const char *at = bytes; size > 0;) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

int record_child_end(struct record_child *child, bool end)
{
    int status = -1;
    if (end)
        kill(child->pid, SIGKILL);
    close(child->fd);
    while (waitpid(child->pid, &status, 0) < 0)
        if (errno != EINTR)
            return 0; /* somebody else waited for it: what it said has to do */
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
