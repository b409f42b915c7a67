#include "base/device.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* The devices of this build, best first: what "auto" takes. */
static const struct device_type *const built[] = {
#ifdef SCALESTUDY_HAVE_CUDA
    &device_cuda,
#endif
    &device_cpu, &device_timed};
enum { N_BUILT = sizeof(built) / sizeof(built[0]) };

/* Names that exist somewhere, so that "not in this build" can be told from a misspelling. */
static const char *const known[] = {"cpu", "cuda", "timed"};

int device_find_auto(const struct device_type **out, char *passed_over, size_t size)
{
    passed_over[0] = '\0';
    for (int i = 0; i < N_BUILT; i++) {
        int n = 0;
        *out = built[i];
        if (built[i]->probe == NULL || built[i]->probe(NULL, 0, &n) == 0)
            return 0;
        snprintf(passed_over, size, "%s", fail_message());
        fail_clear();
    }
    BUG("no device needs no probing");
}

int device_find(const char *name, const struct device_type **out)
{
    char passed_over[256];

    *out = NULL;
    if (strcmp(name, "auto") == 0)
        return device_find_auto(out, passed_over, sizeof passed_over);
    for (int i = 0; i < N_BUILT; i++) {
        if (strcmp(name, built[i]->name) == 0) {
            *out = built[i];
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i]) == 0)
            return fail(FAIL_ABSENT,
                        "device: \"%s\" is not in this build; it has: auto, %scpu, timed", name,
                        N_BUILT > 2 ? "cuda, " : "");
    return fail(FAIL_USAGE, "device: no device is called \"%s\"; there are: auto, cpu, cuda, timed",
                name);
}

int device_open(struct device *device, const struct device_type *type, int index, int n_streams)
{
    int rc;

    *device = (struct device){.type = type};
    if (n_streams < 1)
        BUG("device_open with %d streams", n_streams);
    rc = type->open(device, index, n_streams);
    if (rc != 0)
        *device = (struct device){0};
    return rc;
}

void device_close(struct device *device)
{
    if (device->type != NULL)
        device->type->close(device);
    *device = (struct device){0};
}
