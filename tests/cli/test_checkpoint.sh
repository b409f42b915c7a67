#!/usr/bin/env bash
# State is saved beside training, reported, resumed on any layout; what cannot be is refused in one
# sentence, damage is named with file and tensor and the checkpoint before it is offered; a disk that is
# full, gone or read-only costs no checkpoint that was there.
. "$(dirname "$0")/lib.sh"
study=$bin/scalestudy
report=$bin/scalereport
if [ "${IN_NAMESPACE:-}" != yes ] && unshare -rm true 2>/dev/null; then
    # shellcheck disable=SC2034 # lib.sh looks: the one inside says how it went
    finished=yes
    IN_NAMESPACE=yes unshare -rm bash "$0" "$@"
    exit
fi
short=(-w 1 --min-steps 2 --max-steps 2 --block 2)
quick=("${short[@]}" --check off)
# As much state as tiny has, in steps of a tenth of its work.
mkdir model vocabulary rate
sed -E 's/^layers:.*/layers: 2/; s/^vocabulary:.*/vocabulary: 4864/; s/^sequence:.*/sequence: 8/' \
    "$tests/../workloads/models/tiny.yaml" >model/tiny.yaml
sed 's/^vocabulary:.*/vocabulary: 4800/' model/tiny.yaml >vocabulary/tiny.yaml
sed 's/^lr:.*/lr: 0.5/' model/tiny.yaml >rate/tiny.yaml
cp "$tests/../README.md" text # what can be learnt: a step or two lower the loss
model=(--model model/tiny.yaml --input file:text)
two=(--layout 1x2 --points 1x2 "${model[@]}")
one=(--layout 1x1 "${model[@]}")

# ask CODE TEXT COMMAND...: refuses(), a few at once, since starting takes longer than refusing; code 0:
# goes well. `answers` looks at what they said.
asked=()
ask() {
    local n=${#asked[@]}
    asked+=("$1" "$2" "${*:3}")
    ("${@:3}" >"$scratch/out.$n" 2>"$scratch/err.$n" </dev/null
        echo $? >"$scratch/rc.$n") &
    [ $((n % 12)) != 9 ] || wait
}
answers() {
    local n
    wait
    for ((n = 0; n < ${#asked[@]}; n += 3)); do
        status=$(cat "$scratch/rc.$n") command_line=${asked[n + 2]}
        mv "$scratch/out.$n" "$scratch/stdout"
        mv "$scratch/err.$n" "$scratch/stderr"
        expect_exit "${asked[n]}"
        [ "${asked[n]}" = 0 ] || expect_stderr "${asked[n + 1]}"
        [ "${asked[n]}" = 0 ] || expect_one_line
    done
    asked=()
}

# ---- every mode, the gate, the report; what a gate left that was killed is in nobody's way ----
mkdir -p D/gate/step-0000000003
touch D/gate/step-0000000003/manifest.json D/gate/step-0000000003/rank-00000.h5
run mpi 2 "$study" "${two[@]}" "${short[@]}" --checkpoint-dir D --checkpoint-keep 3 --checkpoint-saves 2 \
    --checkpoint-mode staged,lazy,snapshot,sync --out a.h5
expect_exit 0
expect_stdout "ok"
check "three are kept" test "$(find D -name 'step-??????????' | wc -l)" = 3
check "nothing else is left" test "$(find D -mindepth 1 ! -path 'D/step-*' | wc -l)" = 0
check "manifest and two files each" test "$(find D -type f | wc -l)" = 9
run "$report" a.h5
expect_exit 0
expect_stdout "checkpoints, medians" "restores, all ranks at once"
for mode in staged lazy snapshot sync; do
    check "a row of $mode" grep -qE "^ +1 +2 +$mode +1 " "$scratch/stdout"
done
run "$report" a.h5 --csv
check "bytes of a save" test "$(column ckpt_bytes a.h5)" -gt 1000000
for name in ckpt_blocked_ms ckpt_complete_ms ckpt_inflation_ms; do
    check "$name is there" test -n "$(column $name a.h5)"
done
check "accurate" test "$(column ckpt_accurate a.h5)" = 1
run "$report" a.h5 --json
expect_stdout '"drain_ratio"' '"inflation_ms"' '"restore_ms"'

# ---- every mode saves the same bytes of a state that is copied in several groups, while it is trained ----
mkdir groups
sed -E 's/^layers:.*/layers: 1/; s/^vocabulary:.*/vocabulary: 49152/; s/^sequence:.*/sequence: 8/' model/tiny.yaml >groups/tiny.yaml
for mode in staged snapshot lazy; do
    run mpi 1 "$study" --layout 1x1 --model groups/tiny.yaml --check off --deterministic --run-steps 4 --checkpoint-every 2 \
        --checkpoint-keep 0 --checkpoint-mode $mode --checkpoint-dir "M-$mode" --out "m-$mode.h5"
    expect_exit 0
done
begin=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["shards"][0]["small"][0])' M-staged/step-0000000002/manifest.json)
for step in step-0000000002 step-0000000004; do # HDF5 notes the time in what comes before
    check "snapshot as staged" cmp -i "$begin" "M-staged/$step/rank-00000.h5" "M-snapshot/$step/rank-00000.h5"
    check "lazy as staged" cmp -i "$begin" "M-staged/$step/rank-00000.h5" "M-lazy/$step/rank-00000.h5"
done
check "and steps differ" bash -c "! cmp -s -i $begin M-staged/step-*2/rank-00000.h5 M-staged/step-*4/rank-00000.h5"
check "what a run does not measure is neither found nor not" grep -qE '"detectable": ?null' <("$report" m-staged.h5 --json)
mv M-staged other # saves of another model
cp -r other torn && truncate -s 0 torn/step-0000000004/manifest.json
cp -r torn unknown && truncate -s 0 unknown/step-0000000002/manifest.json
rm -rf M-*

# ---- resume: the same layout, others ----
newest=$(ls D | tail -n 1)
previous=$(ls D | tail -n 2 | head -n 1)
loss_of() { "$report" "$1" --json | sed -nE 's/.*"initial_loss": ?([0-9.]+).*/\1/p' | head -n 1; }
resumes() { # RANKS NAME OPTION...
    local ranks=$1 name=$2
    shift 2
    run mpi "$ranks" "$study" "$@" "${quick[@]}" --global-batch 8 --resume-from D --out "$name.h5"
    expect_exit 0
    expect_stdout "# resumed from D/$newest: step "
    check "$name goes on where it was" awk -v x="$(loss_of "$name.h5")" -v began="$(loss_of a.h5)" \
        'BEGIN { print x, began; exit !(x > 0 && x < began - 0.05) }'
}
resumes 2 same --layout 1x2 --points 1x1,1x2 "${model[@]}"
check "one rank and two go on" test "$(grep -c "# resumed from D/$newest: step " "$scratch/stdout")" = 2
# Where variants run on the state itself it is read again behind each: what full steps make of it after the last
# is, bit by bit, what as many make of it from the checkpoint where variants have a copy: a lead-in and 3.
state_of() { grep -ao 'state of all ranks after [0-9]* steps: [0-9a-f]*' "$1"; }
exact=(--check off --global-batch 8 --deterministic --resume-from D -w 0)
run mpi 2 "$study" "${two[@]}" "${exact[@]}" --block 1 --min-steps 1 --max-steps 1 --out copy.h5 # F and I: twice 1 and 1
expect_exit 0
run mpi 2 "$study" "${two[@]}" "${exact[@]}" --block 3 --min-steps 6 --max-steps 6 --scratch recreate --out recreate.h5
expect_exit 0
check "variants ran on the state itself" grep -aq "variants ran on the training state, which was read again from the checkpoint" recreate.h5
check "four steps behind the checkpoint: $(state_of copy.h5)" \
    grep -aq "after $((10#${newest#step-} + 4)) steps: [0-9a-f]\{16\}" copy.h5
check "what variants ruined was read again: $(state_of recreate.h5)" test "$(state_of recreate.h5)" = "$(state_of copy.h5)"
resumes 2 tensor "${two[@]}" --parallel tp=2
check "one step is like the other" awk -v a="$(loss_of same.h5)" -v b="$(loss_of tensor.h5)" \
    'BEGIN { d = a - b; exit !(d < 1e-4 && d > -1e-4) }'
run "$report" tensor.h5
expect_stdout "resume"

# ---- one file for all; files are HDF5's ----
run mpi 2 "$study" "${two[@]}" "${quick[@]}" --checkpoint-dir S --checkpoint-files shared --checkpoint-saves 1 --out s.h5
expect_exit 0
check "one file" test "$(find S -name '*.h5' | wc -l)" = 1
ask 0 "" mpi 2 "$study" "${two[@]}" --resume-from S --validate
ask 0 "" mpi 2 "$study" "${two[@]}" --resume-from D --validate

# ---- refusals ----
mkdir W
(exec 9<W && flock 9 && exec sleep 600) & # as another study that saves in W
other=$!
disown $other
ask 6 "another study saves in W" mpi 2 "$study" "${two[@]}" --checkpoint-dir W
mkdir P
cp -r D P/point-001
ask 6 "where --resume-from P/point-001/$newest is read for the others" mpi 2 "$study" --layout 1x2 --points 1x1,1x2 "${model[@]}" \
    --global-batch 8 --resume-from "P/point-001/$newest" --checkpoint-dir P
ask 6 "its seed is 1 and that of this study is 3" mpi 1 "$study" "${one[@]}" --resume-from D --seed 3
ask 6 "its name is tiny and that of this study is tiny-llama" mpi 1 "$study" --layout 1x1 --model tiny-llama --resume-from D
ask 6 "its vocabulary is" mpi 1 "$study" --layout 1x1 --model vocabulary/tiny.yaml --resume-from D
ask 6 "its learning rate is 0.003 and that of this study is 0.5" mpi 1 "$study" --layout 1x1 --model rate/tiny.yaml --resume-from D
ask 6 "its padding is 0 and that of this study is 0.2" mpi 1 "$study" "${one[@]}" --padding 20% --resume-from D
ask 8 "is no checkpoint" mpi 1 "$study" "${one[@]}" --resume-from .
ask 8 "cannot read nowhere" mpi 1 "$study" "${one[@]}" --resume-from nowhere
ask 6 "other holds checkpoints of another study, whose layers is 1 and that of this one is 2" mpi 1 "$study" "${one[@]}" \
    --resume-from D --checkpoint-dir other
ask 6 "torn holds checkpoints of another study, whose layers is 1 and that of this one is 2" mpi 1 "$study" "${one[@]}" \
    --resume-from D --checkpoint-dir torn # its newest says nothing
ask 6 "unknown holds checkpoints up to step 4, and not one whose manifest can be read" mpi 1 "$study" "${one[@]}" \
    --resume-from D --checkpoint-dir unknown
ask 6 "holds checkpoints up to step" mpi 1 "$study" "${one[@]}" --checkpoint-dir D
ask 6 "wanted --checkpoint-dir" "$study" "${two[@]}" --checkpoint-mode lazy
ask 6 "--checkpoint-every: wanted --checkpoint-dir" "$study" "${two[@]}" --checkpoint-every 5
ask 6 "--checkpoint-files: wanted --checkpoint-dir" "$study" "${two[@]}" --checkpoint-files shared
ask 6 "wanted some of sync,staged,snapshot,lazy" "$study" "${two[@]}" --checkpoint-dir E --checkpoint-mode fast
ask 6 "wanted steps (20), or a time with its unit (30s)" "$study" "${two[@]}" --checkpoint-dir E --checkpoint-every often
ask 5 "subfiled is not in this build" "$study" "${two[@]}" --checkpoint-dir E --checkpoint-files subfiled
ask 5 "computes nothing" mpi 1 "$study" --layout 1x1 --device timed --topology "node:1 gpu:1" --checkpoint-dir E
ask 8 "cannot make" mpi 2 "$study" "${two[@]}" --checkpoint-dir a.h5/x
answers
kill $other
run mpi 2 "$study" "${two[@]}" "${quick[@]}" --checkpoint-dir W --checkpoint-every 2 --test-throttle 1M --out e.h5
expect_exit 6
expect_stderr "--checkpoint-every 2: a save in mode staged takes" "the smallest interval is"

# ---- damage: named, and the one before offered ----
flip() { # FILE OFFSET
    printf '%b' "\\x$(printf %02x $((0x$(od -An -tx1 -j "$2" -N 1 "$1" | tr -d ' ') ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
place=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["shards"][1]["arrays"][1])' "D/$newest/manifest.json")
damaged() { # CODE TEXT COMMAND...: the command makes the newest step of a copy what is then said of it
    local code=$1 text=$2 copy=D.${#asked[@]}
    shift 2
    mkdir "$copy"
    cp -r D/"$previous" D/"$newest" "$copy"
    (cd "$copy/$newest" && "$@")
    ask "$code" "${text//COPY/$copy}" mpi 1 "$study" "${one[@]}" --resume-from "$copy" --validate
}
damaged 8 "rank-00001.h5: moment1 of " flip rank-00001.h5 $((place + 400))
damaged 8 "the one before is there: --resume-from COPY/$previous" flip rank-00001.h5 $((place + 400))
damaged 8 "rank-00000.h5 is damaged or of another save" flip rank-00000.h5 2000
damaged 8 "rank-00000.h5 has 70000 bytes, and" truncate -s 70000 rank-00000.h5
damaged 8 "rank-00001.h5 is missing" rm rank-00001.h5
damaged 8 "rank-00001.h5" cp ../"$previous"/rank-00001.h5 .
damaged 8 "manifest.json is damaged" flip manifest.json 3000
damaged 8 "manifest.json is damaged, or no checkpoint; the one before is there: --resume-from COPY/$previous" truncate -s 0 manifest.json
damaged 5 "is of version 2 and this program reads 1: take a newer build" sed -i 's/"version": 1/"version": 2/' manifest.json
damaged 0 "" rm manifest.json # no longer a checkpoint: the one before is the newest
ask 0 "" mpi 1 "$study" "${one[@]}" --resume-from "D/$previous" --validate
answers

# ---- the folder vanishes while it is saved to: the study ends well, and says it once ----
(while [ ! -e V/step-0000000003 ] && [ ! -e V/saving-0.tmp ]; do sleep 0.02; done
    sleep 0.3
    rm -rf V) &
remover=$!
run mpi 2 "$study" "${two[@]}" "${quick[@]}" --checkpoint-dir V --checkpoint-saves 3 --test-throttle 2M --out v.h5
wait $remover
expect_exit 0
check "said once" test "$(grep -c "checkpoint" "$scratch/stderr")" = 1

# ---- memory is no storage ----
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    shm=$(mktemp -d /dev/shm/scalestudy-cli.XXXXXX)
    run mpi 1 "$study" "${one[@]}" "${quick[@]}" --checkpoint-dir "$shm/c" --checkpoint-saves 1 --out m.h5
    expect_exit 0
    expect_stderr "is on tmpfs: memory, not storage"
    run mpi 1 "$study" "${one[@]}" --check off --run-steps 2 --checkpoint-dir "$shm/r" --out mr.h5
    expect_exit 0
    expect_stderr "is on tmpfs: memory, not storage"
    rm -rf "$shm"
fi

# ---- a host without memory to stage in: before anything is made ----
echo "MemAvailable: 1024 kB" >meminfo
if [ "${IN_NAMESPACE:-}" = yes ] && mount --bind meminfo /proc/meminfo; then
    refuses 6 "stage 0.00 GiB for a save and it has 0.00 GiB available" mpi 2 "$study" "${two[@]}" --checkpoint-dir H
    check "no study" bash -c "! ls scalestudy-*.h5* H 2>/dev/null"
    umount /proc/meminfo
fi

# ---- full, read-only ----
mkdir disk
saved=$(du -sk "D/$newest" | cut -f1) # by two ranks
check "a save has a size" test "$saved" -gt 1000
if [ "${IN_NAMESPACE:-}" = yes ] && mount -t tmpfs -o size=$((saved * 3 / 2))k tmpfs disk; then
    # The files of two saves are made ready.
    run mpi 2 "$study" "${two[@]}" "${quick[@]}" --checkpoint-dir disk/c --out f.h5
    expect_exit 8
    expect_stderr "No space left on device"
    check "one line" test "$(without_launcher | grep -c checkpoint)" = 1
    mount -o remount,size=$((saved * 5 / 2))k disk # two are ready and one is kept: the third cannot be made ready
    run mpi 2 "$study" "${two[@]}" "${quick[@]}" --checkpoint-dir disk/d --checkpoint-keep 0 --out g.h5
    expect_exit 0
    check "said once" test "$(grep -c "checkpoint: .*No space left" "$scratch/stderr")" = 1
    run mpi 1 "$study" "${one[@]}" --resume-from disk/d --validate
    expect_exit 0
    # The files of two fit and what publishes them does not.
    files=$(du -ck "D/$newest"/*.h5 | tail -n 1 | cut -f1)
    rm -rf disk/*
    mount -o remount,size=$((2 * files + 12))k disk
    run mpi 2 "$study" "${two[@]}" "${quick[@]}" --checkpoint-dir disk/p --checkpoint-saves 2 --out p.h5
    expect_exit 0
    expect_stderr "No space left on device: the checkpoint of step" "is lost, none was published before"
    check "said once" test "$(without_launcher | grep -c "checkpoint: ")" = 1
    check "nothing half is left" test -z "$(ls disk/p)"
    mount -o remount,ro disk
    refuses 8 "Read-only file system" mpi 2 "$study" "${two[@]}" --checkpoint-dir disk/e
    umount disk
fi
finish
