/*
 * record_head: the head of a study across its launches.
 *
 * The head on disk is the first launch's, plus one group "launch.N" per launch. A launch hands in a
 * whole head: its "study" must equal the one on disk, its "launch" (or "launch.N", any N)
 * attributes become "launch.N", of its "provenance" what differs from the first launch's goes there
 * too, and its hosts and ranks are added behind the others with their launch.
 */
#ifndef ANALYSIS_RECORD_HEAD_H
#define ANALYSIS_RECORD_HEAD_H

#include "analysis/record.h"

/* How many launches are in it. */
int record_head_launches(const struct record_head *head);

/* Add the head of launch number `launch`; `to` is zeroed before launch 0. */
void record_head_join(struct record_head *to, const struct record_head *from, int launch);

/* FAIL_USAGE naming the first attribute of "study", or the digest, that differs. */
int record_head_compare(const struct record_head *was, const struct record_head *now);

#endif
