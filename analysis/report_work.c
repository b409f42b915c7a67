#include "analysis/report_work.h"

#include <math.h>
#include <string.h>

#include "analysis/report_key.h"
#include "analysis/report_table.h"
#include "base/err.h"
#include "base/units.h"

bool report_work_asked(const struct report_work *work)
{
    return work != NULL && (work->tokens > 0.0 || work->samples.n > 0);
}

/* "AT=VALUE" or, where `alone` is allowed, "VALUE" for all. */
static int read_item(struct report_work_list *out, const char *option, const char *item, bool alone)
{
    char left[64];
    const char *equals = strchr(item, '=');
    double at = 0.0, value;
    size_t length = equals != NULL ? (size_t)(equals - item) : 0;
    snprintf(left, sizeof left, "%.*s", (int)(length < 63 ? length : 63), item);
    if ((equals == NULL && !alone) ||
        (equals != NULL && (units_parse_real(left, &at) != 0 || !(at > 0.0))) ||
        units_parse_real(equals != NULL ? equals + 1 : item, &value) != 0 || !(value > 0.0))
        return fail(FAIL_USAGE, "%s: \"%s\" is not two positive numbers with = between", option,
                    item);
    if (out->n == REPORT_WORK_ITEMS)
        return fail(FAIL_USAGE, "%s: more than %d items", option, REPORT_WORK_ITEMS);
    if (out->n > 0 && !(at > out->at[out->n - 1]))
        return fail(FAIL_USAGE, "%s: %s does not follow %.10g: the left sides must increase",
                    option, item, out->at[out->n - 1]);
    out->at[out->n] = at;
    out->value[out->n++] = value;
    return 0;
}

static int read_list(struct report_work_list *out, const char *option, const char *text, bool alone)
{
    out->n = 0;
    while (*text != '\0') {
        char item[128];
        size_t length = strcspn(text, ",");
        snprintf(item, sizeof item, "%.*s", (int)(length < 127 ? length : 127), text);
        int rc = read_item(out, option, item, alone);
        if (rc != 0)
            return rc;
        text += length + (text[length] == ',');
    }
    return 0;
}

int report_work_parse(struct report_work *out, double tokens, const char *samples,
                      const char *goodput)
{
    int rc;
    *out = (struct report_work){.tokens = tokens};
    TRY(read_list(&out->samples, "--samples-to-target", samples, false));
    TRY(read_list(&out->goodput, "--goodput", goodput, strchr(goodput, ',') == NULL));
    if (tokens > 0.0 && out->samples.n > 0)
        return fail(FAIL_USAGE, "--work-tokens and --samples-to-target both say what the work is: "
                                "give one");
    if (out->goodput.n > 0 && !report_work_asked(out))
        return fail(FAIL_USAGE, "--goodput needs work to count: --work-tokens T or "
                                "--samples-to-target B=S");
    for (int i = 0; i < out->goodput.n; i++) {
        if (out->goodput.value[i] > 100.0)
            return fail(FAIL_USAGE, "--goodput: %.10g %% is more than all of the time",
                        out->goodput.value[i]);
        out->goodput.value[i] /= 100.0;
    }
out:
    return rc;
}

/* Linear between two; NaN outside. */
static double samples_at(const struct report_work_list *list, double batch)
{
    for (int i = 0; i < list->n; i++) {
        if (list->at[i] == batch)
            return list->value[i];
        if (i > 0 && list->at[i - 1] < batch && batch < list->at[i])
            return list->value[i - 1] + (list->value[i] - list->value[i - 1]) *
                                            (batch - list->at[i - 1]) /
                                            (list->at[i] - list->at[i - 1]);
    }
    return NAN;
}

static double goodput_at(const struct report_work_list *list, int ranks)
{
    for (int i = 0; i < list->n; i++)
        if (list->at[i] == 0.0 || list->at[i] == ranks)
            return list->value[i];
    return NAN;
}

static bool is_of_curve(const struct scaling_row *row)
{
    return row->valid && row->point->copies <= 1 && row->efficiency.base >= 0;
}

int report_work_check(const struct report_work *work, const struct report *report)
{
    const struct scaling *s = report->scaling;
    for (int i = 0; i < s->n_rows && report_work_asked(work); i++) {
        const struct point_row *p = s->rows[i].point;
        if (!is_of_curve(&s->rows[i]))
            continue;
        if (work->samples.n > 0 && isnan(samples_at(&work->samples, (double)p->global_batch)))
            return fail(FAIL_USAGE,
                        "--samples-to-target: a point has global batch %lld, outside %.10g to "
                        "%.10g: how many samples that needs is not said",
                        (long long)p->global_batch, work->samples.at[0],
                        work->samples.at[work->samples.n - 1]);
        if (work->goodput.n > 0 && isnan(goodput_at(&work->goodput, p->ranks)))
            return fail(FAIL_USAGE, "--goodput: nothing is said about the point of %d device%s",
                        p->ranks, units_s(p->ranks));
    }
    return 0;
}

static double known_or_one(double value)
{
    return isnan(value) ? 1.0 : value;
}

static double tokens_of(const struct report_work *work, const struct point_row *p)
{
    return work->tokens > 0.0
               ? work->tokens
               : samples_at(&work->samples, (double)p->global_batch) * (double)p->sequence;
}

void report_work_of(const struct report *report, const struct scaling_row *row,
                    struct report_work_row *out)
{
    const struct report_work *work = report->work;
    const struct stats_interval none = {NAN, NAN, NAN, 0};
    *out = (struct report_work_row){none, none, NAN, NAN, NAN, NAN};
    if (!report_work_asked(work) || !is_of_curve(row))
        return;
    const struct scaling_row *base = &report->scaling->rows[row->efficiency.base];
    double seconds = tokens_of(work, row->point);
    out->throughput = row->efficiency.ratio.value;
    out->samples = work->tokens > 0.0
                       ? 1.0
                       : samples_at(&work->samples, (double)base->point->global_batch) /
                             samples_at(&work->samples, (double)row->point->global_batch);
    out->share = goodput_at(&work->goodput, row->point->ranks);
    out->goodput = out->share / goodput_at(&work->goodput, base->point->ranks);
    double hours = seconds / known_or_one(out->share) / 3600.0;
    out->hours =
        (struct stats_interval){hours / row->tokens_per_s.value, hours / row->tokens_per_s.high,
                                hours / row->tokens_per_s.low, row->tokens_per_s.n};
    double factor = out->samples * known_or_one(out->goodput);
    out->ttw = (struct stats_interval){
        row->efficiency.ratio.value * factor, row->efficiency.ratio.low * factor,
        row->efficiency.ratio.high * factor, row->efficiency.ratio.n};
}

static void print_head(FILE *to, const struct report *report)
{
    const struct report_work *work = report->work;
    const struct scaling *s = report->scaling;
    if (work->tokens > 0.0)
        fprintf(to, "#\n# time to the same work, %.6g tokens", work->tokens);
    else
        fprintf(to, "#\n# time to the same target, by samples of each batch");
    fprintf(to, ": hours = tokens / (tokens/s x goodput); price over the base = 1 / E_ttw\n"
                "# E_ttw = E_throughput x E_samples x E_goodput; low and high: 95 %% of "
                "throughput, the others are taken as given\n");
    if (work->goodput.n == 0)
        fprintf(to, "# - no --goodput was given: hours are of running without a break\n");
    for (int i = 1; i < s->n_rows && work->tokens > 0.0; i++)
        if (s->rows[i].set == s->rows[i - 1].set &&
            s->rows[i].point->global_batch != s->rows[i - 1].point->global_batch) {
            fprintf(to, "# - the batch changes with N, and a larger one may need more tokens to "
                        "the same loss: --samples-to-target\n");
            break;
        }
}

void report_work_text(FILE *to, const struct report *report)
{
    const struct scaling *s = report->scaling;
    struct table t;
    if (!report_work_asked(report->work))
        return;
    print_head(to, report);
    report_key_open(&t, s,
                    "batch hours low high N_hours E_ttw_% E_low E_high E_throughput_% "
                    "E_samples_% E_goodput_% steps");
    for (int i = 0; i < s->n_rows; i++) {
        struct report_work_row w;
        if (!is_of_curve(&s->rows[i]))
            continue;
        report_work_of(report, &s->rows[i], &w);
        report_key_cells(&t, s, s->rows[i].point);
        table_int(&t, s->rows[i].point->global_batch);
        table_digits(&t, w.hours.value, 4);
        table_digits(&t, w.hours.low, 4);
        table_digits(&t, w.hours.high, 4);
        table_digits(&t, w.hours.value * s->rows[i].point->ranks, 4);
        table_real(&t, 100.0 * w.ttw.value, 1);
        table_real(&t, 100.0 * w.ttw.low, 1);
        table_real(&t, 100.0 * w.ttw.high, 1);
        table_real(&t, 100.0 * w.throughput, 1);
        table_real(&t, 100.0 * w.samples, 1);
        table_real(&t, 100.0 * w.goodput, 1);
        table_int(&t, w.hours.n);
    }
    table_close(&t, to);
}
