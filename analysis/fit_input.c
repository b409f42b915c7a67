#define _DEFAULT_SOURCE /* S_ISDIR of sys/stat.h in all libcs */
#include "analysis/fit_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/import_group.h"
#include "analysis/record.h"
#include "analysis/report_key.h"
#include "analysis/scaling.h"
#include "analysis/studies.h"
#include "base/err.h"

void fit_input_release(struct fit_input *input)
{
    series_set_release(&input->studies);
    import_release(&input->import);
    collective_tables_release(&input->calls);
    *input = (struct fit_input){0};
}

static bool is_study(const char *path)
{
    static const char signature[8] = "\211HDF\r\n\032\n";
    char head[8] = "";
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return true;
    FILE *from = fopen(path, "rb");
    size_t n = from ? fread(head, 1, sizeof head, from) : 0;
    if (from)
        fclose(from);
    return n == sizeof head && memcmp(head, signature, sizeof head) == 0;
}

static void add_calls(struct fit_input *out, const struct scaling *scaling,
                      const struct scaling_run *run)
{
    const struct record_point *p = run->account.record;
    char key[REPORT_KEY], name[REPORT_KEY + 32];
    report_key_text(key, scaling, &p->point);
    if (p->point.launch > 0)
        snprintf(name, sizeof name, "%s, launch %d", key, p->point.launch);
    else
        snprintf(name, sizeof name, "%s", key);
    collective_tables_of_point(&out->calls, p, run->file->path, name);
}

static int study_series(struct fit_input *out, const struct record_file *const *files, int n,
                        uint64_t seed)
{
    struct scaling scaling = {0};
    int rc = scaling_init(&scaling, files, n, seed);
    if (rc != 0)
        return rc;
    series_from_scaling(&out->studies, &scaling, "study", files[0]->path);
    for (int i = 0; i < scaling.n_runs; i++)
        if (scaling.runs[i].account.record->point.valid)
            add_calls(out, &scaling, &scaling.runs[i]);
    scaling_release(&scaling);
    return 0;
}

/* Launches of one study together, studies in the order in which they were first named. */
static int group_studies(struct fit_input *out, const struct record_file *files, int n,
                         uint64_t seed)
{
    const struct record_file **same = must_alloc((size_t)n + 1, sizeof *same);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        int count = 0, earlier = 0;
        while (earlier < i && !studies_same(&files[earlier], &files[i]))
            earlier++;
        for (int j = i; j < n && earlier == i; j++)
            if (studies_same(&files[i], &files[j]))
                same[count++] = &files[j];
        if (count > 0)
            rc = study_series(out, same, count, seed);
    }
    free(same);
    return rc;
}

static int read_studies(struct fit_input *out, char **paths, int n, uint64_t seed)
{
    struct record_file *files = must_alloc((size_t)n + 1, sizeof *files);
    int n_files = 0, rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        if (is_study(paths[i]) && (rc = record_read(&files[n_files], paths[i])) == 0)
            rc = studies_refuse_twice(files, n_files++);
    if (rc == 0)
        rc = group_studies(out, files, n_files, seed);
    for (int i = 0; i < n_files; i++)
        record_file_release(&files[i]);
    free(files);
    return rc;
}

int fit_input_read(struct fit_input *out, char **paths, int n, const struct import_options *how,
                   const char *devices, const char *scaling, uint64_t seed)
{
    struct import_options one = *how;
    int tables = 0, table = 0, rc;
    *out = (struct fit_input){0};
    TRY(read_studies(out, paths, n, seed));
    for (int i = 0; i < n; i++)
        tables += !is_study(paths[i]);
    for (int i = 0; i < n; i++) {
        if (is_study(paths[i]))
            continue;
        TRY(import_devices_of(devices, table++, tables, &one.devices));
        TRY(import_file(&out->import, paths[i], &one));
    }
    if (out->import.n_rows > 0)
        TRY(import_group(&out->import, scaling));
    return 0;
out:
    fit_input_release(out);
    return rc;
}

const struct series *fit_input_series(const struct fit_input *input, int i)
{
    if (i < input->studies.n_series)
        return &input->studies.series[i];
    i -= input->studies.n_series;
    return i < input->import.set.n_series ? &input->import.set.series[i] : NULL;
}
