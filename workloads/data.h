/*
 * data: data parallelism as trainers do it: split_replicas of build.h.
 *
 * Every replica holds all of the state. Gradients lie in the arena in the order in which backward
 * finishes them, so a bucket is a run of the arena. During backward of the last micro-batch, as soon
 * as the run that is not yet on its way reaches the bucket size (`bucket_bytes` on the wire; 1 MiB
 * for the first bucket), its all-reduce is posted on the stream of the dp axis, behind the ops that
 * finished it. Without overlap the same calls are posted after backward.
 *
 * Where gradients travel in bf16, a bucket is first cast into its place in BUFFER_WIRE, and what
 * reads the reduced gradient reads it there.
 *
 * Gradients are sums over tokens, not means: the update divides by the valid tokens of the whole
 * global batch, so no rank and no micro-batch ever averages.
 */
#ifndef WORKLOADS_DATA_H
#define WORKLOADS_DATA_H

enum { DATA_FIRST_BUCKET = 1 << 20 };

#endif
