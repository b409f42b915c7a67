#include "base/device.h"

#include <string.h>

#include "base/err.h"

/* The devices of this build, best first: what "auto" takes. */
static const struct device_type *const built[] = {&device_cpu};
enum { N_BUILT = sizeof(built) / sizeof(built[0]) };

/* Names that exist somewhere, so that "not in this build" can be told from a misspelling. */
static const char *const known[] = {"cpu", "cuda", "timed"};

const char *device_class_name(int device_class)
{
    static const char *const names[DEVICE_CLASSES] = {
        [DEVICE_PARAMETERS] = "parameters",   [DEVICE_GRADIENTS] = "gradients",
        [DEVICE_OPTIMIZER] = "optimizer",     [DEVICE_ACTIVATIONS] = "activations",
        [DEVICE_TEMPORARIES] = "temporaries", [DEVICE_COMMUNICATION] = "communication",
    };

    if (device_class < 0 || device_class >= DEVICE_CLASSES)
        return "unknown";
    return names[device_class];
}

int device_find(const char *name, const struct device_type **out)
{
    *out = NULL;
    if (strcmp(name, "auto") == 0) {
        *out = built[0];
        return 0;
    }
    for (int i = 0; i < N_BUILT; i++) {
        if (strcmp(name, built[i]->name) == 0) {
            *out = built[i];
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i]) == 0)
            return fail(FAIL_ABSENT, "device: \"%s\" is not in this build; it has: auto, cpu",
                        name);
    return fail(FAIL_USAGE, "device: no device is called \"%s\"; there are: auto, cpu, cuda, timed",
                name);
}

int device_open(struct device *device, const struct device_type *type, int local_rank,
                int n_streams)
{
    int rc;

    *device = (struct device){.type = type};
    if (n_streams < 1)
        BUG("device_open with %d streams", n_streams);
    rc = type->open(device, local_rank, n_streams);
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
