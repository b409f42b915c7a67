/*
 * share: files that come with the programs, found by name.
 *
 * Descriptions of models and machines lie in folders of the source tree, and after installation in
 * share/scalestudy. A name is looked for in the source tree's folder, in ../share/scalestudy beside
 * the running program, and in the share folder that was configured; what has a slash or ends in
 * .yaml is a path and stays one.
 */
#ifndef BASE_SHARE_H
#define BASE_SHARE_H

#include <stdbool.h>
#include <stddef.h>

enum { SHARE_PATH = 512 };

/* A kind of file: "model", "workloads/models" in the source tree, "models" in the share folder. */
struct share {
    const char *what, *source_folder, *share_folder;
};

bool share_is_path(const char *name_or_path);

/*
 * The path of NAME.yaml, or the path that was given. FAIL_USAGE when there is no such name, with the
 * names that exist. Whether a path can be read is the reader's business.
 */
int share_find(const struct share *share, const char *name_or_path, char path[SHARE_PATH]);

/* "tiny, gpt2-124m": the names in the first of the folders that exists, sorted; "" for none. */
void share_names(const struct share *share, char *text, size_t size);

#endif
