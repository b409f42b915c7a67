#include "driver/container.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In order of how much each tells; a container inside a Kubernetes pod is the pod's. */
static const struct {
    const char *runtime;
    const char *sign;     /* environment variable that is there in such a container */
    const char *image[2]; /* environment variables that name the image */
} runtimes[] = {
    {"apptainer", "APPTAINER_CONTAINER", {"APPTAINER_CONTAINER"}},
    {"singularity", "SINGULARITY_CONTAINER", {"SINGULARITY_CONTAINER"}},
    {"enroot", "ENROOT_ROOTFS", {"ENROOT_IMAGE", "ENROOT_ROOTFS"}},
    {"enroot", "ENROOT_IMAGE", {"ENROOT_IMAGE"}},
    {"kubernetes", "KUBERNETES_SERVICE_HOST", {NULL}},
    {"slurm", "SLURM_CONTAINER", {"SLURM_CONTAINER"}},
};

static void copy(char *to, size_t size, const char *from)
{
    if (from != NULL && strlen(from) < size)
        memcpy(to, from, strlen(from) + 1);
}

static bool find_by_environment(struct container *out)
{
    for (size_t i = 0; i < sizeof runtimes / sizeof runtimes[0]; i++) {
        const char *sign = getenv(runtimes[i].sign);
        if (sign == NULL || sign[0] == '\0')
            continue;
        copy(out->runtime, sizeof out->runtime, runtimes[i].runtime);
        for (int k = 0; k < 2 && runtimes[i].image[k] != NULL && out->image[0] == '\0'; k++)
            copy(out->image, sizeof out->image, getenv(runtimes[i].image[k]));
        return true;
    }
    return false;
}

/* The text in quotes after `key=` at the start of a line. */
static void copy_quoted(char *to, size_t size, const char *line, const char *key)
{
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0 || line[length] != '=' || line[length + 1] != '"')
        return;
    const char *text = line + length + 2;
    snprintf(to, size, "%.*s", (int)strcspn(text, "\"\n"), text);
}

static bool find_podman(struct container *out, const char *root)
{
    char path[512], line[1024], id[sizeof out->digest - sizeof "sha256:"] = "";
    snprintf(path, sizeof path, "%s/run/.containerenv", root);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    copy(out->runtime, sizeof out->runtime, "podman");
    while (fgets(line, sizeof line, file) != NULL) {
        copy_quoted(out->image, sizeof out->image, line, "image");
        copy_quoted(id, sizeof id, line, "imageid");
    }
    fclose(file);
    if (id[0] != '\0')
        snprintf(out->digest, sizeof out->digest, "sha256:%s", id);
    return true;
}

static bool find_docker(struct container *out, const char *root)
{
    char path[512];
    snprintf(path, sizeof path, "%s/.dockerenv", root);
    if (access(path, F_OK) != 0)
        return false;
    copy(out->runtime, sizeof out->runtime, "docker");
    return true;
}

void container_find(struct container *out, const char *root)
{
    memset(out, 0, sizeof *out);
    if (!find_by_environment(out) && !find_podman(out, root))
        find_docker(out, root);
    copy(out->image, sizeof out->image, getenv("SCALESTUDY_IMAGE"));
    const char *digest = strstr(out->image, "@sha256:");
    if (digest != NULL)
        copy(out->digest, sizeof out->digest, digest + 1);
    copy(out->digest, sizeof out->digest, getenv("SCALESTUDY_IMAGE_DIGEST"));
}
