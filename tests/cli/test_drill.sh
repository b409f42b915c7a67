#!/usr/bin/env bash
# A run is accounted for to the last nanosecond; a signal stops it in order; what a drill kills is recovered
# with the very same training, and an outside observer measures the same recovery.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy
python=/usr/bin/python3
has_h5py=no
"$python" -c 'import h5py' 2>/dev/null && has_h5py=yes
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
run_of=(--check off -w 2 --run-steps 60 --checkpoint-every 20)
launch=(mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np 2)
together=(env OMPI_MCA_odls_base_sigkill_timeout=0 "${launch[@]}") # of ranks that leave together: nobody to wait for
loss() { awk '!/^#/ && NF > 9 { print $9 }' "$1"; }

# account FILE STEPS REWORK: the buckets are the wall time, and the steps are those that were asked for.
account() {
    [ $has_h5py = yes ] || return 0
    "$python" - "$@" <<'EOF'
import sys
import h5py

path, steps, rework = sys.argv[1], int(sys.argv[2]), sys.argv[3]
points = h5py.File(path)["points"]
rows = [r for name in points for r in points[name]["account"][:]]
assert len(rows) == 16, len(rows)
bucket = {r["bucket"].decode(): r for r in rows}
wall = int(bucket["wall"]["rank_ns"])
assert sum(int(r["rank_ns"]) for r in rows if r["view"] == 0) == wall > 0
seen = [r for name in points for r in points[name]["intervals"][:]]
begin = min(int(r["begin_ns"]) for r in seen if r["kind"] == b"launch")  # of the program, which began before the study
end = max(int(r["begin_ns"]) for r in seen if r["kind"] == b"end")
assert begin < 0 and wall == (end - begin) * int(seen[0]["ranks"]), (begin, end, wall)
assert abs(sum(r["share"] for r in rows if r["view"] == 0) - 1) < 1e-9
assert all(int(r["rank_ns"]) >= 0 for r in rows if r["view"] == 0)
done = sum(int(bucket[name]["count"]) for name in ("useful", "warm-up"))
assert done == steps, (done, steps)
assert (int(bucket["rework"]["rank_ns"]) > 0) == (rework == "yes"), bucket["rework"]
assert int(bucket["useful"]["rank_ns"]) > 0 and int(bucket["checkpoint-call"]["count"]) > 0
assert bucket["other"]["share"] < 0.25  # on a machine that does other things too
EOF
}

# ---- a run ----
run mpi 2 "$study" --layout 1x2 --points 1x2 "${run_of[@]}" --checkpoint-dir whole --out whole.h5
expect_exit 0
cp "$scratch/stdout" whole.txt
check "ranks have had the same losses and norms" sh -c "! grep -q 'to the bit' '$scratch/stderr'"
whole=$(loss whole.txt)
check "a loss" test -n "$whole"
check "the account of the run" account whole.h5 60 no
check "saved at its end" test -e whole/step-0000000060/manifest.json
run "$bin/scalereport" whole.h5
expect_exit 0

# A run that is over before its first save was due says so, and is saved at its end.
run mpi 1 "$study" --layout 1x1 --check off -w 2 --run-steps 10 --checkpoint-every 10h --checkpoint-dir short --out short.h5
expect_exit 0
expect_stdout "# no save was due within the run: --checkpoint-every 10h is longer than it"
check "saved at its end" test -e short/step-0000000010/manifest.json
run "$bin/scalereport" short.h5
expect_stdout "note: no save was due within the run"
check "nor where saves were due" test "$(grep -c 'no save was due' whole.txt)" -eq 0

# Each rank has loss and norm from sums over ranks, to the bit: where such a sum is left out, step and rank are named.
if [ $has_h5py = yes ]; then
    run mpi 2 "$study" --layout 1x2 --points 1x2 --check off -w 1 --min-steps 2 --max-steps 2 --block 2 --out sums.h5
    sums=$("$python" -c 'import h5py
for point in h5py.File("sums.h5")["points"].values():
    found = sorted({int(r["op"]) for r in point["ops"][:] if r["kind"] == b"collective"})
    print(found[0], found[-1])')
    check "the sum of losses, and the last of gradients: $sums" test "$(wc -w <<<"$sums")" -eq 2
    for op in $sums; do
        run mpi 2 "$study" --layout 1x2 --points 1x2 --check off -w 2 --run-steps 20 --test-drop-op "$op" --out "drop$op.h5"
        expect_exit 7
        expect_stderr "step 1: rank 1 has the loss " "they must be the same to the bit: a sum over ranks has not reached all"
        check "said once" test "$(grep -c 'to the bit' "$scratch/stderr")" -eq 1
        run "$bin/scalereport" "drop$op.h5"
        expect_stdout "warning: step 1: rank 1 has the loss "
    done
fi

# In another layout on the timed device, which has no state to save.
run mpi 4 "$study" --layout 2x2 --nodes 1,2 --device timed --topology laptop --run-steps 20 -w 2 --out timed.h5
expect_exit 0
run "$bin/scalereport" timed.h5
expect_exit 0

# ---- a signal ----
has_blocks() { [ "$(cat stopped.h5.parts/run.log 2>/dev/null | grep -c "$1")" -ge "$2" ]; }
"${together[@]}" "$study" --layout 1x2 --points 1x2 --check off -w 2 --run-steps 60 --checkpoint-every 500s \
    --test-delay 0.1s --checkpoint-dir stopped --timeout 60s --out stopped.h5 >"$scratch/stdout" 2>"$scratch/stderr" </dev/null &
job=$!
await $job has_blocks ' steps ' 3
victim=$(pgrep -f "^$study.* --out stopped.h5" | tail -n 1)
kill -USR1 "$victim"
wait $job
status=$? command_line="a run that SIGUSR1 stops"
expect_exit 11
expect_stderr "run: stopped by SIGUSR1 at step" "of 60, which is saved: --resume goes on"
cp "$scratch/stderr" "$scratch/stopped.txt"
check "one rank speaks" test "$(without_launcher | wc -l)" -eq 1
check "its rows are published" test -e stopped.h5.parts/000.launch0.part000001.h5
run "$bin/scalereport" stopped.h5.parts
expect_exit 0
expect_stdout "a run of 60 more steps at each point, no timed blocks: the first 2 of each launch are warm-up" "no gate check was made"
run "$bin/scalereport" goodput stopped.h5.parts --csv
check "a launch that is over, and none of its own failures" grep -q "^measured,stopped.h5.parts," "$scratch/stdout"
# One that was stopped where it would have ended has no step left, and so no loss of its last one.
cp -r stopped.h5.parts none.h5.parts && cp -r stopped none
at=$(sed -nE 's/.*stopped by SIGUSR1 at step ([0-9]+) of 60.*/\1/p' "$scratch/stopped.txt")
sed -i "s/ to step 60\$/ to step $at/" none.h5.parts/run.log
goes_on=(--layout 1x2 --points 1x2 --check off -w 2 --run-steps 60 --checkpoint-every 500s --test-delay 0.1s --timeout 60s --resume)
# What it saved is not where it is told to look: it does not begin again as if that were to go on.
run mpi 2 "$study" "${goes_on[@]}" --checkpoint-dir elsewhere --out none.h5
expect_exit 8
expect_stderr "elsewhere holds no checkpoint, and this run has published that of step $at"
check "one rank speaks" test "$(without_launcher | wc -l)" -eq 1
# A launch that never began to train has saved nothing: what is in the folder is another's.
cp -r none.h5.parts begun.h5.parts && sed -i '/ start-up /d' begun.h5.parts/run.log
run mpi 2 "$study" "${goes_on[@]}" --checkpoint-dir none --out begun.h5
expect_exit 6
expect_stderr "none holds checkpoints up to step $at, and this study begins at step 0"
kept=$(ls none)
# Of the same training, and not as far as it came: another run's. Where its own was set aside once, it goes on.
cp -r none.h5.parts lower.h5.parts && mkdir lower && cp -r "none/$kept" lower/step-0000000001
run mpi 2 "$study" "${goes_on[@]}" --checkpoint-dir lower --out lower.h5
expect_exit 8
expect_stderr "lower holds checkpoints up to step 1, and this run has published that of step $at: give the folder" \
    "mkdir lower/damaged-${kept#step-} to go on without it"
mkdir "lower/damaged-${kept#step-}"
run mpi 2 "$study" "${goes_on[@]}" --checkpoint-dir lower --out lower.h5
expect_exit 0
expect_stdout "resumed from lower/step-0000000001: step $at,"
# Its newest may be whole, and is not given by the system, or is of a newer program: none is set aside for that.
cp -r "none/$kept" none/step-0000000099
ln -sf rank-00001.h5 none/step-0000000099/rank-00001.h5
run mpi 2 "$study" "${goes_on[@]}" --checkpoint-dir none --out none.h5
expect_exit 8
expect_stderr "none/step-0000000099/rank-00001.h5 cannot be looked at: "
check "one rank speaks" test "$(without_launcher | wc -l)" -eq 1
sed 's/"version": 1/"version": 2/' "none/$kept/manifest.json" >none/step-0000000099/manifest.json
run mpi 2 "$study" "${goes_on[@]}" --checkpoint-dir none --out none.h5
expect_exit 5
expect_stderr "none/step-0000000099 is of version 2 and this program reads 1"
check "nothing is set aside" test "$(ls none)" = "$kept
step-0000000099"
# Its newest two are damaged: the one before is taken, and what it began with once is no longer asked for.
truncate -s 0 none/step-0000000099/manifest.json
cp -r "none/$kept" none/step-0000000098
truncate -s 1000 none/step-0000000098/rank-00001.h5
run mpi 2 "$study" "${goes_on[@]}" --checkpoint-dir none --out none.h5 --resume-from none/step-0000000000
expect_exit 0
expect_stderr "none/step-0000000098/rank-00001.h5 has 1000 bytes" " were saved; the run goes on with step $at" \
    "none/step-0000000099/manifest.json is damaged, or no checkpoint; the run goes on with step $at"
check "each is said once" test "$(without_launcher | wc -l)" -eq 2
expect_stdout "resumed from none/$kept: step $at,"
check "the damaged ones are set aside" test "$(ls none)" = "damaged-0000000098
damaged-0000000099
$kept"
check "no step, no loss: $(loss "$scratch/stdout")" test "$(loss "$scratch/stdout")" = -
check "nothing is said of saves that were not due" test "$(grep -c 'no save was due' "$scratch/stdout")" -eq 0
# It goes on under the script that restarts it, and is told to stop there.
"$tests/../jobscripts/drill.sh" stopped.h5 "${launch[@]}" "$study" --layout 1x2 --points 1x2 --check off -w 2 --run-steps 60 \
    --checkpoint-every 500s --test-delay 0.1s --checkpoint-dir stopped --timeout 60s >"$scratch/stdout" 2>"$scratch/stderr" &
job=$!
await $job has_blocks '^0 1 steps ' 2
kill -TERM "$job"
wait "$job"
status=$? command_line="drill.sh that SIGTERM stops"
expect_exit 11
expect_stderr "run: stopped by SIGUSR1 at step" "of 60, which is saved: --resume goes on" "launch ended with status 11"
check "and does not start again" test "$(grep -c 'launch ended' "$scratch/stderr")" -eq 1
run mpi 2 "$study" --layout 1x2 --points 1x2 --check off -w 2 --run-steps 60 --checkpoint-every 500s \
    --test-delay 0.1s --checkpoint-dir stopped --timeout 60s --out stopped.h5 --resume
expect_exit 0
check "the same training as without the signal" test "$(loss "$scratch/stdout")" = "$whole"
check "the account of all launches" account stopped.h5 60 no
check "nothing is left beside the study" test ! -e stopped.h5.parts

# A study of timed points stops behind its block, keeps the points that are finished, and goes on with the others.
timed=(--layout 1x2 --points 1x1,1x2 --check off -w 1 --min-steps 12 --max-steps 12 --block 4 --test-delay 0.05s --timeout 60s)
: >"$scratch/stdout" # what the run before said is no sign of this one
"${together[@]}" "$study" "${timed[@]}" --out blocks.h5 >"$scratch/stdout" 2>"$scratch/stderr" </dev/null &
job=$!
await $job grep -q " ok" "$scratch/stdout" # a point is finished
kill -USR1 "$job" # mpirun hands it on
wait $job
status=$? command_line="a study of blocks that SIGUSR1 stops"
expect_exit 11
expect_stderr "study: stopped by SIGUSR1: finished points are in blocks.h5.parts" "--resume goes on"
check "one rank speaks" test "$(without_launcher | grep -vc Forwarding)" -eq 1
check "one point is kept" test "$(find blocks.h5.parts -name '0*.h5' | wc -l)" -eq 1
run mpi 2 "$study" "${timed[@]}" --out blocks.h5 --resume
expect_exit 0
check "and the study is whole" test -e blocks.h5

# ---- a last state that cannot be saved: the study is whole, and the code says what is not ----
"${together[@]}" "$study" --layout 1x2 --points 1x2 --check off -w 2 --run-steps 30 --checkpoint-every 10 --checkpoint-dir lost \
    --test-delay 0.1s --timeout 60s --out lost.h5 >"$scratch/stdout" 2>"$scratch/stderr" </dev/null &
job=$!
await $job test -e lost/step-0000000010/manifest.json
mv lost gone && touch lost
wait $job
status=$? command_line="a run whose folder of checkpoints goes away"
expect_exit 12
at=$(ls gone | sed -nE 's/^step-0*([1-9][0-9]*)$/\1/p' | sort -n | tail -n 1) # 10, where this shell came soon enough
expect_stderr "that of step $at is gone too" "the end of the run, step 30, is not saved: the newest checkpoint, of step $at, is gone"
check "said once each" test "$(without_launcher | wc -l)" -eq 2
expect_stdout "its end is not saved" "read it with: scalereport lost.h5"
run "$bin/scalereport" lost.h5
expect_exit 0
expect_stdout "unsaved: the end of the run, step 30, is not saved"
run env SCALESTUDY_RESTARTS=2 "$tests/../jobscripts/drill.sh" again12.h5 bash -c 'mkdir -p again12.h5.parts; exit 12'
expect_exit 12
check "another try would not change it" test "$(grep -c 'launch ended' "$scratch/stderr")" -eq 0

# ---- two drills ----
if [ $has_h5py = yes ]; then
    # tests/bench/drills.sh holds 20 of them to 0.2 s; here the machine may have much else to do.
    export OBSERVER_MOST=2
    observe() { # NAME KILL IN SEED
        "$python" "$tests/observer.py" "$PWD/$1.h5" "$tests/../jobscripts/drill.sh" "$PWD/$1.h5" "${launch[@]}" \
            "$study" drill --layout 2x1 --points 2x1 "${run_of[@]}" --checkpoint-dir "$1" --kill "$2" --kill-in "$3" \
            --kill-seed "$4"
    }
    check "a rank killed in a step, seen from outside" observe step rank:1 step 1
    check "the account of the drill" account step.h5 60 yes
    check "a host killed in a save, seen from outside" observe save host:0 save 2
else
    echo "no h5py: drills are not tried"
fi

# A drill whose run goes on where it was killed trains what the whole run has trained.
SCALESTUDY_RESTARTS=1 "$tests/../jobscripts/drill.sh" again.h5 "${launch[@]}" "$study" drill --layout 1x2 --points 1x2 \
    "${run_of[@]}" --checkpoint-dir again --kill rank:0 --kill-seed 4 >"$scratch/stdout" 2>"$scratch/stderr"
status=$? command_line="drill.sh"
expect_exit 0
expect_stderr "launch ended with status"
check "the same loss as the whole run" test "$(loss "$scratch/stdout")" = "$whole"

# ---- what is refused ----
refuses 6 "--run-steps: found \"-3\"" mpi 1 "$study" --layout 1x1 --run-steps -3
refuses 6 "would end before its first save" mpi 1 "$study" --layout 1x1 --run-steps 10 --checkpoint-dir x --checkpoint-every 11
refuses 6 "wanted --checkpoint-dir D" mpi 1 "$study" --layout 1x1 --run-steps 10 --checkpoint-every 5
refuses 6 "drill: wanted --checkpoint-dir D" mpi 1 "$study" drill --layout 1x1 --run-steps 10
refuses 6 "drill: wanted --run-steps N" mpi 1 "$study" drill --layout 1x1 --checkpoint-dir x
refuses 6 "--kill-in: nothing is killed but in a drill" mpi 1 "$study" --layout 1x1 --run-steps 10 --checkpoint-dir x --kill-in save
refuses 6 "--checkpoint-dir: found \"\", wanted DIR; leave the option out for none" mpi 1 "$study" --layout 1x1 --run-steps 10 --checkpoint-dir ""
refuses 6 "--checkpoint-every: found \"0.5\"" mpi 1 "$study" --layout 1x1 --run-steps 10 --checkpoint-dir x --checkpoint-every 0.5
refuses 6 "--kill: found \"node\"" mpi 1 "$study" drill --layout 1x1 --run-steps 10 --checkpoint-dir x --kill node
refuses 6 "found rank:1, wanted a rank below 1" mpi 1 "$study" drill --layout 1x1 --run-steps 10 --checkpoint-dir x --kill rank:1
refuses 6 "nothing is left to kill" mpi 1 "$study" drill --layout 1x1 --run-steps 10 --checkpoint-dir x --checkpoint-every 5 --kill-in save
refuses 6 "a run saves in one mode" mpi 1 "$study" --layout 1x1 --run-steps 10 --checkpoint-dir x --checkpoint-mode sync,lazy
refuses 5 "there is no state to save" mpi 1 "$study" --layout 1x1 --run-steps 10 --checkpoint-dir x --device timed --topology laptop
run mpi 1 "$study" --layout 1x1 --run-steps 40 --checkpoint-dir new/c --checkpoint-every 5 --validate
expect_exit 0
check "--validate makes no folder" test ! -e new
touch plain
refuses 8 "plain/c: Not a directory" mpi 1 "$study" --layout 1x1 --run-steps 40 --checkpoint-dir plain/c --validate
run "$tests/../jobscripts/drill.sh"
expect_exit 6

finish
