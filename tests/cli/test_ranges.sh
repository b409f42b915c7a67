#!/usr/bin/env bash
# A profiler that asks to be loaded sees what a study does as ranges, each of which ends; where the
# build has none, it sees nothing and the study is the same.
. "$(dirname "$0")/lib.sh"

fake=$bin/../tests/fake/libfake_nvtx.so
[ -e "$fake" ] || skip "this build has no NVTX headers"

NVTX_INJECTION64_PATH=$fake FAKE_NVTX=$PWD/ranges run "$bin/scalestudy" --layout 1x1 --device cpu --model tiny \
    -w 2 --min-steps 4 --max-steps 4 --block 2 --out a.h5
expect_exit 0
check "ranges were seen" test -s ranges
has() { check "$1 $2 times" grep -qx "$1 $2" ranges; }
has "block full" 2
has "block instrumented" 2
has "block compute-only" 2
has "warm-up" 1
has "prove collectives" 1
has "open" 0
check "phases are inside steps, steps inside blocks" test "$(awk '$1 == "deepest" { print $2 }' ranges)" = 3
# Two micro-batches a step: forward and backward twice.
check "forward and backward of each micro-batch" test "$(awk '$1 == "backward" { b = $2 } $1 == "step" { s = $2 } END { print (b >= s) }' ranges)" = 1
finish
