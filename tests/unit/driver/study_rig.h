/*
 * study_rig.h: a study parsed from a line of words, and the model that its tests expand it for.
 */
#ifndef TESTS_STUDY_RIG_H
#define TESTS_STUDY_RIG_H

#include "driver/study.h"

#include "base/err.h"
#include "tests/test.h"

static struct study study;
static bool help;

static const struct model model = {.name = "six",
                                   .path = "models/six.yaml",
                                   .layers = 2,
                                   .hidden = 8,
                                   .heads = 2,
                                   .ffn = 32,
                                   .vocabulary = 100,
                                   .sequence = 64,
                                   .pad = 8,
                                   .lr = 1e-3};

/* Parse the words of a line, split at blanks. */
static int parse(const char *line)
{
    static char words[2048];
    static char *argv[64];
    int argc = 0;
    snprintf(words, sizeof words, "scalestudy %s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    fail_clear();
    int rc = study_parse(&study, argc, argv, &help);
    CHECK(strcmp(argv[0], "scalestudy") == 0);
    return rc;
}

#endif
