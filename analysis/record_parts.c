#include "analysis/record_parts.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/record_publish.h"
#include "base/err.h"

void record_part_name(struct record_part *part, int point, int launch)
{
    *part = (struct record_part){.point = point, .launch = launch};
    if (launch < 0)
        snprintf(part->name, sizeof part->name, "%03d", point);
    else
        snprintf(part->name, sizeof part->name, "%03d.launch%d", point, launch);
}

void record_part_name_piece(struct record_part *part, int point, int launch, int piece)
{
    *part = (struct record_part){.point = point, .launch = launch, .piece = piece};
    snprintf(part->name, sizeof part->name, "%03d.launch%d.part%06d", point, launch, piece);
}

/* Only the exact text that the two functions above make. */
bool record_part_parse(struct record_part *part, const char *name)
{
    int point = 0, launch = -1, piece = 0;
    if (strlen(name) >= sizeof part->name ||
        sscanf(name, "%6d.launch%6d.part%9d", &point, &launch, &piece) < 1 || point < 0 ||
        piece < 0)
        return false;
    if (piece > 0 && launch >= 0)
        record_part_name_piece(part, point, launch, piece);
    else
        record_part_name(part, point, launch);
    return strcmp(part->name, name) == 0;
}

void record_parts_add(struct record_parts *parts, const struct record_part *part)
{
    if ((parts->n & (parts->n - 1)) == 0) /* full at every power of two */
        parts->parts =
            must_grow(parts->parts, parts->n > 0 ? 2 * (size_t)parts->n : 1, sizeof *parts->parts);
    parts->parts[parts->n++] = *part;
}

static int by_point(const void *left, const void *right)
{
    const struct record_part *a = left, *b = right;
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    if (a->launch != b->launch)
        return a->launch < b->launch ? -1 : 1;
    return (a->piece > b->piece) - (a->piece < b->piece);
}

void record_parts_sort(struct record_parts *parts)
{
    if (parts->n > 0)
        qsort(parts->parts, (size_t)parts->n, sizeof *parts->parts, by_point);
}

void record_parts_release(struct record_parts *parts)
{
    free(parts->parts);
    *parts = (struct record_parts){0};
}

static bool is_part(struct record_part *part, const char *file)
{
    char name[sizeof part->name + 4];
    size_t length = strlen(file);
    if (length < 4 || length >= sizeof name || strcmp(file + length - 3, ".h5") != 0)
        return false;
    memcpy(name, file, length - 3);
    name[length - 3] = '\0';
    return record_part_parse(part, name);
}

int record_parts_list(struct record_parts *out, const char *folder)
{
    struct record_part part;
    *out = (struct record_parts){0};
    DIR *open = opendir(folder);
    if (open == NULL)
        return fail(FAIL_FILE, "record: cannot read %s: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(open)) != NULL;)
        if (is_part(&part, entry->d_name))
            record_parts_add(out, &part);
    closedir(open);
    record_parts_sort(out);
    return 0;
}

static bool is_ours(const char *file)
{
    struct record_part part;
    char name[64];
    size_t length = strlen(file);
    if (length >= sizeof name)
        return false;
    strcpy(name, file);
    if (length > 4 && strcmp(name + length - 4, ".tmp") == 0)
        name[length - 4] = '\0';
    return strcmp(name, "head.h5") == 0 || strcmp(name, "run.log") == 0 || is_part(&part, name);
}

void record_parts_remove(const char *folder)
{
    char path[RECORD_PATH + 300];
    DIR *open = opendir(folder);
    if (open == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(open)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (is_ours(entry->d_name))
            unlink(path);
    }
    closedir(open);
    snprintf(path, sizeof path, "%s/lock", folder);
    unlink(path);
}
