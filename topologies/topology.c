#include "topologies/topology.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/share.h"
#include "base/units.h"

static const struct share topologies = {"topology", "topologies", "topologies"};
static const char default_base[] = "h100-8x400g";
enum { MACHINE = 60, BASE = 32 }; /* bytes of a machine string, of the name before it */

const char *fact_key(int kind)
{
    static const char *const keys[] = {
#define KEY_TEXT(name, key, unit, required, help) key,
        FACT_LIST(KEY_TEXT)
#undef KEY_TEXT
    };
    return kind >= 0 && kind < FACTS ? keys[kind] : "?";
}

const char *fact_source_name(int source)
{
    static const char *const names[] = {
#define SOURCE_TEXT(name, text) text,
        FACT_SOURCES(SOURCE_TEXT)
#undef SOURCE_TEXT
    };
    return source >= 0 && source < SOURCES ? names[source] : "?";
}

void topology_names(char *text, size_t size)
{
    share_names(&topologies, text, size);
}

/* ---- machine strings ---- */

struct word {
    char name[32];
    int count;
};

/* "node:16": a name, a colon, a whole number from 1. */
static bool read_word(const char *at, size_t length, struct word *out)
{
    const char *colon = memchr(at, ':', length);
    char digits[16];
    int64_t count;
    size_t name = colon != NULL ? (size_t)(colon - at) : 0;
    size_t rest = length - name - 1;
    if (name == 0 || name >= sizeof out->name || rest >= sizeof digits)
        return false;
    for (size_t i = 0; i < name; i++)
        if (!isalnum((unsigned char)at[i]) && at[i] != '-')
            return false;
    memcpy(out->name, at, name);
    out->name[name] = '\0';
    memcpy(digits, colon + 1, rest);
    digits[rest] = '\0';
    if (units_parse_int(digits, &count) != 0 || count < 1 || count > INT_MAX)
        return false;
    out->count = (int)count;
    return true;
}

/* The words of a machine string, and the topology named before them; what is no such word is a
 * FAIL_USAGE. */
static int read_words(const char *text, struct word words[TOPOLOGY_LEVELS], int *n, char base[BASE])
{
    *n = 0;
    if (strlen(text) > MACHINE)
        return fail(FAIL_USAGE, "topology \"%.80s\": more than %d bytes", text, MACHINE);
    snprintf(base, BASE, "%s", default_base);
    for (const char *at = text + strspn(text, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (*n == 0 && memchr(at, ':', length) == NULL && length < BASE) {
            snprintf(base, BASE, "%.*s", (int)length, at);
        } else if (*n == TOPOLOGY_LEVELS) {
            return fail(FAIL_USAGE, "topology \"%.80s\": at most %d levels", text, TOPOLOGY_LEVELS);
        } else if (!read_word(at, length, &words[(*n)++])) {
            return fail(FAIL_USAGE,
                        "topology \"%.80s\": found \"%.*s\", wanted LEVEL:COUNT words from outside "
                        "in, such as node:16 gpu:8",
                        text, (int)(length < 40 ? length : 40), at);
        }
        at += length;
    }
    return 0;
}

/* The link of the level of that name, else of the level in that place, else of the outermost. */
static const struct topology_level *link_like(const struct topology *base, const char *name, int at)
{
    for (int i = 0; i < base->n_levels; i++)
        if (strcmp(base->level[i].name, name) == 0)
            return &base->level[i];
    return &base->level[at < base->n_levels ? at : base->n_levels - 1];
}

static int build_machine(struct topology *out, const char *text)
{
    struct word words[TOPOLOGY_LEVELS];
    struct topology base;
    char base_name[BASE];
    int rc = 0, n = 0;
    int64_t ranks = 1;
    TRY(read_words(text, words, &n, base_name));
    TRY(topology_load(&base, base_name));
    *out = base;
    out->n_levels = 0;
    bool named = strncmp(text, base_name, strlen(base_name)) == 0;
    snprintf(out->name, sizeof out->name, "%.60s%s%.31s", text, named ? "" : " of ",
             named ? "" : base_name);
    for (int i = n - 1; i >= 0; i--) {
        struct topology_level *level = &out->level[out->n_levels];
        ranks *= words[i].count;
        if (ranks > INT_MAX)
            return fail(FAIL_USAGE, "topology \"%.80s\": more than %d devices", text, INT_MAX);
        if (words[i].count == 1 && i > 0) /* joins nothing, and the next one grows anyway */
            continue;
        *level = *link_like(&base, words[i].name, n - 1 - i);
        snprintf(level->name, sizeof level->name, "%s", words[i].name);
        level->ranks = (int)ranks;
        out->n_levels++;
    }
out:
    return rc;
}

/* A word with a colon in it, and no path: "node:16", "a100-8x200g node:4 gpu:8". */
static bool is_machine(const char *text)
{
    return !share_is_path(text) && strchr(text, ':') != NULL;
}

int topology_load(struct topology *out, const char *text)
{
    char path[SHARE_PATH];
    int rc = 0;
    memset(out, 0, sizeof *out);
    if (is_machine(text)) {
        TRY(build_machine(out, text));
    } else {
        TRY(share_find(&topologies, text, path));
        TRY(topology_read(out, path));
    }
out:
    if (rc != 0)
        memset(out, 0, sizeof *out);
    return rc;
}

/* ---- where ranks sit ---- */

int topology_ranks(const struct topology *t)
{
    return t->level[t->n_levels - 1].ranks;
}

int topology_node_ranks(const struct topology *t)
{
    for (int i = 0; i < t->n_levels; i++)
        if (strcmp(t->level[i].name, "node") == 0)
            return i > 0 ? t->level[i - 1].ranks : 1;
    return topology_ranks(t);
}

int topology_fits(const struct topology *t, int nodes, int ranks_per_node)
{
    int node = topology_node_ranks(t), has = topology_ranks(t) / node;
    if (ranks_per_node > node)
        return fail(FAIL_USAGE, "layout: %d ranks on a node, and a node of %s has %d device%s",
                    ranks_per_node, t->name, node, node == 1 ? "" : "s");
    if (nodes > has)
        return fail(FAIL_USAGE, "layout: %d nodes, and %s has %d node%s", nodes, t->name, has,
                    has == 1 ? "" : "s");
    return 0;
}

static int device_of(const struct topology *t, int ranks_per_node, int rank)
{
    return rank / ranks_per_node * topology_node_ranks(t) + rank % ranks_per_node;
}

void topology_span(const struct topology *t, int ranks_per_node, const struct group *group,
                   struct topology_span *out)
{
    memset(out, 0, sizeof *out);
    out->devices = group->size;
    for (int l = 0; l < t->n_levels; l++) {
        int last = -1; /* members are in order of their ranks, so domains are too */
        for (int i = 0; i < group->size; i++) {
            int domain = device_of(t, ranks_per_node, group_rank(group, i)) / t->level[l].ranks;
            out->domains[l] += domain != last;
            last = domain;
        }
    }
}

int topology_level_of(const struct topology *t, int ranks_per_node, int rank, int other)
{
    int a = device_of(t, ranks_per_node, rank), b = device_of(t, ranks_per_node, other);
    int l = 0;
    while (l < t->n_levels - 1 && a / t->level[l].ranks != b / t->level[l].ranks)
        l++;
    return l;
}
