#!/usr/bin/env bash
# A calibration measures what a plan's step is made of, writes it as a machine that a study takes, and
# refuses what is no calibration in one sentence.
. "$(dirname "$0")/lib.sh"

said() { check "\"$1\" on stdout" grep -qE -- "$1" "$scratch/stdout"; }

run mpi 2 "$bin/scalestudy" calibrate --layout 1x2 --model tiny --block 3 --out c.h5 --topology-out here.yaml
expect_exit 0
said "gemm  *128 x 192 x 64 tb bias  *fp32"
expect_stdout "attention-grad "
said "disk  *write and fsync"
said "all-reduce  *4096 bytes .* gpu, 2 ranks"
said "# level gpu  *2 ranks  alpha [0-9.]+ us  B [0-9.]+ GB/s"
said "replayed with each op as measured alone [0-9.]* ms, ratio [0-9.]*"
cp "$scratch/stdout" table

# Every fact says that it was measured, and where.
check "each fact is measured" test "$(grep -c 'value: ' here.yaml)" = "$(grep -c 'source: measured, from: "scalestudy calibrate' here.yaml)"
check "shares and rates are facts" test "$(grep -cE '^(peak-fp32|gemm-efficiency|attention-efficiency|memory|memory-bandwidth|memory-efficiency|launch|host-to-device|device-to-host|disk-write|disk-read):' here.yaml)" = 11
check "nothing is left beside the results" test "$(find . -type f | sort | tr '\n' ' ')" = "./c.h5 ./here.yaml ./table "

# Each op of the plan is in exactly one row: calls of the table are those of the plan's GEMMs.
calls=$(awk '$1 == "gemm" { for (i = 2; i <= NF; i++) if ($i == "fp32") sum += $(i + 1) } END { print sum }' table)
check "8 layers of 4 products and the head, three times each, 2 micro-batches" test "$calls" = $(((8 * 4 + 1) * 3 * 2))

# Ops are timed on values of a step: behind rounds on their own results norms are not finite here, and updates are skipped.
run mpi 2 "$bin/scalestudy" calibrate --layout 1x2 --model tiny-moe --parallel ep=2 -d bf16 --block 2 --out e.h5
expect_exit 0
said "adamw  *16384, gradient fp32"

# The study file holds the table, and the machine is one that the timed device takes.
run "$bin/scalereport" c.h5
expect_exit 0
expect_stdout "# ceilings: "
said "all-gather  *4096_bytes"
check "as many rows as were said" test "$(grep -cE '^(launch|zero|gemm|copy|peak|disk|all-|reduce-)' table)" = "$(grep -cE '^ *(launch|zero|gemm|copy|peak|disk|all-|reduce-)' "$scratch/stdout")"
run "$bin/scalereport" c.h5 --json
expect_stdout '"ceilings"'
run mpi 2 "$bin/scalestudy" --layout 1x2 --device timed --topology here.yaml --model tiny --validate
expect_exit 0
run mpi 2 "$bin/scalestudy" --layout 2x1 --device timed --topology here.yaml --model tiny --validate
expect_exit 6 # one node was measured

# Floors of a study of the same work, each with its source.
run mpi 2 "$bin/scalestudy" --layout 1x2 --points 1x2 --model tiny --check off -w 1 --min-steps 5 --max-steps 5 --max-seconds 1 --out s.h5
expect_exit 0
run "$bin/scalereport" s.h5
check "no floors without ceilings" test "$(grep -c "# floors" "$scratch/stdout")" = 0
run "$bin/scalereport" s.h5 --ceilings c.h5
expect_exit 0
said "dp=2 +- +gemm +198 .* FLOPs_at_.*(peak|calibrated_GEMM)"
said "dp=2 +- +attention-grad +16 .* alone,_calibrated"
said "dp=2 +- +norm +34 .* bytes_at_.*_GB/s,_calibrated_copy"
said "dp=2 +dp +all-reduce .* such_calls_of_2_ranks,_calibrated"
run "$bin/scalereport" s.h5 --ceilings c.h5 --json
expect_stdout '"floors"' '"source": "alone, calibrated"'
refuses 6 "--ceilings: s.h5 has none: wanted a file that \"scalestudy calibrate\" wrote" "$bin/scalereport" s.h5 --ceilings s.h5
refuses 8 "nothere.h5" "$bin/scalereport" s.h5 --ceilings nothere.h5
run mpi 2 "$bin/scalestudy" --layout 1x2 --points 1x2 --model tiny -d bf16 --check off -w 1 --min-steps 5 --max-steps 5 --max-seconds 1 --out b.h5
expect_exit 0
refuses 6 "--ceilings: c.h5 was measured in fp32, b.h5 is in bf16" "$bin/scalereport" b.h5 --ceilings c.h5
# A run has no instrumented steps: that is said, and no table is empty.
run mpi 2 "$bin/scalestudy" --layout 1x2 --points 1x2 --model tiny --check off -w 1 --run-steps 3 --out r.h5
expect_exit 0
run "$bin/scalereport" r.h5 --ceilings c.h5
expect_exit 0
expect_stdout "# floors of a step: none: no point has instrumented steps"
check "no empty table of floors" test "$(grep -c "floor_%" "$scratch/stdout")" = 0
rm -f s.h5 b.h5 r.h5

# One rank has no peer, and says so.
run "$bin/scalestudy" calibrate --layout 1x1 --model tiny --block 1 --checkpoint-dir . --topology-out alone.yaml --out a.h5
expect_exit 0
check "a level of one" grep -q "one rank has no peer" alone.yaml

# A machine is published as a whole or not at all: what a full disk cut off is in nobody's way.
mkdir disk
full() { # COMMAND...: the one page of disk is taken
    unshare -rm bash -c 'mount -t tmpfs -o size=4k tmpfs disk && echo >disk/taken && "$@"; rc=$?; ls disk >left; exit $rc' full "$@"
}
if full true 2>/dev/null; then
    run full "$bin/scalestudy" calibrate --layout 1x1 --model tiny --block 1 --checkpoint-dir . --topology-out disk/m.yaml --out f.h5
    expect_exit 8
    expect_stderr "calibrate: disk/m.yaml cannot be written: No space left on device"
    check "nothing of it is left" test "$(cat left)" = taken
fi

refuses 6 "nosuch" "$bin/scalestudy" calibrate --layout 1x1 --model nosuch
refuses 8 "c.h5 exists: choose another --out" "$bin/scalestudy" calibrate --layout 1x1 --model tiny --out c.h5
refuses 8 "here.yaml exists: choose another --topology-out" "$bin/scalestudy" calibrate --layout 1x1 --topology-out here.yaml
refuses 6 'found "calibrat"' "$bin/scalestudy" calibrat --layout 1x1
refuses 6 "topology-out x.yaml: a machine is written by" "$bin/scalestudy" --layout 1x1 --topology-out x.yaml
refuses 6 "calibrate: found --points" mpi 2 "$bin/scalestudy" calibrate --layout 1x2 --points 1x1,1x2
refuses 6 "calibrate: found several --micro-batch" "$bin/scalestudy" calibrate --layout 1x1 --micro-batch 1,2
refuses 6 "calibrate: found --resume" "$bin/scalestudy" calibrate --layout 1x1 --resume --out b.h5
refuses 6 "computes nothing" "$bin/scalestudy" calibrate --layout 1x1 --device timed --topology here.yaml
refuses 8 "calibrate: nowhere/m.yaml cannot be written" "$bin/scalestudy" calibrate --layout 1x1 --block 1 --out b.h5 --topology-out nowhere/m.yaml
refuses 5 'audit: device "cpu" has no activity records' "$bin/scalestudy" --layout 1x1 --audit --device cpu
finish
