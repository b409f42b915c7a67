#include "base/opt.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/err.h"

/* What is being read; `path` begins every message. */
struct reading {
    const struct opt *table;
    size_t n_rows;
    void *base;
    const char *path;
    FILE *file;
    int *lines; /* [n_rows] 0: not given */
};

static int line_of(const yaml_node_t *node)
{
    return (int)node->start_mark.line + 1;
}

static const char *scalar(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

/* A scalar without a zero byte inside: what our texts can hold. */
static bool is_text(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && strlen(scalar(node)) == node->data.scalar.length;
}

static int set_list(const struct opt *row, void *base, yaml_document_t *document,
                    const yaml_node_t *list, const char *where)
{
    int rc = 0;
    memset((char *)base + row->offset, 0, row->size);
    for (yaml_node_item_t *item = list->data.sequence.items.start;
         rc == 0 && item < list->data.sequence.items.top; item++) {
        const yaml_node_t *node = yaml_document_get_node(document, *item);
        rc = is_text(node) ? opt_add(row, base, scalar(node), where)
                           : fail(FAIL_USAGE, "%s: wanted a list of texts", where);
    }
    return rc;
}

static int read_pair(struct reading *reading, yaml_document_t *document, const yaml_node_t *key,
                     const yaml_node_t *value)
{
    const char *path = reading->path;
    int line = line_of(key);
    if (!is_text(key))
        return fail(FAIL_USAGE, "%s:%d: wanted a word as key", path, line);
    const struct opt *row = opt_find(reading->table, reading->n_rows, scalar(key));
    if (row == NULL) {
        const char *nearest = opt_nearest(reading->table, reading->n_rows, scalar(key));
        return fail(FAIL_USAGE, "%s:%d: unknown key \"%.64s\"%s%s%s", path, line, scalar(key),
                    nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    }
    int *given = &reading->lines[row - reading->table];
    if (*given != 0)
        return fail(FAIL_USAGE, "%s:%d: key \"%s\" stands already in line %d", path, line,
                    row->name, *given);
    *given = line;

    char where[1024], wanted[256];
    snprintf(where, sizeof where, "%s:%d: %s", path, line, row->name);
    if (is_text(value))
        return opt_set(row, reading->base, scalar(value), where);
    if (value->type == YAML_SEQUENCE_NODE && row->type == OPT_TEXTS)
        return set_list(row, reading->base, document, value, where);
    opt_wanted(row, wanted, sizeof wanted);
    return fail(FAIL_USAGE, "%s: found a %s, wanted %s", where,
                value->type == YAML_SCALAR_NODE     ? "text with a zero byte"
                : value->type == YAML_SEQUENCE_NODE ? "list"
                                                    : "mapping",
                wanted);
}

static int read_mapping(struct reading *reading, yaml_document_t *document)
{
    const yaml_node_t *root = yaml_document_get_root_node(document);
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return fail(FAIL_FILE, "%s:%d: wanted a mapping of lines such as \"%s: %s\"", reading->path,
                    root == NULL ? 1 : line_of(root), reading->table[0].name,
                    reading->table[0].preset != NULL ? reading->table[0].preset : "...");
    int rc = 0;
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         rc == 0 && pair < root->data.mapping.pairs.top; pair++)
        rc = read_pair(reading, document, yaml_document_get_node(document, pair->key),
                       yaml_document_get_node(document, pair->value));
    for (size_t i = 0; rc == 0 && i < reading->n_rows; i++)
        if (reading->table[i].preset == NULL && reading->lines[i] == 0)
            rc = fail(FAIL_USAGE, "%s:%d: key \"%s\" is missing: %s", reading->path, line_of(root),
                      reading->table[i].name, reading->table[i].help);
    return rc;
}

static int refuse_syntax(const struct reading *reading, const yaml_parser_t *parser)
{
    if (ferror(reading->file)) /* a folder can be opened, and gives no bytes */
        return fail(FAIL_FILE, "%s: cannot be read: %s", reading->path, strerror(errno));
    return fail(FAIL_FILE, "%s:%d: not YAML: %s", reading->path, (int)parser->problem_mark.line + 1,
                parser->problem != NULL ? parser->problem : "out of memory");
}

static int read_documents(struct reading *reading, yaml_parser_t *parser)
{
    yaml_document_t document;
    if (!yaml_parser_load(parser, &document))
        return refuse_syntax(reading, parser);
    int rc = read_mapping(reading, &document);
    yaml_document_delete(&document);
    if (rc != 0)
        return rc;
    if (!yaml_parser_load(parser, &document))
        return refuse_syntax(reading, parser);
    const yaml_node_t *second = yaml_document_get_root_node(&document);
    if (second != NULL)
        rc = fail(FAIL_FILE, "%s:%d: wanted one document, found a second", reading->path,
                  line_of(second));
    yaml_document_delete(&document);
    return rc;
}

int opt_yaml(const struct opt *table, size_t n_rows, void *base, const char *path, int *lines)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return fail(FAIL_FILE, "%s: cannot be read: %s", path, strerror(errno));
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        die(FAIL_INTERNAL, "out of memory: reading %s", path);
    yaml_parser_set_input_file(&parser, file);

    opt_defaults(table, n_rows, base);
    struct reading reading = {
        .table = table, .n_rows = n_rows, .base = base, .path = path, .file = file};
    reading.lines = must_alloc(n_rows, sizeof *reading.lines);
    int rc = read_documents(&reading, &parser);
    if (lines != NULL)
        memcpy(lines, reading.lines, n_rows * sizeof *lines);
    free(reading.lines);
    yaml_parser_delete(&parser);
    fclose(file);
    return rc;
}
