#include "base/share.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

enum { PLACES = 3, FOLDER = 384 };

static const char extension[] = ".yaml";

static bool is_description(const char *name)
{
    size_t length = strlen(name), tail = sizeof extension - 1;
    return length > tail && strcmp(name + length - tail, extension) == 0;
}

bool share_is_path(const char *name_or_path)
{
    return strchr(name_or_path, '/') != NULL || is_description(name_or_path);
}

/* The source tree's, the share folder beside the program's bin, the one configured at build time. */
static void folder_of(const struct share *share, int place, char text[FOLDER])
{
    if (place == 0) {
        snprintf(text, FOLDER, "%s/%s", SCALESTUDY_SOURCE_DIR, share->source_folder);
        return;
    }
    if (place == 2) {
        snprintf(text, FOLDER, "%s/%s", SCALESTUDY_SHARE_DIR, share->share_folder);
        return;
    }
    ssize_t length = readlink("/proc/self/exe", text, FOLDER - 1);
    text[length > 0 ? length : 0] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(text, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    size_t used = strlen(text);
    snprintf(text + used, FOLDER - used, "/share/scalestudy/%s", share->share_folder);
}

static int is_listed(const struct dirent *entry)
{
    return is_description(entry->d_name);
}

void share_names(const struct share *share, char *text, size_t size)
{
    struct dirent **entries = NULL;
    char folder[FOLDER];
    size_t used = 0;
    int n = -1;
    text[0] = '\0';
    for (int place = 0; place < PLACES && n < 0; place++) {
        folder_of(share, place, folder);
        n = scandir(folder, &entries, is_listed, alphasort);
    }
    for (int i = 0; i < n; i++) {
        int length = (int)(strlen(entries[i]->d_name) - (sizeof extension - 1));
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", i > 0 ? ", " : "", length,
                                     entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

int share_find(const struct share *share, const char *name_or_path, char path[SHARE_PATH])
{
    char folder[FOLDER], names[512];
    if (share_is_path(name_or_path)) {
        if (strlen(name_or_path) >= SHARE_PATH)
            return fail(FAIL_USAGE, "%s: a path of more than %d bytes", share->what,
                        SHARE_PATH - 1);
        snprintf(path, SHARE_PATH, "%s", name_or_path);
        return 0;
    }
    for (int place = 0; place < PLACES; place++) {
        folder_of(share, place, folder);
        snprintf(path, SHARE_PATH, "%s/%.100s%s", folder, name_or_path, extension);
        if (access(path, R_OK) == 0)
            return 0;
    }
    share_names(share, names, sizeof names);
    return fail(FAIL_USAGE, "%s: there is no %s called %.100s; there are %s, or give a FILE.yaml",
                share->what, share->what, name_or_path,
                names[0] != '\0' ? names : "none installed");
}
