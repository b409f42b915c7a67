/* The reader of topology files: libyaml's documents, so that every message has its line. */
#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/err.h"
#include "base/opt.h"
#include "topologies/topology.h"

/* Rows for their names and plain fields; facts are read by read_fact(). */
#define NAMED(key, type, field, size, min, max, help)                                              \
    {                                                                                              \
        key, 0, type, field, size, NULL, min, max, NULL, "", help                                  \
    }
#define OF_LEVEL(field) offsetof(struct level, field)

struct level { /* what a row of struct topology_level is read into */
    char name[32];
    int64_t ranks;
};

enum { TOP_DEVICE, TOP_LEVELS, TOP_FACTS };
static const struct opt top_keys[] = {
    NAMED("device", OPT_TEXT, offsetof(struct topology, device), 64, 0, 0, "what a rank runs on"),
    NAMED("levels", OPT_TEXT, 0, 0, 0, 0, "a list of name, ranks, latency, bandwidth"),
#define FACT_ROW(name, key, unit, required, help) NAMED(key, OPT_TEXT, 0, 0, 0, 0, help),
    FACT_LIST(FACT_ROW)
#undef FACT_ROW
};
enum { TOP_KEYS = sizeof top_keys / sizeof *top_keys };

enum { LEVEL_NAME, LEVEL_RANKS, LEVEL_LATENCY, LEVEL_BANDWIDTH, LEVEL_KEYS };
static const struct opt level_keys[LEVEL_KEYS] = {
    NAMED("name", OPT_TEXT, OF_LEVEL(name), 32, 0, 0, "of what the level joins"),
    NAMED("ranks", OPT_INT, OF_LEVEL(ranks), 0, 1, 1 << 30, "devices in one domain of it"),
    NAMED("latency", OPT_TEXT, 0, 0, 0, 0, "of one message, such as 3.4 us"),
    NAMED("bandwidth", OPT_TEXT, 0, 0, 0, 0, "of one device, one way, such as 50 GB/s"),
};

enum { FACT_VALUE, FACT_SOURCE, FACT_FROM, FACT_KEYS };
static const struct opt fact_keys[FACT_KEYS] = {
    NAMED("value", OPT_TEXT, 0, 64, 0, 0, "the number and its unit"),
    NAMED("source", OPT_CHOICE, 0, 0, 0, 0, "measured, vendor, file or assumed"),
    NAMED("from", OPT_TEXT, 0, TOPOLOGY_FROM, 0, 0, "where the number can be looked up"),
};

struct reading {
    const char *path;
    yaml_document_t *document;
};

static int line_of(const yaml_node_t *node)
{
    return (int)node->start_mark.line + 1;
}

static const yaml_node_t *node_at(const struct reading *r, int index)
{
    return yaml_document_get_node(r->document, index);
}

/* NULL unless it is a text without a zero byte inside. */
static const char *text_of(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE)
        return NULL;
    const char *text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

/* The values of a mapping in the order of the table; keys[i] is where a key stands. */
struct pairs {
    const yaml_node_t *value[TOP_KEYS];
    int line[TOP_KEYS]; /* 0: not there */
    int first_line;
};

static int read_pairs(const struct reading *r, const yaml_node_t *mapping, const struct opt *table,
                      size_t n, struct pairs *out)
{
    memset(out, 0, sizeof *out);
    out->first_line = line_of(mapping);
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = node_at(r, pair->key);
        const char *name = text_of(key);
        if (name == NULL)
            return fail(FAIL_USAGE, "%s:%d: wanted a word as key", r->path, line_of(key));
        const struct opt *row = opt_find(table, n, name);
        if (row == NULL) {
            const char *nearest = opt_nearest(table, n, name);
            return fail(FAIL_USAGE, "%s:%d: unknown key \"%.64s\"%s%s%s", r->path, line_of(key),
                        name, nearest ? "; did you mean " : "", nearest ? nearest : "",
                        nearest ? "?" : "");
        }
        if (out->line[row - table] != 0)
            return fail(FAIL_USAGE, "%s:%d: key \"%s\" stands already in line %d", r->path,
                        line_of(key), name, out->line[row - table]);
        out->line[row - table] = line_of(key);
        out->value[row - table] = node_at(r, pair->value);
    }
    return 0;
}

static int refuse_missing(const struct reading *r, int line, const struct opt *row)
{
    return fail(FAIL_USAGE, "%s:%d: \"%s\" is missing: %s", r->path, line, row->name, row->help);
}

/* ---- facts ---- */

static int set_value(const struct reading *r, const yaml_node_t *node, int line, const char *key,
                     enum fact_unit unit, struct fact *out)
{
    static const char *const examples[] = {
#define UNIT_EXAMPLE(name, text, example) example,
        FACT_UNITS(UNIT_EXAMPLE)
#undef UNIT_EXAMPLE
    };
    const char *text = text_of(node);
    if (text == NULL || fact_parse(text, unit, &out->value) != 0)
        return fail(FAIL_USAGE,
                    "%s:%d: %s: found \"%.64s\", wanted a number above 0 with its unit, "
                    "such as %s",
                    r->path, line, key, text != NULL ? text : "no number", examples[unit]);
    return 0;
}

static int set_source(const struct reading *r, const struct pairs *pairs, const char *key,
                      struct fact *out)
{
    const char *text = text_of(pairs->value[FACT_SOURCE]);
    for (int s = SOURCE_NONE + 1; s < SOURCES; s++)
        if (text != NULL && strcmp(text, fact_source_name(s)) == 0)
            out->source = s;
    if (out->source == SOURCE_NONE)
        return fail(FAIL_USAGE, "%s:%d: %s: source: found \"%.64s\", wanted %s", r->path,
                    pairs->line[FACT_SOURCE], key, text != NULL ? text : "no text",
                    fact_keys[FACT_SOURCE].help);
    return 0;
}

static int set_from(const struct reading *r, const struct pairs *pairs, const char *key,
                    struct fact *out)
{
    const yaml_node_t *node = pairs->value[FACT_FROM];
    const char *text = node != NULL ? text_of(node) : NULL;
    if (node == NULL && out->source == SOURCE_FILE) {
        snprintf(out->from, sizeof out->from, "%.100s:%d", r->path, pairs->line[FACT_VALUE]);
        return 0;
    }
    if (text == NULL || text[0] == '\0' || strlen(text) >= sizeof out->from || strchr(text, '"'))
        return fail(FAIL_USAGE,
                    "%s:%d: %s: from: wanted where the number can be looked up, 1 to %d bytes "
                    "without double quotes",
                    r->path, node != NULL ? pairs->line[FACT_FROM] : pairs->line[FACT_SOURCE], key,
                    TOPOLOGY_FROM - 1);
    snprintf(out->from, sizeof out->from, "%s", text);
    return 0;
}

/* "VALUE UNIT", or {value, source, from}. */
static int read_fact(const struct reading *r, const yaml_node_t *node, int line, const char *key,
                     enum fact_unit unit, struct fact *out)
{
    struct pairs pairs;
    int rc = 0;
    if (node->type != YAML_MAPPING_NODE) {
        TRY(set_value(r, node, line, key, unit, out));
        out->source = SOURCE_FILE;
        snprintf(out->from, sizeof out->from, "%.100s:%d", r->path, line);
        return 0;
    }
    TRY(read_pairs(r, node, fact_keys, FACT_KEYS, &pairs));
    for (int i = FACT_VALUE; i <= FACT_SOURCE; i++)
        if (pairs.line[i] == 0)
            return refuse_missing(r, pairs.first_line, &fact_keys[i]);
    TRY(set_value(r, pairs.value[FACT_VALUE], pairs.line[FACT_VALUE], key, unit, out));
    TRY(set_source(r, &pairs, key, out));
    TRY(set_from(r, &pairs, key, out));
out:
    return rc;
}

/* ---- levels ---- */

static int check_growth(const struct reading *r, const struct topology *t, int line)
{
    const struct topology_level *level = &t->level[t->n_levels];
    if (t->n_levels == 0)
        return 0;
    const struct topology_level *inner = level - 1;
    if (level->ranks > inner->ranks && level->ranks % inner->ranks == 0)
        return 0;
    return fail(FAIL_USAGE,
                "%s:%d: levels go from inside out: level %s has %d ranks, wanted a multiple of the "
                "%d of level %s inside it, and more",
                r->path, line, level->name, level->ranks, inner->ranks, inner->name);
}

static int read_level(const struct reading *r, const yaml_node_t *node, struct topology *out)
{
    struct topology_level *level = &out->level[out->n_levels];
    struct level plain;
    struct pairs pairs;
    char where[600];
    int rc = 0;
    memset(&plain, 0, sizeof plain);
    if (node->type != YAML_MAPPING_NODE)
        return fail(FAIL_USAGE,
                    "%s:%d: levels: wanted a mapping of name, ranks, latency, bandwidth", r->path,
                    line_of(node));
    TRY(read_pairs(r, node, level_keys, LEVEL_KEYS, &pairs));
    for (int i = 0; i < LEVEL_KEYS; i++)
        if (pairs.line[i] == 0)
            return refuse_missing(r, pairs.first_line, &level_keys[i]);
    for (int i = LEVEL_NAME; i <= LEVEL_RANKS; i++) {
        const char *text = text_of(pairs.value[i]);
        snprintf(where, sizeof where, "%.500s:%d: %s", r->path, pairs.line[i], level_keys[i].name);
        if (text == NULL)
            return fail(FAIL_USAGE, "%s: wanted a %s", where, i == LEVEL_NAME ? "name" : "number");
        TRY(opt_set(&level_keys[i], &plain, text, where));
    }
    snprintf(level->name, sizeof level->name, "%s", plain.name);
    level->ranks = (int)plain.ranks;
    TRY(read_fact(r, pairs.value[LEVEL_LATENCY], pairs.line[LEVEL_LATENCY], "latency", UNIT_TIME,
                  &level->latency));
    TRY(read_fact(r, pairs.value[LEVEL_BANDWIDTH], pairs.line[LEVEL_BANDWIDTH], "bandwidth",
                  UNIT_RATE, &level->bandwidth));
    TRY(check_growth(r, out, pairs.line[LEVEL_RANKS]));
    out->n_levels++;
out:
    return rc;
}

static int read_levels(const struct reading *r, const yaml_node_t *list, struct topology *out)
{
    int rc = 0;
    if (list->type != YAML_SEQUENCE_NODE ||
        list->data.sequence.items.start == list->data.sequence.items.top)
        return fail(FAIL_USAGE, "%s:%d: levels: wanted %s", r->path, line_of(list),
                    top_keys[TOP_LEVELS].help);
    for (yaml_node_item_t *item = list->data.sequence.items.start;
         item < list->data.sequence.items.top; item++) {
        if (out->n_levels == TOPOLOGY_LEVELS)
            return fail(FAIL_USAGE, "%s:%d: levels: at most %d", r->path,
                        line_of(node_at(r, *item)), TOPOLOGY_LEVELS);
        TRY(read_level(r, node_at(r, *item), out));
    }
out:
    return rc;
}

/* ---- the file ---- */

static int read_root(const struct reading *r, struct topology *out)
{
    static const enum fact_unit unit_of[] = {
#define FACT_UNIT(name, key, unit, required, help) unit,
        FACT_LIST(FACT_UNIT)
#undef FACT_UNIT
    };
    static const bool required[] = {
#define FACT_REQUIRED(name, key, unit, needed, help) needed,
        FACT_LIST(FACT_REQUIRED)
#undef FACT_REQUIRED
    };
    const yaml_node_t *root = yaml_document_get_root_node(r->document);
    struct pairs pairs;
    int rc = 0;
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return fail(FAIL_FILE, "%s:%d: wanted a mapping of levels and facts", r->path,
                    root == NULL ? 1 : line_of(root));
    TRY(read_pairs(r, root, top_keys, TOP_KEYS, &pairs));
    for (int i = 0; i < TOP_KEYS; i++)
        if (pairs.line[i] == 0 && (i < TOP_FACTS || required[i - TOP_FACTS]))
            return refuse_missing(r, pairs.first_line, &top_keys[i]);
    const char *device = text_of(pairs.value[TOP_DEVICE]);
    char where[600];
    snprintf(where, sizeof where, "%.500s:%d: device", r->path, pairs.line[TOP_DEVICE]);
    TRY(opt_set(&top_keys[TOP_DEVICE], out, device != NULL ? device : "", where));
    TRY(read_levels(r, pairs.value[TOP_LEVELS], out));
    for (int i = 0; i < FACTS; i++)
        if (pairs.line[TOP_FACTS + i] != 0)
            TRY(read_fact(r, pairs.value[TOP_FACTS + i], pairs.line[TOP_FACTS + i], fact_key(i),
                          unit_of[i], &out->fact[i]));
out:
    return rc;
}

static int refuse_syntax(const yaml_parser_t *parser, FILE *file, const char *path)
{
    if (ferror(file)) /* a folder can be opened, and gives no bytes */
        return fail(FAIL_FILE, "%s: cannot be read: %s", path, strerror(errno));
    return fail(FAIL_FILE, "%s:%d: not YAML: %s", path, (int)parser->problem_mark.line + 1,
                parser->problem != NULL ? parser->problem : "out of memory");
}

static int read_documents(yaml_parser_t *parser, FILE *file, const char *path, struct topology *out)
{
    yaml_document_t document;
    struct reading r = {path, &document};
    if (!yaml_parser_load(parser, &document))
        return refuse_syntax(parser, file, path);
    int rc = read_root(&r, out);
    yaml_document_delete(&document);
    if (rc != 0)
        return rc;
    if (!yaml_parser_load(parser, &document))
        return refuse_syntax(parser, file, path);
    const yaml_node_t *second = yaml_document_get_root_node(&document);
    if (second != NULL)
        rc = fail(FAIL_FILE, "%s:%d: wanted one document, found a second", path, line_of(second));
    yaml_document_delete(&document);
    return rc;
}

static void set_name(struct topology *out, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base != NULL ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    size_t length = dot != NULL && dot != base ? (size_t)(dot - base) : strlen(base);
    snprintf(out->name, sizeof out->name, "%.*s", (int)length, base);
}

int topology_read(struct topology *out, const char *path)
{
    yaml_parser_t parser;
    FILE *file = fopen(path, "rb");
    memset(out, 0, sizeof *out);
    if (file == NULL)
        return fail(FAIL_FILE, "%s: cannot be read: %s", path, strerror(errno));
    if (!yaml_parser_initialize(&parser))
        die(FAIL_INTERNAL, "out of memory: reading %s", path);
    yaml_parser_set_input_file(&parser, file);
    int rc = read_documents(&parser, file, path, out);
    yaml_parser_delete(&parser);
    fclose(file);
    if (rc != 0)
        memset(out, 0, sizeof *out);
    else
        set_name(out, path);
    return rc;
}
