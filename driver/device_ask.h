/*
 * device_ask: what of the options the device of the study cannot do, refused before anything runs.
 *
 * Arithmetic over options and the device's table of functions; no device is touched. FAIL_USAGE, one
 * sentence.
 */
#ifndef DRIVER_DEVICE_ASK_H
#define DRIVER_DEVICE_ASK_H

#include "base/device.h"
#include "driver/study.h"
#include "workloads/model.h"

enum { DEVICE_ASK_GRAPHS = 64 }; /* steps of a block with --graph at most, its lead-in included */

int device_ask(const struct study *study, const struct device_type *device);

/* What of the options the model does not go with, on any device. */
int device_ask_model(const struct study *study, const struct model *model);

#endif
