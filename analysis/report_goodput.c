#include "analysis/report_goodput.h"

#include <math.h>

#include "analysis/goodput_run.h"
#include "analysis/report_work.h"
#include "base/err.h"

/* The launches of one run are in one file: it counts once. */
static bool is_first_of_file(const struct scaling_row *row, int i)
{
    for (int j = 0; j < i; j++)
        if (row->runs[j].file == row->runs[i].file)
            return false;
    return true;
}

static double measured_pct(const struct scaling_row *row)
{
    double sum = 0.0;
    int n = 0;
    for (int i = 0; i < row->n_used; i++) {
        struct goodput_run run;
        if (!is_first_of_file(row, i))
            continue;
        if (goodput_run_of(&run, row->runs[i].file, row->point->point) != 0)
            fail_clear(); /* scalereport goodput says what is wrong */
        else if (run.there) {
            sum += 100.0 * goodput_share(&run, &goodput_definitions[0]);
            n++;
        }
        goodput_run_release(&run);
    }
    return n > 0 ? sum / n : (double)NAN;
}

double report_goodput_pct(const struct report *report, const struct scaling_row *row)
{
    struct report_work_row work;
    report_work_of(report, row, &work);
    return isnan(work.share) ? measured_pct(row) : 100.0 * work.share;
}
