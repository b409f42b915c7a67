#include <math.h>

#include "analysis/scaling.h"
#include "base/err.h"

void scaling_drop_steps(struct record_file *file)
{
    for (int i = 0; i < file->n_points; i++) {
        struct record_point *p = &file->points[i];
        int64_t most = 0;
        if (p->inputs.n > 0 || p->steps.n < 2)
            continue;
        for (int64_t j = 1; j < p->steps.n; j++)
            if (p->steps.rows[j].skipped > p->steps.rows[most].skipped)
                most = j;
        p->steps.rows[0] = p->steps.rows[most];
        p->steps.rows = must_grow(p->steps.rows, 1, sizeof *p->steps.rows);
        p->steps.n = 1;
    }
}

double scaling_mean(const struct scaling_row *row, double (*figure)(const struct account *))
{
    double sum = 0.0;
    int n = 0;
    for (int i = 0; i < row->n_used; i++) {
        double value = figure(&row->runs[i].account);
        if (!isnan(value)) {
            sum += value;
            n++;
        }
    }
    return n > 0 ? sum / n : (double)NAN;
}
