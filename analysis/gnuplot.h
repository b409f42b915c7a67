/*
 * gnuplot: pictures drawn by the program of that name.
 *
 * A picture is a script, written by the caller with its data inside it, that stays beside the picture as
 * PATH.gnuplot. Text that comes from a study reaches gnuplot in single quotes alone, doubled inside,
 * with `noenhanced`; control characters become spaces. Numbers are printed by this program. So no title
 * or model name can be read as a command.
 */
#ifndef ANALYSIS_GNUPLOT_H
#define ANALYSIS_GNUPLOT_H

#include <stdio.h>

/* FAIL_USAGE for a path that ends in none of .svg, .png, .pdf; to be asked before anything is read. */
int gnuplot_check(const char *path);

typedef void gnuplot_script(FILE *to, const void *about);

/*
 * Write PATH.gnuplot (terminal and output first, then what `script` writes) and have it drawn. FAIL_FILE
 * when the script or the picture cannot be written, FAIL_ABSENT when there is no gnuplot (the
 * script stays).
 */
int gnuplot_draw(const char *path, gnuplot_script *script, const void *about);

void gnuplot_quote(FILE *to, const char *text);
void gnuplot_number(FILE *to, double value); /* with a space before it; what is not finite: NaN */

#endif
