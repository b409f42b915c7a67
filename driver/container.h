/*
 * container: the image that this process runs in, as far as the environment tells.
 *
 * runtime is "apptainer", "singularity", "enroot", "podman", "docker", "kubernetes", "slurm" (an
 * OCI bundle) or "" for none found. Runtimes differ in what they tell from inside: Apptainer and
 * Singularity give the image's path or reference, Podman its name and id (/run/.containerenv);
 * Docker and Kubernetes give neither, so a job script may say them in SCALESTUDY_IMAGE and
 * SCALESTUDY_IMAGE_DIGEST. A reference that ends in "@sha256:..." gives its digest.
 */
#ifndef DRIVER_CONTAINER_H
#define DRIVER_CONTAINER_H

struct container {
    char runtime[16];
    char image[512];
    char digest[128];
};

/* Looks at the environment and at files below `root` ("" but in tests). Cannot fail. */
void container_find(struct container *out, const char *root);

#endif
