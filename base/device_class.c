/* Apart from the devices: whoever only names what memory holds links none of them. */
#include "base/device.h"

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
