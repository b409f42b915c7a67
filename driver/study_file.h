/*
 * study_file: the file of --out, as a launch begins and ends it.
 *
 * Rank 0 writes it (analysis/record.h); begin, look and end are collective over the job, and ranks leave them
 * together. --validate and a calibration, which writes its file when all is measured, look first: what they are
 * told is what begin would say.
 */
#ifndef DRIVER_STUDY_FILE_H
#define DRIVER_STUDY_FILE_H

#include "driver/job.h"

/* Where --out gave no name: one with the time. */
void study_file_name(struct job *job);

/* Would it begin? The sentences and codes of record_begin(); nothing is made or changed. */
int study_file_look(struct job *job, int argc, char **argv);

/* Begin it, or go on with it: job->record, job->launch, job->unfinished, and job->study.out is rank 0's. done[i]
 * of the points of the job becomes true where the file has that point. *record is NULL on other ranks. */
int study_file_begin(struct job *job, int argc, char **argv, struct record **record, bool *done);

/* Merge it, or leave its parts where `verdict` says that points are missing. The verdict of the study: of a
 * resumed one over the points of all launches. */
int study_file_end(struct job *job, struct record *record, int verdict);

#endif
