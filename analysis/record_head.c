#include "analysis/record_head.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static struct record_attribute *find(const struct record_head *head, const char *group,
                                     const char *name)
{
    for (int64_t i = 0; i < head->n_attributes; i++) {
        struct record_attribute *attribute = &head->attributes[i];
        if (strcmp(attribute->group, group) == 0 && strcmp(attribute->name, name) == 0)
            return attribute;
    }
    return NULL;
}

static char *copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(must_alloc(size, 1), text, size);
}

void record_head_set(struct record_head *head, const char *group, const char *name,
                     const char *text)
{
    struct record_attribute *attribute = find(head, group, name);
    if (strlen(group) >= sizeof attribute->group || strlen(name) >= sizeof attribute->name)
        BUG("attribute name too long: %s/%s", group, name);
    if (attribute == NULL) {
        head->attributes = record_room(head->attributes, sizeof *head->attributes,
                                       head->n_attributes, &head->attributes_capacity, 1);
        attribute = &head->attributes[head->n_attributes++];
        strcpy(attribute->group, group);
        strcpy(attribute->name, name);
    }
    char *copy = copy_text(text); /* first: `text` may be the old one */
    free(attribute->text);
    attribute->text = copy;
}

const char *record_head_get(const struct record_head *head, const char *group, const char *name)
{
    const struct record_attribute *attribute = find(head, group, name);
    return attribute != NULL ? attribute->text : NULL;
}

void record_head_release(struct record_head *head)
{
    for (int64_t i = 0; i < head->n_attributes; i++)
        free(head->attributes[i].text);
    free(head->attributes);
    free(head->hosts);
    free(head->ranks);
    free(head->ceilings);
    *head = (struct record_head){0};
}

static bool is_launch(const char *group)
{
    return strncmp(group, "launch", 6) == 0 && (group[6] == '\0' || group[6] == '.');
}

int record_head_launches(const struct record_head *head)
{
    int n = 0;
    for (int64_t i = 0; i < head->n_attributes; i++) {
        const char *group = head->attributes[i].group;
        long launch = is_launch(group) && group[6] == '.' ? strtol(group + 7, NULL, 10) : -1;
        if (launch >= n && launch < 999999)
            n = (int)launch + 1;
    }
    return n;
}

static void join_machine(struct record_head *to, const struct record_head *from, int launch)
{
    int64_t first_host = to->n_hosts, hosts = to->n_hosts, ranks = to->n_ranks;
    to->hosts = record_room(to->hosts, sizeof *to->hosts, to->n_hosts, &hosts, from->n_hosts);
    for (int64_t i = 0; i < from->n_hosts; i++) {
        to->hosts[to->n_hosts] = from->hosts[i];
        to->hosts[to->n_hosts++].launch = launch;
    }
    to->ranks = record_room(to->ranks, sizeof *to->ranks, to->n_ranks, &ranks, from->n_ranks);
    for (int64_t i = 0; i < from->n_ranks; i++) {
        struct rank_row *rank = &to->ranks[to->n_ranks++];
        *rank = from->ranks[i];
        rank->host += (i32)first_host;
        rank->launch = launch;
    }
    int64_t ceilings = to->n_ceilings;
    if (from->n_ceilings > 0)
        to->ceilings = record_room(to->ceilings, sizeof *to->ceilings, to->n_ceilings, &ceilings,
                                   from->n_ceilings);
    for (int64_t i = 0; i < from->n_ceilings; i++) {
        to->ceilings[to->n_ceilings] = from->ceilings[i];
        to->ceilings[to->n_ceilings++].launch = launch;
    }
}

void record_head_join(struct record_head *to, const struct record_head *from, int launch)
{
    bool first = launch == 0;
    char group[32], text[32];
    snprintf(group, sizeof group, "launch.%d", launch);
    if (first) {
        to->t0_unix_ns = from->t0_unix_ns;
        memcpy(to->study_digest, from->study_digest, sizeof to->study_digest);
    }
    to->schema = RECORD_SCHEMA;
    for (int64_t i = 0; i < from->n_attributes; i++) {
        const struct record_attribute *new = &from->attributes[i];
        const char *old = record_head_get(to, new->group, new->name);
        if (is_launch(new->group))
            record_head_set(to, group, new->name, new->text);
        else if (first)
            record_head_set(to, new->group, new->name, new->text);
        else if (strcmp(new->group, "study") != 0 && (old == NULL || strcmp(old, new->text) != 0))
            record_head_set(to, group, new->name, new->text);
    }
    snprintf(text, sizeof text, "%" PRId64, from->t0_unix_ns);
    record_head_set(to, group, "t0_unix_ns", text);
    join_machine(to, from, launch);
}

/* The two options that ask for the resumption itself. */
static bool may_differ(const struct record_attribute *attribute)
{
    return strcmp(attribute->group, "study") != 0 || strcmp(attribute->name, "resume") == 0 ||
           strcmp(attribute->name, "out") == 0;
}

/* An option that only one of the two builds has can be given to neither. */
static int of_another_build(const char *name, bool was)
{
    return fail(
        FAIL_USAGE,
        "resume: the build of the first launch had %s option %s, and this one has %s: go on "
        "with that build, or start another study with another --out",
        was ? "an" : "no", name, was ? "none" : "one");
}

static int differs(const char *name, const char *was, const char *now)
{
    return fail(FAIL_USAGE,
                "resume: %s was %s and is now %s: use the values of the first launch, "
                "or start another study with another --out",
                name, was, now);
}

int record_head_compare(const struct record_head *was, const struct record_head *now)
{
    for (int64_t i = 0; i < now->n_attributes; i++) {
        const struct record_attribute *new = &now->attributes[i];
        const char *old = record_head_get(was, "study", new->name);
        if (!may_differ(new) && old == NULL)
            return of_another_build(new->name, false);
        if (!may_differ(new) && strcmp(old, new->text) != 0)
            return differs(new->name, old, new->text);
    }
    for (int64_t i = 0; i < was->n_attributes; i++) {
        const struct record_attribute *old = &was->attributes[i];
        if (!may_differ(old) && record_head_get(now, "study", old->name) == NULL)
            return of_another_build(old->name, true);
    }
    if (strcmp(was->study_digest, now->study_digest) != 0)
        return differs("study_digest", was->study_digest, now->study_digest);
    return 0;
}
