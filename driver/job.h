/*
 * job: what one launch knows; made by main, read by everything below it.
 *
 * const once the points start, but for `first`, the base of the fixed-work proof.
 */
#ifndef DRIVER_JOB_H
#define DRIVER_JOB_H

#include "analysis/record.h"
#include "driver/execute.h"
#include "driver/gate.h"
#include "driver/study.h"
#include "topologies/discover.h"
#include "topologies/topology.h"

/* What the fixed-work proof compares later points of the same sequence with. */
struct job_first {
    int64_t sequence;
    int ranks;
    double tokens, flops;
};

struct job {
    struct study study;
    struct model model;
    struct points points;
    struct discover found;
    struct backend backend;
    struct topology topology; /* of --topology; no levels: none */
    bool emulated;            /* declared nodes share a host */
    bool shared_device;       /* several ranks share a GPU: functional only */
    bool calibrates;          /* "scalestudy calibrate": no study */
    bool without_telemetry;   /* there is none, and that has been said */
    char passed_over[256];    /* why --device auto took no better one, "" */
    int rank, size;
    int threads;       /* BLAS threads of this rank */
    const void *world; /* address of MPI_COMM_WORLD's copy */
    int launch;
    int64_t begin_step;    /* of --resume-from, 0: none */
    int unfinished;        /* point whose run an earlier launch was cut off in, -1 */
    struct record *record; /* rank 0: the study file; pieces of a run go to it. Elsewhere NULL */
    int64_t begin_ns;      /* this process's clock when it began */
    int64_t t0_ns;         /* rank 0's clock when the launch began */
    char fingerprint[STUDY_PATH]; /* what the files of --input are, driver/dataset.h; "": none */
    double peak_flops; /* GEMM rate of one rank alone, measured in this launch; 0: not measured */
    char peak_source[64];
    struct gate_reference reference;
    struct job_first *first; /* [n_first] first point measured of each sequence; owned */
    int n_first;
};

#endif
