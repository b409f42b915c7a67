#!/usr/bin/env bash
# The timed device keeps the time of a topology, says everywhere that it computed nothing, and is
# refused in one sentence where its topology is wrong.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy report=$bin/scalereport
timed=(--device timed --topology laptop -w 2 --block 4)

# ---- refused before anything runs ----
refuses 6 "--device timed: wanted --topology too" mpi 2 "$study" --layout 2x1 --device timed
refuses 6 "no topology called h100; there are a100-8x200g, h100-8x400g" \
    mpi 2 "$study" --layout 2x1 --device timed --topology h100
refuses 8 "no/such.yaml: cannot be read" mpi 2 "$study" --layout 2x1 --device timed --topology no/such.yaml
refuses 6 "2 nodes, and gpu:8 of h100-8x400g has 1 node" \
    mpi 2 "$study" --layout 2x1 --device timed --topology "gpu:8"
refuses 6 "2 ranks on a node, and a node of" mpi 2 "$study" --layout 1x2 --device timed --topology "node:4 gpu:1"
sed 's/^memory:.*/memory: -4 GB/' "$tests/../topologies/laptop.yaml" >bad.yaml
refuses 6 "bad.yaml:15: memory: found \"-4 GB\"" mpi 2 "$study" --layout 2x1 --device timed --topology bad.yaml
sed 's/^memory:/memry:/' "$tests/../topologies/laptop.yaml" >bad.yaml
refuses 6 "bad.yaml:15: unknown key \"memry\"; did you mean memory?" \
    mpi 2 "$study" --layout 2x1 --topology bad.yaml
sed '/^memory:/d' "$tests/../topologies/laptop.yaml" >bad.yaml
refuses 6 "\"memory\" is missing" mpi 2 "$study" --layout 2x1 --topology bad.yaml
refuses 6 "a device of laptop has 4.0 GB" mpi 1 "$study" --layout 1x1 --model gpt2-1558m "${timed[@]}"

# ---- one node: the step is the plan's critical path ----
# Its clock begins with a block and no wake-up moves it, so from end to end a block of 4 is as long as 4 paths but
# for how late its two ends were seen: over 10 to 20 steps, the first being warm-up perhaps, less than a third of that.
run mpi 1 "$study" --layout 1x1 "${timed[@]}" --global-batch 20 --min-steps 20 --max-steps 20 --out one.h5
expect_exit 0
check "the step is the critical path (bench/timed.sh prints how close)" awk -v step="$(column step_ms_mean one.h5)" \
    -v path="$(column critical_ms one.h5)" -v late="$(column late_most_ms one.h5)" 'BEGIN {
        print step, path, late
        exit !(path > 0 && late > 0 && step > 0.99 * path - late / 3 && step < 1.01 * path + late / 3) }'
check "its interval is around it" awk -v step="$(column step_ms_mean one.h5)" -v low="$(column ci_lo_ms one.h5)" \
    -v high="$(column ci_hi_ms one.h5)" 'BEGIN { print low, step, high; exit !(0 < low && low <= step && step <= high) }'
expect_stdout ", no numerics, timed: laptop" " n/a " \
    "timed: laptop; kernels are the cost model's, communication is this machine's; critical path there"
run "$report" one.h5
expect_stdout "TIMED: 1 of 1 point computed nothing" "device timed: laptop" "no-numerics" ",timed" \
    "peak of the topology" "timed: laptop; kernels are the cost model's, communication is this machine's"
check "the file says no numerics" test "$(column gate one.h5)" = "no numerics"
check "it names the topology" test "$(column topology one.h5)" = laptop
check "no loss" test -z "$(column final_loss one.h5 | tr -d nNaA)"
check "how late deadlines were kept is said" awk -v late="$(column late_ms one.h5)" -v most="$(column late_most_ms one.h5)" \
    'BEGIN { print late, most; exit !(late > 0 && late < most) }'

# ---- what still gates: collectives and the work; a curve of its own ----
run mpi 2 "$study" --layout 2x1 --nodes 1,2 "${timed[@]}" --topology "laptop node:2 core:1" --base alone \
    --min-steps 4 --max-steps 4 --out two.h5
expect_exit 0
run "$report" --json two.h5
expect_stdout '"topology": "laptop node:2 core:1"'
run mpi 1 "$study" --layout 1x1 "${timed[@]}" --min-steps 4 --max-steps 4 --test-drop-op 20 --out wrong.h5
expect_exit 7
expect_stderr "work"
run mpi 1 "$study" --layout 1x1 --topology laptop -w 2 --min-steps 4 --max-steps 4 --out real.h5
expect_exit 0
check "with a real device a topology changes nothing" test "$(column gate real.h5)" = passed
check "a real point is not timed" test -z "$(column topology real.h5)"
run "$report" real.h5 two.h5 --plot both.svg
check "names tell a timed curve from a real one" test "$(grep -cE "'\((1\) tiny, .* cpu|2\) tiny, .* timed: laptop node:2 core:1)'" \
    both.svg.gnuplot)" = 2

# ---- a study goes on only with the topology that it began with ----
digest() { "$report" --json "$1" | grep -m1 '"digest"'; }
sed 's/12.8 GB/6.4 GB/' "$tests/../topologies/laptop.yaml" >mine.yaml
for file in mine again; do
    run mpi 1 "$study" --layout 1x1 "${timed[@]}" --topology mine.yaml --min-steps 4 --max-steps 4 --out $file.h5
    expect_exit 0
    sed -i 's/96 GFLOP/90 GFLOP/' mine.yaml # the same name, another machine
done
check "another machine of the same name is another study" test "$(digest mine.h5)" != "$(digest again.h5)"

# ---- a model that this machine could not hold ----
run mpi 2 "$study" --layout 2x1 --device timed --topology "h200-8x400g node:2 gpu:1" --model gpt2-1558m \
    --global-batch 2 --sequence 256 --micro-batch 1 --validate
expect_exit 0
finish
