/* Every quantile that an interval is made of is one: it has its probability, at any degrees of freedom, without GSL
 * giving up. */
#include "analysis/quantile.h"

#include <math.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>

#include "tests/test.h"

static int gave_up;

static void count(const char *reason, const char *file, int line, int error)
{
    (void)reason, (void)file, (void)line, (void)error;
    gave_up++;
}

static const double levels[] = {0.005, 0.025, 0.05, 0.9, 0.95, 0.975, 0.995};
enum { LEVELS = sizeof levels / sizeof *levels };

/* |P(x) - p| over the smaller tail. */
static double miss(double found, double p)
{
    return fabs(found - p) / fmin(p, 1.0 - p);
}

/* Halves, as effective degrees are no whole numbers; then decades. */
static double next(double degrees)
{
    return degrees < 5000.0 ? degrees + 0.5 : 10.0 * degrees;
}

static void have_their_probability(void)
{
    double f = 0, chi = 0, t = 0;
    gsl_error_handler_t *handler = gsl_set_error_handler(count);
    for (double n = 1.0; n < 1e9; n = next(n))
        for (int i = 0; i < LEVELS; i++) {
            double p = levels[i];
            t = fmax(t, miss(gsl_cdf_tdist_P(gsl_cdf_tdist_Pinv(p, n), n), p));
            f = fmax(f, miss(gsl_cdf_fdist_P(quantile_f_of_1(p, n), 1.0, n), p));
            if (n < 1e6) /* GSL's own P has no more digits there */
                chi = fmax(chi, miss(gsl_cdf_chisq_P(quantile_chisq(p, n), n), p));
            CHECK(isfinite(quantile_chisq(p, n)));
        }
    gsl_set_error_handler(handler);
    printf("worst miss of a tail: t %.1e, F of 1 %.1e, chi-square %.1e\n", t, f, chi);
    CHECK_EQ(gave_up, 0);
    CHECK(t < 1e-9 && f < 1e-9);
    CHECK(chi < 2e-3); /* of its tail, where the cube root stands for it */
}

/* Tables. */
static void are_the_known_ones(void)
{
    CHECK_NEAR(quantile_f_of_1(0.95, 1), 161.4476, 1e-3);
    CHECK_NEAR(quantile_f_of_1(0.95, 10), 4.9646, 1e-4);
    CHECK_NEAR(quantile_f_of_1(0.95, 271), 3.8760, 1e-4);
    CHECK_NEAR(quantile_f_of_1(0.95, 1e12), 3.841459, 1e-6); /* chi-square of 1 */
    CHECK_NEAR(quantile_chisq(0.95, 2), 5.991465, 1e-6);
    CHECK_NEAR(quantile_chisq(0.975, 2000) / 2125.84, 1, 1e-5);
}

int main(void)
{
    have_their_probability();
    are_the_known_ones();
    return test_end();
}
