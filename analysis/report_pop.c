#include <math.h>

#include "analysis/pop.h"
#include "analysis/report_key.h"
#include "analysis/report_table.h"
#include "analysis/report_text.h"

void report_text_pop(FILE *to, const struct scaling *scaling)
{
    struct table t;
    bool stamped = false;
    for (int i = 0; i < scaling->n_rows; i++)
        stamped = stamped || !isnan(pop_of(scaling, &scaling->rows[i]).parallel);
    if (!stamped)
        return;
    fprintf(to, "#\n# why efficiency falls, instrumented steps: global = parallel x computation, "
                "parallel = balance x comm x orch\n");
    report_key_open(&t, scaling, "global_% parallel_% balance_% comm_% orch_% computation_%");
    for (int i = 0; i < scaling->n_rows; i++) {
        const struct scaling_row *row = &scaling->rows[i];
        struct pop pop = pop_of(scaling, row);
        report_key_cells(&t, scaling, row->point);
        table_real(&t, 100.0 * pop.global, 1);
        table_real(&t, 100.0 * pop.parallel, 1);
        table_real(&t, 100.0 * pop.balance, 1);
        table_real(&t, 100.0 * pop.communication, 1);
        table_real(&t, 100.0 * pop.orchestration, 1);
        table_real(&t, 100.0 * pop.computation, 1);
    }
    table_close(&t, to);
}
