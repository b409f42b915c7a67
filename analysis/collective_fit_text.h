/* collective_fit_text: fits of collectives as text, with the residual of every row. */
#ifndef ANALYSIS_COLLECTIVE_FIT_TEXT_H
#define ANALYSIS_COLLECTIVE_FIT_TEXT_H

#include <stdio.h>

#include "analysis/collective_fit.h"

void collective_fit_text(FILE *to, const struct collective_table *table,
                         const struct collective_fit *fit, enum collective_algorithm algorithm);
void collective_hierarchy_text(FILE *to, const struct collective_hierarchy *hierarchy);

#endif
