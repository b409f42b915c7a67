/* Files of one study digest are launches of one curve when they are of one kind of machine and one
 * fabric; else they are curves of their own, whatever their options say. */
#include "tests/record_folder.h"

#include "analysis/fit_input.h"
#include "analysis/goodput_study.h"
#include "analysis/studies.h"
#include "base/err.h"

enum change { NOTHING, PROCESSOR, CORES, DEVICE, NETWORK, UNRELATED, STUDY, CHANGES };

/* A file of one point without steps: launch number `launch` of a study, on a machine that differs in one thing. */
static void write_file(const char *path, int launch, enum change change)
{
    struct record_head head;
    struct record *record;
    struct record_point point = {.point = {.nodes = 1,
                                           .ranks = 4,
                                           .ranks_per_node = 4,
                                           .copies = 1,
                                           .tp = 1,
                                           .pp = 1,
                                           .cp = 1,
                                           .ep = 1,
                                           .dp = 4,
                                           .global_batch = 8,
                                           .valid = 1}};
    int number, n_done, *done = NULL;
    fill_head(&head, 4, 1);
    head.t0_unix_ns = 1000 + launch;
    if (change == PROCESSOR)
        strcpy(head.hosts[0].processor, "another");
    if (change == CORES)
        head.hosts[0].cores++;
    if (change == DEVICE)
        strcpy(head.ranks[0].device, "another");
    if (change == NETWORK)
        record_head_set(&head, "provenance", "env.NCCL_NET", "Socket");
    if (change == UNRELATED)
        record_head_set(&head, "provenance", "env.PMIX_RANK", "0");
    if (change == STUDY)
        head.study_digest[0] = 'f';
    CHECK_EQ(record_begin(&record, path, &head, false, &number, &done, &n_done), 0);
    CHECK_EQ(record_append(record, &point), 0);
    CHECK_EQ(record_finish(record), 0);
    record_head_release(&head);
    free(done);
}

/* Laws and goodput take files together as the report does, and no launch twice. */
static void others_join_alike(char **paths, bool joins, bool one_digest)
{
    struct import_options how = {.format = "auto"};
    struct fit_input input;
    struct goodput_study study;
    char *twice[] = {paths[0], paths[1], paths[0]};
    if (!CHECK_EQ(fit_input_read(&input, paths, 2, &how, "", "auto", 1), 0))
        printf("%s\n", fail_message());
    CHECK_EQ(input.studies.n_series, joins ? 1 : 2);
    fit_input_release(&input);
    CHECK_EQ(fit_input_read(&input, twice, 3, &how, "", "auto", 1), FAIL_USAGE);
    CHECK_HAS(fail_message(), "hold the same launch");
    fail_clear();
    if (one_digest) { /* goodput pools studies that differ in no field of a kind */
        CHECK_EQ(goodput_study_read(&study, paths, 2, 1), 0);
        CHECK_EQ(study.n_kinds, joins ? 1 : 2);
        if (!joins) {
            char text[1024];
            goodput_kind_text(&study, 1, text, sizeof text);
            CHECK_HAS(text, "machine and fabric of ");
        }
        goodput_study_release(&study);
    }
}

int main(void)
{
    if (!folder_make())
        return test_end();
    write_file(at("first.h5"), 0, NOTHING);
    for (int change = NOTHING; change < CHANGES; change++) {
        char first[256], second[256], *paths[] = {first, second};
        struct studies studies;
        bool joins = change == NOTHING || change == UNRELATED;
        snprintf(first, sizeof first, "%s", at("first.h5"));
        snprintf(second, sizeof second, "%s", at("second.h5"));
        remove(second);
        write_file(second, 1, (enum change)change);
        if (!CHECK_EQ(studies_read(&studies, paths, 2, 1), 0))
            printf("%s\n", fail_message());
        if (!CHECK_EQ(studies.n, joins ? 1 : 2))
            printf("change %d\n", change);
        studies_release(&studies);
        others_join_alike(paths, joins, change != STUDY);
    }
    folder_remove();
    return test_end();
}
