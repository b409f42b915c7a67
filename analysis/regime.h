/*
 * regime: the points of a series that one law may be about.
 *
 * Inside a node messages take one kind of link, between nodes another: a curve inside one node says
 * nothing about the network, and a law fitted across the step from one to the other forecasts
 * neither. So a series falls into
 *
 *   inside a node    points of one node, in devices (so not where N shall count nodes); nothing is
 *                    said about more devices than a node has
 *   across nodes     points of two nodes and more. Fewer than FORECAST_POINTS of them take the one
 *                    full node along (`takes_one_node`): then the step to the network is in the
 *                    fit, and said
 *   as declared      the source does not say how many nodes a point had: all points, and said
 *
 * Invalid points and points with more ranks than cores are left out.
 */
#ifndef ANALYSIS_REGIME_H
#define ANALYSIS_REGIME_H

#include "analysis/forecast.h"
#include "analysis/series.h"

enum regime_kind { REGIME_NODE, REGIME_NODES, REGIME_DECLARED };
enum regime_unit { REGIME_AS_SERIES, REGIME_DEVICES, REGIME_BY_NODE };

enum { REGIMES = 2 };

struct regime {
    enum regime_kind kind;
    bool takes_one_node;
    bool in_nodes;            /* n counts nodes; else devices */
    int n_points, n_left_out; /* invalid or oversubscribed */
    int n_one_node;           /* points of one node that a regime across nodes does not take */
    const struct series_point **points; /* [n_points] of the series; owned array */
    double *n, *rate;                   /* [n_points] owned */
    struct forecast_spread *spread;     /* [n_points] owned */
    double most;                        /* largest n that this regime is about; INFINITY */
};

/*
 * The regimes with at least one point, at most REGIMES; *n of them. FAIL_USAGE when `unit` asks
 * for what the series does not know.
 */
int regime_find(struct regime out[REGIMES], int *n, const struct series *series,
                enum regime_unit unit);
void regime_release(struct regime *regime);

const char *regime_name(enum regime_kind kind); /* "across nodes" */

#endif
