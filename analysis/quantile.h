/*
 * quantile: quantiles of the distributions that intervals here are made of.
 *
 * GSL's searches for some of them do not converge everywhere, and its handler then ends the program: chi-square from
 * about 2,100 degrees of freedom on, F of 1 and f from f = 271 on (GSL 2.7). Those are taken from here:
 *
 *   chi-square  GSL below 2,000 degrees; above, the cube root is normal (Wilson and Hilferty 1931) to better than
 *               1e-6 of the quantile at p from 0.025 to 0.975, 3e-6 at 0.005
 *   F of 1, f   the square of Student's t with f degrees, two-sided: the same quantile
 *
 * Student's t converges from 1 degree to 1e15 and is GSL's own. p from 0 to 1, degrees > 0.
 */
#ifndef ANALYSIS_QUANTILE_H
#define ANALYSIS_QUANTILE_H

double quantile_chisq(double p, double degrees);
double quantile_f_of_1(double p, double degrees);

#endif
