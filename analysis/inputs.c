#include "analysis/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/report_key.h"
#include "base/err.h"

static const double waits_share = 0.01, steps_share = 0.05;

/* ---- one point ---- */

/* A full step of one rank, from the tables steps and inputs. */
struct fed {
    int32_t step, rank;
    bool measured;
    double length_ns;
    const struct input_row *input;
};

static int by_step(const void *left, const void *right)
{
    const struct fed *a = left, *b = right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->input != NULL) - (b->input != NULL); /* rows of steps come first */
}

static int64_t collect(struct fed *list, const struct record_point *point)
{
    int64_t n = 0;
    for (int64_t i = 0; i < point->steps.n; i++) {
        const struct step_row *row = &point->steps.rows[i];
        if (row->variant == VARIANT_FULL)
            list[n++] = (struct fed){row->step, row->rank,
                                     (row->flags & (STEP_WARM_UP | STEP_LEAD_IN)) == 0,
                                     (double)row->end_ns - (double)row->start_ns, NULL};
    }
    for (int64_t i = 0; i < point->inputs.n; i++) {
        const struct input_row *row = &point->inputs.rows[i];
        if (row->variant == VARIANT_FULL)
            list[n++] = (struct fed){row->step, row->rank, false, 0, row};
    }
    qsort(list, (size_t)n, sizeof *list, by_step);
    return n;
}

static void add(struct inputs *sum, const struct input_row *row)
{
    sum->input_ns += (double)row->input_ns;
    sum->wait_ns += (double)row->wait_ns;
    sum->read_bytes += (double)row->read_bytes;
    sum->cpu_ns += (double)row->cpu_ns;
    sum->worker_cpu_ns += (double)row->worker_cpu_ns;
    sum->depth += row->depth;
    sum->resident_bytes = fmax(sum->resident_bytes, (double)row->resident_bytes);
}

static void divide(struct inputs *sum, double rows, double starved)
{
    sum->input_ns /= rows; /* NaN for none */
    sum->wait_ns /= rows;
    sum->read_bytes /= rows;
    sum->cpu_ns /= rows;
    sum->worker_cpu_ns /= rows;
    sum->depth /= rows;
    sum->starved_share = starved / (double)sum->n_steps;
    sum->starved = sum->starved_share > steps_share;
    if (!(rows > 0))
        sum->resident_bytes = NAN;
}

void inputs_of_point(struct inputs *out, const struct record_point *point)
{
    struct fed *list = must_alloc((size_t)(point->steps.n + point->inputs.n) + 1, sizeof *list);
    int64_t n = collect(list, point), rows = 0, starved = 0;
    bool new_step = true, waited = false;
    *out = (struct inputs){0};
    for (int64_t i = 1; i < n; i++) {
        const struct fed *step = &list[i - 1], *fed = &list[i];
        bool pair = fed->input != NULL && step->input == NULL && step->measured &&
                    step->step == fed->step && step->rank == fed->rank;
        if (pair) {
            add(out, fed->input);
            rows++;
            out->n_steps += new_step;
            new_step = false;
            waited |= (double)fed->input->wait_ns > waits_share * step->length_ns;
        }
        if (i + 1 == n || list[i + 1].step != fed->step) {
            starved += waited;
            waited = false;
            new_step = true;
        }
    }
    divide(out, (double)rows, (double)starved);
    free(list);
}

struct inputs inputs_of_row(const struct scaling_row *row)
{
    struct inputs worst, in;
    inputs_of_point(&worst, row->runs[0].account.record);
    for (int i = 1; i < row->n_used; i++) {
        inputs_of_point(&in, row->runs[i].account.record);
        if (in.wait_ns > worst.wait_ns || isnan(worst.wait_ns))
            worst = in;
    }
    return worst;
}

bool inputs_starved_sentence(char *text, size_t size, const struct record_point *point)
{
    const struct point_row *p = &point->point;
    struct inputs in;
    inputs_of_point(&in, point);
    text[0] = '\0';
    if (!in.starved)
        return false;
    snprintf(text, size,
             "STARVED (%dx%d%s, input %s): in %.0f %% of the steps some rank waits for samples for "
             "more than 1 %% of its step, %.3f ms of a step on average: this is the speed of the "
             "input, not of the machine",
             p->nodes, p->ranks_per_node, p->copies > 1 ? " loaded" : "", p->input,
             100.0 * in.starved_share, in.wait_ns / 1e6);
    return true;
}

/* ---- points that differ in their input alone ---- */

#define SAME_TEXT(field) (strncmp(a->field, b->field, sizeof a->field) == 0)

static bool same_but_input(const struct point_row *a, const struct point_row *b)
{
    return SAME_TEXT(scaling) && SAME_TEXT(model) && SAME_TEXT(dtype) && SAME_TEXT(device) &&
           SAME_TEXT(comm) && SAME_TEXT(parallel) && a->nodes == b->nodes && a->ranks == b->ranks &&
           a->copies == b->copies && a->sequence == b->sequence &&
           a->micro_batch == b->micro_batch && a->global_batch == b->global_batch;
}

static const struct scaling_row *find(const struct scaling *s, const struct scaling_row *row,
                                      const char *input)
{
    for (int i = 0; i < s->n_rows; i++)
        if (s->rows[i].valid && same_but_input(s->rows[i].point, row->point) &&
            strncmp(s->rows[i].point->input, input, sizeof row->point->input) == 0)
            return &s->rows[i];
    return NULL;
}

static bool is_file(const struct scaling_row *row)
{
    return strncmp(row->point->input, "file", 4) == 0;
}

const struct scaling_row *inputs_synthetic(const struct scaling *s, const struct scaling_row *row)
{
    const struct scaling_row *found = find(s, row, "synthetic");
    return found == row ? NULL : found;
}

const struct scaling_row *inputs_base(const struct scaling *s, const struct scaling_row *row)
{
    const struct scaling_row *memory = is_file(row) ? find(s, row, "memory") : NULL;
    return memory != NULL ? memory : inputs_synthetic(s, row);
}

struct stats_interval inputs_gap_ns(const struct scaling_row *row, const struct scaling_row *base)
{
    const struct stats_interval *a = &row->step_ns, *b = &base->step_ns;
    double gap = a->value - b->value;
    return (struct stats_interval){gap, gap - hypot(a->value - a->low, b->high - b->value),
                                   gap + hypot(a->high - a->value, b->value - b->low),
                                   a->n < b->n ? a->n : b->n};
}

static const char *meaning(const struct scaling_row *row, const struct scaling_row *base,
                           const struct stats_interval *gap)
{
    bool memory = strncmp(base->point->input, "memory", sizeof base->point->input) == 0;
    if (gap->high < 0.0)
        return is_file(row) ? "reading files costs less than what it is compared with, or the "
                              "machine changed between the two points"
                            : "copying batches from host memory costs less than making them";
    if (!is_file(row))
        return "what copying batches from host memory costs beyond making them; no faster copy "
               "path wins more";
    if (memory)
        return "what reading files adds (storage, page cache, decoding); no faster storage wins "
               "more";
    return "what copying and reading add together; --input synthetic,memory,file:PATH tells them "
           "apart";
}

/* In ms, with its sign; what is unknown is "-". */
static const char *end_text(char text[32], double ns)
{
    if (isnan(ns))
        return "-";
    snprintf(text, 32, "%+.3f", ns / 1e6);
    return text;
}

bool inputs_gap_sentence(char *text, size_t size, const struct scaling *s,
                         const struct scaling_row *row)
{
    const struct scaling_row *base = inputs_base(s, row);
    char key[REPORT_KEY], low[32], high[32];
    text[0] = '\0';
    if (base == NULL || !row->valid)
        return false;
    struct stats_interval gap = inputs_gap_ns(row, base);
    bool zero = !(gap.low > 0.0 || gap.high < 0.0);
    report_key_text(key, s, row->point);
    snprintf(text, size, "input at %s: %s - %s = %+.3f ms a step, interval %s to %s%s: %s", key,
             row->point->input, base->point->input, gap.value / 1e6, end_text(low, gap.low),
             end_text(high, gap.high), zero ? ", not told from 0" : "", meaning(row, base, &gap));
    return true;
}
