#include "analysis/gnuplot.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"

extern char **environ;

static const char *const terminals[][2] = {
    {".svg", "svg size 900,1150 noenhanced background 'white'"},
    {".png", "pngcairo size 900,1150 noenhanced background 'white'"},
    {".pdf", "pdfcairo size 6.5in,8.3in noenhanced fontscale 0.6 background 'white'"},
};
enum { N_TERMINALS = sizeof terminals / sizeof *terminals };

static const char *terminal_of(const char *path)
{
    size_t length = strlen(path);
    for (int i = 0; i < N_TERMINALS; i++)
        if (length > 4 && strcmp(path + length - 4, terminals[i][0]) == 0)
            return terminals[i][1];
    return NULL;
}

int gnuplot_check(const char *path)
{
    if (terminal_of(path) == NULL)
        return fail(FAIL_USAGE, "--plot: \"%s\" ends in none of .svg, .png, .pdf", path);
    for (const char *c = path; *c != '\0'; c++)
        if ((unsigned char)*c < ' ')
            return fail(FAIL_USAGE, "--plot: the name of the picture has a control character");
    return 0;
}

/* A gnuplot string that nothing in `text` can leave: single quotes know no escape but '', and that
 * one is misread (5.4) at either end and after itself: a space keeps it apart. */
void gnuplot_quote(FILE *to, const char *text)
{
    char last = '\'';
    fputc('\'', to);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs(last == '\'' ? " '" : "'", to);
        last = (unsigned char)*text < ' ' || *text == 127 ? ' ' : *text;
        fputc(last, to);
    }
    fputs(last == '\'' ? " '" : "'", to);
}

void gnuplot_number(FILE *to, double value)
{
    if (isfinite(value))
        fprintf(to, " %.9g", value);
    else
        fputs(" NaN", to);
}

/* ---- files and the program ---- */

static int run_gnuplot(char *script)
{
    char program[] = "gnuplot";
    char *argv[] = {program, script, NULL};
    pid_t child;
    int status = 0;
    int error = posix_spawnp(&child, program, NULL, NULL, argv, environ);
    if (error == ENOENT)
        return fail(FAIL_ABSENT, "--plot: there is no gnuplot on this machine; %s is ready for one",
                    script);
    if (error != 0)
        return fail(FAIL_FILE, "--plot: gnuplot could not be started: %s", strerror(error));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return fail(FAIL_FILE, "--plot: gnuplot was lost: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return fail(FAIL_ABSENT, "--plot: gnuplot could not be run; %s is ready for it", script);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fail(FAIL_FILE, "--plot: gnuplot refused %s", script);
    return 0;
}

int gnuplot_draw(const char *path, gnuplot_script *script_of, const void *about)
{
    size_t size = strlen(path) + sizeof "./.gnuplot"; /* ./: a name may begin with a dash */
    char *script = must_alloc(size, 1);
    int rc = 0;
    TRY(gnuplot_check(path));
    snprintf(script, size, "%s%s.gnuplot", path[0] == '/' ? "" : "./", path);
    FILE *to = fopen(script, "w");
    if (to == NULL) {
        rc = fail(FAIL_FILE, "--plot: %s cannot be written: %s", script, strerror(errno));
        goto out;
    }
    fprintf(to, "set terminal %s\nset output ", terminal_of(path));
    gnuplot_quote(to, path);
    fputs("\nset encoding utf8\nset grid\n", to);
    script_of(to, about);
    fputs("set output\n", to);
    int failed = ferror(to);
    if (fclose(to) != 0 || failed) {
        rc = fail(FAIL_FILE, "--plot: %s cannot be written: %s", script, strerror(errno));
        goto out;
    }
    TRY(run_gnuplot(script));
    if (access(path, R_OK) != 0)
        rc = fail(FAIL_FILE, "--plot: gnuplot ended well and left no %s", path);
out:
    free(script);
    return rc;
}
