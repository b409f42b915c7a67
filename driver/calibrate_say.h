/*
 * calibrate_say: the table of a calibration on stdout, and how far its numbers explain the step.
 */
#ifndef DRIVER_CALIBRATE_SAY_H
#define DRIVER_CALIBRATE_SAY_H

struct calibration;

/* Facts and op_s are complete; rank 0. */
void calibrate_say(const struct calibration *c);

#endif
