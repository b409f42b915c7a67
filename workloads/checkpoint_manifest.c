#include "workloads/checkpoint_manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/err.h"

static const char format_name[] = "scalestudy checkpoint";
enum { FORMAT_VERSION = 1 };

void checkpoint_manifest_release(struct checkpoint_manifest *manifest)
{
    for (int i = 0; i < manifest->n; i++) {
        checkpoint_shard_release(&manifest->entry[i].shard);
        free(manifest->entry[i].hash);
    }
    free(manifest->entry);
    memset(manifest, 0, sizeof *manifest);
}

/* ---- to text ---- */

static json_t *hex(uint64_t value)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

static json_t *tensor_json(const struct plan_tensor *t)
{
    json_t *spans = json_array();
    for (int i = 0; i < t->n_spans; i++)
        json_array_append_new(
            spans, json_pack("[I,I]", (json_int_t)t->span[i].first, (json_int_t)t->span[i].count));
    return json_pack("[s,I,I,I,I,I,o]", t->name, (json_int_t)t->rows, (json_int_t)t->columns,
                     (json_int_t)t->whole_rows, (json_int_t)t->whole_columns,
                     (json_int_t)t->first_column, spans);
}

static json_t *part_json(const struct checkpoint_part *p, const uint64_t *hash)
{
    return json_pack("[i,I,I,I,o,o,o]", p->tensor, (json_int_t)p->first, (json_int_t)p->count,
                     (json_int_t)p->offset, hex(hash[0]), hex(hash[1]), hex(hash[2]));
}

char *checkpoint_shard_text(const struct checkpoint_entry *entry)
{
    const struct checkpoint_shard *shard = &entry->shard;
    const struct checkpoint_place *place = &entry->place;
    json_t *tensors = json_array(), *parts = json_array();
    for (int i = 0; i < shard->n_tensors; i++)
        json_array_append_new(tensors, tensor_json(&shard->tensors[i]));
    for (int i = 0; i < shard->n_parts; i++)
        json_array_append_new(
            parts, part_json(&shard->parts[i], &entry->hash[(size_t)i * CHECKPOINT_ARRAYS]));
    json_t *root = json_pack(
        "{s:i,s:s,s:I,s:o,s:I,s:I,s:I,s:[I,o],s:[I,I,I],s:o,s:o}", "rank", shard->rank, "file",
        entry->file, "file_bytes", (json_int_t)entry->file_bytes, "frame", hex(entry->frame),
        "begin", (json_int_t)shard->begin, "elements", (json_int_t)shard->n, "padded",
        (json_int_t)place->padded, "small", (json_int_t)place->small, hex(entry->small_hash),
        "arrays", (json_int_t)place->array[0], (json_int_t)place->array[1],
        (json_int_t)place->array[2], "tensors", tensors, "parts", parts);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (text == NULL)
        die(FAIL_INTERNAL, "checkpoint: no memory for the text of a shard");
    return text;
}

static json_t *terms_json(const struct checkpoint_terms *terms)
{
    json_t *list = json_object();
    for (int i = 0; i < terms->n; i++)
        json_object_set_new(list, terms->term[i].name, json_string(terms->term[i].value));
    return list;
}

static json_t *small_json(const struct checkpoint_small *small)
{
    json_t *list = json_object(), *scalars = json_array();
#define PUT(name, meaning) json_object_set_new(list, #name, json_integer((json_int_t)small->name));
    CHECKPOINT_SMALL(PUT)
#undef PUT
    for (int i = 0; i < SCALARS; i++) { /* by their bits: JSON has no NaN, and rounds */
        uint64_t bits;
        memcpy(&bits, &small->scalars[i], sizeof bits);
        json_array_append_new(scalars, hex(bits));
    }
    json_object_set_new(list, "scalars", scalars);
    return list;
}

/* Hash of the content: compact, keys sorted, without the hash itself. */
static uint64_t content_hash(const json_t *root)
{
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = text ? XXH3_64bits(text, strlen(text)) : 0;
    free(text);
    return hash;
}

static char *manifest_text(const struct checkpoint_manifest *head, const char *const *texts, int n)
{
    json_t *shards = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(shards, json_loads(texts[i], 0, NULL));
    json_t *root =
        json_pack("{s:s,s:i,s:I,s:b,s:i,s:o,s:o,s:o,s:o}", "format", format_name, "version",
                  FORMAT_VERSION, "step", (json_int_t)head->step, "shared", (int)head->shared,
                  "ranks", n, "terms", terms_json(&head->terms), "about", terms_json(&head->about),
                  "small", small_json(&head->small), "shards", shards);
    json_object_set_new(root, "hash", hex(content_hash(root)));
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(root);
    return text;
}

/* ---- from text ---- */

static bool read_hex(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    char *end;
    if (text == NULL || strlen(text) != 16)
        return false;
    *out = strtoull(text, &end, 16);
    return *end == '\0';
}

static bool read_spans(const json_t *list, struct plan_tensor *t)
{
    int64_t rows = 0;
    size_t n = json_array_size(list);
    if (n < 1 || n > PLAN_SPANS)
        return false;
    t->n_spans = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *span = json_array_get(list, i);
        t->span[i].first = json_integer_value(json_array_get(span, 0));
        t->span[i].count = json_integer_value(json_array_get(span, 1));
        if (t->span[i].first < 0 || t->span[i].count < 1 ||
            t->span[i].first + t->span[i].count > t->whole_rows)
            return false;
        rows += t->span[i].count;
    }
    return rows == t->rows;
}

static bool read_tensor(const json_t *list, struct plan_tensor *t)
{
    const char *name = json_string_value(json_array_get(list, 0));
    if (name == NULL || strlen(name) >= sizeof t->name)
        return false;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = json_integer_value(json_array_get(list, 1));
    t->columns = json_integer_value(json_array_get(list, 2));
    t->whole_rows = json_integer_value(json_array_get(list, 3));
    t->whole_columns = json_integer_value(json_array_get(list, 4));
    t->first_column = json_integer_value(json_array_get(list, 5));
    return t->columns > 0 && t->first_column >= 0 &&
           t->first_column + t->columns <= t->whole_columns &&
           read_spans(json_array_get(list, 6), t);
}

static bool read_part(const json_t *list, const struct checkpoint_shard *shard,
                      struct checkpoint_part *p, uint64_t *hash)
{
    p->tensor = (int)json_integer_value(json_array_get(list, 0));
    p->first = json_integer_value(json_array_get(list, 1));
    p->count = json_integer_value(json_array_get(list, 2));
    p->offset = json_integer_value(json_array_get(list, 3));
    for (size_t a = 0; a < CHECKPOINT_ARRAYS; a++)
        if (!read_hex(json_array_get(list, 4 + a), &hash[a]))
            return false;
    if (p->tensor < 0 || p->tensor >= shard->n_tensors)
        return false;
    const struct plan_tensor *t = &shard->tensors[p->tensor];
    return p->first >= 0 && p->count > 0 && p->first + p->count <= t->rows * t->columns &&
           p->offset >= 0 && p->offset + p->count <= shard->n;
}

static bool read_place(const json_t *root, struct checkpoint_entry *e)
{
    const json_t *small = json_object_get(root, "small"), *arrays = json_object_get(root, "arrays");
    int64_t bytes = e->file_bytes;
    e->place.padded = json_integer_value(json_object_get(root, "padded"));
    e->place.small = json_integer_value(json_array_get(small, 0));
    bool good = read_hex(json_array_get(small, 1), &e->small_hash) && e->place.padded > 0 &&
                e->place.padded % CHECKPOINT_BLOCK == 0 && e->place.padded <= bytes / 4 &&
                e->place.small >= 0 && e->place.small + CHECKPOINT_ALIGN <= bytes;
    for (size_t a = 0; a < CHECKPOINT_ARRAYS; a++) {
        int64_t at = json_integer_value(json_array_get(arrays, a));
        good = good && at >= 0 && at % CHECKPOINT_ALIGN == 0 && at + e->place.padded * 4 <= bytes;
        e->place.array[a] = at;
    }
    return good;
}

static bool read_entry(const json_t *root, struct checkpoint_entry *e)
{
    const char *file = json_string_value(json_object_get(root, "file"));
    const json_t *tensors = json_object_get(root, "tensors");
    const json_t *parts = json_object_get(root, "parts");
    struct checkpoint_shard *shard = &e->shard;
    size_t n_tensors = json_array_size(tensors), n_parts = json_array_size(parts);
    if (file == NULL || strlen(file) >= sizeof e->file || strchr(file, '/') != NULL)
        return false;
    snprintf(e->file, sizeof e->file, "%s", file);
    e->file_bytes = json_integer_value(json_object_get(root, "file_bytes"));
    shard->rank = (int)json_integer_value(json_object_get(root, "rank"));
    shard->begin = json_integer_value(json_object_get(root, "begin"));
    shard->n = json_integer_value(json_object_get(root, "elements"));
    shard->tensors = must_alloc(n_tensors + 1, sizeof *shard->tensors);
    shard->parts = must_alloc(n_parts + 1, sizeof *shard->parts);
    e->hash = must_alloc((n_parts + 1) * CHECKPOINT_ARRAYS, sizeof *e->hash);
    bool good = read_hex(json_object_get(root, "frame"), &e->frame) && read_place(root, e) &&
                shard->n >= 0 && shard->n <= e->place.padded;
    for (size_t i = 0; i < n_tensors && good; i++)
        good = read_tensor(json_array_get(tensors, i), &shard->tensors[i]);
    shard->n_tensors = (int)n_tensors;
    for (size_t i = 0; i < n_parts && good; i++)
        good = read_part(json_array_get(parts, i), shard, &shard->parts[i],
                         &e->hash[i * CHECKPOINT_ARRAYS]);
    shard->n_parts = (int)n_parts;
    return good;
}

static bool read_small(const json_t *root, struct checkpoint_small *small)
{
    const json_t *scalars = json_object_get(root, "scalars");
#define GET(name, meaning) small->name = json_integer_value(json_object_get(root, #name));
    CHECKPOINT_SMALL(GET)
#undef GET
    for (size_t i = 0; i < SCALARS; i++) {
        uint64_t bits;
        if (!read_hex(json_array_get(scalars, i), &bits))
            return false;
        memcpy(&small->scalars[i], &bits, sizeof bits);
    }
    return small->step >= 0 && small->consumed >= 0;
}

static void read_terms(json_t *root, struct checkpoint_terms *terms)
{
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (terms->n < CHECKPOINT_TERMS && json_is_string(value))
            checkpoint_terms_add(terms, name, json_string_value(value));
    }
}

static bool read_root(json_t *root, struct checkpoint_manifest *m)
{
    const json_t *shards = json_object_get(root, "shards");
    size_t n = json_array_size(shards);
    m->step = json_integer_value(json_object_get(root, "step"));
    m->shared = json_is_true(json_object_get(root, "shared"));
    read_terms(json_object_get(root, "terms"), &m->terms);
    read_terms(json_object_get(root, "about"), &m->about);
    if (n < 1 || !read_small(json_object_get(root, "small"), &m->small))
        return false;
    m->entry = must_alloc(n, sizeof *m->entry);
    m->n = (int)n;
    for (size_t i = 0; i < n; i++)
        if (!read_entry(json_array_get(shards, i), &m->entry[i]))
            return false;
    return true;
}

int checkpoint_manifest_parse(struct checkpoint_manifest *out, const char *text, const char *folder)
{
    uint64_t expected = 0;
    int rc = 0;
    memset(out, 0, sizeof *out);
    json_t *root = json_loads(text, 0, NULL);
    const char *format = json_string_value(json_object_get(root, "format"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    bool has_hash = read_hex(json_object_get(root, "hash"), &expected);
    if (root != NULL && has_hash)
        json_object_del(root, "hash");
    if (format == NULL || strcmp(format, format_name) != 0)
        rc = fail(FAIL_FILE, "checkpoint: %s/manifest.json is damaged, or no checkpoint", folder);
    else if (version > FORMAT_VERSION)
        rc = fail(FAIL_ABSENT,
                  "checkpoint: %s is of version %lld and this program reads %d: take a newer build",
                  folder, (long long)version, FORMAT_VERSION);
    else if (!has_hash || content_hash(root) != expected || !read_root(root, out))
        rc = fail(FAIL_FILE,
                  "checkpoint: %s/manifest.json is damaged: its content has another "
                  "hash than it says",
                  folder);
    json_decref(root);
    if (rc != 0)
        checkpoint_manifest_release(out);
    out->damaged = rc == FAIL_FILE;
    return rc;
}

/* ---- publish ---- */

static int write_synced(const char *path, const char *text)
{
    size_t left = strlen(text);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    int code = 0;
    while (left > 0 && code == 0) {
        ssize_t n = write(fd, text, left);
        if (n < 0 && errno == EINTR)
            continue;
        code = n < 0 ? errno : n == 0 ? EIO : 0;
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    if (code == 0 && fsync(fd) != 0)
        code = errno;
    if (close(fd) != 0 && code == 0)
        code = errno;
    return code;
}

int checkpoint_sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int code = fsync(fd) == 0 || errno == EINVAL ? 0 : errno; /* EINVAL: has no such thing */
    close(fd);
    return code;
}

/* It has its name, and whether that lasts is not known: it is said to be lost, so it must not stay. */
static void unpublish(const char *published, const char *folder)
{
    char path[CHECKPOINT_PATH + 32];
    checkpoint_path(path, sizeof path, published, "manifest.json");
    unlink(path);
    (void)checkpoint_sync_folder(published);
    if (rename(published, folder) != 0)
        checkpoint_remove(published);
}

int checkpoint_publish(const char *root, const char *folder, const struct checkpoint_manifest *head,
                       const char *const *texts, int n, char *why, size_t why_size)
{
    char path[CHECKPOINT_PATH + 32], to[CHECKPOINT_PATH];
    char *text = manifest_text(head, texts, n);
    const char *what = path;
    checkpoint_path(path, sizeof path, folder, "manifest.json");
    checkpoint_step_folder(root, head->step, to, sizeof to);
    int code = text == NULL ? ENOMEM : write_synced(path, text);
    free(text);
    if (code == 0 && (code = checkpoint_sync_folder(folder)) != 0)
        what = folder;
    if (code == 0 && rename(folder, to) != 0) { /* a folder that holds something is not replaced */
        code = errno;
        what = to;
    }
    if (code != 0)
        unlink(path); /* half of one at most, and in the way of who removes the folder */
    else if ((code = checkpoint_sync_folder(root)) == 0)
        return 0;
    else {
        what = root;
        unpublish(to, folder);
    }
    snprintf(why, why_size, "checkpoint: step %lld cannot be published: %s: %s",
             (long long)head->step, what, strerror(code));
    return FAIL_FILE;
}
