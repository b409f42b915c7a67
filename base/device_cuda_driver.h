/*
 * device_cuda_driver: functions of libcuda, found at run time: programs link with the runtime alone and
 * start without a driver.
 */
#ifndef BASE_DEVICE_CUDA_DRIVER_H
#define BASE_DEVICE_CUDA_DRIVER_H

#include <stdbool.h>

/* The function `name` as it was in CUDA `version` (12000 is 12.0) to *function, a pointer to its type;
 * false, and NULL there, where the driver has none. */
bool device_cuda_driver_find(const char *name, unsigned version, void *function);

#endif
