/*
 * gpu_bounds: how far a result is off, and how far it may be.
 *
 * An error is the largest difference over the largest value wanted, and the root of the mean square
 * of differences over that of the values. Bounds follow from the arithmetic:
 *
 * A rounding is off by at most u of the value it rounds, u = 2^-24 in fp32, 2^-11 in tf32 and 2^-8
 * in bf16. In the root mean square that is 0.42 u: the error is even over one unit in the last
 * place, which is u/m to either side for a mantissa m in [1, 2), and m has the density 1/(m ln 2),
 * so sqrt(3 / (8 ln 2) / 3) u.
 *
 * An error that does not go with the value, that of a sum of many terms above all, is nearly normal:
 * the largest of n is about sqrt(2 ln n) of its own root mean square, and the largest value is in
 * the denominator.
 */
#ifndef TESTS_GPU_BOUNDS_H
#define TESTS_GPU_BOUNDS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct gpu_bound {
    double most, rms;
};

#define GPU_U_F32 0x1p-24
#define GPU_U_TF32 0x1p-11
#define GPU_U_BF16 0x1p-8
#define GPU_RMS 0.42 /* of one rounding, in u */

/* The result was rounded so many times: at most that, and half as much again as its mean. */
static inline struct gpu_bound gpu_rounded(double u, double times)
{
    return (struct gpu_bound){1.02 * times * u, 1.5 * GPU_RMS * u * sqrt(times)};
}

/* `noise`: a root mean square over that of the values. Three times the largest of so many, twice
 * the mean. */
static inline struct gpu_bound gpu_noise(double noise, const double *want, int64_t n)
{
    double squares = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        squares += want[i] * want[i];
        most = fabs(want[i]) > most ? fabs(want[i]) : most;
    }
    double peak = squares > 0 ? most / sqrt(squares / (double)n) : 1;
    return (struct gpu_bound){3 * sqrt(2 * log((double)n + 2)) * noise / peak, 2 * noise};
}

static inline struct gpu_bound gpu_both(struct gpu_bound a, struct gpu_bound b)
{
    return (struct gpu_bound){a.most + b.most, a.rms + b.rms};
}

/* A mean over few values is no mean: below this many that are not 0 both bounds are `most`. */
enum { GPU_FEW = 100 };

static inline bool gpu_within(struct gpu_bound error, struct gpu_bound bound, const double *want,
                              int64_t n)
{
    int64_t values = 0;
    for (int64_t i = 0; i < n; i++)
        values += want[i] != 0;
    return error.most <= bound.most && error.rms <= (values < GPU_FEW ? bound.most : bound.rms);
}

static inline struct gpu_bound gpu_error(const double *got, const double *want, int64_t n)
{
    double most = 0, scale = 0, squares = 0, wanted = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = fabs(got[i] - want[i]);
        if (!(error < (double)INFINITY))
            return (struct gpu_bound){(double)INFINITY, (double)INFINITY};
        most = error > most ? error : most;
        scale = fabs(want[i]) > scale ? fabs(want[i]) : scale;
        squares += error * error;
        wanted += want[i] * want[i];
    }
    return (struct gpu_bound){scale > 0 ? most / scale : most,
                              wanted > 0 ? sqrt(squares / wanted) : sqrt(squares)};
}

#endif
