/*
 * scalereport compare: what differs between studies, then their layouts ranked at equal work, each
 * with the reason why it is slower than the fastest.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/command.h"
#include "analysis/compare_say.h"
#include "analysis/studies.h"
#include "base/err.h"
#include "base/opt.h"

enum { SEED = 1 }; /* of the resampling: the same files give the same ranking */

struct options {
    bool csv, json;
};

#define AT(field) offsetof(struct options, field), sizeof(((struct options *)0)->field)

static const struct opt options[] = {
    {"csv", 0, OPT_BOOL, AT(csv), "off", 0, 0, NULL, "",
     "a line per ranked point, full precision; fields that differ as comments"},
    {"json", 0, OPT_BOOL, AT(json), "off", 0, 0, NULL, "", "versioned"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static void print_help(void)
{
    printf("usage: scalereport compare FILE.h5... [--csv|--json]\n\n"
           "Fields of the contract that differ, then layouts ranked at equal work.\n\n");
    opt_help(options, N_OPTIONS, stdout);
}

static int say(const struct comparison *c, const struct options *asked)
{
    if (asked->json)
        return compare_json(stdout, c);
    if (asked->csv)
        compare_csv(stdout, c);
    else
        compare_text(stdout, c);
    return 0;
}

/* Where a ranking is refused, what differs is printed all the same. */
static int compare(const struct studies *studies, const struct options *asked)
{
    struct contract contract;
    struct compare ranking;
    char refusal[512] = "";
    contract_init(&contract, studies->reports, studies->n);
    int rc = compare_init(&ranking, studies->reports, studies->n, SEED);
    if (rc != 0)
        snprintf(refusal, sizeof refusal, "%s", fail_message());
    fail_clear();
    struct comparison c = {studies->reports, studies->n, &contract, rc == 0 ? &ranking : NULL,
                           refusal};
    int said = say(&c, asked);
    if (rc != 0 && said == 0)
        said = fail(rc, "%s", refusal);
    compare_release(&ranking);
    contract_release(&contract);
    return said;
}

int command_compare(int argc, char **argv)
{
    struct options asked;
    struct studies studies = {0};
    bool help = false;
    int first = argc, rc = 0;
    opt_defaults(options, N_OPTIONS, &asked);
    TRY(opt_argv(options, N_OPTIONS, &asked, argc, argv, &first, &help));
    if (help) {
        print_help();
        return 0;
    }
    if (asked.csv && asked.json)
        return fail(FAIL_USAGE, "--csv and --json were both given: one form at a time");
    if (first == argc)
        return fail(FAIL_USAGE,
                    "compare: no study file was named: scalereport compare A.h5 [B.h5...]");
    TRY(studies_read(&studies, argv + first, argc - first, SEED));
    rc = compare(&studies, &asked);
out:
    studies_release(&studies);
    return rc;
}
