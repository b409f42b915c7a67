#include "workloads/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"

enum { HEADER_BYTES = 256 * 4, GPT2_END = 50256, LLAMA3_END = 128000 };

/* ---- which files ---- */

static bool is_shard(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".bin") == 0;
}

static void add_shard(struct input_file *file, const char *path)
{
    file->shards = must_grow(file->shards, (size_t)file->n_shards + 1, sizeof *file->shards);
    struct file_shard *shard = &file->shards[file->n_shards++];
    memset(shard, 0, sizeof *shard);
    shard->path = must_alloc(strlen(path) + 1, 1);
    strcpy(shard->path, path);
}

static int add_matches(struct input_file *file, const char *pattern)
{
    glob_t found;
    int rc = glob(pattern, 0, NULL, &found);
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
        add_shard(file, found.gl_pathv[i]);
    if (rc == 0)
        globfree(&found);
    return file->n_shards;
}

/* A folder's name may hold what a pattern would take for its own. */
static void quote(char *to, size_t size, const char *path, const char *tail)
{
    size_t n = 0;
    for (; *path != '\0' && n + 3 < size; path++) {
        if (strchr("*?[\\", *path) != NULL)
            to[n++] = '\\';
        to[n++] = *path;
    }
    snprintf(to + n, size - n, "%s", tail);
}

static int list_shards(struct input_file *file, const char *path)
{
    char pattern[2048];
    struct stat found;
    if (stat(path, &found) != 0) {
        int why = errno;
        if (strpbrk(path, "*?[") == NULL)
            return fail(FAIL_FILE, "input: cannot read %s: %s", path, strerror(why));
        return add_matches(file, path) > 0 ? 0 : fail(FAIL_FILE, "input: no file matches %s", path);
    }
    if (!S_ISDIR(found.st_mode)) {
        add_shard(file, path);
        return 0;
    }
    if (access(path, R_OK | X_OK) != 0)
        return fail(FAIL_FILE, "input: cannot read folder %s: %s", path, strerror(errno));
    quote(pattern, sizeof pattern, path, "/*.bin");
    return add_matches(file, pattern) > 0
               ? 0
               : fail(FAIL_FILE, "input: folder %s holds no shard: wanted files *.bin", path);
}

/* ---- one file ---- */

static void remember(struct file_shard *shard, const struct stat *found)
{
    shard->device = (uint64_t)found->st_dev;
    shard->node = (uint64_t)found->st_ino;
    shard->bytes = (int64_t)found->st_size;
    shard->changed_ns = (int64_t)found->st_mtim.tv_sec * 1000000000 + found->st_mtim.tv_nsec;
}

/* Looked at before it is opened: to open a FIFO would wait for a writer. */
static int open_shard(struct file_shard *shard, size_t budget)
{
    struct stat found;
    if (stat(shard->path, &found) != 0)
        return fail(FAIL_FILE, "input: cannot read %s: %s", shard->path, strerror(errno));
    if (!S_ISREG(found.st_mode))
        return fail(FAIL_FILE, "input: %s is %s, wanted a regular file", shard->path,
                    S_ISFIFO(found.st_mode)  ? "a FIFO"
                    : S_ISDIR(found.st_mode) ? "a folder"
                                             : "a device or socket");
    int descriptor = open(shard->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &found) != 0) {
        int why = errno;
        if (descriptor >= 0)
            close(descriptor);
        return fail(FAIL_FILE, "input: cannot read %s: %s", shard->path, strerror(why));
    }
    remember(shard, &found);
    int rc = 0, why = 0;
    if (shard->bytes == 0)
        rc = fail(FAIL_FILE, "input: %s is empty", shard->path);
    else if ((why = map_open(&shard->map, descriptor, (size_t)shard->bytes, budget,
                             shard->bytes <= INPUT_FILE_CHECKED)) != 0)
        rc = fail(FAIL_FILE, "input: cannot map %s: %s", shard->path, strerror(why));
    close(descriptor);
    return rc;
}

static int64_t word_at(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                     (uint32_t)at[3] << 24);
}

static int take_header(struct file_shard *shard, const unsigned char *header, int width)
{
    int64_t version = word_at(header + 4), wanted = width == 2 ? 1 : 7, n = word_at(header + 8);
    if (version != wanted)
        return fail(FAIL_FILE,
                    "input: %s is no shard that is known: its version is %" PRId64
                    ", wanted %" PRId64,
                    shard->path, version, wanted);
    if (n < 0 || shard->bytes != HEADER_BYTES + n * width)
        return fail(FAIL_FILE,
                    "input: %s is no whole shard: its header says %" PRId64
                    " tokens of %d bytes, and %" PRId64 " bytes follow it",
                    shard->path, n, width, shard->bytes - HEADER_BYTES);
    shard->header = HEADER_BYTES;
    shard->n = n;
    return 0;
}

/* Form of one file: bytes of a token and its header, or FAIL_FILE. */
static int take_form(struct input_file *file, int index, int *width)
{
    struct file_shard *shard = &file->shards[index];
    unsigned char header[HEADER_BYTES];
    if (!is_shard(shard->path)) {
        *width = 1;
        shard->n = shard->bytes;
        return 0;
    }
    if (shard->bytes >= HEADER_BYTES) {
        if (!input_file_copy(file, index, 0, HEADER_BYTES, header))
            return input_file_failed(file);
        int64_t magic = word_at(header);
        *width = magic == 20240801 ? 4 : 2;
        if (magic == 20240520 || magic == 20240801)
            return take_header(shard, header, *width);
        if (magic == 20240522)
            return fail(FAIL_FILE,
                        "input: %s holds questions for evaluation, not a shard of tokens",
                        shard->path);
    }
    *width = 2;
    shard->n = shard->bytes / 2;
    if (shard->bytes % 2 != 0)
        return fail(FAIL_FILE,
                    "input: %s is no shard: it has no header that is known, and %" PRId64
                    " bytes are no whole number of 16-bit tokens",
                    shard->path, shard->bytes);
    return 0;
}

static int open_shards(struct input_file *file)
{
    size_t budget = INPUT_FILE_RESIDENT / (size_t)file->n_shards;
    int rc = 0;
    for (int i = 0; i < file->n_shards; i++) {
        struct file_shard *shard = &file->shards[i];
        int width = 0;
        TRY(open_shard(shard, budget));
        TRY(take_form(file, i, &width));
        bool has_header = shard->header > 0;
        if (i > 0 && (width != file->width || has_header != file->has_header))
            return fail(FAIL_FILE,
                        "input: %s and %s are not of one form (bytes, 16-bit or 32-bit tokens, "
                        "with or without header)",
                        file->shards[0].path, shard->path);
        file->width = width;
        file->has_header = has_header;
        shard->first = file->n_tokens;
        file->n_tokens += shard->n;
    }
out:
    return rc;
}

/* ---- documents ---- */

static int set_document_end(struct input_file *file, const char *text)
{
    static const int64_t of_width[] = {-1, -1, GPT2_END, -1, LLAMA3_END};
    file->document_end = strcmp(text, "auto") == 0 ? of_width[file->width] : -1;
    if (strcmp(text, "auto") == 0 || strcmp(text, "none") == 0)
        return 0;
    if (units_parse_int(text, &file->document_end) != 0 || file->document_end < 0 ||
        file->document_end >= file->vocabulary)
        return fail(FAIL_USAGE,
                    "--document-end: found \"%s\", wanted auto, none, or a token below the "
                    "vocabulary of %" PRId64,
                    text, file->vocabulary);
    return 0;
}

int input_file_open(struct input_file *file, const char *path, int64_t vocabulary,
                    const char *document_end)
{
    int rc = 0;
    memset(file, 0, sizeof *file);
    file->vocabulary = vocabulary;
    if (path[0] == '\0')
        return fail(FAIL_USAGE, "--input: \"file:\" names no file, wanted file:PATH");
    if (pthread_mutex_init(&file->lock, NULL) != 0)
        return fail(FAIL_INTERNAL, "input: no lock could be made");
    file->locks = true;
    TRY(list_shards(file, path));
    TRY(open_shards(file));
    if (file->n_tokens < 2)
        return fail(FAIL_FILE, "input: %s holds %" PRId64 " tokens, wanted at least 2", path,
                    file->n_tokens);
    if (file->width == 1 && vocabulary < 256)
        return fail(FAIL_USAGE,
                    "input: the bytes of %s are tokens up to 255, and the model's vocabulary is "
                    "%" PRId64 ": take a model with at least 256",
                    path, vocabulary);
    rc = set_document_end(file, document_end);
out:
    return rc;
}

void input_file_close(struct input_file *file)
{
    for (int i = 0; i < file->n_shards; i++) {
        map_close(&file->shards[i].map);
        free(file->shards[i].path);
    }
    free(file->shards);
    if (file->locks)
        pthread_mutex_destroy(&file->lock);
    memset(file, 0, sizeof *file);
}

int input_file_unchanged(const struct input_file *file)
{
    for (int i = 0; i < file->n_shards; i++) {
        struct file_shard now = {0};
        const struct file_shard *then = &file->shards[i];
        struct stat found;
        if (stat(then->path, &found) != 0)
            return fail(FAIL_FILE, "input: %s changed while it was read: %s", then->path,
                        strerror(errno));
        remember(&now, &found);
        if (now.bytes != then->bytes)
            return fail(FAIL_FILE,
                        "input: %s changed while it was read: it had %" PRId64
                        " bytes and has %" PRId64,
                        then->path, then->bytes, now.bytes);
        if (now.changed_ns != then->changed_ns || now.device != then->device ||
            now.node != then->node)
            return fail(FAIL_FILE,
                        "input: %s changed while it was read: it was written again, %" PRId64
                        " bytes as before",
                        then->path, then->bytes);
    }
    return 0;
}
