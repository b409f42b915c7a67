#include "analysis/import_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static int check_head(const struct import_lines *lines, const unsigned char *head, size_t n)
{
    static const struct {
        const char *bytes, *words;
    } foreign[] = {
        {"\x1f\x8b", "is compressed by gzip: unpack it first"},
        {"\x28\xb5\x2f\xfd", "is compressed by zstd: unpack it first"},
        {"\x89HDF", "is an HDF5 file, no table: name study files as scalereport FILE.h5"},
        {"PK\x03\x04", "is a zip archive or a spreadsheet: save the table as CSV"},
        {"\xff\xfe", "is UTF-16: save it as UTF-8"},
    };
    if (n == 0)
        return fail(FAIL_FILE, "%s is empty: there is nothing to import", lines->path);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (n >= strlen(foreign[i].bytes) &&
            memcmp(head, foreign[i].bytes, strlen(foreign[i].bytes)) == 0)
            return fail(FAIL_FILE, "%s %s", lines->path, foreign[i].words);
    return 0;
}

int import_lines_open(struct import_lines *lines, const char *path)
{
    int rc = 0;
    unsigned char head[4] = {0};
    *lines = (struct import_lines){.path = path};
    lines->file = fopen(path, "rb");
    if (lines->file == NULL)
        return fail(FAIL_FILE, "%s could not be opened: %s", path, strerror(errno));
    errno = 0;
    size_t n = fread(head, 1, sizeof head, lines->file);
    if (n == 0 && ferror(lines->file))
        rc = fail(FAIL_FILE, "%s could not be read: %s", path, strerror(errno));
    else
        rc = check_head(lines, head, n);
    if (rc == 0 && fseek(lines->file, memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, SEEK_SET) != 0)
        rc = fail(FAIL_FILE, "%s is not a plain file that can be read from its beginning: %s", path,
                  strerror(errno));
    if (rc != 0) {
        import_lines_close(lines);
        return rc;
    }
    lines->text = must_alloc(IMPORT_LINE + 1, 1);
    return 0;
}

int import_lines_next(struct import_lines *lines)
{
    int c;
    lines->length = 0;
    lines->overlong = lines->open_end = false;
    while ((c = getc_unlocked(lines->file)) != EOF && c != '\n') {
        if (c == '\0')
            return -fail(FAIL_FILE, "%s:%lld: a byte 0 was found: it is no text file", lines->path,
                         (long long)lines->number + 1);
        if (lines->length < IMPORT_LINE)
            lines->text[lines->length++] = (char)c;
        else
            lines->overlong = true;
    }
    if (c == EOF && ferror(lines->file))
        return -fail(FAIL_FILE, "%s could not be read to its end: %s", lines->path,
                     strerror(errno));
    if (c == EOF && lines->length == 0)
        return 0;
    lines->open_end = c == EOF;
    while (lines->length > 0 && lines->text[lines->length - 1] == '\r')
        lines->length--;
    lines->text[lines->length] = '\0';
    lines->number++;
    return 1;
}

void import_lines_close(struct import_lines *lines)
{
    if (lines->file != NULL)
        fclose(lines->file);
    free(lines->text);
    *lines = (struct import_lines){0};
}
