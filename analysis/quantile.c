#include "analysis/quantile.h"

#include <math.h>

#include <gsl/gsl_cdf.h>

double quantile_chisq(double p, double degrees)
{
    if (degrees < 2e3)
        return gsl_cdf_chisq_Pinv(p, degrees);
    double v = 2.0 / (9.0 * degrees), root = 1.0 - v + gsl_cdf_ugaussian_Pinv(p) * sqrt(v);
    return degrees * root * root * root;
}

double quantile_f_of_1(double p, double degrees)
{
    double t = gsl_cdf_tdist_Pinv((1.0 + p) / 2.0, degrees);
    return t * t;
}
