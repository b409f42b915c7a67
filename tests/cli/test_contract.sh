#!/usr/bin/env bash
# scalereport record gives the batch and window contract of each point and launch, and names no host.
. "$(dirname "$0")/lib.sh"
study=$bin/scalestudy
report=$bin/scalereport

refuses 6 "no study file was named" "$report" record
refuses 8 "cannot read" "$report" record nowhere.h5
run mpi 2 "$study" --layout 2x1 --base alone -w 2 --min-steps 5 --max-steps 5 --block 5 --out a.h5
expect_exit 0
run "$report" record a.h5
expect_exit 0
cp "$scratch/stdout" lines
check "a line per point" test "$(wc -l <lines)" = 2
for key in world_size local_batch accumulation precision gradient_precision recompute launcher \
    parallelism hardware_class failure_class mbs gbs seq nodes tp pp cp ep dp shard warm_up_steps \
    n_iter settle topology step_ms_mean ci_lo_ms ci_hi_ms tokens_per_s model_sha256 revision; do
    check "every line has $key" test "$(grep -c "\"$key\":" lines)" = 2
done
check "no host is named" test "$(grep -cw -- "$(hostname)" lines)" = 0
one=$(grep '"world_size":1,' lines) two=$(grep '"world_size":2,' lines)
number() { grep -o "\"$1\":[0-9.]*" <<<"$2" | cut -d: -f2; } # KEY LINE
for line in "$one" "$two"; do
    check "the global batch is that of all ranks" test \
        $(($(number world_size "$line") * $(number local_batch "$line"))) = "$(number gbs "$line")"
    check "a rank's batch is its micro-batches" test \
        $(($(number mbs "$line") * $(number accumulation "$line"))) = "$(number local_batch "$line")"
    check "the window is the frozen one" test "$(number n_iter "$line")" = 5
done
check "unsettled or none" test "$(grep -cE '"failure_class":"(none|unsettled)"' lines)" = 2
run mpi 1 "$study" --layout 1x1 -w 2 --min-steps 5 --max-steps 5 --block 5 --test-drop-op 5 --out wrong.h5
expect_exit 7
run "$report" record wrong.h5
expect_stdout '"failure_class":"wrong-result"'
run mpi 1 "$study" --layout 1x1 --device timed --topology laptop -w 2 --min-steps 5 --max-steps 5 --out timed.h5
expect_exit 0
run "$report" record timed.h5
expect_stdout '1 node x 1 rank, timed as laptop on ' '"topology":"laptop"' '"gate":"no numerics"'
finish
