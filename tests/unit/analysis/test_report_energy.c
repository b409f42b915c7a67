/* The report, its CSV and its JSON say what GPUs drew, what held them back and how an audit went, and say
 * nothing of it where a study has no telemetry. */
#include "analysis/report_energy.h"

#include "analysis/report_columns.h"
#include "base/err.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

enum { RANKS = 2 };

static struct telemetry_row *add(struct record_point *p, const char *kind, int rank, int block)
{
    struct telemetry_row *row = RECORD_ADD(&p->telemetry, 1);
    snprintf(row->kind, sizeof row->kind, "%s", kind);
    row->rank = rank;
    row->block = block;
    row->energy_j = row->sm_mhz = row->memory_mhz = row->power_w = row->temperature_c = NAN;
    row->power_limited_ns = row->thermal_limited_ns = row->reasons = -1;
    row->ecc_corrected = row->ecc_uncorrected = row->nvlink_errors = -1;
    return row;
}

/* Every block of every rank takes 3 J; one moment in four is held back. */
static void add_telemetry(struct record_point *p)
{
    int blocks = 0;
    for (int64_t i = 0; i < p->steps.n; i++)
        blocks = p->steps.rows[i].block >= blocks ? p->steps.rows[i].block + 1 : blocks;
    for (int b = 0; b < blocks; b++)
        for (int rank = 0; rank < RANKS; rank++) {
            struct telemetry_row *row = add(p, "block", rank, b);
            row->energy_j = 3;
            row->duration_ns = 500000000;
            row->power_limited_ns = 0;
            row = add(p, "moment", rank, b);
            row->sm_mhz = b % 4 == 0 ? 1500 : 1980;
            row->reasons = b % 4 == 0 ? 0x4 : 0;
            row->temperature_c = 40 + b;
        }
    struct telemetry_row *section = add(p, "section", 0, 0);
    section->nvlink_errors = 0;
    section->power_w = 700;
}

static void add_audit(struct record_point *p)
{
    static const char *const kinds[] = {"bare", "audit"};
    for (int k = 0; k < 2; k++) {
        struct audit_row *row = RECORD_ADD(&p->audit, 1);
        snprintf(row->kind, sizeof row->kind, "%s", kinds[k]);
        row->step_ns = row->record_step_ns = 10000000 + 500000 * k;
        row->compute_ns = row->record_compute_ns = 9000000;
        row->comm_ns = 2000000;
        row->record_comm_ns = 1895000; /* 1 % of the step less */
        row->exposed_ns = row->record_exposed_ns = 500000;
    }
}

static char *text_of(struct report *report, void (*print)(FILE *to, const struct report *report))
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    print(to, report);
    fclose(to);
    return text;
}

static void print_csv(FILE *to, const struct report *report)
{
    report_csv(to, report, 1);
}

static void print_json(FILE *to, const struct report *report)
{
    CHECK_EQ(report_json(to, report, 1), 0);
}

static double column_of(const struct report *report, int row, const char *name)
{
    for (int c = 0; c < report_n_columns(); c++)
        if (strcmp(report_column_name(c), name) == 0) {
            struct report_value v = report_value(c, report, &report->scaling->rows[row]);
            return v.kind == REPORT_REAL ? v.real : (double)v.integer;
        }
    CHECK(name == NULL);
    return NAN;
}

static double column(const struct report *report, const char *name)
{
    return column_of(report, 0, name);
}

/* As wide as they come. */
static void add_calls(struct record_point *p)
{
    for (int i = 0; i < 8; i++) {
        struct audit_call_row *row = RECORD_ADD(&p->audit_calls, 1);
        *row = (struct audit_call_row){.bytes = 234567890,
                                       .start_ns = 1000000,
                                       .duration_ns = 12345678,
                                       .record_start_ns = 1123400,
                                       .record_duration_ns = 12222222};
        strcpy(row->axis, "dp");
        strcpy(row->kind, "all-reduce");
    }
}

static void check_told(struct report *report, double tokens)
{
    char *text = text_of(report, report_text);
    CHECK_HAS(text, "J/token");
    CHECK_HAS(text, "power cap");
    CHECK_HAS(text, "# audit: ");
    CHECK_HAS(text, "# audit, call by call: ");
    CHECK_HAS(text, " all-reduce 234.6 ");
    CHECK(strstr(text, " nan") == NULL && strstr(text, " inf") == NULL);
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        CHECK(strcspn(line, "\n") <= 140);
    free(text);
    CHECK_NEAR(column(report, "joules_per_token"), RANKS * 3 / tokens, 1e-12);
    CHECK_NEAR(column(report, "tokens_per_joule"), tokens / (RANKS * 3), 1e-9);
    CHECK_NEAR(column(report, "gpu_watts"), 12, 1e-9);
    CHECK(column(report, "joules_n") >= 3);
    CHECK_NEAR(column(report, "sm_least_mhz"), 1500, 0);
    CHECK_NEAR(column(report, "nvlink_errors"), 0, 0);
    CHECK_NEAR(column(report, "audit_off_pct"), 1, 1e-9);
    CHECK_NEAR(column(report, "audit_ratio"), 1.05, 1e-12);
    text = text_of(report, print_csv);
    CHECK_HAS(text, ",95 %,");
    CHECK_HAS(text, ",power cap,");
    free(text);
}

static void check_untold(struct report *report)
{
    char *text = text_of(report, report_text);
    CHECK(strstr(text, "call by call") == NULL);
    CHECK(strstr(text, "J/token") == NULL && strstr(text, "# audit") == NULL);
    CHECK(strstr(text, "energy of a step") == NULL && strstr(text, "power limit") == NULL);
    free(text);
    text = text_of(report, print_json);
    CHECK(strstr(text, "energy_of_a_step") == NULL);
    free(text);
    CHECK(isnan(column(report, "step_joules")) && isnan(column(report, "comm_joules")));
    CHECK(isnan(column(report, "power_bound_ms")));
    CHECK(isnan(column(report, "audit_ratio")) && isnan(column(report, "bare_ratio"))); /* not 0 */
    CHECK(isnan(column(report, "energy_efficiency_pct")));
    CHECK(isnan(column(report, "joules_per_token")));
    CHECK(isnan(column(report, "audit_off_pct")));
}

static void test_report(bool with)
{
    struct record_file file = {.whole = true, .n_points = 1};
    const struct record_file *list[] = {&file};
    struct synthetic s = synthetic_default(1, RANKS);
    struct scaling scaling;
    double tokens = 0;
    strcpy(file.path, "study.h5");
    synthetic_head(&file.head, 1, RANKS);
    file.points = calloc(1, sizeof *file.points);
    synthetic_point(&file.points[0], &s);
    for (int64_t i = 0; i < file.points[0].steps.n; i++) {
        const struct step_row *row = &file.points[0].steps.rows[i];
        if (row->block == 1 && row->rank == 0) /* behind warm-up: the first full block */
            tokens += (double)row->valid_tokens;
    }
    if (with) {
        add_telemetry(&file.points[0]);
        add_audit(&file.points[0]);
        add_calls(&file.points[0]);
    }
    CHECK_EQ(scaling_init(&scaling, list, 1, 1), 0);
    struct report report = {list, 1, &scaling, 1, NULL, NULL};
    if (with)
        check_told(&report, tokens);
    else
        check_untold(&report);
    scaling_release(&scaling);
    record_file_release(&file);
}

/* Of two launches: the fastest clock of either, errors of those that know them, and the ratios of the one that was
 * audited, wherever they stand. */
static void test_launches(int audited)
{
    struct record_file file = {.whole = true, .n_points = 2};
    const struct record_file *list[] = {&file};
    struct synthetic s = synthetic_default(1, RANKS);
    struct scaling scaling;
    strcpy(file.path, "study.h5");
    synthetic_head(&file.head, 1, RANKS);
    file.points = calloc(2, sizeof *file.points);
    for (int k = 0; k < 2; k++) {
        struct record_point *p = &file.points[k];
        synthetic_point(p, &s);
        p->point.launch = k;
        add_telemetry(p);
        struct telemetry_row *section = &p->telemetry.rows[p->telemetry.n - 1];
        section->nvlink_errors = k == audited ? 3 : -1;
        section->sm_mhz = k == audited ? 1980 : 1755; /* that the GPU can take */
    }
    add_audit(&file.points[audited]);
    CHECK_EQ(scaling_init(&scaling, list, 1, 1), 0);
    struct report report = {list, 1, &scaling, 1, NULL, NULL};
    CHECK_EQ(scaling.n_rows, 1);
    CHECK_NEAR(column(&report, "audit_ratio"), 1.05, 1e-9);
    CHECK_NEAR(column(&report, "audit_off_pct"), 1, 1e-9);
    struct energy energy = report_energy(&scaling.rows[0]);
    CHECK_NEAR(energy.sm_most_mhz, 1980, 0);
    CHECK_EQ(energy.nvlink_errors, 3);
    CHECK_EQ(energy.ecc_corrected, -1);
    scaling_release(&scaling);
    record_file_release(&file);
}

/* ---- energy of a step ---- */

struct planted { /* J a step of a GPU */
    double full, instrumented, compute, comm, held;
};

/* What the blocks of synthetic_point took: five steps behind a lead-in, 0.1 s each. */
static void add_planted(struct record_point *p, const struct planted *joules)
{
    for (int64_t i = 0; i < p->steps.n; i++) {
        const struct step_row *step = &p->steps.rows[i];
        if (!(step->flags & STEP_LEAD_IN))
            continue;
        struct telemetry_row *row = add(p, "block", step->rank, step->block);
        double full = step->flags & STEP_INSTRUMENTED ? joules->instrumented : joules->full;
        row->energy_j = 6 * (step->variant == VARIANT_COMPUTE ? joules->compute
                             : step->variant == VARIANT_COMM  ? joules->comm
                                                              : full);
        row->duration_ns = 600000000;
        row->power_limited_ns = (int64_t)(6e8 * joules->held);
    }
    for (int rank = 0; rank < p->point.ranks; rank++)
        add(p, "section", rank, 0)->power_w = p->point.ranks == 2 ? 256 : 500;
}

static void check_steps_text(struct report *report)
{
    char *text = text_of(report, report_text);
    CHECK_HAS(text, "# energy of a step, by kind of block, a GPU: ");
    CHECK_HAS(text, "kind blocks block_s J/step   low  high  most rank ms/step watts limit "
                    "power_held_%");
    CHECK_HAS(text, "        full      4   0.600  40.00 ");
    CHECK_HAS(text,
              "        full      4   0.600  25.00 23.82 26.18 25.00    0 100.000 250.0   256 ");
    CHECK_HAS(text, "instrumented      4   0.600  27.00 ");
    CHECK_HAS(text, "compute-only      4   0.600  21.00 ");
    CHECK_HAS(text, "   comm-only      4   0.600  4.000 ");
    CHECK_HAS(text, " 4.000    0 100.000  40.0   256         80.0\n");
    CHECK(strstr(text, "graph") == NULL);
    CHECK_HAS(text,
              "# - 1x2: held by the power limit for 80 % of the time of full steps: 25 J a "
              "step (rank 0) at 256 W are 97.66 of its 100\n#   ms; communication takes 6 J a "
              "GPU (4.39 to 7.61), 23.4 ms");
    CHECK(strstr(text, "1x1: held") == NULL); /* 30 % of the time is not what decides */
    CHECK(strstr(text, " nan") == NULL && strstr(text, " inf") == NULL);
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        CHECK(strcspn(line, "\n") <= 140);
    free(text);
    text = text_of(report, print_json);
    CHECK_HAS(text, "\"energy_of_a_step\": {");
    CHECK_HAS(text, "\"power_bound_ms\": 97.65625,");
    CHECK_HAS(text, "\"power_bound_pct\": 97.65625,");
    CHECK_HAS(text, "\"limit_watts\": 256.0,");
    CHECK_HAS(text, "\"comm_ms\": 23.4375");
    CHECK_HAS(text, "\"most_joules\": 4.0,");
    free(text);
}

/* Of a GPU alone 40 J a step, of two 25 J each for the same tokens. */
static void test_steps(void)
{
    static const struct planted planted[] = {{40, 43, 43, 0, 0.3}, {25, 27, 21, 4, 0.8}};
    struct record_file file = {.whole = true, .n_points = 2};
    const struct record_file *list[] = {&file};
    struct scaling scaling;
    strcpy(file.path, "study.h5");
    synthetic_head(&file.head, 1, RANKS);
    file.points = calloc(2, sizeof *file.points);
    for (int i = 0; i < 2; i++) {
        struct synthetic s = synthetic_default(1, i + 1);
        s.point = i;
        synthetic_point(&file.points[i], &s);
        add_planted(&file.points[i], &planted[i]);
    }
    CHECK_EQ(scaling_init(&scaling, list, 1, 1), 0);
    struct report report = {list, 1, &scaling, 1, NULL, NULL};
    CHECK_NEAR(column_of(&report, 0, "step_joules"), 40, 1e-9);
    CHECK_NEAR(column_of(&report, 1, "step_joules"), 25, 1e-9);
    CHECK(column_of(&report, 1, "step_joules_lo") < 25);
    CHECK(column_of(&report, 1, "step_joules_hi") > 25);
    CHECK(isnan(column_of(&report, 0, "comm_joules")));
    CHECK_NEAR(column_of(&report, 1, "comm_joules"), 6, 1e-9);
    CHECK(column_of(&report, 1, "comm_joules_lo") < 6);
    CHECK(column_of(&report, 1, "comm_joules_hi") > 6);
    CHECK_NEAR(column_of(&report, 0, "power_bound_ms"), 80, 1e-9);
    CHECK_NEAR(column_of(&report, 1, "power_bound_ms"), 97.65625, 1e-9);
    CHECK_NEAR(column_of(&report, 0, "energy_efficiency_pct"), 100, 1e-9);
    CHECK_NEAR(column_of(&report, 1, "energy_efficiency_pct"), 80, 1e-9);
    check_steps_text(&report);
    scaling_release(&scaling);
    record_file_release(&file);
}

int main(void)
{
    test_steps();
    test_report(true);
    test_report(false);
    test_launches(0);
    test_launches(1);
    return test_end();
}
