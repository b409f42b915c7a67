/*
 * pop: why efficiency fell, as a product.
 *
 * The POP hierarchy in the form that TALP gives it for devices, of instrumented steps. With u_i the
 * compute time of rank i in a step, a_i its time in compute or communication, T the period, n ranks:
 *
 *   parallel      sum u / (n T)       = load balance x communication x orchestration
 *   load balance  sum u / (n max u)
 *   communication max u / max a       what moving bytes outside of compute costs
 *   orchestration max a / T           the host, the input, gaps
 *   computation   (sum u0 / tokens0) / (sum u / tokens)     work a token, against the base
 *   global        parallel x computation
 *
 * Products hold exactly, and global / parallel of the base is the efficiency of instrumented steps.
 * Figures of several launches are ratios of sums. The base is that of the speedup.
 */
#ifndef ANALYSIS_POP_H
#define ANALYSIS_POP_H

#include "analysis/scaling.h"

struct pop {
    double parallel, balance, communication, orchestration; /* shares; NaN: nothing was stamped */
    double computation, global;                             /* NaN without a base */
};

struct pop pop_of(const struct scaling *scaling, const struct scaling_row *row);

#endif
