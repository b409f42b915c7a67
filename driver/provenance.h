/*
 * provenance: where and with what a study was made, as attributes. An allow-list.
 *
 *   study        the terms of the study (driver/study.h), one attribute each, under the option's
 *                name; "model_text", the resolved description, and "model_sha256" of it;
 *                "input_fingerprint", what the files of --input are
 *   launch       the other options: how this launch was asked to behave
 *   provenance   versions of everything that took part (as --version prints them), os, exact argv
 *                quoted for a shell, launcher, container runtime with image and digest where the
 *                environment tells them (driver/container.h), and "env.NAME" for environment
 *                variables whose names begin NCCL_ OMPI_MCA_ UCX_ CUDA_ SLURM_JOB OPENBLAS_ OMP_
 *                PMIX_
 *
 * A value whose name looks like a secret (KEY TOKEN SECRET PASS CRED PRECONDITION, either case) is
 * never stored, nor how ranks find their daemon (OMPI_MCA_orte_, OMPI_MCA_ess, PMIX_SERVER),
 * nor one longer than 512 bytes, nor one whose name is longer than an attribute's. With --anonymous
 * hosts are called host00, host01, ..., and variables are left out whose name speaks of hosts,
 * addresses or people, or whose value contains a host's name.
 *
 * The study digest is the SHA-256 of study_text().
 */
#ifndef DRIVER_PROVENANCE_H
#define DRIVER_PROVENANCE_H

#include "analysis/record.h"
#include "driver/study.h"
#include "topologies/discover.h"
#include "topologies/topology.h"

/* Fill head (zeroed by this; release with record_head_release): attributes, hosts, ranks, digest,
 * t0. */
int provenance_fill(struct record_head *head, const struct study *study, const struct model *model,
                    const struct discover *found, int argc, char **argv);

/*
 * What the files of --input are ("": no files, nothing changes): attribute "input_fingerprint" of
 * the study, and the digest becomes the SHA-256 of itself, "\n[data]\n", the text and "\n".
 */
void provenance_data(struct record_head *head, const char *fingerprint);

/*
 * The topology as resolved (no levels: none was given, nothing changes): attributes "topology_name"
 * and "topology_text" of the study, and the digest becomes the SHA-256 of itself, "\n[topology]\n"
 * and that text.
 */
void provenance_topology(struct record_head *head, const struct topology *topology);

/* "--version": what this was built with, one per line. No MPI needed. */
void provenance_version(void *to_FILE);

#endif
