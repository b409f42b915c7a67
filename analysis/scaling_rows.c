#include <math.h>
#include <stdlib.h>

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

struct stats_interval scaling_mean_interval(const struct scaling_row *row,
                                            struct stats_interval (*figure)(const struct account *))
{
    struct stats_interval out, *launches = must_alloc((size_t)row->n_used + 1, sizeof *launches);
    for (int i = 0; i < row->n_used; i++)
        launches[i] = figure(&row->runs[i].account);
    launches_join(launches, row->n_used, 0.95, &out);
    free(launches);
    return out;
}

bool scaling_unpaired(const struct scaling_row *row)
{
    const struct scaling_ratio *all[] = {&row->speedup,  &row->efficiency,  &row->eff_device,
                                         &row->eff_node, &row->incremental, &row->eff_loaded};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->unpaired)
            return true;
    return false;
}

bool scaling_has_shape(const struct scaling_row *row, int set, int ranks_per_node)
{
    const struct point_row *p = row->point;
    /* One node measured while all nodes did the same is no point of a curve. */
    return row->set == set && p->copies <= 1 &&
           (p->ranks_per_node == ranks_per_node ||
            (p->nodes == 1 && p->ranks_per_node < ranks_per_node));
}

bool scaling_opens_shape(const struct scaling *s, int first)
{
    const struct scaling_row *row = &s->rows[first];
    int shape = row->point->ranks_per_node;
    bool several_nodes = false, part = false;
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *other = &s->rows[i];
        if (other->set != row->set)
            continue;
        if (other->point->ranks_per_node == shape && i < first)
            return false;
        several_nodes |= other->point->ranks_per_node == shape && other->point->nodes > 1;
        part |= other->point->ranks_per_node > shape;
    }
    return several_nodes || !part;
}
