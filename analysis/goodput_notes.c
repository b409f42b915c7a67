/* What must be said beside the numbers of goodput. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "analysis/goodput_report.h"
#include "base/units.h"

static void note(struct goodput_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Said once, however many rows it is about. */
static void note(struct goodput_report *report, const char *format, ...)
{
    struct goodput_notes *notes = &report->notes;
    char *text = notes->text[notes->n];
    va_list values;
    if (notes->n == GOODPUT_NOTES)
        return;
    va_start(values, format);
    vsnprintf(text, GOODPUT_NOTE, format, values);
    va_end(values);
    for (int i = 0; i < notes->n; i++)
        if (strcmp(notes->text[i], text) == 0)
            return;
    notes->n++;
}

/* ---- runs ---- */

static void note_run(struct goodput_report *report, const struct goodput_point *p)
{
    const struct goodput_run *run = &p->run;
    int nodes = p->row->nodes, each = p->row->ranks_per_node;
    if (!run->closes)
        note(report,
             "%dx%d: THE ACCOUNT DOES NOT CLOSE: %.2f %% of wall time is in no bucket, more than "
             "%g %%",
             nodes, each, 100.0 * run->bucket_s[WALL_OTHER] / run->wall_s, 100.0 * WALL_OTHER_MOST);
    if (!run->finished)
        note(report,
             "%dx%d: the run did not do all its steps: the account is of what was published, and "
             "what was lost behind the last save is not in it",
             nodes, each);
    if (run->saves == 0)
        note(report, "%dx%d: the run saved nothing (--checkpoint-every)", nodes, each);
}

static int unnoted(const struct goodput_run *run)
{
    int n = 0;
    for (int i = 0; i < run->n_recoveries; i++)
        n += !run->recoveries[i].noted;
    return n;
}

static void note_failures(struct goodput_report *report, const struct goodput_point *p)
{
    const struct goodput_run *run = &p->run;
    int nodes = p->row->nodes, each = p->row->ranks_per_node, n = unnoted(run);
    if (n > 0)
        note(
            report,
            "%dx%d: of %d failure%s nobody wrote down when it was known (drill.sh and slurm.sbatch "
            "do): R is then the time until someone restarted, not the machine's; a plan takes the "
            "time from the begin of the next launch's program (began_s), and D is not known",
            nodes, each, n, units_s(n));
    if (run->silent > 0)
        note(report,
             "%dx%d: %d launch%s failed before %s first row: counted as failure%s, the time is in "
             "the restart of the failure before",
             nodes, each, run->silent, run->silent == 1 ? "" : "es",
             run->silent == 1 ? "its" : "their", units_s(run->silent));
}

static void note_runs(struct goodput_report *report)
{
    int runs = 0, failures = 0;
    bool again = false;
    for (int i = 0; i < report->study->n_points; i++) {
        const struct goodput_point *p = &report->study->points[i];
        runs += p->run.there;
        failures += p->run.failures;
        again = again || (p->run.there && p->run.bucket_s[WALL_RESTART] > 0);
        if (p->run.there)
            note_run(report, p);
        note_failures(report, p);
        if (p->row->emulated)
            note(report, "EMULATED NODES: several declared nodes are one host; what saves at once "
                         "shares its disk, and no network is in it");
        if (p->row->oversubscribed)
            note(report, "%dx%d: more ranks than cores", p->row->nodes, p->row->ranks_per_node);
    }
    if (report->study->n_left_out > 0)
        note(report, "left out: points that failed their gate, and copies: %d",
             report->study->n_left_out);
    if (report->study->n_points > 0 && runs == 0)
        note(report, "measured goodput is n/a: no point was a run (scalestudy --run-steps N "
                     "--checkpoint-every K)");
    if (report->study->n_files > 0 && report->study->n_points == 0 &&
        report->study->n_left_out == 0)
        note(report, "nothing of a run is published in these files yet (its first rows come after "
                     "half a minute): --resume goes on with it");
    if (runs > 0 && failures == 0 && again)
        note(report,
             "no failure was counted, but runs were started again: their restarts were asked "
             "for, by a signal or by hand, and include the time until somebody did");
    if (runs > 0 && failures == 0 && !again)
        note(report, "no failure was in these runs: measured goodput is that of undisturbed time "
                     "(scalestudy drill makes some)");
}

/* ---- plans ---- */

static void note_law(struct goodput_report *report)
{
    const struct goodput_law *law = report->law;
    if (law->kind == LAW_NONE)
        note(report, "expected goodput and the interval to choose need a failure law, and none is "
                     "made up: give --mtbf 40d/node, --mtbf 20d:60d/node, or --failures k "
                     "--exposure 4000d/node");
    else if (law->of == LAW_OF_JOB)
        note(report, "the MTBF is that of the job and taken to be the same at every size");
    else
        note(report,
             "MTBF of a job is that of one %s over how many it has: independent failures, each of "
             "which ends the job; where 6.5 failures in 1,000 node-days gave 1.8 h at 16,384 GPUs "
             "as seen, they give 28.8 h at 1,024, where 7.9 h were seen (Kokolis et al., HPCA "
             "2025): state the law of your size",
             goodput_law_of_name(law->of));
    if (law->kind == LAW_COUNTED && law->failures == 0)
        note(report, "no failure was counted: MTBF is a bound from below, and so is every expected "
                     "goodput; the interval is right for that bound and too short beyond it");
}

static void note_costs(struct goodput_report *report, const struct goodput_plan *plan,
                       const struct goodput_row *row)
{
    const struct goodput_known *k = &plan->known;
    const struct goodput_at *at = &row->at;
    if (at->bottom)
        note(report, "detection or restart was neither measured nor given and counts as 0: "
                     "expected goodput is an upper bound (--detect, --restart, or scalestudy "
                     "drill)");
    if (at->complete.source == FROM_FITTED && !k->storage.shared_seen &&
        at->nodes > k->storage.most)
        note(
            report,
            "%s: no limit of the shared storage was seen up to %g node%s; beyond, complete_s grows "
            "with no node added, and its upper end is a limit that begins right there",
            k->mode, k->storage.most, units_s(k->storage.most));
    if (at->cost.source == FROM_ASSUMED || at->complete.source == FROM_ASSUMED)
        note(report, "costs of saves are assumed: from options, not measured here");
    if (at->step.source == FROM_CARRIED)
        note(report, "steps of a size that was not measured are carried from the largest that was, "
                     "too few for a forecast: good for counting steps, and tokens/s is not said");
    if (at->step.source == FROM_NONE)
        note(report, "steps of a size that was not measured are unknown: intervals are in seconds "
                     "there (--step-time)");
}

static void note_lost(struct goodput_report *report, const struct goodput_known *k)
{
    for (int i = 0; i < k->n_costs; i++)
        if (k->costs[i].lost > 0)
            note(report,
                 "%g node%s: %d save%s of mode %s never published: no figure of saves counts them, "
                 "and "
                 "failures behind them lose more",
                 k->costs[i].nodes, units_s(k->costs[i].nodes), k->costs[i].lost,
                 units_s(k->costs[i].lost), k->mode);
}

/* Two levels cost two kinds of saves: said where one level loses less. All by first order, which both have. */
static void note_levels(struct goodput_report *report, const struct goodput_plan *plan,
                        const struct goodput_row *row)
{
    const struct goodput_given *given = &plan->known.given;
    double cost = row->at.cost.x.value, one = -INFINITY, two = NAN;
    char local[32], global[32];
    for (int i = 0; i < row->n_choices; i++) {
        if (isfinite(row->choices[i].local_s))
            two = row->choices[i].first_order;
        else if (i <= row->best)
            one = fmax(one, row->choices[i].first_order);
    }
    goodput_duration(local, sizeof local, given->local_s);
    goodput_duration(global, sizeof global, cost);
    if (given->local_s >= cost)
        note(report,
             "%g node%s: two levels of saves do not pay: a local one costs %s (--local-blocked), "
             "and "
             "one that survives every failure costs no more, %s: save on one level, or give what a "
             "cheaper local save costs",
             row->at.nodes, units_s(row->at.nodes), local, global);
    else if (two <= one)
        note(report,
             "%g node%s: two levels of saves do not pay: first order %.5g %% with local ones of %s "
             "that survive %g %% of failures, %.5g %% with one level: save on one level, or give "
             "what "
             "a cheaper local save costs",
             row->at.nodes, units_s(row->at.nodes), 100.0 * two, local, 100.0 * given->local_share,
             100.0 * one);
}

static void note_row(struct goodput_report *report, const struct goodput_plan *plan,
                     const struct goodput_row *row)
{
    const struct goodput_choice *best = &row->choices[row->best];
    char tau[32], run[32];
    if (!row->planned)
        return;
    note_costs(report, plan, row);
    if (plan->known.given.local_s > 0.0)
        note_levels(report, plan, row);
    if (best->tau_s == 0.0)
        note(report,
             "%g node%s: a save costs nothing and is published at once, so the best interval is "
             "none: the "
             "shorter the better; give what one costs (--blocked, --complete)",
             row->at.nodes, units_s(row->at.nodes));
    if (best->tau_s > report->run_s) {
        goodput_duration(tau, sizeof tau, best->tau_s);
        goodput_duration(run, sizeof run, report->run_s);
        note(report,
             "%g node%s: the best interval, %s, is longer than the run of %s: one save at "
             "its end is all that pays",
             row->at.nodes, units_s(row->at.nodes), tau, run);
    }
    if (isfinite(row->in_steps))
        note(report,
             "%g node%s: expected goodput counts time in steps; of that %.2f %% was useful in the "
             "run: %.2f %% compares with what was measured",
             row->at.nodes, units_s(row->at.nodes), 100.0 * row->in_steps,
             100.0 * best->g.value * row->in_steps);
}

/* Rows that nothing can be said of, by reason. */
static void note_unplanned(struct goodput_report *report, const struct goodput_plan *plan, int r)
{
    const char *why = plan->rows[r].why;
    char list[160] = "";
    for (int i = 0; i < plan->n_rows && strlen(list) < sizeof list - 16; i++)
        if (strcmp(plan->rows[i].why, why) == 0)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%g",
                     list[0] != '\0' ? ", " : "", plan->rows[i].at.nodes);
    if (why[0] != '\0')
        note(report, "expected goodput on %s node%s is n/a: %s", list,
             strcmp(list, "1") == 0 ? "" : "s", why);
}

void goodput_notes_find(struct goodput_report *report)
{
    report->notes.n = 0;
    note_runs(report);
    for (int p = 0; p < report->n_plans; p++)
        note_lost(report, &report->plans[p].known);
    note_law(report);
    for (int p = 0; p < report->n_plans && report->law->kind != LAW_NONE; p++)
        for (int r = 0; r < report->plans[p].n_rows; r++) {
            note_row(report, &report->plans[p], &report->plans[p].rows[r]);
            note_unplanned(report, &report->plans[p], r);
        }
}
