#include "analysis/report_proof.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analysis/report_key.h"
#include "analysis/report_notes.h"

/* A text that grows until it is full. */
struct sentence {
    char *text;
    size_t used, size;
};

static void add(struct sentence *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct sentence *s, const char *format, ...)
{
    va_list list;
    if (s->used >= s->size)
        return;
    va_start(list, format);
    s->used += (size_t)vsnprintf(s->text + s->used, s->size - s->used, format, list);
    va_end(list);
}

static int64_t gate_failures(const struct record_point *p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->gate.n; i++)
        n += !p->gate.rows[i].passed;
    return n;
}

static const struct work_row *work_failure(const struct record_point *p)
{
    for (int64_t i = 0; i < p->work.n; i++)
        if (!p->work.rows[i].passed)
            return &p->work.rows[i];
    return NULL;
}

const char *proof_of_work(const struct scaling_row *row)
{
    bool counted = true;
    for (int i = 0; i < row->n_runs; i++) {
        if (work_failure(row->runs[i].account.record) != NULL)
            return "failed";
        counted = counted && row->runs[i].account.record->work.n > 0;
    }
    return counted ? "passed" : "";
}

static void add_failures(struct sentence *s, const struct scaling *scaling)
{
    for (int i = 0; i < scaling->n_runs; i++) {
        const struct record_point *p = scaling->runs[i].account.record;
        const struct work_row *work = work_failure(p);
        int64_t gate = gate_failures(p);
        char shape[REPORT_KEY];
        if (gate == 0 && work == NULL)
            continue;
        report_key_text(shape, scaling, &p->point);
        add(s, "%s%s", s->used == 0 ? "FAILED: " : "; ", shape);
        if (gate > 0)
            add(s, " %lld of %lld gate checks", (long long)gate, (long long)p->gate.n);
        if (work != NULL)
            add(s, "%s fixed work (%.32s)", gate > 0 ? " and" : "", work->quantity);
    }
}

/* The share of its bound that a check used. */
static double share_of(const struct gate_row *row)
{
    return row->allowed > 0.0 ? row->difference / row->allowed : 0.0;
}

/* A launch of a run (--run-steps) that was stopped or killed: what the end of a point publishes is missing. */
static bool is_cut_off(const struct record_point *p)
{
    return p->intervals.n > 0 && p->account.n == 0;
}

/* No check is in the files. */
static void add_no_gate(struct sentence *s, const struct scaling *scaling)
{
    bool cut_off = scaling->n_runs > 0, passed = cut_off;
    for (int i = 0; i < scaling->n_runs; i++) {
        const struct record_point *p = scaling->runs[i].account.record;
        cut_off = cut_off && is_cut_off(p);
        passed = passed && strncmp(p->point.gate, "passed", sizeof p->point.gate) == 0;
    }
    if (cut_off && passed)
        add(s, "the gate passed; its checks are published with the end of the run");
    else
        add(s, "no gate check was made");
}

static void add_gate(struct sentence *s, const struct scaling *scaling)
{
    int64_t least = INT64_MAX, most = 0;
    int cut_off = 0;
    const struct gate_row *worst = NULL;
    for (int i = 0; i < scaling->n_runs; i++) {
        const struct record_point *p = scaling->runs[i].account.record;
        cut_off += p->gate.n == 0 && is_cut_off(p);
        if (p->gate.n > 0 || !is_cut_off(p))
            least = p->gate.n < least ? p->gate.n : least;
        most = p->gate.n > most ? p->gate.n : most;
        for (int64_t j = 0; j < p->gate.n; j++)
            if (worst == NULL || share_of(&p->gate.rows[j]) > share_of(worst))
                worst = &p->gate.rows[j];
    }
    if (worst == NULL) {
        add_no_gate(s, scaling);
        return;
    }
    if (least < most)
        add(s, "%lld to ", (long long)least);
    add(s, "%lld gate %s a point passed (worst at %.3g %% of its bound: %.32s %.64s)",
        (long long)most, most == 1 ? "check" : "checks", 100.0 * share_of(worst), worst->check,
        worst->subject);
    if (cut_off > 0)
        add(s, "; %d launch%s of a run cut off, without theirs", cut_off, cut_off == 1 ? "" : "es");
}

/* The axis of wire bytes does not matter here. */
static int name_length(const struct work_row *row)
{
    static const char wire[] = "wire bytes";
    return strncmp(row->quantity, wire, sizeof wire - 1) == 0
               ? (int)sizeof wire - 1
               : (int)strnlen(row->quantity, sizeof row->quantity);
}

static void add_work(struct sentence *s, const struct scaling *scaling)
{
    enum { NAMES = 8 };
    const struct work_row *seen[NAMES];
    int n = 0, without = 0;
    for (int i = 0; i < scaling->n_runs; i++) {
        const struct record_point *p = scaling->runs[i].account.record;
        without += p->work.n == 0 && !is_cut_off(p);
        for (int64_t j = 0; j < p->work.n; j++) {
            const struct work_row *row = &p->work.rows[j];
            int k = 0, length = name_length(row);
            while (k < n && (name_length(seen[k]) != length ||
                             strncmp(seen[k]->quantity, row->quantity, (size_t)length) != 0))
                k++;
            if (k == n && n < NAMES)
                seen[n++] = row;
        }
    }
    for (int k = 0; k < n; k++)
        add(s, "%s%.*s",
            k == 0       ? ""
            : k == n - 1 ? " and "
                         : ", ",
            name_length(seen[k]), seen[k]->quantity);
    if (n == 0)
        add(s, "no work was counted");
    else
        add(s, " agree three ways%s", without > 0 ? " where they were counted" : "");
}

void proof_sentence(char *text, size_t size, const struct scaling *scaling, const char *between)
{
    struct sentence s = {text, 0, size};
    text[0] = '\0';
    add_failures(&s, scaling);
    if (s.used > 0)
        return;
    add_gate(&s, scaling);
    add(&s, "%s", between);
    add_work(&s, scaling);
}
